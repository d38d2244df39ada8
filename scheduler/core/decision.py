"""The values of a decision: the situation it depends on, what it answers, and what the shard must do for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from scheduler.core.calendars import NO_CALENDARS, Calendars
from scheduler.core.command import MAX_PROBLEMS
from scheduler.core.model import Answer, Nominal, Schedule
from scheduler.core.policy import Look, Settlement

if TYPE_CHECKING:
    from scheduler.core.backfill import Backfill
    from scheduler.core.command import Command
    from scheduler.core.problem import Problem

Settled = tuple[tuple[Schedule, Settlement], ...]
"""What became of nominals, each beside the definition they belong to."""


class Debt(Struct, frozen=True, gc=False):
    """Something a schedule still owes outside its next nominal: one record of the `live` topic.

    `definition`: the one its nominals belong to, if the schedule has another version by now.
    """

    key: str
    version: int
    nominals: tuple[int, ...]
    definition: Schedule | None = None


class Situation(Struct, frozen=True, kw_only=True, gc=False):
    """Everything a decision may depend on. `position` is the first undecided nominal (of a paused
    schedule: the first after its floor), None if there is none. `kept_since`: dispatches before may be forgotten.
    """

    schedule: Schedule | None
    position: int | None
    look: Look
    appended_at: int
    next_version: int = 1
    debts: tuple[Debt, ...] = ()
    calendars: Calendars = NO_CALENDARS
    backfills: tuple[Backfill, ...] = ()
    kept_since: int | None = None


class ManualRun(Struct, frozen=True, kw_only=True, gc=False):
    """`trigger`: one dispatch named after its command; without a payload of its own it carries the schedule's."""

    command_id: str
    payload: bytes | None


class Effects(Struct, frozen=True, kw_only=True, gc=False):
    """What the shard must do for a decision. `settled` pairs the definition with what became of its nominals.

    `later` is the instant at which the command is to be decided again, by `decide_due`.
    """

    save: bool = False
    delete: bool = False
    revised: bool = False
    settled: Settled = ()
    manual: ManualRun | None = None
    drop_debts: bool = False
    freeze_debts: bool = False
    end_backfills: bool = False
    later: int | None = None
    drop_changes: bool = False


NO_EFFECTS = Effects()


class Decision(Struct, frozen=True, kw_only=True, gc=False):
    """The answer, and its effects: a dry run has none.

    `backfill` is no effect: one that is only counted is a dry run's too, which is answered when it is known what ran.
    """

    accepted: bool
    code: str
    message: str
    before: Schedule | None = None
    after: Schedule | None = None
    effects: Effects = NO_EFFECTS
    backfill: Backfill | None = None
    effective_at: int | None = None
    occurrence_id: str | None = None
    counts: tuple[tuple[str, int], ...] = ()
    preview: tuple[Nominal, ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    repeated: Answer | None = None


def existing(situation: Situation) -> Schedule:
    """The schedule of a situation that has one, which a handler of its act may rely on."""
    if situation.schedule is None:
        raise AssertionError("the lifecycle table led an absent schedule to a handler for present ones")
    return situation.schedule


def leave(schedule: Schedule, code: str, message: str, warnings: tuple[Problem, ...] = ()) -> Decision:
    """Accepted, and nothing changes."""
    return Decision(
        accepted=True, code=code, message=message, before=schedule, after=schedule, warnings=warnings,
        effective_at=schedule.effective_at,
    )  # fmt: skip


def refuse(
    command: Command, situation: Situation, code: str, message: str, problems: tuple[Problem, ...] = ()
) -> Decision:
    """Not accepted, and nothing changes."""
    return Decision(
        accepted=False, code=code, message=message, before=situation.schedule, after=situation.schedule,
        problems=problems, warnings=command.warnings,
    )  # fmt: skip


def refuse_bad(command: Command, situation: Situation, problems: tuple[Problem, ...]) -> Decision:
    """Mistakes in the command itself, all at once."""
    problems = problems[:MAX_PROBLEMS]
    return refuse(command, situation, problems[0].code, _summary(problems), problems)


def _summary(problems: tuple[Problem, ...]) -> str:
    return "; ".join(p.message if _names_its_field(p) else f"{p.field}: {p.message}" for p in problems)


def _names_its_field(problem: Problem) -> bool:
    return not problem.field or problem.message.startswith(f"{problem.field}:")
