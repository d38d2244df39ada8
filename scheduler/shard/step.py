"""One step of a shard: everything that commits together, and what follows the commit.

A step is built from the store and the step itself (a schedule changed twice in one step is seen changed), committed by
`runtime/transaction.py`, and only then applied to store and horizon. A step that is thrown away leaves no trace.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import Raw, Struct
from msgspec.structs import replace

from scheduler import wire
from scheduler.core.calendars import NO_CALENDARS, bound, planned_by
from scheduler.core.due import Due, due_key, position
from scheduler.core.model import COMPLETED_RETENTION_MS, Schedule, State
from scheduler.shard import keys
from scheduler.shard.derived import write_live
from scheduler.state.store import Batch
from topics.messages import COMMAND_ID_HEADER, STEP_HEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.core.command import Command
    from scheduler.core.due import Lag
    from scheduler.core.model import Spec
    from scheduler.core.record import ShardRecord
    from scheduler.core.zone_marks import ZoneRecord
    from scheduler.shard.held import Item, Target
    from scheduler.state.store import Store
    from topics.catalog import Catalogue
    from topics.messages import Live

Headers = list[tuple[str, bytes]]


class Record(Struct, frozen=True, gc=False):
    """One record to be produced."""

    topic: str
    key: bytes
    value: bytes | None
    partition: int
    headers: Headers | None = None


class Forward(Struct, frozen=True, gc=False):
    """A command that belongs to another partition: copied there by a plain producer before this step commits."""

    key: bytes
    value: bytes
    partition: int
    headers: Headers


class Ready(Struct, frozen=True, gc=False):
    """What else would be worked out of a schedule that is saved: its record, and its place in the due index."""

    record: bytes
    due: Due | None


class Touched(Struct, gc=False):
    """A schedule as the step leaves it. `place` is its index key in the store; `due` its new place if it has one."""

    schedule: Schedule | None
    place: bytes | None
    due: Due | None = None
    saved: bool = False  # its record changed
    ready: Ready | None = None  # what was saved, if it is at hand
    moved: bool = False  # only its place changed, to `due`


@dataclass(slots=True)
class Step:
    """See the module's docstring. `taken` are the horizon's items this step uses up, `items` those it dispatches."""

    now: int
    record: ShardRecord
    catalogue: Catalogue
    store: Store  # as the step before left it; only read
    lags: Mapping[bytes, Lag]  # as they are on the topic
    taken: list[Item] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    forwards: list[Forward] = field(default_factory=list)
    copied: dict[int, int] = field(default_factory=dict)  # partition -> the offset after its last forwarded command
    batch: Batch = field(default_factory=Batch)
    touched: dict[str, Touched] = field(default_factory=dict)
    floors: dict[str, int | None] = field(default_factory=dict)
    owners: frozenset[str] | None = None  # all who have live records in the store, if the step knows them
    debtors: set[str] = field(default_factory=set)  # owners whose live records this step changes
    sent: list[tuple[str, int]] = field(default_factory=list)  # origin, available_at of single dispatches: for metrics
    relisted: set[bytes] = field(default_factory=set)  # prefixes of the indexes of live records this step changes
    answered: list[str] = field(default_factory=list)  # codes of the answers, for metrics
    gone: list[tuple[str, str, int]] = field(default_factory=list)  # state, reason, count: for metrics
    consumed: int = 0  # input records this step answers
    headers: Headers = field(init=False)  # what every changelog record of this step carries
    ended: list[str] = field(default_factory=list)  # the shard's finished and broken schedules this step looked at
    paid: list[str] = field(default_factory=list)  # owners of whom a debt ended
    zones: ZoneRecord | None = None  # the zone record, if this step writes it
    replans: bool = False  # this step looked for schedules to be planned anew
    looked_to: bytes | None = None  # where that look goes on
    broke: list[str] = field(default_factory=list)  # what schedules broke for, for metrics
    turns: dict[bytes, int] = field(default_factory=dict)  # queue -> how many of `taken`, if they took turns
    passed: bool = False  # positions or backlogs moved, which is worth committing alone
    definitions: dict[int, tuple[Spec, Raw]] = field(default_factory=dict)  # printed in this step, by identity

    def __post_init__(self) -> None:
        self.headers = [(STEP_HEADER, b"%d" % self.record.step)]

    @property
    def is_empty(self) -> bool:
        """Nothing to commit."""
        if self.items or self.records or self.forwards or self.passed:
            return False
        return not any(touched.saved for touched in self.touched.values())

    def emit(self, topic: str, key: bytes, value: bytes | None, headers: Headers | None = None) -> None:
        """A record on the shard's own partition of one of the co-partitioned topics."""
        self.records.append(Record(topic, key, value, self.record.shard, headers))

    def answer(self, command: Command, code: str, value: bytes) -> None:
        """A command's reply."""
        self.reply(command.schedule_id.encode(), command.command_id.encode(), code, value)

    def reply(self, owner: bytes, command_id: bytes, code: str, value: bytes) -> None:
        """The same, for a command that is known by its ids."""
        self.emit(self.catalogue.replies, owner, value, [(COMMAND_ID_HEADER, command_id)])
        self.answered.append(code)

    def send(self, target: Target, value: bytes, origin: str, available_at: int) -> None:
        """One dispatch that does not come from the horizon."""
        self.records.append(Record(target.topic, target.key, value, target.partition))
        self.sent.append((origin, available_at))

    # --- live records

    def put_live(self, key: bytes, value: bytes) -> None:
        """Owe something, or owe it otherwise: `key` is the topic's key."""
        self._write_live(key, value)

    def drop_live(self, key: bytes) -> None:
        """It is owed no more."""
        self._write_live(key, None)

    def _write_live(self, key: bytes, value: bytes | None) -> None:
        self.emit(self.catalogue.live, key, value, self.headers)
        kind, owner, _ = wire.split_live_key(key)
        if kind != "floor":
            self.debtors.add(owner)
        self.relisted |= write_live(self.batch, key, self.live(key), value)

    def live(self, key: bytes) -> bytes | None:
        """What is owed under the topic's key as this step leaves it; None if nothing."""
        stored = keys.live(key)
        return self.batch.ops[stored] if stored in self.batch.ops else self.store.get(stored)

    def put_floor(self, schedule_id: str, floor: int) -> None:
        self.put_live(wire.live_key("floor", schedule_id), wire.floor_record(schedule_id, floor))
        self.floors[schedule_id] = floor

    def drop_floor(self, schedule_id: str) -> None:
        self.drop_live(wire.live_key("floor", schedule_id))
        self.floors[schedule_id] = None

    # --- schedules

    def definition(self, spec: Spec) -> Raw:
        """A definition as it stands inside other values: printed once for history and schedule."""
        known = self.definitions.get(id(spec))
        if known is None:
            known = self.definitions[id(spec)] = spec, wire.spec_value(spec)  # kept, so that its id stays its own
        return known[1]

    def save(self, schedule: Schedule, ready: Ready | None = None) -> None:
        """The schedule as it now is; the newest save of a step reaches the topic."""
        touched = self.touched[schedule.schedule_id]
        touched.schedule = schedule
        touched.saved = True
        touched.ready = ready

    def remove(self, schedule_id: str) -> None:
        """Delete a schedule and never use its versions again."""
        touched = self.touched[schedule_id]
        if touched.schedule is not None:
            version = max(self.record.deleted_version, touched.schedule.version)
            self.record = self.record.moved(deleted_version=version)
        touched.schedule = None
        touched.saved = True

    def seal(self) -> None:
        """Write what the touched schedules came to, and the shard record: the step is then complete."""
        calendars: dict[str, int] = {}
        for schedule_id, touched in self.touched.items():
            if touched.saved:
                self._write(schedule_id, touched)
                spec = None if touched.schedule is None else touched.schedule.spec
                if spec is not None and spec.calendar is not None and spec.calendar not in self.record.calendars:
                    calendars[spec.calendar] = planned_by(spec.trigger)
            elif touched.moved:
                move(self.batch, schedule_id, touched.place, standing(touched.schedule, touched.due))
        if calendars:
            self.record = self.record.moved(calendars={**self.record.calendars, **calendars})
        if self.zones is not None:
            self.record = self.record.moved(zones_step=self.record.step)
            zones = wire.zones_to_bytes(self.zones, self.record.shard, self.record.step)
            self.emit(self.catalogue.shard_records, wire.zones_key(self.record.shard), zones, self.headers)
            self.batch.put(keys.ZONES, zones)
        if self.record.lags or self.lags:
            self._write_lags()
        value = wire.record_to_bytes(self.record, self.now)
        self.emit(self.catalogue.shard_records, b"%d" % self.record.shard, value, self.headers)
        self.batch.put(keys.RECORD, value)

    def _write_lags(self) -> None:
        """The lags that changed, and tombstones for those that went."""
        shard, lags = self.record.shard, {}
        for queue, lag in self.record.lags.items():
            known = self.lags.get(queue)
            if known is not None and known == lag._replace(step=known.step):
                lags[queue] = known
                continue
            lags[queue] = lag._replace(step=self.record.step)
            value = wire.lag_to_bytes(queue, lags[queue], shard)
            self.emit(self.catalogue.shard_records, wire.lag_key(shard, queue), value, self.headers)
            self.batch.put(keys.QUEUE + queue, value)
        for queue in self.lags.keys() - lags.keys():
            self.emit(self.catalogue.shard_records, wire.lag_key(shard, queue), None, self.headers)
            self.batch.delete(keys.QUEUE + queue)
        self.record = self.record.moved(lags=lags)

    def _write(self, schedule_id: str, touched: Touched) -> None:
        schedule, key = touched.schedule, keys.schedule(schedule_id)
        value: bytes | None = None
        touched.due = None
        if schedule is None:
            self.batch.delete(key)
        else:
            ready = touched.ready or Ready(
                wire.schedule_to_bytes(schedule, self.definition(schedule.spec)), place_of(schedule, self.record)
            )
            value, touched.due = ready.record, ready.due
            self.batch.put(key, value)
        self.emit(self.catalogue.schedules, key[1:], value, self.headers)
        move(self.batch, schedule_id, touched.place, standing(schedule, touched.due))


