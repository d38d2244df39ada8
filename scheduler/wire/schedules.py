"""Schedules and their definitions: the values of `scheduler.schedules`, which are the store's too."""

from __future__ import annotations

import re
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from scheduler.core.calendars import planned_by
from scheduler.core.identity import tenant_of
from scheduler.core.model import (
    DEFAULT_MAX_LATENESS_MS,
    PRIORITY_BY_NAME,
    PRIORITY_NAMES,
    Answer,
    Misfire,
    MisfireKind,
    Priority,
    Schedule,
    Spec,
    State,
)
from scheduler.core.time import format_instant, parse_instant
from scheduler.core.trigger import Every, Trigger, parse_trigger
from scheduler.core.unplannable import Unplannable
from scheduler.wire.text import instant_at, instant_or_none, instant_text, plain, to_json, unreadable
from topics import messages as m

if TYPE_CHECKING:
    from collections.abc import Collection

_schedule = msgspec.json.Decoder(m.Schedule).decode


def schedule_to_bytes(schedule: Schedule, definition: Raw | None = None) -> bytes:
    """The value of `scheduler.schedules`, which is also the store's. `definition`: its `spec_value`, if at hand."""
    return to_json(
        m.Schedule(
            schedule_id=schedule.schedule_id,
            tenant=tenant_of(schedule.schedule_id),
            state=schedule.state,  # type: ignore[arg-type] # its texts are the literal's
            version=schedule.version,
            revision=schedule.revision,
            created_at=format_instant(schedule.created_at),
            updated_at=format_instant(schedule.updated_at),
            effective_at=format_instant(schedule.effective_at),
            floor=instant_text(schedule.floor) if schedule.floor != schedule.effective_at else None,
            spec=cast("m.Spec", definition or spec_value(schedule.spec)),
            completed_at=instant_text(schedule.completed_at),
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
        spec = _spec_from_wire(record.spec, record.schedule_id, record.calendar_version or 0)
        answers = tuple(_answer_from_wire(answer) for answer in record.recent)
        return _schedule_of(record, spec, answers, record.older)
    except (msgspec.MsgspecError, ValueError, KeyError) as fault:
        raise unreadable("a schedule record", fault, value) from fault


def plan_from_bytes(value: bytes, *, payload: bool = True) -> Schedule:
    """The same without the answers it remembers: to be read often, never to be stored again.

    Without `payload` for those who only ask when.
    """
    try:
        record = _plan(value)
        spec = _known_spec(bytes(record.spec), record.schedule_id, record.calendar_version or 0, with_payload=payload)
        return _schedule_of(record, spec, (), "")
    except (msgspec.MsgspecError, ValueError, KeyError) as fault:
        raise unreadable("a schedule record", fault, value) from fault


class _Plan(msgspec.Struct, gc=False):
    """A schedule record as far as planning needs it."""

    schedule_id: str
    state: str
    version: int
    revision: int
    created_at: str
    updated_at: str
    effective_at: str
    spec: Raw
    floor: str | None = None
    completed_at: str | None = None
    broken_reason: str | None = None
    actor: str | None = None
    reason: str | None = None
    calendar_version: int | None = None


_plan = msgspec.json.Decoder(_Plan).decode


class _Timed(msgspec.Struct, gc=False):
    """Of a definition, what says when it fires."""

    trigger: Raw
    start: str | None = None
    end: str | None = None
    priority: str = PRIORITY_NAMES[Priority.NORMAL]
    window_ms: int = 0
    calendar: str | None = None


class _Placed(msgspec.Struct, gc=False):
    """Of a schedule record, what says where it stands in the due index."""

    state: str
    effective_at: str
    spec: _Timed
    floor: str | None = None


_placed = msgspec.json.Decoder(_Placed).decode

_ONE_SHOT = b'"trigger":{"at":'
Timing = tuple[bytes, str | None, str | None, str]


def timing_from_bytes(value: bytes) -> tuple[Timing, int] | None:
    """(what an active schedule's nominals and priority follow from, its floor): alike for many, whatever their names.

    None if there is more to it (another state, a window, a calendar, `H`), and for one-shots, of which few are alike.
    Raises StateCorrupted.
    """
    if _ONE_SHOT in value:
        return None
    try:
        record = _placed(value)
        spec, trigger = record.spec, bytes(record.spec.trigger)
        if record.state != State.ACTIVE or spec.window_ms or spec.calendar is not None or _HASHED.search(trigger):
            return None
        return (trigger, spec.start, spec.end, spec.priority), instant_at(record.floor or record.effective_at)
    except (msgspec.MsgspecError, ValueError) as fault:
        raise unreadable("a schedule record", fault, value) from fault


def _schedule_of(record: m.Schedule | _Plan, spec: Spec, recent: tuple[Answer, ...], older: str) -> Schedule:
    effective_at = instant_at(record.effective_at)
    return Schedule(
        schedule_id=record.schedule_id,
        state=_STATES[record.state],
        version=record.version,
        revision=record.revision,
        created_at=instant_at(record.created_at),
        updated_at=instant_at(record.updated_at),
        effective_at=effective_at,
        floor=effective_at if record.floor is None else instant_at(record.floor),
        spec=spec,
        completed_at=instant_or_none(record.completed_at),
        broken_reason=record.broken_reason,
        actor=record.actor,
        reason=record.reason,
        recent=recent,
        older=older,
    )


_STATES = {state.value: state for state in State}


def spec_value(spec: Spec) -> Raw:
    """A definition as it stands inside other values. Defaults are left out: it says no more than its producer did."""
    text = _printed(_all_but_payload(spec))
    return Raw(text if spec.payload is None else b'%b,"payload":%b}' % (text[:-1], spec.payload))


# Those who send many definitions send few that differ in more than the payload.
@lru_cache(maxsize=2048)
def _printed(values: tuple[Any, ...]) -> bytes:
    """A definition without its payload. There is a field before it at all times: the trigger."""
    spec = Spec(**dict(zip(_SPEC_FIELDS, values, strict=True)))
    fields: dict[str, object] = {"trigger": Raw(to_json(spec.trigger.to_wire()))}
    fields |= {name: value for name in _PLAIN if (value := getattr(spec, name)) != getattr(_USUAL, name)}
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
    if spec.labels:
        fields["labels"] = dict(spec.labels)
    return to_json(fields)


_SPEC_FIELDS = tuple(name for name in Spec.__struct_fields__ if name != "payload")
_all_but_payload = attrgetter(*_SPEC_FIELDS)
_USUAL = Spec(trigger=Every(1000, 0))
# Fields that look the same inside and outside, with their defaults.
_PLAIN = (
    "calendar", "roll", "lane", "window_ms", "overlap", "tracking", "timeout_ms", "deadline_ms", "handler", "owner",
    "description", "impact", "runbook",
)  # fmt: skip
_RETRY = ("max_attempts", "base_ms", "cap_ms")


def _known_spec(value: bytes, schedule_id: str, calendar_version: int, *, with_payload: bool) -> Spec:
    """A definition of its bytes. Many share all but the payload, which `spec_value` prints last."""
    payload = bytes(_payload(value).payload)
    end = b',"payload":%b}' % payload
    has_payload = value.endswith(end)
    rest = value[: -len(end)] + b"}" if has_payload else value
    spec = _shared_spec(rest, calendar_version) if len(rest) <= _LONGEST_KEPT else None
    if spec is None:
        spec = _spec_from_wire(_spec(rest), schedule_id, calendar_version)
    return replace(spec, payload=payload) if has_payload and with_payload else spec


class _Payload(msgspec.Struct, gc=False):
    payload: Raw = Raw()


_payload = msgspec.json.Decoder(_Payload).decode
_spec = msgspec.json.Decoder(m.Spec).decode


@lru_cache(maxsize=4096)
def _shared_spec(value: bytes, calendar_version: int) -> Spec | None:
    """A definition that is the same whatever schedule has it; None if the rule depends on the schedule's name."""
    return None if _HASHED.search(value) else _spec_from_wire(_spec(value), "", calendar_version)


_LONGEST_KEPT = 1024  # bytes: some 8 MB at most


def _spec_from_wire(spec: m.Spec, schedule_id: str, calendar_version: int) -> Spec:
    limit = spec.max_lateness_ms
    trigger = _trigger_from_wire(bytes(spec.trigger), schedule_id)
    if spec.calendar is not None:
        # Without its calendar it names nothing, which is safer than too much: `core.calendars.bound` gives it one.
        trigger = Unplannable(b"", f"calendar {spec.calendar!r} is not at hand", trigger, calendar_version)
    return Spec(
        trigger=trigger,
        start=instant_or_none(spec.start),
        end=instant_or_none(spec.end),
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


def _trigger_from_wire(raw: bytes, schedule_id: str) -> Trigger:
    return _trigger(raw, schedule_id if _HASHED.search(raw) else None)


_HASHED = re.compile(rb'"cron":"[^"]*[Hh]')  # only `H` in an expression depends on the schedule's name


@lru_cache(maxsize=65_536)
def _trigger(raw: bytes, schedule_id: str | None) -> Trigger:
    parsed = parse_trigger(plain(raw), schedule_id=schedule_id, effective_at=0)
    if parsed.trigger is None:
        return Unplannable(raw, "; ".join(problem.message for problem in parsed.problems))
    return parsed.trigger


def _answer_to_wire(answer: Answer) -> m.RecentCommand:
    return m.RecentCommand(
        command_id=answer.command_id,
        command=answer.command,
        status=STATUS[answer.accepted],
        code=answer.code,
        message=answer.message,
        at=format_instant(answer.at),
        version=answer.version,
        revision=answer.revision,
        effective_at=instant_text(answer.effective_at),
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
        effective_at=instant_or_none(record.effective_at),
        occurrence_id=record.occurrence_id,
        counts=tuple(sorted(record.counts.items())),
    )


STATUS: dict[bool, Any] = {True: "accepted", False: "rejected"}


def needle(calendars: Collection[str], zones: Collection[str]) -> re.Pattern[bytes]:
    """Finds the stored schedules that may name one of these calendars or zones; it may find some more."""
    fields = (("calendar", calendars), ("zone", zones))
    named = [re.escape(b'"%b":%b' % (field.encode(), to_json(name))) for field, names in fields for name in names]
    return re.compile(b"|".join(sorted(named)))
