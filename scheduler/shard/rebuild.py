"""Changelog records to the store: what a restore applies, and the indexes it derives on the way.

Whose truth is it: the topics'. Records are applied in the order shards, live, schedules, because a schedule's place in
the due index follows from the other two. Each batch also holds the position up to which its topic was applied, so a
restore that is cut off goes on where it stopped. Every record is the whole new value of its key, never a delta: folding
a compacted log therefore gives the same store as folding the full one.

A standby applies them for hours, and the three topics are then never at quite the same step. Its places are right all
the same once a restore has brought them to their ends and the shard has opened, because what is decided stays decided:

    a place is the first nominal undecided by what was known when it was derived. If it still is undecided, it is the
    first one still. If the cursor has passed it, opening derives it anew, as it does after every crash (`sweep` does so
    ahead of time). If a floor has passed it, it was derived anew when that floor was applied.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from scheduler import wire
from scheduler.core.calendars import NO_CALENDARS, Calendars, bound, planned_by
from scheduler.core.due import HEAD_SIZE, instant_end, instant_of, is_passed_over, schedule_of
from scheduler.core.record import ShardRecord
from scheduler.errors import StateCorrupted, StoreUnusable
from scheduler.shard import keys
from scheduler.shard.derived import write_live
from scheduler.shard.step import floored, move, place_of, standing
from scheduler.state.store import Batch
from topics import catalog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.state.store import Store

ORDER = (catalog.SHARDS, catalog.LIVE, catalog.SCHEDULES)
_APPLIED = "applied."
HEADS = 4096  # kept; some MB
FORGET_AFTER = 10_000  # deletes at the head of the due index before its range is dropped


class Change(Struct, frozen=True, gc=False):
    """One changelog record. `step` is the number in its header, None if it has none: then no shard wrote it."""

    offset: int
    key: bytes | None
    value: bytes | None
    step: int | None


class Rebuild:
    """Applies changelog records of one shard: for each topic of ORDER, from `position(topic)` to its end."""

    def __init__(self, store: Store, shard: int, calendars: Calendars = NO_CALENDARS) -> None:
        self._store = store
        self._follow(ShardRecord(shard=shard))
        self._calendars = calendars
        self._floors: dict[str, int] | None = None  # of the live records; None: not read yet
        self._last_step: dict[str, int] = {}
        self._moved = 0  # places left behind at the head of the due index
        self.foreign = 0  # records no shard of ours wrote: passed over, and an alarm
        self._oldest: int | None = None  # of the steps met on the shard topic
        stored = stored_record(store)
        if stored is not None:
            self._follow(stored)

    def position(self, topic: str) -> int:
        """The next offset to apply of a changelog topic (base name)."""
        stored = self._store.get(keys.meta(_APPLIED + topic))
        return 0 if stored is None else int(stored)

    @property
    def record(self) -> ShardRecord:
        """The newest shard record applied."""
        return self._record

    def use(self, calendars: Calendars) -> None:
        """From here on these are the calendars."""
        self._calendars = calendars

    def apply(self, topic: str, changes: Sequence[Change], next_offset: int) -> None:
        """One batch of records, in offset order. Raises StateCorrupted for what can't be read as far as needed."""
        newest: dict[bytes, bytes | None] = {}
        last = self._last_step.get(topic, 0)
        for change in changes:
            step, key = change.step, change.key
            if step is None or step < last or key is None:
                self.foreign += 1
                continue
            last = step
            newest[key] = change.value
            if topic == catalog.SHARDS:
                self._oldest = step if self._oldest is None else min(self._oldest, step)
        self._last_step[topic] = last
        batch = Batch()
        if topic == catalog.SHARDS:
            self._apply_record(batch, newest)
        elif topic == catalog.LIVE:
            self._apply_live(batch, newest)
        else:
            self._apply_schedules(batch, newest)
        batch.put(keys.meta(_APPLIED + topic), b"%d" % next_offset)
        self._store.write(batch)

    def _apply_record(self, batch: Batch, newest: dict[bytes, bytes | None]) -> None:
        shard, lags = self._record.shard, dict(self._record.lags)
        for key, lag in newest.items():
            queue = wire.lag_queue(shard, key)
            if queue is None:
                continue
            if lag is None:
                lags.pop(queue, None)
                batch.delete(keys.QUEUE + queue)
            else:
                lags[queue] = wire.lag_from_bytes(lag)
                batch.put(keys.QUEUE + queue, lag)
        value, record = newest.get(b"%d" % shard), self._record
        if value is not None:
            record = wire.record_from_bytes(value)
            batch.put(keys.RECORD, value)
        self._follow(record.moved(lags=lags))
        zones = newest.get(wire.zones_key(shard))
        if zones is not None:
            batch.put(keys.ZONES, zones)

    @property
    def is_partial(self) -> bool:
        """Whether records that the shard record speaks of were not met yet: they lie further back."""
        step = self._record.zones_step
        zones = self._store.get(keys.ZONES)
        if step > 0 and (zones is None or wire.zones_step(zones) != step):
            return True
        count, since = self._lags_written()
        return count > 0 and (self._oldest is None or self._oldest > since)

    def whole(self) -> None:
        """The shard topic was read to its end, perhaps not from its beginning: forget lags whose ends were not met.

        What counts was written since the step that the shard record names. Raises StateCorrupted if some are missing.
        """
        count, since = self._lags_written()
        batch = Batch()
        lags = dict(self._record.lags)
        for queue, lag in self._record.lags.items():
            if count == 0 or lag.step < since:
                del lags[queue]
                batch.delete(keys.QUEUE + queue)
        self._store.write(batch)
        self._follow(self._record.moved(lags=lags))
        if len(lags) != count:
            raise StateCorrupted(
                f"shard {self._record.shard} has {count} lagging queues, but the records of {len(lags)} were found on "
                f"{catalog.SHARDS}: restore the topic, or delete the store if the topic is right"
            )

    def _lags_written(self) -> tuple[int, int]:
        stored = self._store.get(keys.RECORD)
        return (0, 0) if stored is None else wire.lags_written(stored)

    def again(self, topic: str) -> None:
        """Records already applied come once more, with older ones before them."""
        self._last_step.pop(topic, None)

    def _apply_live(self, batch: Batch, newest: dict[bytes, bytes | None]) -> None:
        floors = self._known_floors()
        moved = []
        for key, value in newest.items():
            write_live(batch, key, self._store.get(keys.live(key)), value)
            if key.startswith(b"floor:"):
                owner = wire.split_live_key(key)[1]
                moved.append(owner)
                if value is None:
                    floors.pop(owner, None)
                else:
                    floors[owner] = wire.floor_of(wire.live_from_bytes(value))
        if moved:
            self._place(batch, moved)

    def _apply_schedules(self, batch: Batch, newest: dict[bytes, bytes | None]) -> None:
        places = self._store.get_many([keys.PLACE + key for key in newest])
        for (key, value), place in zip(newest.items(), places, strict=True):
            name = key.decode()
            if value is None:
                batch.delete(keys.SCHEDULE + key)
                move(batch, name, place, None)
                continue
            batch.put(keys.SCHEDULE + key, value)
            move(batch, name, place, self._standing(name, value))

    def sweep(self, after: bytes, limit: int) -> bytes | None:
        """Derive anew what the cursor has passed, as opening would; returns where to go on, None at the cursor.

        A standby's schedules fire elsewhere, which leaves no records of them. `after` is a store key, at first `DUE`.
        """
        end = keys.DUE + self._record.cursor + b"\x00"
        found = list(islice(self._store.keys(after, end), limit))
        names = [schedule_of(key[1:]) for key in found if not is_passed_over(key[1:], self._record)]
        if names:
            batch = Batch()
            self._place(batch, names)
            self._store.write(batch)
            self._moved += len(names)
        if len(found) == limit:
            return found[-1] + b"\x00"
        if self._moved > FORGET_AFTER:
            self._moved = 0
            first = next(iter(self._store.keys(keys.DUE, keys.after_prefix(keys.DUE))), keys.DUE)
            self._store.forget(keys.DUE, first)
        return None

    def _place(self, batch: Batch, names: list[str]) -> None:
        """Derive places anew; a schedule that the store does not have yet gets its place with its record."""
        values = self._store.get_many([keys.schedule(name) for name in names])
        places = self._store.get_many([keys.place(name) for name in names])
        for name, place, value in zip(names, places, values, strict=True):
            if value is not None:
                move(batch, name, place, self._standing(name, value))

    def _standing(self, name: str, value: bytes) -> bytes | None:
        """The index key of a schedule, derived once for all whose definitions say the same of when they fire."""
        looked_until = self._looked_until
        timed = None if looked_until is None else wire.timing_from_bytes(value)
        if looked_until is None or timed is None or timed[1] > looked_until or name in self._known_floors():
            return self._derived(name, value)
        head = self._heads.get(timed[0])
        if head is None:
            key = self._derived(name, value)
            if key is None:
                return None
            if len(self._heads) >= HEADS:
                self._heads.clear()
            head = self._heads[timed[0]] = key[: 1 + HEAD_SIZE]
        return head + name.encode()

    def _follow(self, record: ShardRecord) -> None:
        """From here on places are derived by this shard record."""
        self._record = record
        self._heads: dict[wire.Timing, bytes] = {}  # of index keys: instant and priority
        is_even = not record.backlogs and not record.lags and record.cursor == instant_end(instant_of(record.cursor))
        self._looked_until = instant_of(record.cursor) if is_even else None  # everything is decided up to here

    def _derived(self, name: str, value: bytes) -> bytes | None:
        """The same, of this schedule alone."""
        schedule = wire.plan_from_bytes(value, payload=False)
        calendar = schedule.spec.calendar
        if calendar is not None:
            if not self._calendars.has(calendar, planned_by(schedule.spec.trigger)):
                return standing(schedule, None)  # a version not heard of yet: whoever opens the shard looks at it
            schedule = bound(schedule, self._calendars)
        floor = self._known_floors().get(name)
        if floor is not None:
            schedule = floored(schedule, floor)
        return standing(schedule, place_of(schedule, self._record))

    def _known_floors(self) -> dict[str, int]:
        if self._floors is None:
            self._floors = stored_floors(self._store)
        return self._floors


