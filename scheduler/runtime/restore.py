"""Changelogs to the store, up to the end that was there after `init_transactions`.

By then no transaction of this shard is open and nobody else can write its partitions, so reading to the end of the
committed records gives the whole truth. An owner makes sure of the former: brokers have been seen to lose a marker, by
which one transaction is committed in some topics and not in others. A standby reads in the same way while somebody else
owns the shard: what it has then is the truth of a moment ago, and the owner it hands the store to reads the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import TYPE_CHECKING

from scheduler.core.calendars import NO_CALENDARS
from scheduler.errors import Retriable, StateCorrupted
from scheduler.runtime.clock import Deadline
from scheduler.runtime.kafka import header
from scheduler.runtime.reading import BATCH, PartitionReader, Spans
from scheduler.runtime.telemetry import event
from scheduler.shard.rebuild import ORDER, Change, Rebuild
from topics import catalog
from topics.messages import STEP_HEADER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Condition

    from confluent_kafka import Consumer, Message

    from scheduler.core.calendars import Calendars
    from scheduler.state.store import Store

SHORT = 5_000  # records in all three topics that are read at once: one way to the brokers instead of three
LONG = 50_000  # records to be read that others wait for: a second
TAIL = 200  # of the shard topic: its newest record is all that counts, and every step writes one
PROGRESS_EVERY = 100_000
GATE_S = 0.2  # between looks whether to stop
SETTLING_S = 0.05  # between looks at what is still open
MARKERS_S = 5.0  # after a transaction was decided, until every partition has heard of it


# Topics, partition, whether to give up -> the offsets behind all that is there.
Ends = Callable[[list[str], int, Callable[[], bool]], dict[str, int]]


class Outlived(StateCorrupted):
    """The topics have dropped records that the store has not seen: only an empty store can be brought up to date."""


class Hanging(StateCorrupted):
    """The brokers hold a transaction open that nobody will end: what it decided would be decided again."""


class Gate:
    """Lets one long restore of a process through at a time.

    They would share one interpreter: together all would be done at the end, one by one the first serves soon.
    """

    def __init__(self, free: Condition) -> None:
        self._free = free
        self._taken = False

    @contextmanager
    def passed(self, stopped: Callable[[], bool]) -> Iterator[None]:
        """To be entered when nobody else is inside. Raises Retriable when stopped before."""
        with self._free:
            while self._taken:
                if stopped():
                    raise Retriable("stopped")
                self._free.wait(GATE_S)
            self._taken = True
        try:
            yield
        finally:
            with self._free:
                self._taken = False
                self._free.notify()


class Restore:
    """Brings one store up to date. `applied` and `foreign` tell what it found. `gate`: shared with other restores."""

    def __init__(
        self,
        consumer: Consumer,
        namespace: str,
        shard: int,
        stopped: Callable[[], bool],
        *,
        gate: Gate | None = None,
        batch: int = BATCH,
    ) -> None:
        self._gate = gate
        self._reader = PartitionReader(consumer, namespace, shard, "restore of", stopped)
        self._namespace = namespace
        self._shard = shard
        self._stopped = stopped
        self._batch = batch
        self.applied = 0
        self.foreign = 0
        self.commands_end = 0  # of the command topic, once the shard was ours: commands up to here go before catch-up

    def close(self) -> None:
        """Let go of the brokers; `run` and `look` do so themselves."""
        self._reader.close()

    def await_settled(
        self, ends: Ends, timeout_ms: int, monotonic: Callable[[], float], pause: Callable[[float], object]
    ) -> None:
        """For an owner, before anything else: until all changelogs are committed up to where they end now.

        Nothing of the shard is open any more, so that is at once; or we are the owner no longer, and wait for a step of
        another one. Raises Hanging when no step can be open for so long: `timeout_ms` is that of transactions.
        """
        patience = Deadline(timeout_ms / 1000 + MARKERS_S, monotonic)
        names = {self._namespace + topic: topic for topic in ORDER}
        open_ones = ends([*names], self._shard, self._stopped)
        while True:
            committed = {name: self._reader.bounds(names[name])[1] for name in open_ones}
            open_ones = {name: end for name, end in open_ones.items() if committed[name] < end}
            if not open_ones:
                return
            if self._stopped():
                raise Retriable("stopped")
            if not patience.left():
                places = (
                    f"--topic {name} --partition {self._shard} --start-offset {committed[name]}" for name in open_ones
                )
                raise Hanging(
                    "the brokers hold a transaction open here although none of this shard is; what it decided would be "
                    "decided again. End it by `kafka-transactions.sh --bootstrap-server ... abort` with "
                    f"{', with '.join(places)}. What it dispatched may then come again, under the same occurrence_id"
                )
            pause(SETTLING_S)

    def run(self, store: Store, calendars: Calendars = NO_CALENDARS) -> Rebuild:
        """Apply every changelog to its end.

        Raises Retriable for silent brokers and when stopped, StateCorrupted for bad records, Outlived.
        """
        with closing(self):
            _, self.commands_end = self._reader.bounds(catalog.COMMANDS)
            rebuild = Rebuild(store, self._shard, calendars)
            spans = {topic: self._span(rebuild, topic) for topic in ORDER}
            count = sum(high - start for start, high in spans.values())
            if count <= SHORT:
                self._read_short(rebuild, spans)
            else:
                start, high = spans[catalog.SHARDS]
                with self._turn(count - max(0, high - start - TAIL)):
                    for topic in ORDER:
                        self._read(rebuild, topic)
            self.foreign = rebuild.foreign
        if self.foreign:
            event("changelog_foreign_records", logging.ERROR, shard=self._shard, count=self.foreign)
        return rebuild

    def _turn(self, count: int) -> AbstractContextManager[None]:
        """To be inside while so many records are read."""
        if self._gate is None or count <= LONG:
            return nullcontext()
        return self._gate.passed(self._stopped)

    def look(self, store: Store) -> None:
        """Apply the shard record alone, for a question that needs no more."""
        with closing(self):
            self._read(Rebuild(store, self._shard), catalog.SHARDS)

    def _read_short(self, rebuild: Rebuild, spans: Spans) -> None:
        found: dict[str, list[Change]] = {topic: [] for topic in ORDER}
        for topic, changes in self._reader.read(spans, change_of, self._batch):
            found[topic] += changes
        for topic in ORDER:
            if found[topic]:
                self._apply(rebuild, topic, found[topic])
            if topic == catalog.SHARDS:
                rebuild.whole()

    def _read(self, rebuild: Rebuild, topic: str) -> None:
        start, high = self._span(rebuild, topic)  # anew: by now there may be more
        if topic == catalog.SHARDS:
            self._read_tail(rebuild, topic, start, high)
            rebuild.whole()
        else:
            self._apply_all(rebuild, topic, start, high)

    def _span(self, rebuild: Rebuild, topic: str) -> tuple[int, int]:
        """What of a topic the store lacks."""
        start = rebuild.position(topic)
        low, high = self._reader.bounds(topic)
        name = f"{self._namespace}{topic}/{self._shard}"
        if start > high:
            raise StateCorrupted(
                f"the store follows {name} up to {start}, but the topic ends at {high}: it lost records or is new. "
                "Restore the topic, or delete the store if the topic is right"
            )
        if 0 < start < low:
            raise Outlived(f"the store follows {name} up to {start}, but the topic begins at {low}: it is made anew")
        return max(start, low), high

    def _read_tail(self, rebuild: Rebuild, topic: str, start: int, high: int) -> None:
        """The newest record of the shard topic and those beside it, found from its end backwards."""
        span = TAIL
        while True:
            begin = max(start, high - span)
            found = self._apply_all(rebuild, topic, begin, high)
            if begin == start or (found and not rebuild.is_partial):
                return
            if found:  # the zone record or the lags are older than that
                rebuild.again(topic)
            span *= 8

    def _apply_all(self, rebuild: Rebuild, topic: str, start: int, high: int) -> int:
        """Apply records from `start` to the end of what is committed; returns how many there were."""
        count = 0
        for _, changes in self._reader.read({topic: (start, high)}, change_of, self._batch):
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


def change_of(message: Message) -> Change:
    """A changelog record as the rebuild takes it."""
    step = header(message, STEP_HEADER)
    number = int(step) if step is not None and step.isdigit() else None
    return Change(message.offset() or 0, message.key(), message.value(), number)
