"""Reading topics as plain values: compacted ones whole, others as records arrive. Committed records only, no group.

`kafka` is always a mapping of plain librdkafka settings, `bootstrap.servers` and TLS/SASL included; what correctness
rests on is set here and cannot be overridden. Nothing is committed, nothing rebalances.

Errors: `Unreachable` (no broker, or no such topic: wait or repair, then try again), TimeoutError (it fell silent).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from topics.messages import STEP_HEADER
from topics.partition import partition_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from confluent_kafka import Message

log: Final = logging.getLogger("topics.kafka")

COMMON: Final[dict[str, Any]] = {
    "reconnect.backoff.max.ms": 2000,
    "client.id": "kafka-streaming-scheduler-client",
}
_CONSUMER: Final[dict[str, Any]] = {
    "group.id": "kafka-streaming-scheduler-client",  # asked for by librdkafka, never joined
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 100,
    "allow.auto.create.topics": False,
}

# Waiting does not help. Everything else may pass: a topic is new, a leader dead, a connection was given up.
_LASTING: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - the client's own constants
        KafkaError._SSL,  # noqa: SLF001
        KafkaError._INVALID_ARG,  # noqa: SLF001
    }
)
_SILENCE: Final = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT})  # noqa: SLF001 - these took their time
_ASK_S: Final = 1.0  # for one answer, before it is looked who leads now
_PAUSE_S: Final = 0.05  # after a refusal that came at once


class Unreachable(ConnectionError):
    """No broker answered, or a topic is not there. The text says which, and what to do."""


class Record(NamedTuple):
    """One committed record. `append_ms` is its timestamp (the broker's, on topics with LogAppendTime)."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    append_ms: int


def read_compacted(
    kafka: Mapping[str, str],
    topic: str,
    *,
    key: bytes | None = None,
    written_by_shards: bool = False,
    one_by_one: bool = False,
    timeout_s: float = 30.0,
) -> Iterator[tuple[bytes | None, bytes | None, int, int]]:
    """Every record (key, value, partition, offset) up to the end at the time of the call, in order per partition.

    Compaction is lazy, so a key may come several times: the last one counts, a value of None deletes it. With `key`
    only the partition of that owner key is read. `written_by_shards` passes over what somebody else put on a changelog
    (schedules, live, shards), as the shards do when they restore. `one_by_one`: one partition is read to its end before
    the next begins, so that what is folded need not all be held at once. Raises Unreachable, or TimeoutError when
    nothing came for `timeout_s`.
    """
    consumer = new_consumer(kafka, **({"fetch.wait.max.ms": 10} if one_by_one else {}))  # an end costs a wait each
    try:
        ends = ends_of(consumer, topic, timeout_s=timeout_s)
        if key is not None:
            mine = partition_for(key, len(ends))
            ends = {mine: ends[mine]}
        filled = sorted(number for number, end in ends.items() if end > 0)
        for unread in [{number} for number in filled] if one_by_one else [set(filled)]:
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in sorted(unread)])
            for message in _to_their_ends(consumer, topic, unread, ends, timeout_s):
                if not written_by_shards or _has_step(message):
                    yield message.key(), message.value(), message.partition() or 0, message.offset() or 0
    finally:
        consumer.close()


def _to_their_ends(
    consumer: Consumer, topic: str, unread: set[int], ends: Mapping[int, int], timeout_s: float
) -> Iterator[Message]:
    """The records of the assigned partitions before their `ends`. Raises TimeoutError."""
    deadline = time.monotonic() + timeout_s
    while unread:
        for message in next_batch(consumer, 0.1):
            deadline = time.monotonic() + timeout_s
            number, offset = message.partition(), message.offset()
            if number is None or offset is None or number not in unread:
                continue
            error = message.error()
            if error is not None:
                # The end as a committed reader sees it: transaction markers take offsets but are no records.
                if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own constant
                    unread.discard(number)
                continue
            if offset < ends[number]:
                yield message
            if offset >= ends[number] - 1:
                unread.discard(number)
        if unread and time.monotonic() > deadline:
            raise TimeoutError(
                f"partitions {sorted(unread)} of {topic} gave nothing for {timeout_s:g} s before their end; "
                "check the brokers",
            )


def follow(
    kafka: Mapping[str, str],
    topics: Sequence[str],
    *,
    from_beginning: bool = False,
    stop: Callable[[], bool] = lambda: False,
    timeout_s: float = 30.0,
) -> Iterator[Record]:
    """Committed records of `topics` as they arrive, from now (or from the beginning) until `stop()` says so.

    `stop` is asked at least every 0.2 s. "Now" is fixed when the first record is asked for. Raises Unreachable.
    """
    consumer = new_consumer(kafka)
    try:
        assigned = []
        for topic in topics:
            for number, end in ends_of(consumer, topic, timeout_s=timeout_s).items():
                assigned.append(TopicPartition(topic, number, OFFSET_BEGINNING if from_beginning else end))
        consumer.assign(assigned)
        while not stop():
            for message in next_batch(consumer, 0.2):
                if not is_error(message):
                    yield Record(
                        topic=message.topic() or "",
                        partition=message.partition() or 0,
                        offset=message.offset() or 0,
                        key=message.key(),
                        value=message.value(),
                        append_ms=message.timestamp()[1],
                    )
    finally:
        consumer.close()