def stored_record(store: Store) -> ShardRecord | None:
    """The shard record with the lags beside it; None in an empty store."""
    value = store.get(keys.RECORD)
    if value is None:
        return None
    found = store.items(keys.QUEUE, keys.after_prefix(keys.QUEUE))
    return wire.record_from_bytes(value).moved(lags={key[1:]: wire.lag_from_bytes(lag) for key, lag in found})


def stored_floors(store: Store) -> dict[str, int]:
    """The floors among the live records, by schedule."""
    floors = {}
    for key, value in store.items(keys.LIVE, keys.after_prefix(keys.LIVE)):
        if keys.is_floor(key):
            live = wire.live_from_bytes(value)
            if live.floor is not None:
                floors[live.owner] = wire.floor_of(live)
    return floors


class Identity(NamedTuple):
    """Whose store this is. One of another cluster, namespace, shard count or shard is refused, never guessed at."""

    cluster: str
    namespace: str
    shards: int
    shard: int

    def text(self) -> bytes:
        return f"cluster={self.cluster} namespace={self.namespace} shards={self.shards} shard={self.shard}".encode()


def sign(store: Store, identity: Identity) -> None:
    """Write the identity into a new store, or check it. Raises StoreUnusable when it is another one's."""
    key = keys.meta("identity")
    found = store.get(key)
    if found is None:
        batch = Batch()
        batch.put(key, identity.text())
        store.write(batch)
    elif found != identity.text():
        raise StoreUnusable(
            f"this store belongs to {found.decode(errors='replace')}, not to {identity.text().decode()}: point "
            "data_dir elsewhere, or delete the store if it is no longer wanted (it is rebuilt from the topics)"
        )


def mark_applied(batch: Batch, topic: str, next_offset: int) -> None:
    """Note in a step's own batch that the changelog is applied so far."""
    batch.put(keys.meta(_APPLIED + topic), b"%d" % next_offset)
