"""What a change settles before it counts, and how that is said: nominals that are reached, what is owed, backfills.

Everything here belongs to the old definition; see `decide.py` for the law.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from scheduler.core.lifecycle import Act
from scheduler.core.model import Gone, State
from scheduler.core.policy import NOTHING_OWED, Settlement, reached_as, settle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.core.command import Command
    from scheduler.core.decision import Settled, Situation
    from scheduler.core.model import Schedule


def paired(definition: Schedule, settlement: Settlement) -> Settled:
    """A settlement beside its definition; empty when it settles nothing."""
    return () if settlement == NOTHING_OWED else ((definition, settlement),)


def count_settled(settled: Settled, situation: Situation, *, drop: bool) -> tuple[tuple[str, int], ...]:
    """How many nominals became what, by word; `drop`: what the schedule owes is not kept."""
    counts: dict[str, int] = {}
    kept = 0 if drop else sum(len(debt.nominals) for debt in situation.debts)
    for _, part in settled:
        kept += len(part.waiting) + len(part.catch_up)
        if part.runs:
            counts["dispatched"] = counts.get("dispatched", 0) + len(part.runs)
        for gone in part.gone:
            counts[gone.state] = counts.get(gone.state, 0) + gone.count
    if kept:
        counts["kept"] = kept
    return tuple(sorted(counts.items()))


def settle_old(command: Command, situation: Situation, before: Schedule) -> Settlement:
    """What becomes of the old rule's reached nominals when a new rule takes its place."""
    if before.state is State.PAUSED:
        return Settlement(gone=reached_as("suppressed", "paused", before, situation.position, situation.look.now))
    if before.state is not State.ACTIVE:
        return NOTHING_OWED
    if command.supersede:
        return reached(situation, before, "cancelled", "superseded")
    return settle(before, situation.position, situation.look)


def reached(situation: Situation, before: Schedule, state: str, reason: str) -> Settlement:
    """All reached and undecided nominals, ended by a change."""
    return Settlement(gone=reached_as(state, reason, before, situation.position, situation.look.now))


def final_settlement(situation: Situation, before: Schedule, reason: str) -> Settled:
    """What cancel and delete leave behind: a paused one's nominals were suppressed, an active one's are cancelled."""
    backfills = end_backfills(situation, reason)
    if before.state is State.PAUSED:
        return paired(before, reached(situation, before, "suppressed", "paused")) + backfills
    ended = paired(before, reached(situation, before, "cancelled", reason))
    return ended + end_debts(situation, before, "cancelled", reason) + backfills


def end_debts(situation: Situation, before: Schedule, state: str, reason: str) -> Settled:
    """What was owed and not yet dispatched, each under the version it belongs to."""
    ended: Settled = ()
    for debt in situation.debts:
        definition = debt.definition or replace(before, version=debt.version)
        gone = stretches(definition, sorted(debt.nominals), state, reason)
        ended += paired(definition, Settlement(gone=tuple(gone)))
    return ended


def stretches(definition: Schedule, nominals: Iterable[int], state: str, reason: str) -> list[Gone]:
    """Ascending nominals that will not run: those that follow each other are said together.

    What ran between two outages must not seem to have ended, too.
    """
    gone: list[Gone] = []
    for at in nominals:
        if gone and definition.spec.trigger.next_after(gone[-1].last) == at:
            gone[-1] = replace(gone[-1], count=gone[-1].count + 1, last=at)
        else:
            gone.append(Gone(state, reason, 1, at, at))
    return gone


def end_backfills(situation: Situation, reason: str) -> Settled:
    """What backfills had still to run; of one that does not know yet what ran, nothing can be said."""
    ended: Settled = ()
    for backfill in situation.backfills:
        left = backfill.left() if backfill.informed else None
        if left is not None:
            ended += paired(backfill.definition, Settlement(gone=(replace(left, reason=reason),)))
    return ended


def next_sentence(schedule: Schedule, late: Settlement) -> str:
    """What a new rule will do; `late`: what became of a nominal that passed on the way."""
    if late.runs:
        return "its instant has just passed, so it was dispatched at once"
    if late.catch_up:
        return "its instant has passed; it is caught up"
    if late.gone:
        return "its instant has passed, longer ago than its policy allows: missed"
    if schedule.state is State.PAUSED:
        return "paused: nothing fires until it is resumed"
    return "armed"


def change_sentence(act: Act, after: Schedule, counts: tuple[tuple[str, int], ...]) -> str:
    """What a change of state did, with the counts of what it settled."""
    done = {
        Act.PAUSE: "paused: nothing fires until it is resumed",
        Act.RESUME: "resumed: it fires again strictly after now",
        Act.CANCEL: "cancelled: nothing of it will fire",
        Act.DELETE: "deleted",
    }[act]
    if act is Act.RESUME and after.state is State.COMPLETED:
        done = "resumed, but no nominal is left: completed"
    if act is Act.RESUME and after.state is State.BROKEN:
        done = f"no longer paused, but broken ({after.broken_reason}): update it"
    settled = ", ".join(f"{count} {what}" for what, count in counts)
    return f"{done} ({settled})" if settled else done
