"""What a command does about backfills of a schedule: starts one, or ends what runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from scheduler.core.backfill import MOST_NOMINALS, Backfill, bounds
from scheduler.core.decision import (
    Decision,
    Effects,
    Situation,
    existing,
    leave,
    refuse,
    refuse_bad,
)
from scheduler.core.model import State
from scheduler.core.problem import Problem
from scheduler.core.settlements import count_settled, end_backfills
from scheduler.core.time import format_instant

if TYPE_CHECKING:
    from scheduler.core.command import Command
    from scheduler.core.lifecycle import Act


def start_backfill(command: Command, situation: Situation, act: Act) -> Decision:
    """Fix the range and the definition; what ran of it is looked up before anything is dispatched."""
    schedule = existing(situation)
    now = situation.look.now
    since, asked = command.since or 0, command.until or 0
    if since > now:
        text = "lies in the future: a backfill is for nominals that have passed, later ones run by themselves"
        return refuse_bad(command, situation, (Problem("from", "bad_field", text),))
    first, until = bounds(schedule, since, asked, situation.position, now)
    count = schedule.spec.trigger.count_between(first - 1, until - 1)
    problems = _range_problems(command, situation, first, count)
    if problems:
        return refuse_bad(command, situation, problems)
    warnings: tuple[Problem, ...] = ()
    if asked > until and schedule.spec.trigger.count_between(until - 1, asked - 1):
        text = f"cut to {format_instant(until)}: later nominals are the schedule's own, or outside its start and end"
        warnings = (Problem("until", "cut", text),)
    if not count:
        return leave(schedule, "unchanged", "the range names nothing that could be run", warnings)
    if any(b.overlaps(first, until) or b.command_id == command.command_id for b in situation.backfills):
        text = "a backfill of an overlapping range is running; wait for its end, or send cancel-backfill"
        return refuse(command, situation, "backfill_running", text)
    owed = {n for debt in situation.debts for n in debt.nominals if first <= n < until}
    backfill = Backfill(
        command_id=command.command_id,
        definition=replace(schedule, recent=(), older=""),
        first=first,
        until=until,
        after=first - 1,
        accepted_at=now,
        per_s=command.per_s,
        only_missing=command.only_missing,
        counted=command.dry_run,
        owed=tuple(sorted(owed)),
    )
    then = "held until it is resumed" if schedule.state is State.PAUSED else "they run as fast as the budgets allow"
    return Decision(
        accepted=True,
        code=act.value,
        message=f"{count} nominals in the range; once it is known which of them ran, {then}",
        before=schedule,
        after=schedule,
        backfill=backfill,
        effective_at=now,
        counts=(("nominals", count),),
        warnings=warnings,
    )


def _range_problems(command: Command, situation: Situation, first: int, count: int) -> tuple[Problem, ...]:
    problems: tuple[Problem, ...] = ()
    kept_since = situation.kept_since
    if command.only_missing and count and kept_since is not None and first < kept_since:
        text = (
            f"which nominals ran is known since {format_instant(kept_since)} only (the retention of the dispatch "
            "topics, or a repartition): begin later, or send only_missing: false to run all of them"
        )
        problems = (Problem("from", "too_old", text),)
    if count > MOST_NOMINALS:
        text = f"the range names {count} nominals; at most {MOST_NOMINALS} in one backfill: split it"
        problems += (Problem("until", "too_many", text),)
    return problems


def cancel_backfill(_command: Command, situation: Situation, act: Act) -> Decision:
    schedule = existing(situation)
    if not situation.backfills:
        return leave(schedule, "unchanged", "no backfill of it is running")
    settled = end_backfills(situation, "backfill_cancelled")
    return Decision(
        accepted=True,
        code=act.value,
        message="what the backfill had still to run is cancelled",
        before=schedule,
        after=schedule,
        effects=Effects(settled=settled, end_backfills=True),
        effective_at=situation.look.now,
        counts=count_settled(settled, situation, drop=True),
    )
