"""Wire values to core values and back; nothing else. Everything a shard reads or writes as JSON passes here."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import UNSET, Raw

from scheduler.core.backfill import Backfill, Ran, Stretch
from scheduler.core.calendar import CALENDAR_FIELDS, parse_calendar
from scheduler.core.calendars import Calendars, bound, planned_by
from scheduler.core.due import Backlog, due_key, instant_end, instant_of, priority_of, schedule_of
from scheduler.core.identity import occurrence_id, tenant_of
from scheduler.core.model import (
    DEFAULT_MAX_LATENESS_MS,
    PRIORITY_BY_NAME,
    PRIORITY_NAMES,
    Answer,
    Gone,
    Misfire,
    MisfireKind,
    Nominal,
    Origin,
    Priority,
    Run,
    Schedule,
    Spec,
    State,
)
from scheduler.core.record import FORMAT, ShardRecord
from scheduler.core.tenants import Terms
from scheduler.core.time import format_instant, parse_instant, stamp
from scheduler.core.trigger import Trigger, parse_trigger
from scheduler.core.unplannable import Unplannable
from scheduler.core.zone_marks import ZoneMark, ZoneRecord
from scheduler.errors import StateCorrupted
from topics import messages as m
from topics.codec import decode

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Sequence

    from scheduler.core.calendar import Calendar
    from scheduler.core.command import Command
    from scheduler.core.decide import Decision
    from scheduler.core.problem import Problem

_to_json = msgspec.json.Encoder().encode
_plain = msgspec.json.Decoder().decode
_schedule = msgspec.json.Decoder(m.Schedule).decode
_shard = msgspec.json.Decoder(m.Shard).decode
_live = msgspec.json.Decoder(m.Live).decode
_zones = msgspec.json.Decoder(m.Zones).decode


# --- schedules ------------------------------------------------------------------------------------------------------


def schedule_to_bytes(schedule: Schedule) -> bytes:
    """The value of `scheduler.schedules`, which is also the store's."""
    return _to_json(
        m.Schedule(
            schedule_id=schedule.schedule_id,
            tenant=tenant_of(schedule.schedule_id),
            state=schedule.state,  # type: ignore[arg-type] # its texts are the literal's
            version=schedule.version,
            revision=schedule.revision,
            created_at=format_instant(schedule.created_at),
            updated_at=format_instant(schedule.updated_at),
            effective_at=format_instant(schedule.effective_at),
            floor=_instant(schedule.floor) if schedule.floor != schedule.effective_at else None,
            spec=_spec_value(schedule.spec),
            completed_at=_instant(schedule.completed_at),
            broken_reason=schedule.broken_reason,
            actor=schedule.actor,
            reason=schedule.reason,
            calendar_version=planned_by(schedule.spec.trigger) or None,
            recent=[_answer_to_wire(answer) for answer in schedule.recent],
            older=schedule.older,
        )
    )


def schedule_from_bytes(value: bytes) -> Schedule:
    """The schedule of a stored record. Raises StateCorrupted for bytes this service cannot have written."""
    try:
        record = _schedule(value)
        answers = tuple(_answer_from_wire(answer) for answer in record.recent)
        return _schedule_of(record, answers, record.older)
    except (msgspec.MsgspecError, ValueError, KeyError) as fault:
        raise _unreadable("a schedule record", fault, value) from fault


def plan_from_bytes(value: bytes) -> Schedule:
    """The same without the answers it remembers: to be read often, never to be stored again."""
    try:
        return _schedule_of(_plan(value), (), "")
    except (msgspec.MsgspecError, ValueError, KeyError) as fault:
        raise _unreadable("a schedule record", fault, value) from fault


class _Plan(msgspec.Struct):
    """A schedule record as far as planning needs it."""

    schedule_id: str
    state: str
    version: int
    revision: int
    created_at: str
    updated_at: str
    effective_at: str
    spec: m.Spec
    floor: str | None = None
    completed_at: str | None = None
    broken_reason: str | None = None
    actor: str | None = None
    reason: str | None = None
    calendar_version: int | None = None


_plan = msgspec.json.Decoder(_Plan).decode