def place_of(schedule: Schedule, record: ShardRecord) -> Due | None:
    """Where a schedule stands in the due index: only active ones do."""
    if schedule.state is not State.ACTIVE:
        return None
    return position(schedule, record)


def standing(schedule: Schedule | None, due: Due | None) -> bytes | None:
    """The one index key of a schedule whose next undecided nominal is `due`; None if it stands in no index.

    An active schedule with nothing left to fire stands at instant 0, where the next start finds it and completes it.
    """
    if due is not None:
        return keys.DUE + due.key
    if schedule is None:
        return None
    if schedule.state is State.ACTIVE:
        return keys.DUE + due_key(0, schedule.spec.priority, schedule.schedule_id)
    if schedule.state is State.COMPLETED and schedule.completed_at is not None:
        return keys.expiry(schedule.completed_at + COMPLETED_RETENTION_MS, schedule.schedule_id)
    return None


def move(batch: Batch, schedule_id: str, old: bytes | None, new: bytes | None) -> None:
    """Give a schedule its new place: index keys of the store, None for none."""
    if old == new:
        return
    if old is not None:
        batch.delete(old)
    if new is not None:
        batch.put(new, b"")
        batch.put(keys.place(schedule_id), new)
    else:
        batch.delete(keys.place(schedule_id))


