"""One partition number of some topics, read from given offsets to the ends that were there when it was asked.

To an end means past it as a committed reader is: behind the last record there may stand markers, which take offsets and
are no records, and an open transaction is waited for.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Protocol, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from scheduler.errors import Retriable
from scheduler.runtime.kafka import BOUNDS_S
from topics.reading import bounds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from confluent_kafka import Consumer, Message

BATCH = 2_000
SILENCE_S = 15.0  # without a record or an end: something is wrong with the brokers
POLL_S = 0.2

Spans = dict[str, tuple[int, int]]  # topic (base name) -> the first offset to read, and the one after the last


class Numbered(Protocol):
    """What is made of a record: it knows where it stood."""

    @property
    def offset(self) -> int: ...


T = TypeVar("T", bound=Numbered)


class PartitionReader:
    """Reads by a consumer of its own, which `close` lets go. `doing` says in errors what for."""

    def __init__(
        self, consumer: Consumer, namespace: str, number: int, doing: str, stopped: Callable[[], bool]
    ) -> None:
        self._consumer = consumer
        self._namespace = namespace
        self._number = number
        self._doing = doing
        self._stopped = stopped
        self._closed = False

    def close(self) -> None:
        """Let go of the brokers."""
        if not self._closed:
            self._closed = True
            self._consumer.close()

    def bounds(self, topic: str) -> tuple[int, int]:
        """The first offset of the partition, and the one after the last. Raises Retriable."""
        name = self._namespace + topic
        try:
            return bounds_of(self._consumer, name, self._number, timeout_s=BOUNDS_S, stopped=self._stopped)
        except KafkaException as fault:
            raise self._failed([topic], _text(fault)) from fault

    def read(self, spans: Spans, make: Callable[[Message], T], batch: int = BATCH) -> Iterator[tuple[str, list[T]]]:
        """Topic by topic what was read, never empty, until the ends of all are reached.

        Raises Retriable for silent or refusing brokers, and when stopped.
        """
        unread = {topic: high for topic, (start, high) in spans.items() if start < high}
        if not unread:
            return
        # Never paused before and never at a logical offset: the client would wait a second after the resume, and would
        # go to where such an offset was found, whatever it was assigned meanwhile.
        self._consumer.assign([self._partition(topic, spans[topic][0]) for topic in unread])
        silent = 0.0
        while unread:
            if self._stopped():
                raise self._failed(unread, "stopped")
            try:
                first = self._consumer.poll(POLL_S)
                messages = [] if first is None else [first, *self._consumer.consume(batch, 0)]
                found, ends = sorted_by_topic(messages, len(self._namespace), make)
            except KafkaException as fault:
                raise self._failed(unread, _text(fault)) from fault
            for topic, made in found.items():
                ends[topic] = max(ends.get(topic, 0), made[-1].offset + 1)
                yield topic, made
            # An end is behind the markers, which take offsets and are no records.
            unread = {topic: high for topic, high in unread.items() if ends.get(topic, 0) < high}
            silent = 0.0 if messages else silent + POLL_S
            if silent > SILENCE_S:
                raise self._failed(unread, f"no answer from the brokers for {SILENCE_S:.0f} s")

    def _partition(self, topic: str, offset: int = 0) -> TopicPartition:
        return TopicPartition(self._namespace + topic, self._number, offset)

    def _failed(self, topics: Iterable[str], why: str) -> Retriable:
        return Retriable(f"{self._doing} {', '.join(self._namespace + topic for topic in topics)}: {why}")


def _text(fault: KafkaException) -> str:
    text: str = fault.args[0].str()
    return text


def sorted_by_topic(
    messages: list[Message], prefix: int, make: Callable[[Message], T]
) -> tuple[dict[str, list[T]], dict[str, int]]:
    """(what is made of the records, ends reached) by base name of the topic, of messages of one partition number.

    `prefix`: length of the namespace. Raises KafkaException for an error that does not pass by itself.
    """
    found: dict[str, list[T]] = defaultdict(list)
    ends: dict[str, int] = {}
    for message in messages:
        error, topic = message.error(), message.topic() or ""
        if error is None:
            found[topic].append(make(message))
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka spells it so
            ends[topic[prefix:]] = message.offset() or 0
        elif not error.retriable():
            raise KafkaException(error)
    return {topic[prefix:]: made for topic, made in found.items()}, ends