def _schedule_of(record: m.Schedule | _Plan, recent: tuple[Answer, ...], older: str) -> Schedule:
    effective_at = _at(record.effective_at)
    return Schedule(
        schedule_id=record.schedule_id,
        state=_STATES[record.state],
        version=record.version,
        revision=record.revision,
        created_at=_at(record.created_at),
        updated_at=_at(record.updated_at),
        effective_at=effective_at,
        floor=effective_at if record.floor is None else _at(record.floor),
        spec=_spec_from_wire(record.spec, record.schedule_id, record.calendar_version or 0),
        completed_at=_ms(record.completed_at),
        broken_reason=record.broken_reason,
        actor=record.actor,
        reason=record.reason,
        recent=recent,
        older=older,
    )


_STATES = {state.value: state for state in State}


def _unreadable(what: str, fault: Exception, value: bytes) -> StateCorrupted:
    return StateCorrupted(f"{what} cannot be read ({fault}): {value[:200]!r}")


def _spec_value(spec: Spec) -> Any:
    """A definition as it stands inside other values. Defaults are left out: it says no more than its producer did."""
    return _new_spec_value(spec) if spec.payload and len(spec.payload) > _LONG else _kept_spec_value(spec)


_LONG = 1024  # bytes of payload that are not worth their memory in a cache


def _new_spec_value(spec: Spec) -> Any:
    fields: dict[str, object] = {"trigger": Raw(_trigger_bytes(cast("Hashable", spec.trigger)))}
    for name, usual in _PLAIN:
        value = getattr(spec, name)
        if value is not usual and value != usual:
            fields[name] = value
    if spec.start is not None:
        fields["start"] = format_instant(spec.start)
    if spec.end is not None:
        fields["end"] = format_instant(spec.end)
    if spec.priority is not Priority.NORMAL:
        fields["priority"] = PRIORITY_NAMES[spec.priority]
    if spec.misfire.kind is MisfireKind.CATCH_UP:
        fields["misfire"] = {"catch_up": spec.misfire.newest}
    elif spec.misfire.kind is not MisfireKind.FIRE_ONCE:
        fields["misfire"] = spec.misfire.kind
    if spec.lateness_given or spec.max_lateness_ms != DEFAULT_MAX_LATENESS_MS:
        fields["max_lateness_ms"] = spec.max_lateness_ms
    if spec.retry is not None:
        fields["retry"] = dict(zip(_RETRY, spec.retry, strict=True))
    if spec.payload is not None:
        fields["payload"] = Raw(spec.payload)
    if spec.labels:
        fields["labels"] = dict(spec.labels)
    return Raw(_to_json(fields))


# A new definition is written twice in its step: as history, and as the schedule when the step is sealed.
_kept_spec_value = lru_cache(maxsize=4096)(_new_spec_value)


# Fields that look the same inside and outside, with their defaults.
_PLAIN = tuple(
    (name, Spec.__struct_defaults__[Spec.__struct_fields__.index(name) - len(Spec.__struct_fields__)])
    for name in (
        "calendar", "roll", "lane", "window_ms", "overlap", "tracking", "timeout_ms", "deadline_ms", "handler", "owner",
        "description", "impact", "runbook",
    )
)  # fmt: skip
_RETRY = ("max_attempts", "base_ms", "cap_ms")


def _spec_from_wire(spec: m.Spec, schedule_id: str, calendar_version: int) -> Spec:
    limit = spec.max_lateness_ms
    trigger = _trigger_from_wire(bytes(spec.trigger), schedule_id)
    if spec.calendar is not None:
        # Without its calendar it names nothing, which is safer than too much: `core.calendars.bound` gives it one.
        trigger = Unplannable(b"", f"calendar {spec.calendar!r} is not at hand", trigger, calendar_version)
    return Spec(
        trigger=trigger,
        start=_ms(spec.start),
        end=_ms(spec.end),
        calendar=spec.calendar,
        roll=spec.roll,
        priority=PRIORITY_BY_NAME[spec.priority],
        lane=spec.lane,
        window_ms=spec.window_ms,
        misfire=_misfire(spec.misfire),
        max_lateness_ms=DEFAULT_MAX_LATENESS_MS if limit is UNSET else limit,
        lateness_given=limit is not UNSET,
        overlap=spec.overlap,
        tracking=spec.tracking,
        retry=None if spec.retry is None else (spec.retry[_RETRY[0]], spec.retry[_RETRY[1]], spec.retry[_RETRY[2]]),
        timeout_ms=spec.timeout_ms,
        deadline_ms=spec.deadline_ms,
        handler=spec.handler,
        payload=None if spec.payload is UNSET else bytes(spec.payload),
        labels=tuple(sorted(spec.labels.items())) if spec.labels else (),
        owner=spec.owner,
        description=spec.description,
        impact=spec.impact,
        runbook=spec.runbook,
    )


