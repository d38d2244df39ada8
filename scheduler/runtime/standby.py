"""Warm copies: each node follows the changelogs of the shards that other nodes own, so that a takeover reads a tail.

One thread and one consumer a process. The shards of a node are dealt out to its processes by number; what is kept up to
date is the store that an owner on this node would open (`stores.py`), by the code that restores it (`rebuild.py`):

    begin    nobody on this node owns the shard, for a while: open its store, restore it as far as the topics go
    follow   a few times a second: apply what came; now and then: derive anew what the shard has fired meanwhile
    let go   an owner on this node, of this process or another, has put its mark beside the store: close it at once

The owner then reads what is left, after `init_transactions` as ever: a standby decides nothing and is never believed.
Whatever goes wrong here ends one copy, with an alarm, and it is begun again after a while; never the process.

Of one transaction the records of one topic may show before those of another. Records of a step beyond the shard record
therefore wait until that has come, as a restore, too, knows the shard record first.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from confluent_kafka import TopicPartition

from scheduler.core.zones import tz_version
from scheduler.errors import Retriable, StoreDamaged
from scheduler.runtime.reading import sorted_by_topic
from scheduler.runtime.restore import Outlived, Restore, change_of
from scheduler.runtime.stores import STORE_LIFE_MS, note_whole
from scheduler.runtime.telemetry import event
from scheduler.shard import keys
from scheduler.shard.rebuild import ORDER, Change, Rebuild
from scheduler.state.store import MemoryStore
from topics import catalog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Consumer, Message

    from scheduler.runtime.surroundings import Surroundings
    from scheduler.state.rocks import RocksStore
    from scheduler.state.store import Store

TURN_S = 0.05  # between looks at the marks: an owner waits no longer for its store
READ_S = 0.2  # between applications of what came
SETTLE_S = 3.0  # without an owner on this node for so long: shards just move in a rebalance, or at the start
AGAIN_S = 30.0  # after a failure
SWEEP_MS = 10_000  # an opening shard has so much to derive anew that fired meanwhile
SWEEP = 200  # places at once; some 5 ms, after which the interpreter lets another thread run anyhow
HEARD_MS = 30_000  # since a broker answered this process: one that is cut off can't tell what its copies lack
WHOLE_MS = 60_000  # between notes of how far the store goes, for one that is found again later
BATCH = 500  # records at once: the shards of this process fire beside us
BREATH_S = 0.2  # at most, after a batch of a restore
MOST_WAITING = 100_000  # records without their shard record: several steps of the largest kind


class OtherTables(Retriable):
    """The owner plans by other zone tables than ours: places derived here would be wrong."""


S = TypeVar("S", bound="Store")  # a copy that is given up is closed or destroyed as what it is


class Follower(Generic[S]):
    """One shard's copy while it is followed. Raises StateCorrupted, Outlived, OtherTables: then it is given up."""

    def __init__(self, number: int, store: S, rebuild: Rebuild, now: int) -> None:
        self.number = number
        self.store = store
        self.rebuild = rebuild
        self.whole_ms = now  # when all there was had been applied, by the due clock
        self.lag = 0  # records
        self._waiting: dict[str, list[Change]] = {topic: [] for topic in ORDER}
        self._ended: set[str] = set()
        self._noted = self._swept = now
        self._sweeping: bytes | None = None

    def apply(self, found: dict[str, list[Change]], ended: dict[str, int], now: int) -> None:
        """Take in what was read, as far as its shard record has come."""
        if now - self.whole_ms > STORE_LIFE_MS:
            raise Outlived(f"shard {self.number} could not be followed for {STORE_LIFE_MS // 3_600_000} h")
        for topic in ORDER:
            waiting = self._waiting[topic]
            waiting += found.get(topic, ())
            if topic in found:
                self._ended.discard(topic)
            ready = len(waiting) if topic == catalog.SHARDS else self._ready(waiting)
            if ready:
                self.rebuild.apply(topic, waiting[:ready], waiting[ready - 1].offset + 1)
                del waiting[:ready]
            if topic == catalog.SHARDS:
                self._check_tables()
            if len(waiting) > MOST_WAITING:
                raise Retriable(f"{len(waiting)} records of {topic} wait for their shard record")
        self._ended |= ended.keys()

    def measure(self, consumer: Consumer, prefix: str, now: int) -> None:
        """See how far behind the copy is."""
        unread = [topic for topic in ORDER if topic not in self._ended or self._waiting[topic]]
        self.lag = sum(self._lag(consumer, prefix, topic) for topic in unread)
        if self.lag == 0:
            self.whole_ms = now
            if now - self._noted > WHOLE_MS:
                self._noted = now
                note_whole(self.store, now)

    def sweep(self, now: int) -> bool:
        """Derive some places anew, if it is time; False if there was nothing to do."""
        if self._sweeping is None:
            if now - self._swept < SWEEP_MS:
                return False
            self._sweeping = keys.DUE
        self._sweeping = self.rebuild.sweep(self._sweeping, SWEEP)
        self._swept = now
        return True

    def _ready(self, waiting: list[Change]) -> int:
        step = self.rebuild.record.step
        return next((n for n, change in enumerate(waiting) if (change.step or 0) > step), len(waiting))

    def _check_tables(self) -> None:
        theirs = self.rebuild.record.tz_version
        if theirs not in ("", tz_version()):
            raise OtherTables(f"shard {self.number} is planned by zone tables {theirs}, here are {tz_version()}")

    def _lag(self, consumer: Consumer, prefix: str, topic: str) -> int:
        try:
            _, high = consumer.get_watermark_offsets(TopicPartition(prefix + topic, self.number), cached=True)
        except TypeError:  # nothing was heard of it yet
            return 0
        # Behind the last record stands the marker of its transaction.
        return max(0, high - self.rebuild.position(topic) - 1)


