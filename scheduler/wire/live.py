"""What is owed outside the due index: the values of `scheduler.live`, kind by kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw

from scheduler.core.backfill import Backfill, Stretch
from scheduler.core.calendars import Calendars, bound
from scheduler.core.identity import occurrence_id
from scheduler.core.model import Nominal, Origin, Run, Schedule
from scheduler.core.policy import MAX_BACKLOG
from scheduler.core.series import Series
from scheduler.core.time import format_instant
from scheduler.errors import StateCorrupted
from scheduler.wire.schedules import plan_from_bytes, schedule_to_bytes
from scheduler.wire.text import instant_at, to_json, unreadable
from topics import messages as m
from topics.codec import raw_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


def catch_up_record(owed: Sequence[Series], definition: Schedule, now: int, *, frozen: bool) -> bytes:
    """What is still to run of an outage; `frozen` keeps the definition beside it, when a newer version takes over."""
    return to_json(
        m.Live(
            kind="catchup",
            owner=definition.schedule_id,
            definition=Raw(schedule_to_bytes(definition)) if frozen else UNSET,
            version=definition.version,
            priority=definition.spec.priority.value,
            runs=_series_to_wire(owed),
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


def readdressed_record(stored: bytes, topic: Callable[[str], str], shard: int) -> bytes:
    """A live record for another shard, whose topics are found by `topic`."""
    record = live_from_bytes(stored)
    if record.topic is None:
        return stored
    record.topic = topic(record.topic)
    if isinstance(record.dispatch, Raw):
        fields = raw_fields(record.dispatch)
        fields["shard"] = Raw(b"%d" % shard)
        record.dispatch = Raw(to_json(fields))
    return to_json(record)


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
    if not isinstance(record.definition, Raw):
        raise _damaged(record, "without a definition")
    return Backfill(
        command_id=record.command_id or "",
        definition=bound(plan_from_bytes(bytes(record.definition)), calendars),
        first=_instant(record, "first", record.first),
        until=_instant(record, "until", record.until),
        after=_instant(record, "after", record.after),
        accepted_at=accepted_at(record),
        per_s=record.per_s,
        only_missing=record.only_missing,
        counted=record.counted,
        informed=record.informed,
        owed=tuple(_instant(record, "owed", nominal) for nominal in record.owed),
        ran=tuple(
            Stretch(_instant(record, "ran", s.first), _instant(record, "ran", s.last), s.attempt) for s in record.ran
        ),
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
    return Nominal(_instant(record, "scheduled_for", record.scheduled_for), available_at(record))


def owed_instants(record: m.Live) -> tuple[int, ...]:
    """Of which nominals a record of either kind of debt is, oldest first. Raises StateCorrupted when it names none."""
    if record.runs:
        return tuple(nominal for series in catch_up_series(record) for nominal in series.nominals())
    return (_instant(record, "scheduled_for", record.scheduled_for),)


def catch_up_rest(record: m.Live, rest: Sequence[Series]) -> bytes:
    """The record once only `rest` is owed."""
    record.runs = _series_to_wire(rest)
    return to_json(record)


def catch_up_series(record: m.Live) -> list[Series]:
    """What a catch-up record owes, oldest first. Raises StateCorrupted."""
    for run in record.runs:
        if not 1 <= run.count <= MAX_BACKLOG or run.every_ms < 0 or (run.count > 1 and not run.every_ms):
            raise _damaged(record, f"runs: {run.count} every {run.every_ms} ms")
    return [
        Series(
            Run(
                _instant(record, "runs", run.scheduled_for),
                _instant(record, "runs", run.available_at),
                Origin.CATCH_UP,
                run.stands_for,
            ),
            run.count,
            run.every_ms,
        )
        for run in record.runs
    ]


def _series_to_wire(owed: Sequence[Series]) -> list[m.OwedRun]:
    return [
        m.OwedRun(
            scheduled_for=format_instant(series.first.scheduled_for),
            available_at=format_instant(series.first.available_at),
            stands_for=series.first.stands_for,
            count=series.count,
            every_ms=series.every_ms,
        )
        for series in owed
    ]


# --- fields that a kind of record always has; StateCorrupted when a damaged one lacks them ---------------------------


def change_key(record: m.Live) -> bytes:
    """The key of a change for later."""
    if record.command_id is None:
        raise _damaged(record, "without command_id")
    return live_key("change", record.owner, record.command_id)


def version_of(record: m.Live) -> int:
    """Of a debt or a backfill: which version of the definition it belongs to."""
    if record.version is None:
        raise _damaged(record, "without version")
    return record.version


def available_at(record: m.Live) -> int:
    """When an owed nominal may run, or a change is to be decided; ms."""
    return _instant(record, "available_at", record.available_at)


def accepted_at(record: m.Live) -> int:
    """When a backfill or a change was accepted, ms."""
    return _instant(record, "seen_at", record.seen_at)


def floor_of(record: m.Live) -> int:
    """The instant of a floor record, ms."""
    return _instant(record, "floor", record.floor)


def _instant(record: m.Live, field: str, text: str | None) -> int:
    if text is None:
        raise _damaged(record, f"without {field}")
    try:
        return instant_at(text)
    except ValueError as fault:
        raise _damaged(record, f"{field}: {fault}") from fault


def _damaged(record: m.Live, what: str) -> StateCorrupted:
    return StateCorrupted(f"a live record of {record.owner} is damaged: {record.kind} {what}")