def _misfire(given: Any) -> Misfire:
    if isinstance(given, dict):
        return Misfire(MisfireKind.CATCH_UP, given["catch_up"])
    return _MISFIRES[given]


_MISFIRES = {kind.value: Misfire(kind) for kind in (MisfireKind.FIRE_ONCE, MisfireKind.SKIP)}


@lru_cache(maxsize=4096)
def _trigger_bytes(trigger: Any) -> bytes:  # a Trigger: the protocol does not say that it hashes
    return _to_json(trigger.to_wire())


def _trigger_from_wire(raw: bytes, schedule_id: str) -> Trigger:
    shared = _HASHED.search(raw) is None  # only `H` in an expression depends on the schedule's name
    return _trigger(raw, None if shared else schedule_id)


_HASHED = re.compile(rb'"cron":"[^"]*[Hh]')


@lru_cache(maxsize=65_536)
def _trigger(raw: bytes, schedule_id: str | None) -> Trigger:
    parsed = parse_trigger(_plain(raw), schedule_id=schedule_id, effective_at=0)
    if parsed.trigger is None:
        return Unplannable(raw, "; ".join(problem.message for problem in parsed.problems))
    return parsed.trigger


def _answer_to_wire(answer: Answer) -> m.RecentCommand:
    return m.RecentCommand(
        command_id=answer.command_id,
        command=answer.command,
        status=_STATUS[answer.accepted],
        code=answer.code,
        message=answer.message,
        at=format_instant(answer.at),
        version=answer.version,
        revision=answer.revision,
        effective_at=_instant(answer.effective_at),
        occurrence_id=answer.occurrence_id,
        counts=dict(answer.counts),
    )


def _answer_from_wire(record: m.RecentCommand) -> Answer:
    return Answer(
        command_id=record.command_id,
        command=record.command,
        accepted=record.status == "accepted",
        code=record.code,
        message=record.message,
        at=parse_instant(record.at),
        version=record.version,
        revision=record.revision,
        effective_at=_ms(record.effective_at),
        occurrence_id=record.occurrence_id,
        counts=tuple(sorted(record.counts.items())),
    )


_STATUS: dict[bool, Any] = {True: "accepted", False: "rejected"}


# --- the shard record -----------------------------------------------------------------------------------------------


def record_to_bytes(record: ShardRecord, at: int) -> bytes:
    """The value of `scheduler.shards`."""
    return _to_json(
        m.Shard(
            format=FORMAT,
            shard=record.shard,
            step=record.step,
            positions=dict(record.positions),
            cursor=_cursor_to_wire(record.cursor),
            seen_until=format_instant(record.seen_until),
            token=record.token,
            deleted_version=record.deleted_version,
            backlogs=[
                m.Backlog(
                    priority=PRIORITY_NAMES[b.priority],  # type: ignore[arg-type] # the names are the literal's
                    after=_cursor_to_wire(b.after),
                    until=_cursor_to_wire(b.until),
                    reason=b.reason,
                    seen_until=format_instant(b.seen_until),
                )
                for b in record.backlogs
            ],
            tz_version=record.tz_version,
            generation=record.generation,
            at=format_instant(at),
            calendars=dict(record.calendars),
            zones_step=record.zones_step,
        )
    )


