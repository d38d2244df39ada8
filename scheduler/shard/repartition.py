"""Moving a cluster to another number of shards: what old shards leave behind, as new shards take it up.

Every old shard has fired up to a cursor of its own; the new ones, which get schedules of several, begin at one that
lies before everything anybody still owes. So a schedule of which more is decided than that cursor says takes it under
its own floor. What each does next is the same afterwards: this is checked for every schedule as it is carried over, by
the rule that shards decide by (`place_of`), and again when a new shard is whole (`Tally`).

    Old         one old shard, restored: what it owes, and from when on
    Cutover     where all new shards begin: follows from all old ones, the same however often it is computed
    carry       an old shard's records for the new shards, one by one
    arrival     a step of a new shard that takes some of them up
    Tails       commands that no old shard has applied, each once
    redirected  a command that no old shard has applied
    Tally       what was carried and what has arrived, to be compared
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from scheduler import wire
from scheduler.core.calendars import NO_CALENDARS, Calendars, bound
from scheduler.core.due import instant_end, instant_of, unseen_since
from scheduler.core.model import Schedule, State
from scheduler.core.record import Move, ShardRecord
from scheduler.core.zone_marks import ZoneRecord
from scheduler.errors import StateCorrupted
from scheduler.shard import keys
from scheduler.shard.forwarding import home_of, is_known
from scheduler.shard.rebuild import stored_floors, stored_record
from scheduler.shard.step import Step, floored, place_of, standing
from scheduler.state.store import MemoryStore
from topics import catalog
from topics.codec import Undecodable, raw_fields, split_command
from topics.partition import partition_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scheduler.shard.forwarding import Origin
    from scheduler.state.store import Store
    from topics.catalog import Catalogue

CHUNK = 500
_PLACES = (keys.PLACE, keys.after_prefix(keys.PLACE))


class Old:
    """One old shard over its restored store. It is over: nothing of it changes any more."""

    def __init__(self, number: int, store: Store, calendars: Calendars = NO_CALENDARS) -> None:
        self.store = store
        self.calendars = calendars
        self.record = stored_record(store) or ShardRecord(shard=number)
        zones = store.get(keys.ZONES)
        self.zones = ZoneRecord() if zones is None else wire.zones_from_bytes(zones)

    @property
    def first_owed(self) -> int | None:
        """The instant of the first entry of its due index that stands for a nominal; None if none does."""
        start = keys.DUE + instant_end(0)
        first = next(iter(self.store.keys(start, keys.after_prefix(keys.DUE))), None)
        return None if first is None else instant_of(first[1:])

    @property
    def seen_until(self) -> int:
        """Since when it owes what it owes: before its first backlog or its absence, if there is one."""
        return min([unseen_since(self.record), *(backlog.seen_until for backlog in self.record.backlogs)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutover:
    """Where all new shards begin. `at`: no old one decided anything after it (ms)."""

    at: int
    begin: ShardRecord  # of any new shard, but for its number
    zones: ZoneRecord | None

    def record(self, shard: int, step: int, *, filling: bool) -> ShardRecord:
        """The record of one new shard; `step`: of what it has already."""
        move = self.begin.moved_from
        return self.begin.moved(
            shard=shard, step=step, moved_from=None if move is None else move._replace(filling=filling)
        )


def cutover(olds: Sequence[Old], namespace: str) -> Cutover:
    """From all old shards of the namespace, each with its `moved_to`."""
    records = [old.record for old in olds]
    at = max(record.moved_to.at for record in records if record.moved_to is not None)
    owing = [(first, old.seen_until) for old in olds if (first := old.first_owed) is not None and first <= at]
    calendars: dict[str, int] = {}
    for record in records:
        for name, version in record.calendars.items():
            calendars[name] = min(version, calendars.get(name, version))
    lived = [record for record in records if record.tz_version]
    begin = ShardRecord(
        shard=0,
        cursor=instant_end(min([at, *(first - 1 for first, _ in owing)])),
        seen_until=min([at, *(seen for _, seen in owing)]),
        deleted_version=max(record.deleted_version for record in records),
        token=max(record.token for record in records),
        generation=max(record.generation for record in records),
        tz_version=min((record.tz_version for record in lived), default=""),
        calendars=calendars,
        moved_from=Move(namespace, len(records), at),
    )
    return Cutover(at=at, begin=begin, zones=_merged([old.zones for old in olds if old.record.zones_step]))


def _merged(found: Sequence[ZoneRecord]) -> ZoneRecord | None:
    """By the oldest tables in any: what is planned by newer ones already is looked at once more, and left as it is."""
    if not found:
        return None
    oldest = min(record.tz_version for record in found)
    ordered = sorted(found, key=lambda record: record.tz_version, reverse=True)
    marks = {name: mark for record in ordered for name, mark in record.marks.items()}
    since = [record.since for record in found if record.tz_version == oldest and record.since is not None]
    return ZoneRecord(tz_version=oldest, marks=marks, since=max(since, default=None))


class Carried(NamedTuple):
    """One record for a new shard: of `schedules` with the schedule and its index key, of `live` without."""

    shard: int
    topic: str
    key: bytes
    value: bytes
    schedule: Schedule | None = None
    place: bytes | None = None


def carry(old: Old, cut: Cutover, former: Catalogue, new: Catalogue) -> Iterator[Carried]:
    """Everything an old shard has, for the shards of the new catalogue. Raises StateCorrupted rather than change what a
    schedule does next.
    """
    floors = stored_floors(old.store)
    schedules = iter(old.store.items(keys.SCHEDULE, keys.after_prefix(keys.SCHEDULE)))
    while chunk := list(islice(schedules, CHUNK)):
        names = [key[1:].decode() for key, _ in chunk]
        places = old.store.get_many([keys.place(name) for name in names])
        for name, place, (key, value) in zip(names, places, chunk, strict=True):
            schedule = bound(wire.plan_from_bytes(value), old.calendars)
            kept = _kept(old, cut, schedule, floors.get(name, 0), place)
            written = value
            if kept is not schedule:
                whole = bound(wire.schedule_from_bytes(value), old.calendars)  # with the answers it remembers
                written = wire.schedule_to_bytes(replace(whole, floor=kept.floor))
            yield Carried(partition_for(key[1:], new.shards), catalog.SCHEDULES, key[1:], written, kept, place)

    def renamed(topic: str) -> str:
        return new.namespace + former.base(topic)

    for key, value in old.store.items(keys.LIVE, keys.after_prefix(keys.LIVE)):
        topic_key = keys.live_topic_key(key)
        _, owner, _ = wire.split_live_key(topic_key)
        shard = partition_for(owner.encode(), new.shards)
        yield Carried(shard, catalog.LIVE, topic_key, wire.readdressed_record(value, renamed, shard))


def _kept(old: Old, cut: Cutover, schedule: Schedule, beside: int, place: bytes | None) -> Schedule:
    """The schedule, with a floor if the new cursor alone would let it do something else next."""
    if schedule.state is State.BROKEN:
        passed = instant_of(old.record.cursor)  # nobody looks at it; once mended it goes on from here
        return floored(schedule, passed) if passed > instant_of(cut.begin.cursor) else schedule
    if _place(schedule, beside, cut.begin) == place:
        return schedule
    due = place_of(floored(schedule, beside), old.record)
    ahead = instant_of(old.record.cursor) + 1 if due is None else due.nominal.scheduled_for
    decided = schedule.spec.trigger.prev_before(ahead)
    kept = schedule if decided is None else floored(schedule, decided)
    if _place(kept, beside, cut.begin) != place:
        raise StateCorrupted(
            f"{schedule.schedule_id} would do something else in its new shard than in shard {old.record.shard}: the "
            "new shards are not served; report this, with the schedule's record"
        )
    return kept


def _place(schedule: Schedule, beside: int, record: ShardRecord) -> bytes | None:
    return standing(schedule, place_of(floored(schedule, beside), record))


class Reasons(NamedTuple):
    """Who moves the cluster and why, for the history."""

    reason: str
    actor: str | None = None


def arrival(
    record: ShardRecord, items: Iterable[Carried], cut: Cutover, catalogue: Catalogue, why: Reasons, *, is_last: bool
) -> Step:
    """The step of a new shard that takes up some records after what `record` says it has; the last one opens it."""
    number = record.step + 1
    step = Step(cut.at, cut.record(record.shard, number, filling=not is_last), catalogue, MemoryStore(), {})
    for item in items:
        step.emit(catalogue.namespace + item.topic, item.key, item.value, step.headers)
        if item.schedule is not None:
            told = replace(item.schedule, actor=why.actor, reason=why.reason)
            step.emit(catalogue.schedule_history, item.key, wire.revision_to_bytes(told, "repartitioned", None, cut.at))
    if is_last and cut.zones is not None:
        step.zones = cut.zones
    step.seal()
    return step


class Tails:
    """Which of the commands that the old shards have not read are still to be applied, each once.

    One in the wrong partition may have been copied to the right one already, and its shard not have come to say so. It
    is then in two old partitions, or in one and applied. `marks`: what each old shard has had of the others'.
    """

    def __init__(self, marks: Sequence[Mapping[int, int]]) -> None:
        self._marks = marks
        self._met: set[tuple[str, Origin]] = set()

    def takes(self, shard: int, origin: Origin, value: bytes | None) -> bool:
        """Whether a command that stands in the partition of this shard is to go on; the same is not asked twice."""
        try:
            owner = split_command(value).get("schedule_id")
        except Undecodable:
            return True
        if not isinstance(owner, str):
            return True
        home = partition_for(owner.encode(), len(self._marks))
        if is_known(self._marks[home], origin) or (owner, origin) in self._met:
            return False
        if home != shard or origin.partition != shard:
            self._met.add((owner, origin))
        return True


def redirected(value: bytes | None, key: bytes | None, origin: Origin, shards: int) -> tuple[int, bytes | None]:
    """A command that no old shard has applied: its new shard, and its value with the id it had there.

    `origin` is where it was first read; one that brought no id is called by it. What cannot be read goes as it is, for
    the new shard to say so.
    """
    try:
        fields = split_command(value)
    except Undecodable:
        return home_of(None, key, origin.partition, shards), value
    shard = home_of(fields.get("schedule_id"), key, origin.partition, shards)
    if fields.get("command_id") is not None or value is None:
        return shard, value
    return shard, msgspec.json.encode({**raw_fields(value), "command_id": origin.name})


class Tally:
    """How many records, and a sum over their digests that does not depend on their order."""

    def __init__(self) -> None:
        self.schedules = 0
        self.live = 0
        self._sum = 0

    def carried(self, item: Carried) -> None:
        """A record that was handed over."""
        if item.schedule is None:
            self.live += 1
            self._add(keys.live(item.key), item.value)
            return
        self.schedules += 1
        self._add(keys.SCHEDULE + item.key, item.value)
        if item.place is not None:
            self._add(keys.PLACE + item.key, item.place)

    def arrived(self, store: Store) -> None:
        """Everything in a new shard's store, restored from the topics."""
        for key, value in store.items(keys.SCHEDULE, keys.after_prefix(keys.SCHEDULE)):
            self.schedules += 1
            self._add(key, value)
        for key, value in store.items(keys.LIVE, keys.after_prefix(keys.LIVE)):
            self.live += 1
            self._add(key, value)
        for key, value in store.items(*_PLACES):
            self._add(key, value)

    @property
    def checksum(self) -> str:
        return f"{self._sum:032x}"

    def _add(self, key: bytes, value: bytes) -> None:
        digest = blake2b(b"%d %b %b" % (len(key), key, value), digest_size=16).digest()
        self._sum = (self._sum + int.from_bytes(digest)) % (1 << 128)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tally):
            return NotImplemented
        return (self.schedules, self.live, self._sum) == (other.schedules, other.live, other._sum)

    __hash__ = None  # type: ignore[assignment]  # it grows
