"""Kafka clients as the shell uses them: their settings, and their errors as ours."""

from __future__ import annotations

import logging
from threading import Lock
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from scheduler.errors import Fenced, Retriable
from topics.reading import bounds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import Message

    from scheduler.config import Settings

COMPANY_S = 2.0
FILL_MS = 300  # a shard's batches fill for so long, unless a commit sends them at once, as one always does (ADR 0032)
BATCH_BYTES = 1_000_000  # of a shard's producer: what brokers take as one unless they are told otherwise
BOUNDS_S = 10.0  # for where a partition ends: longer than it takes until another broker leads what a dead one led

client_log = logging.getLogger("kafka")

_FENCED = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001 - librdkafka's local codes are spelled so
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)


def reaction_to(fault: KafkaException, doing: str) -> Fenced | Retriable:
    """What a failed transactional call means for the shard: another owner, or unknown and to be read again."""
    error = fault.args[0]
    text = f"{doing}: {error.str()} ({error.name()})"
    return Fenced(text) if error.code() in _FENCED else Retriable(text)


def group_id(namespace: str) -> str:
    """The consumer group whose partitions are the shards."""
    return f"{namespace}scheduler"


def transactional_producer(settings: Settings, shard: int) -> Producer:
    """The one producer of a shard; its stable id fences whoever had it before."""
    return _producer(
        settings,
        {
            "transactional.id": f"{settings.namespace}shard-{shard}",
            "transaction.timeout.ms": settings.transaction_timeout_ms,
            "linger.ms": FILL_MS,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 2_097_151,
            "batch.size": BATCH_BYTES,
            "delivery.report.only.error": False,
        },
    )


def plain_producer(settings: Settings) -> Producer:
    """For probes and forwarded commands: not part of any transaction."""
    return _producer(settings, {"enable.idempotence": True, "linger.ms": 0, "acks": "all"})


def _producer(settings: Settings, more: Mapping[str, Any]) -> Producer:
    config = {**settings.client_config(), "partitioner": "murmur2_random", **more}
    return Producer(config, logger=client_log)


def command_consumer(settings: Settings, on_commit: Callable[..., None]) -> Consumer:
    """The process's one consumer; owning a partition of the command topic is owning a shard.

    `on_commit(error, partitions)` is called from its poll with the coordinator's answer to each commit.
    """
    return Consumer(
        {
            **settings.client_config(),
            "group.id": group_id(settings.namespace),
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": settings.session_timeout_ms,
            "heartbeat.interval.ms": settings.heartbeat_interval_ms,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "on_commit": on_commit,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            "queued.max.messages.kbytes": 32_768,
            "allow.auto.create.topics": False,
        },
        logger=client_log,
    )


def changelog_consumer(settings: Settings) -> Consumer:
    """Reads changelogs from a given offset to their end; never commits."""
    return Consumer(
        {
            **settings.client_config(),
            "group.id": f"{settings.namespace}scheduler-restore",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            # Some batches ahead are enough; with a full queue the client would rest a second before it fetches on.
            "queued.min.messages": 20_000,
            "queued.max.messages.kbytes": 16_384,
            "fetch.queue.backoff.ms": 20,
            "allow.auto.create.topics": False,
        },
        logger=client_log,
    )


def changelog_follower(settings: Settings) -> Consumer:
    """Follows changelogs of several shards from given offsets; the brokers gather what comes, since nobody waits."""
    return Consumer(
        {
            **settings.client_config(),
            "group.id": f"{settings.namespace}scheduler-standby",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",  # a position that is gone says that the copy is worth nothing
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 200,
            "fetch.min.bytes": 65_536,
            "queued.max.messages.kbytes": 8_192,
            "allow.auto.create.topics": False,
        },
        logger=client_log,
    )


def reader_of_everything(settings: Settings) -> Consumer:
    """Is asked where partitions end, open transactions included; reads nothing, and nobody polls it for its logs."""
    return Consumer(
        {
            **settings.client_config(),
            "group.id": f"{settings.namespace}scheduler-ends",  # asked for, never joined
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",
            "allow.auto.create.topics": False,
            "log_level": 0,
        }
    )


class Inquiry:
    """Questions to the brokers, by two clients that are kept for all of them; safe to use by several threads.

    A consumer is asked where partitions end, and asked again (see `bounds_of`); an `AdminClient` everything else. A new
    client drops its connection to the address it was given once it knows the brokers. What it was asked meanwhile is
    lost with it, and asked again after one to three seconds *(librdkafka 2.16: 79 of 800 on a busy machine)*. A look at
    the topics waits for a connection that stays *(none of 800)*, so the `AdminClient` begins with one.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._kept: AdminClient | None = None
        self._reader: Consumer | None = None

    def client(self, seconds: float) -> AdminClient:
        """The client, connected in so many seconds. Raises KafkaException when no broker answers."""
        with self._lock:
            kept = self._kept
        return kept or self._connected(None, seconds)

    def _connected(self, refused: AdminClient | None, seconds: float) -> AdminClient:
        """A new client, in place of the one that was refused; or the one that another thread made meanwhile."""
        with self._lock:
            if self._kept is not None and self._kept is not refused:
                return self._kept
        config: dict[str, Any] = self._settings.client_config()
        # Without its logs, which would wait in memory for somebody to poll it. The other clients say the same.
        made = AdminClient({**config, "log_level": 0})
        made.list_topics(timeout=seconds)
        with self._lock:
            if self._kept is None or self._kept is refused:
                self._kept = made
            return self._kept

    def has_company(self) -> bool:
        """Whether another node has members in the group; False if the brokers do not say soon."""
        try:
            found = self._members()
        except (KafkaException, TimeoutError):
            return False
        return any(member.client_id != self._settings.node_id for member in found)

    def _members(self) -> list[Any]:
        """Raises KafkaException, TimeoutError.

        A client does not notice by itself that the group has another coordinator, and asks the former one for ever:
        when it is refused, a new one is asked.
        """
        group = group_id(self._settings.namespace)
        asked = self.client(COMPANY_S)
        try:
            return _members_of(asked, group)
        except (KafkaException, TimeoutError):
            return _members_of(self._connected(asked, COMPANY_S), group)

    def ends(self, topics: list[str], number: int, stopped: Callable[[], bool]) -> dict[str, int]:
        """Where partition `number` of each topic ends for a reader of everything, open transactions included.

        Raises Retriable.
        """
        try:
            reader = self._reader_of_everything()
            return {one: bounds_of(reader, one, number, timeout_s=BOUNDS_S, stopped=stopped)[1] for one in topics}
        except KafkaException as fault:
            raise Retriable(f"ends of partition {number} of {', '.join(topics)}: {fault.args[0].str()}") from fault

    def _reader_of_everything(self) -> Consumer:
        with self._lock:
            if self._reader is None:
                self._reader = reader_of_everything(self._settings)
            return self._reader


def _members_of(client: AdminClient, group: str) -> list[Any]:
    asked = client.describe_consumer_groups([group], request_timeout=COMPANY_S)
    return list(asked[group].result(COMPANY_S).members)


def header(message: Message, name: str) -> bytes | None:
    """The value of a record's header; None if it has none."""
    headers: Any = message.headers()  # a list of pairs, whatever the stubs allow besides
    for key, value in headers or ():
        if key == name and isinstance(value, bytes):
            return value
    return None