def record_from_bytes(value: bytes) -> ShardRecord:
    """The shard record of its bytes. Raises StateCorrupted when they are unreadable or of a newer format."""
    try:
        record = _shard(value)
    except msgspec.MsgspecError as fault:
        raise _unreadable("a shard record", fault, value) from fault
    if record.format > FORMAT:
        raise StateCorrupted(
            f"shard {record.shard} was written in record format {record.format}; this version reads up to {FORMAT}: "
            "run the newer version"
        )
    return ShardRecord(
        shard=record.shard,
        step=record.step,
        positions=record.positions,
        cursor=_cursor_from_wire(record.cursor),
        seen_until=parse_instant(record.seen_until),
        deleted_version=record.deleted_version,
        backlogs=tuple(
            Backlog(
                PRIORITY_BY_NAME[b.priority],
                _cursor_from_wire(b.after),
                _cursor_from_wire(b.until),
                b.reason,
                parse_instant(b.seen_until),
            )
            for b in record.backlogs
        ),
        token=record.token,
        generation=record.generation,
        tz_version=record.tz_version,
        calendars=record.calendars,
        zones_step=record.zones_step,
    )


def zones_key(shard: int) -> bytes:
    """The key of the zone record on `scheduler.shards`."""
    return b"%d/zones" % shard


def zones_to_bytes(record: ZoneRecord, shard: int, step: int) -> bytes:
    """The value beside the shard record that says by which tables the shard's schedules are planned."""
    return _to_json(
        m.Zones(
            shard=shard,
            step=step,
            tz_version=record.tz_version,
            zones=[
                m.ZoneMark(
                    zone=mark.zone,
                    taken_at=format_instant(mark.taken_at),
                    fingerprint=mark.fingerprint,
                    offsets={format_instant(instant): offset for instant, offset in mark.offsets},
                )
                for _, mark in sorted(record.marks.items())
            ],
            replan_since=_instant(record.since),
        )
    )


def zones_from_bytes(value: bytes) -> ZoneRecord:
    """The zone record of its bytes. Raises StateCorrupted."""
    record = _read_zones(value)
    marks = [
        ZoneMark(
            mark.zone,
            parse_instant(mark.taken_at),
            mark.fingerprint,
            tuple((parse_instant(instant), offset) for instant, offset in mark.offsets.items()),
        )
        for mark in record.zones
    ]
    return ZoneRecord(
        tz_version=record.tz_version, marks={mark.zone: mark for mark in marks}, since=_ms(record.replan_since)
    )


def zones_step(value: bytes) -> int:
    """The step that wrote a zone record. Raises StateCorrupted."""
    return _read_zones(value).step


def _read_zones(value: bytes) -> m.Zones:
    try:
        return _zones(value)
    except msgspec.MsgspecError as fault:
        raise _unreadable("a zone record", fault, value) from fault


def needle(calendars: Collection[str], zones: Collection[str]) -> re.Pattern[bytes]:
    """Finds the stored schedules that may name one of these calendars or zones; it may find some more."""
    fields = (("calendar", calendars), ("zone", zones))
    named = [re.escape(b'"%b":%b' % (field.encode(), _to_json(name))) for field, names in fields for name in names]
    return re.compile(b"|".join(sorted(named)))


def _cursor_to_wire(key: bytes) -> m.Cursor:
    priority = priority_of(key)
    if priority is None:
        return m.Cursor(available_at=format_instant(instant_of(key)))
    name: Any = PRIORITY_NAMES[priority]
    return m.Cursor(available_at=format_instant(instant_of(key)), priority=name, schedule_id=schedule_of(key))


def _cursor_from_wire(cursor: m.Cursor) -> bytes:
    instant = parse_instant(cursor.available_at)
    if cursor.priority is None or cursor.schedule_id is None:
        return instant_end(instant)
    return due_key(instant, PRIORITY_BY_NAME[cursor.priority], cursor.schedule_id)


# --- calendars -------------------------------------------------------------------------------------------------------


def calendar_key(name: str, version: int) -> bytes:
    """The key on `scheduler.calendars`."""
    return f"{name}@{version}".encode()


def split_calendar_key(key: bytes | None) -> tuple[str, int]:
    """(name, version). Raises ValueError for a key that names none."""
    name, _, version = (key or b"").decode().rpartition("@")
    if not name or not version.isdigit() or version[0] == "0":
        raise ValueError("the key is not <name>@<version>")
    return name, int(version)


