"""Changelogs to the store, up to the end that was there after `init_transactions`.

By then no transaction of this shard is open and nobody else can write its partitions, so reading to the end of the
committed records gives the whole truth. A standby reads in the same way while somebody else owns the shard: what it
has then is the truth of a moment ago, and the owner it hands the store to reads the rest.
"""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from scheduler.core.calendars import NO_CALENDARS
from scheduler.errors import Retriable, StateCorrupted
from scheduler.runtime.kafka import header
from scheduler.runtime.telemetry import event
from scheduler.shard.rebuild import ORDER, Change, Rebuild
from topics import catalog
from topics.messages import STEP_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import Message

    from scheduler.core.calendars import Calendars
    from scheduler.state.store import Store

BATCH = 2_000
SHORT = 5_000  # records in all three topics that are read at once: one way to the brokers instead of three
SILENCE_S = 15.0  # without a record or an end: something is wrong with the brokers
BOUNDS_S = 5.0  # a question about a topic; a closing shard waits no longer
POLL_S = 0.2
TAIL = 200  # of the shard topic: its newest record is all that counts, and every step writes one
PROGRESS_EVERY = 100_000

Spans = dict[str, tuple[int, int]]  # topic (base name) -> the first offset to read, and the one after the last


class Outlived(StateCorrupted):
    """The topics have dropped records that the store has not seen: only an empty store can be brought up to date."""