class Reader:
    """Reads schedules of the store, with their floors, places and calendars."""

    def __init__(self, store: Store, floors: dict[str, int]) -> None:
        self._store = store
        self._floors = floors
        self.calendars = NO_CALENDARS

    def schedules(self, ids: list[str]) -> list[Schedule | None]:
        """The schedules of these ids, floors applied, to plan with and not to save; None where there is none."""
        values = self._store.get_many([keys.schedule(i) for i in ids])
        return [self._floored(self.definition(v)) if v is not None else None for v in values]

    def touch(self, step: Step, ids: Iterable[str]) -> None:
        """Bring schedules and their places into the step."""
        new = [i for i in dict.fromkeys(ids) if i not in step.touched]
        values = self._store.get_many([keys.schedule(i) for i in new])
        # Only a schedule has a place.
        there = [schedule_id for schedule_id, value in zip(new, values, strict=True) if value is not None]
        places = dict(zip(there, self._store.get_many([keys.place(i) for i in there]), strict=True))
        for schedule_id, value in zip(new, values, strict=True):
            schedule = None if value is None else self._floored(bound(wire.schedule_from_bytes(value), self.calendars))
            step.touched[schedule_id] = Touched(schedule, places.get(schedule_id))

    def definition(self, value: bytes) -> Schedule:
        """A definition of its bytes, to plan with and not to save."""
        return bound(wire.plan_from_bytes(value), self.calendars)

    def kept(self, beside: object) -> Schedule | None:
        """The definition that a live record (its field) keeps since a newer version took over; None if it has none."""
        return self.definition(bytes(beside)) if isinstance(beside, Raw) else None

    def owing(self, record: Live) -> Schedule | None:
        """The definition that a live record's nominals belong to; None once its schedule is gone."""
        return self.kept(record.definition) or self.schedules([record.owner])[0]

    def own_floor(self, schedule: Schedule) -> int:
        """The floor in the schedule's record, without that of a decision after an outage."""
        if self._floors.get(schedule.schedule_id) != schedule.floor:
            return schedule.floor
        value = self._store.get(keys.schedule(schedule.schedule_id))
        return schedule.floor if value is None else wire.plan_from_bytes(value).floor

    def floor(self, schedule_id: str) -> int | None:
        """The floor a decision after an outage left beside the schedule record."""
        return self._floors.get(schedule_id)

    def _floored(self, schedule: Schedule) -> Schedule:
        floor = self._floors.get(schedule.schedule_id) if self._floors else None
        return schedule if floor is None else floored(schedule, floor)


def floored(schedule: Schedule, floor: int) -> Schedule:
    """The schedule with everything up to `floor` decided."""
    return schedule if floor <= schedule.floor else replace(schedule, floor=floor)


def completed(schedule: Schedule, now: int) -> Schedule:
    """An active schedule that has fired for the last time."""
    return replace(schedule, state=State.COMPLETED, completed_at=now)
