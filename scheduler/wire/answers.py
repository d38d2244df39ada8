"""What is told about commands and nominals: replies, history, occurrences that did not run, rejected input."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from scheduler.core.calendars import planned_by
from scheduler.core.identity import tenant_of
from scheduler.core.time import format_instant, stamp
from scheduler.wire.schedules import STATUS, spec_value
from scheduler.wire.text import instant_text, to_json
from topics import messages as m

if TYPE_CHECKING:
    from msgspec import Raw

    from scheduler.core.command import Command
    from scheduler.core.decision import Decision
    from scheduler.core.model import Gone, Schedule
    from scheduler.core.problem import Problem


def reply_to_bytes(command: Command, decision: Decision, now: int) -> bytes:
    """The value of `scheduler.replies`. A repeated command gets its first answer again."""
    answer = decision.repeated
    after = decision.after
    return to_json(
        m.Reply(
            command=command.verb,
            schedule_id=command.schedule_id,
            command_id=command.command_id,
            status=STATUS[decision.accepted],
            code=decision.code,
            message=decision.message,
            at=format_instant(answer.at if answer else now),
            version=answer.version if answer else after.version if after else None,
            revision=answer.revision if answer else after.revision if after else None,
            state=after.state.value if after and not decision.effects.delete else None,
            effective_at=instant_text(decision.effective_at),
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
    definition: Raw | None = None,
) -> bytes:
    """The value of `scheduler.schedule-history`. `definition`: the schedule's `spec_value`, if at hand."""
    return to_json(
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
            spec=None if deleted else cast("m.Spec", definition or spec_value(schedule.spec)),
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
    return to_json(
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
    return to_json(
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