class Restore:
    """Brings one store up to date. `applied` and `foreign` tell what it found."""

    def __init__(
        self, consumer: Consumer, namespace: str, shard: int, stopped: Callable[[], bool], batch: int = BATCH
    ) -> None:
        self._consumer = consumer
        self._namespace = namespace
        self._shard = shard
        self._stopped = stopped
        self._batch = batch
        self._closed = False
        self.applied = 0
        self.foreign = 0
        self.commands_end = 0  # of the command topic, once the shard was ours: commands up to here go before catch-up

    def close(self) -> None:
        """Let go of the brokers; `run` and `look` do so themselves."""
        if not self._closed:
            self._closed = True
            self._consumer.close()

    def run(self, store: Store, calendars: Calendars = NO_CALENDARS) -> Rebuild:
        """Apply every changelog to its end.

        Raises Retriable for silent brokers and when stopped, StateCorrupted for bad records, Outlived.
        """
        with closing(self):
            _, self.commands_end = self._bounds(catalog.COMMANDS)
            rebuild = Rebuild(store, self._shard, calendars)
            spans = {topic: self._span(rebuild, topic) for topic in ORDER}
            if sum(high - start for start, high in spans.values()) <= SHORT:
                self._read_short(rebuild, spans)
            else:
                for topic in ORDER:
                    self._read(rebuild, topic)
            self.foreign = rebuild.foreign
        if self.foreign:
            event("changelog_foreign_records", logging.ERROR, shard=self._shard, count=self.foreign)
        return rebuild

    def look(self, store: Store) -> None:
        """Apply the shard record alone, for a question that needs no more."""
        with closing(self):
            self._read(Rebuild(store, self._shard), catalog.SHARDS)

    def _partition(self, topic: str, offset: int) -> TopicPartition:
        return TopicPartition(self._namespace + topic, self._shard, offset)

    def _read_short(self, rebuild: Rebuild, spans: Spans) -> None:
        found: dict[str, list[Change]] = {topic: [] for topic in ORDER}
        for topic, changes in self._records(spans):
            found[topic] += changes
        for topic in ORDER:
            if found[topic]:
                self._apply(rebuild, topic, found[topic])

    def _read(self, rebuild: Rebuild, topic: str) -> None:
        start, high = self._span(rebuild, topic)  # anew: by now there may be more
        if topic == catalog.SHARDS:
            self._read_tail(rebuild, topic, start, high)
        else:
            self._apply_all(rebuild, topic, start, high)

    def _span(self, rebuild: Rebuild, topic: str) -> tuple[int, int]:
        """What of a topic the store lacks."""
        start = rebuild.position(topic)
        low, high = self._bounds(topic)
        name = f"{self._namespace}{topic}/{self._shard}"
        if start > high:
            raise StateCorrupted(
                f"the store follows {name} up to {start}, but the topic ends at {high}: it lost records or is new. "
                "Restore the topic, or delete the store if the topic is right"
            )
        if 0 < start < low:
            raise Outlived(f"the store follows {name} up to {start}, but the topic begins at {low}: it is made anew")
        return max(start, low), high

    def _bounds(self, topic: str) -> tuple[int, int]:
        """The first offset of this shard's partition, and the one after the last."""
        try:
            found = self._consumer.get_watermark_offsets(
                TopicPartition(self._namespace + topic, self._shard), timeout=BOUNDS_S
            )
        except KafkaException as fault:
            raise self._failed(topic, fault) from fault
        if found is None:
            raise Retriable(f"restore of {self._namespace}{topic}: no answer from the brokers")
        return found

    def _failed(self, topic: str, fault: KafkaException) -> Retriable:
        return Retriable(f"restore of {self._namespace}{topic}: {fault.args[0].str()}")

    def _read_tail(self, rebuild: Rebuild, topic: str, start: int, high: int) -> None:
        """The newest record of the shard topic, found from its end backwards."""
        span = TAIL
        while True:
            begin = max(start, high - span)
            found = self._apply_all(rebuild, topic, begin, high)
            if begin == start or (found and not rebuild.lacks_zones):
                return
            if found:  # the zone record is older than that
                rebuild.again(topic)
            span *= 8

    def _apply_all(self, rebuild: Rebuild, topic: str, start: int, high: int) -> int:
        """Apply records from `start` to the end of what is committed; returns how many there were."""
        count = 0
        for _, changes in self._records({topic: (start, high)}):
            self._apply(rebuild, topic, changes)
            before = count
            count += len(changes)
            if before // PROGRESS_EVERY != count // PROGRESS_EVERY:
                done = changes[-1].offset + 1 - start
                event("restore_progress", shard=self._shard, topic=topic, done=done, total=high - start)
        return count

    def _apply(self, rebuild: Rebuild, topic: str, changes: list[Change]) -> None:
        rebuild.apply(topic, changes, changes[-1].offset + 1)
        self.applied += len(changes)

    def _records(self, spans: Spans) -> Iterator[tuple[str, list[Change]]]:
        """Topic by topic what was read, never empty, until the ends of all are reached."""
        unread = {topic: high for topic, (start, high) in spans.items() if start < high}
        if not unread:
            return
        # Never paused before and never at a logical offset: the client would wait a second after the resume, and would
        # go to where such an offset was found, whatever it was assigned meanwhile.
        self._consumer.assign([self._partition(topic, spans[topic][0]) for topic in unread])
        silent = 0.0
        while unread:
            if self._stopped():
                raise Retriable("restore: stopped")
            try:
                first = self._consumer.poll(POLL_S)
                messages = [] if first is None else [first, *self._consumer.consume(self._batch, 0)]
                found, ends = sorted_by_topic(messages, len(self._namespace))
            except KafkaException as fault:
                raise self._failed(", ".join(unread), fault) from fault
            for topic, changes in found.items():
                ends[topic] = max(ends.get(topic, 0), changes[-1].offset + 1)
                yield topic, changes
            # An end is behind the markers, which take offsets and are no records.
            unread = {topic: high for topic, high in unread.items() if ends.get(topic, 0) < high}
            silent = 0.0 if messages else silent + POLL_S
            if silent > SILENCE_S:
                raise Retriable(f"restore of {', '.join(unread)}: no answer from the brokers for {SILENCE_S:.0f} s")


def sorted_by_topic(messages: list[Message], prefix: int) -> tuple[dict[str, list[Change]], dict[str, int]]:
    """(changes, ends reached) by base name of the topic, of one shard's messages; `prefix`: length of the namespace.

    Raises KafkaException for an error that does not pass by itself.
    """
    changes: dict[str, list[Change]] = {}
    ends: dict[str, int] = {}
    for message in messages:
        error = message.error()
        topic = (message.topic() or "")[prefix:]
        if error is None:
            changes.setdefault(topic, []).append(change_of(message))
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka spells it so
            ends[topic] = message.offset() or 0
        elif not error.retriable():
            raise KafkaException(error)
    return changes, ends


def change_of(message: Message) -> Change:
    """A changelog record as the rebuild takes it."""
    step = None
    value = header(message, STEP_HEADER)
    if value is not None and value.isdigit():
        step = int(value)
    return Change(message.offset() or 0, message.key(), message.value(), step)