def calendar_from_bytes(value: bytes, name: str, version: int) -> Calendar | None:
    """One version of a calendar, None if it says that there is none any more. Raises ValueError with every mistake."""
    record = decode(m.Calendar, value)
    if (record.name, record.version) != (name, version):
        raise ValueError(f"the value is of {record.name}@{record.version}, its key is {name}@{version}")
    if record.deleted:
        return None
    parsed = parse_calendar(calendar_fields(record))
    if parsed.calendar is None:
        raise ValueError("; ".join(problem.message for problem in parsed.problems))
    return parsed.calendar


def calendar_fields(record: m.Calendar) -> dict[str, object]:
    """What a calendar says about days, as its definition has it; name and version with it."""
    fields: dict[str, object] = _plain(_to_json(record))
    return {name: value for name, value in fields.items() if name in CALENDAR_FIELDS}


# --- tenants --------------------------------------------------------------------------------------------------------


def tenant_from_bytes(value: bytes, tenant: str, version: int) -> Terms:
    """One version of a tenant's record. Raises ValueError with every mistake."""
    record = decode(m.Tenant, value)
    if (record.tenant, record.version) != (tenant, version):
        raise ValueError(f"the value is of {record.tenant}@{record.version}, its key is {tenant}@{version}")
    faults = tenant_faults(record)
    if faults:
        raise ValueError("; ".join(faults))
    return Terms(record.catch_up_per_s, record.weight)


def tenant_faults(record: m.Tenant) -> list[str]:
    """Everything that is wrong with the values of a tenant's record, a sentence each."""
    faults = []
    if not _TENANT.fullmatch(record.tenant):
        faults.append(f"tenant: {record.tenant[:60]!r} is none: 1 to 40 of a-z, 0-9 and '-', not beginning with '-'")
    if record.catch_up_per_s is not None and not 0 < record.catch_up_per_s <= MAX_CATCH_UP_PER_S:
        faults.append(f"catch_up_per_s: expected a number above 0, at most {MAX_CATCH_UP_PER_S}")
    if not 1 <= record.weight <= MAX_WEIGHT:
        faults.append(f"weight: expected a whole number from 1 to {MAX_WEIGHT}")
    faults += [f"quotas.{name[:60]}: expected a whole number >= 0" for name, q in record.quotas.items() if q < 0]
    return faults


MAX_CATCH_UP_PER_S = 100_000
MAX_WEIGHT = 1_000
_TENANT = re.compile(m.TENANT_PATTERN)


# --- live records ---------------------------------------------------------------------------------------------------


def live_key(kind: str, owner: str, name: str = "") -> bytes:
    """The key on `scheduler.live`: `<kind>:<owner>:<id>`."""
    return f"{kind}:{owner}:{name}".encode()


def split_live_key(key: bytes) -> tuple[str, str, str]:
    """(kind, owner, id). An owner has no ':', an id may."""
    kind, owner, name = key.decode().split(":", 2)
    return kind, owner, name


def live_from_bytes(value: bytes) -> m.Live:
    """A live record. Raises StateCorrupted."""
    try:
        return _live(value)
    except msgspec.MsgspecError as fault:
        raise _unreadable("a live record", fault, value) from fault


def floor_record(owner: str, floor: int) -> bytes:
    return _to_json(m.Live(kind="floor", owner=owner, floor=format_instant(floor)))


def catch_up_record(runs: Sequence[Run], definition: Schedule, now: int, *, frozen: bool) -> bytes:
    """What is still to run of an outage; `frozen` keeps the definition beside it, when a newer version takes over."""
    return _to_json(
        m.Live(
            kind="catchup",
            owner=definition.schedule_id,
            definition=Raw(schedule_to_bytes(definition)) if frozen else UNSET,
            version=definition.version,
            priority=definition.spec.priority.value,
            runs=[
                m.OwedRun(
                    scheduled_for=format_instant(run.scheduled_for),
                    available_at=format_instant(run.available_at),
                    stands_for=run.stands_for,
                )
                for run in runs
            ],
            seen_at=format_instant(now),
        )
    )


def frozen_record(stored: bytes, definition: Schedule) -> bytes:
    """A live record with the definition its nominals belong to, once the schedule has a newer version."""
    record = live_from_bytes(stored)
    if record.definition is UNSET:
        record.definition = Raw(schedule_to_bytes(definition))
    return _to_json(record)


