"""What a schedule remembers of its commands: the newest with their answers, older ones as known to be old."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from scheduler.core.decision import Decision
from scheduler.core.identity import command_digest
from scheduler.core.model import Answer

if TYPE_CHECKING:
    from scheduler.core.command import Command
    from scheduler.core.decision import Situation
    from scheduler.core.model import Schedule

REMEMBERED = 8  # command ids with their answers
REMEMBERED_DIGESTS = 56  # older ids, known only to be old
_DIGEST = 8


def repeat(command: Command, schedule: Schedule) -> Decision | None:
    """The answer to a command that had one; None for a new command."""
    for answer in schedule.recent:
        if answer.command_id == command.command_id:
            return Decision(
                accepted=answer.accepted, code=answer.code, message=answer.message, before=schedule, after=schedule,
                repeated=answer, effective_at=answer.effective_at, occurrence_id=answer.occurrence_id,
                counts=answer.counts,
            )  # fmt: skip
    if schedule.older:
        digest = command_digest(command.command_id)
        known = schedule.older
        if any(known[i : i + _DIGEST] == digest for i in range(0, len(known), _DIGEST)):
            return Decision(
                accepted=False, code="stale_command", before=schedule, after=schedule,
                message="this command was answered long ago and newer ones came after it; use a new command_id",
            )  # fmt: skip
    return None


_FORGOTTEN = frozenset({"bad_field", "not_found", "stale_command", "previewed"})


def remembering(command: Command, situation: Situation, decision: Decision) -> Decision:
    """Add the answer to what the schedule remembers, for a repeat; bad and read-only commands leave none."""
    after = decision.after
    if after is None or decision.effects.delete or decision.problems or decision.code in _FORGOTTEN:
        return decision
    answer = Answer(
        command_id=command.command_id,
        command=command.verb,
        accepted=decision.accepted,
        code=decision.code,
        message=decision.message,
        at=situation.look.now,
        version=after.version,
        revision=after.revision,
        effective_at=decision.effective_at,
        occurrence_id=decision.occurrence_id,
        counts=decision.counts,
    )
    recent = (*after.recent, answer)
    older = after.older
    if len(recent) > REMEMBERED:
        older = (older + command_digest(recent[0].command_id))[-REMEMBERED_DIGESTS * _DIGEST :]
        recent = recent[1:]
    effects = decision.effects if decision.effects.save else replace(decision.effects, save=True)
    return replace(decision, after=replace(after, recent=recent, older=older), effects=effects)
