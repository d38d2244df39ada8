"""A small Kafka client for people who speak to the scheduler in Python: send commands, wait for their replies.

Nobody needs it (any producer with Kafka's default partitioner will do), but it gets the easy mistakes right: the
partitioner, idempotent and fully acknowledged writes, read_committed, waiting for the reply. `kafka` is always a
mapping of plain librdkafka settings, `bootstrap.servers` and TLS/SASL included; what correctness rests on is set here
and cannot be overridden. Its consumer has no group: nothing is committed, nothing rebalances.

Errors: `Unreachable` (no broker, or no such topic: wait or repair, then try again), `NotDelivered` (the broker refused
the command), TimeoutError (delivered, but no reply came).
"""

from __future__ import annotations

import itertools
import logging
import re
import time
import uuid
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from topics.catalog import COMMANDS, REPLIES
from topics.codec import Undecodable, decode, encode, with_command_id
from topics.messages import (
    COMMAND_ID_HEADER,
    COMMAND_ID_PATTERN,
    SCHEDULE_ID_PATTERN,
    Command,
    Problem,
    Reply,
)
from topics.reading import COMMON, ends_of, is_error, new_consumer, next_batch, partitions_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from confluent_kafka import Message

log: Final = logging.getLogger("topics.kafka")

AnyCommand = Command | dict[str, Any]
_C = TypeVar("_C", Command, dict[str, Any], AnyCommand)
_Key = tuple[bytes, bytes]  # schedule_id and command_id of a command that waits for its reply

_PRODUCER: Final[dict[str, Any]] = {
    "partitioner": "murmur2_random",  # Kafka's own; librdkafka's default is CRC32
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 5,
    "compression.type": "lz4",
    "retry.backoff.ms": 10,
    "queue.buffering.max.messages": 200_000,
    "delivery.report.only.error": True,
}
_SCHEDULE_ID: Final = re.compile(SCHEDULE_ID_PATTERN).fullmatch
_COMMAND_ID: Final = re.compile(COMMAND_ID_PATTERN).fullmatch


class NotDelivered(RuntimeError):
    """The broker did not take a command; it had no effect."""