class Standbys:
    """Those of one process. `state` tells how they do; everything else happens on a thread of its own."""

    def __init__(self, around: Surroundings, index: int) -> None:
        self._around = around
        settings, outside = around.settings, around.outside
        self._monotonic = outside.monotonic
        self._numbers = range(index, settings.shards, settings.processes) if settings.standby else range(0)
        self._marks = {number: outside.mark(around.store_path(number)) for number in self._numbers}
        self._consumer = outside.changelog_follower() if self._numbers else None
        self._followed: dict[int, Follower[RocksStore]] = {}
        self._trouble: dict[int, str] = {}
        self._try_at: dict[int, float] = {}
        self._read_at = self._breathed = 0.0
        self._stop = outside.event()
        self._thread = outside.thread(self._run, "standbys")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let go of all stores."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def state(self) -> dict[str, dict[str, Any]]:
        """By shard: how many records the copy is behind and since when, or what is wrong."""
        now = self._around.clock.now()
        told: dict[str, dict[str, Any]] = {
            str(number): {
                "lag_records": follower.lag,
                "behind_ms": 0 if follower.lag == 0 or now is None else max(0, now - follower.whole_ms),
            }
            for number, follower in sorted(self._followed.items())
        }
        return told | {str(number): {"trouble": text} for number, text in sorted(self._trouble.items())}

    # --- the thread

    def _run(self) -> None:
        self._try_at = dict.fromkeys(self._numbers, self._monotonic() + SETTLE_S)
        while self._numbers and not self._stop.wait(TURN_S):
            try:
                self._turn()
                self._begin_one()
            except Exception:  # the shards of this process must not end with a copy of others
                logging.getLogger("scheduler").exception("standby_error")
                self._stop.wait(AGAIN_S)
        for number in list(self._followed):
            self._let_go(number)
        if self._consumer is not None:
            self._consumer.close()

    def _turn(self) -> None:
        for number in [n for n in self._followed if self._marks[n].is_held()]:
            self._let_go(number)
            event("standby_let_go", shard=number)
        now = self._around.clock.now()
        if now is None or self._consumer is None:
            return
        if self._followed and self._monotonic() - self._read_at >= READ_S:
            self._read_at = self._monotonic()
            self._read(self._consumer, now)
        for number, follower in list(self._followed.items()):
            with self._giving_up(number):
                if follower.sweep(now):
                    break

    def _read(self, consumer: Consumer, now: int) -> None:
        messages: dict[int, list[Message]] = {number: [] for number in self._followed}
        read = consumer.consume(BATCH, 0)
        if len(read) == BATCH:
            self._read_at = 0.0  # there is more: go on at the next turn
        for message in read:
            if message.partition() in messages:
                messages[message.partition() or 0].append(message)
            elif message.error() is not None:
                event("standby_reader_error", logging.DEBUG, text=str(message.error()))
        prefix = self._around.settings.namespace
        is_heard = self._around.clock.probe_age_ms() < HEARD_MS
        for number, some in messages.items():
            with self._giving_up(number):
                follower = self._followed[number]
                follower.rebuild.use(self._around.tables.calendars)
                found, ended = sorted_by_topic(some, len(prefix), change_of)
                follower.apply(found, ended, now)
                if is_heard:
                    follower.measure(consumer, prefix, now)
                self._show(number, follower.lag, now - follower.whole_ms)

    def _begin_one(self) -> None:
        """Take up the next shard that has had no owner on this node for a while."""
        now, at = self._around.clock.now(), self._monotonic()
        for number in self._numbers:
            if number in self._followed:
                continue
            if self._marks[number].is_held():
                self._try_at[number] = at + SETTLE_S
                self._trouble.pop(number, None)
            elif now is not None and at >= self._try_at[number]:
                with self._giving_up(number):
                    self._begin(number, now)
                return

    def _begin(self, number: int, now: int) -> None:
        around = self._around
        began = self._monotonic()
        calendars = around.tables.wait(self._stop.is_set)
        if calendars is None:
            return
        look = MemoryStore()
        self._restore(number).look(look)
        theirs = Rebuild(look, number).record.tz_version
        if theirs not in ("", tz_version()):
            raise OtherTables(f"shard {number} is planned by zone tables {theirs}, here are {tz_version()}")
        store = self._open(number, now)
        restore = self._restore(number)
        try:
            rebuild = restore.run(store, calendars)
            follower = Follower(number, store, rebuild, now)
            note_whole(store, now)
        except BaseException as fault:
            store.destroy() if isinstance(fault, (Outlived, StoreDamaged)) else store.close()
            raise
        self._followed[number] = follower
        self._trouble.pop(number, None)
        if self._consumer is not None:
            prefix = around.settings.namespace
            positions = [TopicPartition(prefix + topic, number, rebuild.position(topic)) for topic in ORDER]
            self._consumer.incremental_assign(positions)
        seconds = round(self._monotonic() - began, 3)
        event("standby_begun", shard=number, seconds=seconds, applied=restore.applied)

    def _open(self, number: int, now: int) -> RocksStore:
        path, identity = self._around.store_path(number), self._around.identity(number)
        store = self._around.outside.open_standby(path, identity, now)
        ours = Rebuild(store, number).record.tz_version
        if ours in ("", tz_version()):
            return store
        # Its places were derived by tables of before; an owner would know from the record, which we are to replace.
        store.close()
        return self._around.outside.open_standby(path, identity, now, wipe=True)

    def _restore(self, number: int) -> Restore:
        consumer = self._around.outside.changelog_consumer()
        namespace = self._around.settings.namespace
        return Restore(consumer, namespace, number, lambda: self._interrupted(number), batch=BATCH)

    def _interrupted(self, number: int) -> bool:
        """Between two batches of a restore: the other copies go on, the shards of this process have a turn."""
        self._stop.wait(min(BREATH_S, self._monotonic() - self._breathed))
        self._turn()
        self._breathed = self._monotonic()
        return self._stop.is_set() or self._marks[number].is_held()

    # --- ends

    @contextmanager
    def _giving_up(self, number: int) -> Iterator[None]:
        """What goes wrong inside ends this copy and no other."""
        try:
            yield
        except Exception as fault:  # noqa: BLE001 - the store raises bare ones
            self._failed(number, fault)

    def _failed(self, number: int, fault: Exception) -> None:
        if isinstance(fault, Outlived):
            self._let_go(number, destroy=True)
            event("standby_outlived", logging.WARNING, shard=number, text=str(fault))
            self._try_at[number] = self._monotonic()
            return
        self._let_go(number, destroy=isinstance(fault, StoreDamaged))
        if self._stop.is_set() or self._marks[number].is_held():
            return
        self._trouble[number] = str(fault)
        self._try_at[number] = self._monotonic() + AGAIN_S
        self._around.telemetry.standby_failures.inc()
        alarm = logging.WARNING if isinstance(fault, Retriable) else logging.ERROR
        event("standby_failed", alarm, shard=number, text=str(fault))

    def _let_go(self, number: int, *, destroy: bool = False) -> None:
        follower = self._followed.pop(number, None)
        if follower is None:
            return
        try:
            follower.store.destroy() if destroy else follower.store.close()
        except Exception as fault:  # noqa: BLE001 - a full disk refuses this, too; the copy is of no use then
            event("standby_not_closed", logging.WARNING, shard=number, text=str(fault))
        if self._consumer is not None:
            prefix = self._around.settings.namespace
            self._consumer.incremental_unassign([TopicPartition(prefix + topic, number) for topic in ORDER])
        self._try_at[number] = self._monotonic() + SETTLE_S
        for gauge in (self._around.telemetry.standby_lag, self._around.telemetry.standby_behind):
            with suppress(KeyError):
                gauge.remove(str(number))

    def _show(self, number: int, lag: int, behind_ms: int) -> None:
        telemetry = self._around.telemetry
        telemetry.standby_lag.labels(str(number)).set(lag)
        telemetry.standby_behind.labels(str(number)).set(max(0, behind_ms) / 1000 if lag else 0)