def owed_record(definition: Schedule, nominal: Nominal, topic: str, dispatch: bytes, *, frozen: bool) -> bytes:
    """A nominal that waits outside the due index, with its dispatch value ready; `frozen` as in `catch_up_record`."""
    return _to_json(
        m.Live(
            kind="owed",
            owner=definition.schedule_id,
            occurrence_id=occurrence_id(definition.schedule_id, definition.version, nominal.scheduled_for),
            scheduled_for=format_instant(nominal.scheduled_for),
            available_at=format_instant(nominal.available_at),
            topic=topic,
            dispatch=Raw(dispatch),
            definition=Raw(schedule_to_bytes(definition)) if frozen else UNSET,
            version=definition.version,
        )
    )


class _Sent(msgspec.Struct):
    schedule_id: str
    version: int
    attempt: int
    scheduled_for: str
    origin: str


_sent = msgspec.json.Decoder(_Sent).decode


def ran_of(value: bytes) -> tuple[str, Ran] | None:
    """Whose nominal a dispatch value says to have run; None for a manual run, and for what no scheduler wrote."""
    try:
        sent = _sent(value)
        if sent.origin == Origin.MANUAL:
            return None
        return sent.schedule_id, Ran(_at(sent.scheduled_for), sent.version, sent.attempt)
    except (msgspec.MsgspecError, ValueError):
        return None


def backfill_key(backfill: Backfill) -> bytes:
    return live_key("backfill", backfill.definition.schedule_id, backfill.name)


def backfill_record(backfill: Backfill) -> bytes:
    """A backfill as far as it has come, for the next step and for whoever looks at the topic."""
    definition = backfill.definition
    return _to_json(
        m.Live(
            kind="backfill",
            owner=definition.schedule_id,
            definition=Raw(schedule_to_bytes(definition)),
            version=definition.version,
            priority=definition.spec.priority.value,
            seen_at=format_instant(backfill.accepted_at),
            command_id=backfill.command_id,
            first=format_instant(backfill.first),
            until=format_instant(backfill.until),
            after=format_instant(backfill.after),
            per_s=backfill.per_s,
            only_missing=backfill.only_missing,
            counted=backfill.counted,
            informed=backfill.informed,
            ran=[
                m.Stretch(first=format_instant(s.first), last=format_instant(s.last), attempt=s.attempt)
                for s in backfill.ran
            ],
            owed=[format_instant(nominal) for nominal in backfill.owed],
            total=backfill.total,
            dispatched=backfill.dispatched,
            left_out=backfill.left_out,
            remaining=backfill.remaining,
        )
    )


def backfill_of(record: m.Live, calendars: Calendars) -> Backfill:
    """The backfill of its live record. Raises StateCorrupted when it is not a whole one."""
    if not isinstance(record.definition, Raw) or not (
        record.first and record.until and record.after and record.seen_at
    ):
        raise StateCorrupted(f"a backfill of {record.owner} has no range or no definition")
    return Backfill(
        command_id=record.command_id or "",
        definition=bound(plan_from_bytes(bytes(record.definition)), calendars),
        first=_at(record.first),
        until=_at(record.until),
        after=_at(record.after),
        accepted_at=_at(record.seen_at),
        per_s=record.per_s,
        only_missing=record.only_missing,
        counted=record.counted,
        informed=record.informed,
        owed=tuple(_at(nominal) for nominal in record.owed),
        ran=tuple(Stretch(_at(s.first), _at(s.last), s.attempt) for s in record.ran),
        dispatched=record.dispatched,
        left_out=record.left_out,
    )


def change_record(owner: str, command_id: str, value: bytes, effective_from: int, accepted_at: int) -> bytes:
    """A change for later: the command as it was sent."""
    return _to_json(
        m.Live(
            kind="change",
            owner=owner,
            available_at=format_instant(effective_from),
            seen_at=format_instant(accepted_at),
            command=Raw(value),
            command_id=command_id,
        )
    )


def owed_nominal(record: m.Live) -> Nominal:
    """The nominal of an owed record. Raises StateCorrupted when it names none."""
    if record.scheduled_for is None or record.available_at is None:
        raise StateCorrupted(f"a live record of {record.owner} owes nothing: {record.kind} without an instant")
    return Nominal(parse_instant(record.scheduled_for), parse_instant(record.available_at))


