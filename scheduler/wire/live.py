"""What is owed outside the due index: the values of `scheduler.live`, kind by kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw

from scheduler.core.backfill import Backfill, Stretch
from scheduler.core.calendars import Calendars, bound
from scheduler.core.identity import occurrence_id
from scheduler.core.model import Nominal, Origin, Run, Schedule
from scheduler.core.time import format_instant, parse_instant
from scheduler.errors import StateCorrupted
from scheduler.wire.schedules import plan_from_bytes, schedule_to_bytes
from scheduler.wire.text import instant_at, to_json, unreadable
from topics import messages as m

if TYPE_CHECKING:
    from collections.abc import Sequence

_live = msgspec.json.Decoder(m.Live).decode


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
        raise unreadable("a live record", fault, value) from fault


def floor_record(owner: str, floor: int) -> bytes:
    return to_json(m.Live(kind="floor", owner=owner, floor=format_instant(floor)))


def catch_up_record(runs: Sequence[Run], definition: Schedule, now: int, *, frozen: bool) -> bytes:
    """What is still to run of an outage; `frozen` keeps the definition beside it, when a newer version takes over."""
    return to_json(
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
    return to_json(record)


def owed_record(definition: Schedule, nominal: Nominal, topic: str, dispatch: bytes, *, frozen: bool) -> bytes:
    """A nominal that waits outside the due index, with its dispatch value ready; `frozen` as in `catch_up_record`."""
    return to_json(
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


def backfill_key(backfill: Backfill) -> bytes:
    return live_key("backfill", backfill.definition.schedule_id, backfill.name)


def backfill_record(backfill: Backfill) -> bytes:
    """A backfill as far as it has come, for the next step and for whoever looks at the topic."""
    definition = backfill.definition
    return to_json(
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
        first=instant_at(record.first),
        until=instant_at(record.until),
        after=instant_at(record.after),
        accepted_at=instant_at(record.seen_at),
        per_s=record.per_s,
        only_missing=record.only_missing,
        counted=record.counted,
        informed=record.informed,
        owed=tuple(instant_at(nominal) for nominal in record.owed),
        ran=tuple(Stretch(instant_at(s.first), instant_at(s.last), s.attempt) for s in record.ran),
        dispatched=record.dispatched,
        left_out=record.left_out,
    )


def change_record(owner: str, command_id: str, value: bytes, effective_from: int, accepted_at: int) -> bytes:
    """A change for later: the command as it was sent."""
    return to_json(
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
    return to_json(record)


def catch_up_runs(record: m.Live) -> list[Run]:
    """The runs of a catch-up record, oldest first."""
    return [
        Run(parse_instant(run.scheduled_for), parse_instant(run.available_at), Origin.CATCH_UP, run.stands_for)
        for run in record.runs
    ]
