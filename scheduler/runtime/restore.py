"""Changelogs to the store, up to the end that was there after `init_transactions`.

By then no transaction of this shard is open and nobody else can write its partitions, so reading to the end of the
committed records gives the whole truth.
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
    from collections.abc import Callable

    from confluent_kafka import Message

    from scheduler.core.calendars import Calendars
    from scheduler.state.store import Store

BATCH = 2_000
SILENCE_S = 15.0  # without a record or an end: something is wrong with the brokers
BOUNDS_S = 5.0  # a question about a topic; a closing shard waits no longer
TAIL = 200  # of the shard topic: its newest record is all that counts, and every step writes one
PROGRESS_EVERY = 100_000


class Restore:
    """Brings one store up to date. `applied` and `foreign` tell what it found."""

    def __init__(self, consumer: Consumer, namespace: str, shard: int, stopped: Callable[[], bool]) -> None:
        self._consumer = consumer
        self._namespace = namespace
        self._shard = shard
        self._stopped = stopped
        self.applied = 0
        self.foreign = 0
        self.commands_end = 0  # of the command topic, once the shard was ours: commands up to here go before catch-up

    def run(self, store: Store, calendars: Calendars = NO_CALENDARS) -> None:
        """Apply every changelog to its end. Raises Retriable for silent brokers, StateCorrupted for bad records."""
        with closing(self._consumer):
            _, self.commands_end = self._bounds(catalog.COMMANDS)
            rebuild = Rebuild(store, self._shard, calendars)
            for topic in ORDER:
                rebuild.begin(topic)
                self._read(rebuild, topic)
            self.foreign = rebuild.foreign
        if self.foreign:
            event("changelog_foreign_records", logging.ERROR, shard=self._shard, count=self.foreign)

    def look(self, store: Store) -> None:
        """Apply the shard record alone, for a question that needs no more."""
        with closing(self._consumer):
            self._read(Rebuild(store, self._shard), catalog.SHARDS)

    def _read(self, rebuild: Rebuild, topic: str) -> None:
        start = rebuild.position(topic)
        low, high = self._bounds(topic)
        if start > high:
            raise StateCorrupted(
                f"the store follows {self._namespace}{topic}/{self._shard} up to {start}, but the topic ends at "
                f"{high}: it lost records or is new. Restore the topic, or delete the store if the topic is right"
            )
        start = max(start, low)
        try:
            if topic == catalog.SHARDS:
                self._read_tail(rebuild, topic, start, high)
            else:
                self._apply(rebuild, topic, start, high)
        except KafkaException as fault:
            raise self._failed(topic, fault) from fault

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
            found = self._apply(rebuild, topic, begin, high)
            if begin == start or (found and not rebuild.lacks_zones):
                return
            if found:  # the zone record is older than that
                rebuild.again(topic)
            span *= 8

    def _apply(self, rebuild: Rebuild, topic: str, start: int, high: int) -> int:
        """Apply records from `start` to the end of what is committed; returns how many there were."""
        if start >= high:
            return 0
        self._consumer.assign([TopicPartition(self._namespace + topic, self._shard, start)])
        count = 0
        silent = 0.0
        while not self._stopped():
            messages = self._consumer.consume(BATCH, 0.2)
            changes: list[Change] = []
            ended = False
            for message in messages:
                error = message.error()
                if error is None:
                    changes.append(_change(message))
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka spells it so
                    # Its offset is behind the markers, which take offsets and are no records.
                    ended = (message.offset() or 0) >= high
                elif not error.retriable():
                    raise KafkaException(error)
            if changes:
                rebuild.apply(topic, changes, changes[-1].offset + 1)
                before = count
                count += len(changes)
                self.applied += len(changes)
                if before // PROGRESS_EVERY != count // PROGRESS_EVERY:
                    event("restore_progress", shard=self._shard, topic=topic, offset=changes[-1].offset, end=high)
            if ended:
                return count
            silent = 0.0 if messages else silent + 0.2
            if silent > SILENCE_S:
                raise Retriable(f"restore of {topic}: no answer from the brokers for {SILENCE_S:.0f} s")
        raise Retriable("restore: stopped")


def _change(message: Message) -> Change:
    step = None
    value = header(message, STEP_HEADER)
    if value is not None and value.isdigit():
        step = int(value)
    return Change(message.offset() or 0, message.key(), message.value(), step)