def catch_up_rest(record: m.Live, done: int) -> bytes:
    """The record after its first `done` runs were dispatched."""
    record.runs = record.runs[done:]
    return _to_json(record)


def catch_up_runs(record: m.Live) -> list[Run]:
    """The runs of a catch-up record, oldest first."""
    return [
        Run(parse_instant(run.scheduled_for), parse_instant(run.available_at), Origin.CATCH_UP, run.stands_for)
        for run in record.runs
    ]


def to_json(value: msgspec.Struct) -> bytes:
    return _to_json(value)


# --- dispatch -------------------------------------------------------------------------------------------------------


class DispatchTemplate:
    """The dispatch values of one definition: everything but the instants encoded once, so that one costs < 1 µs."""

    __slots__ = ("_deadline_ms", "_head", "_middle", "_schedule", "_tail")

    def __init__(self, schedule: Schedule, record: ShardRecord) -> None:
        spec = schedule.spec
        name = schedule.schedule_id
        priority = PRIORITY_NAMES[spec.priority]
        self._head = f'{{"occurrence_id":"{name}:{schedule.version}:'.encode()
        self._middle = (
            f'","schedule_id":"{name}","tenant":"{tenant_of(name)}","version":{schedule.version},'
            f'"shard":{record.shard},"lane":"{spec.lane}","priority":"{priority}","attempt":1,"scheduled_for":"'
        ).encode()
        tail = f',"tz_version":"{record.tz_version}","generation":{record.generation}'.encode()
        handler = b"" if spec.handler is None else b',"handler":' + _to_json(spec.handler)
        payload = b"" if spec.payload is None else b',"payload":' + spec.payload
        self._deadline_ms = spec.deadline_ms
        self._tail = (tail, handler, payload)

    def value(
        self,
        scheduled_for: int,
        available_at: int,
        origin: str = "schedule",
        stands_for: int = 1,
        name: str | None = None,
        payload: bytes | None = None,
        attempt: int = 1,
    ) -> bytes:
        """One dispatch value. `name` replaces the instant in the occurrence id (manual runs), `payload` the payload."""
        middle = self._middle if attempt == 1 else self._middle.replace(_FIRST, b'"attempt":%d,' % attempt)
        at, text = _texts(scheduled_for)
        available = text if available_at == scheduled_for else _texts(available_at)[1]
        tail, handler, usual = self._tail
        deadline = b""
        if self._deadline_ms is not None:
            deadline = b',"deadline":"%b"' % _texts(available_at + self._deadline_ms)[1]
        return b'%b%b%b%b","available_at":"%b","origin":"%b","stands_for":%d%b%b%b%b}' % (
            self._head,
            at if name is None else name.encode(),
            middle,
            text,
            available,
            origin.encode(),
            stands_for,
            tail,
            deadline,
            handler,
            usual if payload is None else b',"payload":' + payload,
        )


_FIRST = b'"attempt":1,'


@lru_cache(maxsize=8192)
def _texts(instant: int) -> tuple[bytes, bytes]:
    """(the stamp of occurrence ids, RFC 3339): many occurrences share few instants."""
    return stamp(instant).encode(), format_instant(instant).encode()


# --- answers and history --------------------------------------------------------------------------------------------


def reply_to_bytes(command: Command, decision: Decision, now: int) -> bytes:
    """The value of `scheduler.replies`. A repeated command gets its first answer again."""
    answer = decision.repeated
    after = decision.after
    return _to_json(
        m.Reply(
            command=command.verb,
            schedule_id=command.schedule_id,
            command_id=command.command_id,
            status=_STATUS[decision.accepted],
            code=decision.code,
            message=decision.message,
            at=format_instant(answer.at if answer else now),
            version=answer.version if answer else after.version if after else None,
            revision=answer.revision if answer else after.revision if after else None,
            state=after.state.value if after and not decision.delete else None,
            effective_at=_instant(decision.effective_at),
            occurrence_id=decision.occurrence_id,
            dry_run=command.dry_run,
            counts=dict(decision.counts),
            preview=[
                m.Planned(scheduled_for=format_instant(n.scheduled_for), available_at=format_instant(n.available_at))
                for n in decision.preview
            ],
            errors=[_problem(p) for p in decision.problems],
            warnings=[_problem(p) for p in decision.warnings],
        )
    )