def new_consumer(kafka: Mapping[str, str], **settings: Any) -> Consumer:
    """A consumer without a group: assign it what it is to read, close it afterwards. `settings` win over ours."""
    return Consumer({**COMMON, **kafka, **_CONSUMER, **settings}, logger=log)


def next_batch(consumer: Consumer, patience_s: float) -> list[Message]:
    """What has arrived, after waiting for the first of it at most `patience_s`.

    The client's own `consume` would wait the whole time for its batch to fill.
    """
    first = consumer.poll(patience_s)
    return [] if first is None else [first, *consumer.consume(2000, 0)]


def partitions_of(consumer: Consumer, topic: str, *, timeout_s: float) -> list[int]:
    """The partitions of a topic, ascending. Raises Unreachable."""
    try:
        found = consumer.list_topics(topic, timeout_s).topics[topic]
    except KafkaException as error:
        raise Unreachable(
            f"no broker answered within {timeout_s:g} s ({error.args[0].str()}); check bootstrap.servers and the "
            "security settings",
        ) from None
    if found.error is not None or not found.partitions:
        why = found.error.str() if found.error is not None else "it has no partitions"
        raise Unreachable(f"topic {topic}: {why}; check the namespace, or create it with `scheduler topics apply`")
    return sorted(found.partitions)


def bounds_of(
    consumer: Consumer, topic: str, number: int, *, timeout_s: float, stopped: Callable[[], bool] = lambda: False
) -> tuple[int, int]:
    """The first offset of a partition, and the one after the last that this consumer may read.

    A client goes on asking the leader it knows, were it dead *(librdkafka 2.16: as long as it is told to)*; only a look
    at the topic shows it another one. Not to be asked while records are awaited: they may get lost.

    Raises KafkaException when there is no answer for about `timeout_s`, `stopped` says so, or waiting does not help.
    """
    partition, left_s = TopicPartition(topic, number), timeout_s
    while True:
        refusal = KafkaError(KafkaError._TIMED_OUT, "no answer from the brokers")  # noqa: SLF001
        try:
            found = consumer.get_watermark_offsets(partition, timeout=min(_ASK_S, timeout_s))
            if found is not None:
                return found
        except KafkaException as fault:
            refusal = fault.args[0]
        # Counted, not measured: time is the consumer's own affair, and in a simulation not the machine's.
        left_s -= _ASK_S if refusal.code() in _SILENCE else _PAUSE_S
        if refusal.code() in _LASTING or left_s <= 0 or stopped():
            raise KafkaException(refusal)
        consumer.poll(_PAUSE_S)
        left_s -= _look(consumer, topic, number)


def _look(consumer: Consumer, topic: str, number: int) -> float:
    """Let the client see who leads the partition; returns the seconds that took.

    Raises KafkaException when there is no such partition, or it may not be seen.
    """
    try:
        found = consumer.list_topics(topic, timeout=_ASK_S).topics[topic]
    except KafkaException:
        return _ASK_S
    if found.error is not None and found.error.code() in _LASTING | {KafkaError.UNKNOWN_TOPIC_OR_PART}:
        raise KafkaException(found.error)
    if found.error is None and number not in found.partitions:
        raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION, "there is no such partition"))  # noqa: SLF001
    return _PAUSE_S


def ends_of(consumer: Consumer, topic: str, *, timeout_s: float) -> dict[int, int]:
    """Partition -> the offset after its last record. Raises Unreachable."""
    numbers = partitions_of(consumer, topic, timeout_s=timeout_s)
    return {number: end_of(consumer, topic, number, timeout_s=timeout_s) for number in numbers}


def end_of(consumer: Consumer, topic: str, number: int, *, timeout_s: float) -> int:
    """The offset after the last record of one partition. Raises Unreachable."""
    try:
        return bounds_of(consumer, topic, number, timeout_s=timeout_s)[1]
    except KafkaException as fault:
        text = f"the end of {topic}/{number} cannot be read: {fault.args[0].str()}"
        raise Unreachable(f"{text}; check the brokers") from None


def _has_step(message: Message) -> bool:
    headers: Any = message.headers()  # a list of pairs, whatever the stubs allow besides
    return any(name == STEP_HEADER for name, _ in headers or ())


def is_error(message: Message) -> bool:
    """Whether this is no record; the end of a partition is not worth a line in the log, everything else is."""
    error = message.error()
    if error is None:
        return False
    if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own constant
        log.warning("consumer_error topic=%s code=%s text=%s", message.topic(), error.name(), error.str())
    return True