class CommandClient:
    """Sends commands and waits for their replies. A context manager; for one thread at a time.

    On entry the end of `scheduler.replies` is looked up, so no reply to a later command can be missed.
    """

    def __init__(self, kafka: Mapping[str, str], *, namespace: str = "", timeout_s: float = 30.0) -> None:
        self._kafka = dict(kafka)
        self._commands = namespace + COMMANDS
        self._replies = namespace + REPLIES
        self._timeout_s = timeout_s
        self._waiting: dict[_Key, deque[AnyCommand]] = {}
        self._refused: KafkaError | None = None
        self._id_prefix = uuid.uuid4().hex
        self._id_numbers = itertools.count(1)

    def __enter__(self) -> Self:
        """Connects. Raises Unreachable."""
        self._consumer = new_consumer(self._kafka)
        try:
            ends = ends_of(self._consumer, self._replies, timeout_s=self._timeout_s)
            partitions_of(self._consumer, self._commands, timeout_s=self._timeout_s)
        except BaseException:
            self._consumer.close()
            raise
        self._consumer.assign([TopicPartition(self._replies, number, end) for number, end in ends.items()])
        settings = {**COMMON, **self._kafka, **_PRODUCER}
        settings |= {"message.timeout.ms": int(self._timeout_s * 1000), "on_delivery": self._delivered}
        self._producer = Producer(settings, logger=log)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._producer.flush(self._timeout_s)
        else:
            self._producer.purge()
        self._consumer.close()

    def send(self, command: AnyCommand) -> Reply:
        """The reply to one command, accepted or rejected. Assigns a `command_id` if there is none.

        Raises NotDelivered, or TimeoutError with what to check. After either, send the same command with the same
        `command_id` again to learn what became of it: it has one effect however often it is sent.
        """
        for _, reply in self.send_many([command]):
            return reply
        raise AssertionError("one command has one reply")  # pragma: no cover

    def send_many(self, commands: Iterable[_C], *, window: int = 20_000) -> Iterator[tuple[_C, Reply]]:
        """Each command with its reply, in the order of the replies; up to `window` are under way at a time.

        What the shards could not reply to (`schedule_id` or `command_id` malformed, or not to be printed as JSON) gets
        a reply from here, code `bad_field`. Raises as `send` does; a timeout is counted from the last reply that came.
        What is still under way when the iterator is closed may or may not take effect.
        """
        self._waiting.clear()
        source = iter(commands)
        under_way, more = 0, True
        deadline = time.monotonic() + self._timeout_s
        while more or under_way:
            while more and under_way < window:
                command = next(source, None)
                if command is None:
                    more = False
                    break
                refusal = self._produce(command)
                if refusal is not None:
                    yield command, refusal
                    continue
                under_way += 1
                if under_way % 500 == 0:
                    break  # let replies in while there is more to send
            self._producer.poll(0)
            self._raise_if_refused()
            # With the window full, or nothing more to send, there is time to wait for replies.
            patience_s = 0.05 if not more or under_way >= window else 0.0
            for answered, reply in self._answers(patience_s):
                under_way -= 1
                deadline = time.monotonic() + self._timeout_s
                yield answered, reply  # type: ignore[misc]  # it was taken from `commands`
            if under_way and time.monotonic() > deadline:
                raise TimeoutError(self._no_reply(under_way))

    def _produce(self, command: AnyCommand) -> Reply | None:
        """Hand the command to the producer; a reply only if it cannot be sent at all."""
        try:
            schedule_id, command_id, value = self._wire(command)
        except (TypeError, ValueError) as error:
            return _refusal(command, str(error))
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._producer.produce(self._commands, value, schedule_id)
                break
            except BufferError:  # librdkafka's queue is full: the broker is slower than we are
                self._producer.poll(0.05)
                self._raise_if_refused()
                if time.monotonic() > deadline:
                    raise TimeoutError(self._no_reply(len(self._waiting))) from None
            except KafkaException as error:
                return _refusal(command, str(error.args[0].str()))  # say, larger than a record may be
        self._waiting.setdefault((schedule_id, command_id), deque()).append(command)
        return None

    def _wire(self, command: AnyCommand) -> tuple[bytes, bytes, bytes]:
        """Key, command id and value. Raises TypeError or ValueError when it cannot be addressed or printed."""
        if isinstance(command, dict):
            command_id = command.get("command_id")
            command = with_command_id(command, self._new_id() if command_id is None else command_id)
            key, id_ = _address(command.get("schedule_id"), command["command_id"])
            return key, id_, msgspec.json.encode(command)
        if command.command_id is None:
            command = msgspec.structs.replace(command, command_id=self._new_id())
        key, id_ = _address(command.schedule_id, command.command_id)
        return key, id_, encode(command)

    def _new_id(self) -> str:
        return f"{self._id_prefix}-{next(self._id_numbers)}"

    def _answers(self, patience_s: float) -> Iterator[tuple[AnyCommand, Reply]]:
        for message in next_batch(self._consumer, patience_s):
            if is_error(message):
                continue
            command_id = dict(message.headers() or []).get(COMMAND_ID_HEADER)
            key = (message.key() or b"", command_id if isinstance(command_id, bytes) else b"")
            waiting = self._waiting.get(key)
            if not waiting:
                continue  # somebody else's, or the second copy of a forwarded one
            try:
                reply = decode(Reply, message.value())
            except Undecodable as error:
                log.warning("reply_undecodable offset=%s why=%s", message.offset(), error.why)
                continue
            command = waiting.popleft()
            if not waiting:
                del self._waiting[key]
            yield command, reply

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None and self._refused is None:
            self._refused = error

    def _raise_if_refused(self) -> None:
        if self._refused is not None:
            error, self._refused = self._refused, None
            raise NotDelivered(
                f"a command was not taken by {self._commands}: {error.str()}; check the brokers, and that this "
                "principal may write to the topic",
            )

    def _no_reply(self, count: int) -> str:
        (schedule_id, command_id) = next(iter(self._waiting), (b"?", b"?"))
        return (
            f"no reply on {self._replies} within {self._timeout_s:g} s; {count} command(s) wait, the first is "
            f"{command_id.decode()!r} for {schedule_id.decode()!r}. Check that a scheduler runs with this namespace "
            "(`scheduler doctor`), and look for the command on scheduler.rejected. Sending it again with the same "
            "command_id is harmless"
        )


def _address(schedule_id: object, command_id: object) -> _Key:
    """The key and id a reply is recognised by. Raises ValueError for what the shards could not reply to."""
    if not isinstance(schedule_id, str) or not _SCHEDULE_ID(schedule_id):
        shown = "missing" if schedule_id is None else f"{schedule_id!r:.80}"
        raise ValueError(f"schedule_id is {shown}; expected <tenant>/<name>, as in acme/nightly-close")
    if not isinstance(command_id, str) or not _COMMAND_ID(command_id):
        raise ValueError(f"command_id is {command_id!r:.80}; expected 1 to 64 letters, digits, '.', '_' or '-'")
    return schedule_id.encode(), command_id.encode()


def _refusal(command: AnyCommand, why: str) -> Reply:
    """What the shard would answer, had it been possible to ask it."""
    fields = command if isinstance(command, dict) else msgspec.structs.asdict(command)
    return Reply(
        command=str(fields.get("command") or ""),
        schedule_id=str(fields.get("schedule_id") or ""),
        command_id=str(fields.get("command_id") or ""),
        status="rejected",
        code="bad_field",
        message=f"not sent: {why}",
        at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        errors=[Problem(field=why.split(" ", 1)[0], code="bad_field", message=why)],
    )