def _problem(problem: Problem) -> m.Problem:
    return m.Problem(field=problem.field, code=problem.code, message=problem.message)


def revision_to_bytes(
    schedule: Schedule,
    change: str,
    command_id: str | None,
    now: int,
    *,
    deleted: bool = False,
    counts: dict[str, int] | None = None,
) -> bytes:
    """The value of `scheduler.schedule-history`."""
    return _to_json(
        m.Revision(
            schedule_id=schedule.schedule_id,
            tenant=tenant_of(schedule.schedule_id),
            version=schedule.version,
            revision=schedule.revision,
            change=change,
            state="deleted" if deleted else schedule.state,
            at=format_instant(now),
            effective_at=format_instant(schedule.effective_at),
            command_id=command_id,
            actor=schedule.actor,
            reason=schedule.reason,
            spec=None if deleted else _spec_value(schedule.spec),
            calendar_version=planned_by(schedule.spec.trigger) or None,
            counts=counts or {},
        )
    )


def occurrence_key(schedule: Schedule, gone: Gone) -> bytes:
    """The key on `scheduler.occurrences`: the id of the newest nominal the record covers."""
    return f"{schedule.schedule_id}:{schedule.version}:{stamp(gone.last)}".encode()


def occurrence_to_bytes(schedule: Schedule, gone: Gone, now: int) -> bytes:
    """The value of `scheduler.occurrences`: one nominal by its id, a run of them as first, last and count."""
    single = gone.count == 1 and gone.reason != "gap"  # the instant of a gap is no nominal and has no id
    return _to_json(
        m.Occurrence(
            state=gone.state,  # type: ignore[arg-type] # the policies' words are the literal's
            schedule_id=schedule.schedule_id,
            tenant=tenant_of(schedule.schedule_id),
            version=schedule.version,
            reason=gone.reason,
            at=format_instant(now),
            count=gone.count,
            occurrence_id=occurrence_key(schedule, gone).decode() if single else None,
            scheduled_for=format_instant(gone.last) if single else None,
            first=None if single else format_instant(gone.first),
            last=None if single else format_instant(gone.last),
        )
    )


# As JSON text a byte takes up to six, as base64 one and a third: so much fits the smallest usual limit, 1,000,000.
KEPT_BYTES = 128 * 1024
KEPT_KEY_BYTES = 4 * 1024


@dataclass(frozen=True, slots=True)
class Source:
    """Where an input record stood."""

    topic: str
    partition: int
    offset: int


def rejected_to_bytes(
    source: Source, key: bytes | None, value: bytes | None, code: str, reason: str, now: int
) -> bytes:
    """The value of `scheduler.rejected`: the bytes as base64, and as text when they are text.

    Of more than `KEPT_BYTES` only so many are kept, and the reason says so: the record must fit the topic, whatever
    came in, or one bad input would stop its shard for good.
    """
    text = None
    if value is not None and len(value) > KEPT_BYTES:
        reason += f" (the first {KEPT_BYTES} of {len(value)} bytes are kept; all of them stand in {source.topic})"
        value = value[:KEPT_BYTES]
    elif value is not None:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = None
    key = None if key is None else key[:KEPT_KEY_BYTES]
    return _to_json(
        m.Rejected(
            reason=reason,
            code=code,
            topic=source.topic,
            partition=source.partition,
            offset=source.offset,
            at=format_instant(now),
            key_base64=_base64(key),
            value_base64=_base64(value),
            value_text=text,
        )
    )


def readable_key(key: bytes | None) -> bytes:
    """The original key where it is text; anything else as base64, so that every key on our topics reads as text.

    Of a very long key only the first `KEPT_KEY_BYTES` count.
    """
    if key is None:
        return b"none"
    key = key[:KEPT_KEY_BYTES]
    try:
        key.decode()
    except UnicodeDecodeError:
        return b"base64:" + base64.b64encode(key)
    return key


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _instant(ms: int | None) -> str | None:
    return None if ms is None else format_instant(ms)


def _ms(text: str | None) -> int | None:
    return None if text is None else _at(text)


_at = lru_cache(maxsize=8192)(parse_instant)  # the instants of one record, and of neighbours, are often the same
