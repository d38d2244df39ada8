"""What a command does to one schedule: `decide(command, situation) -> Decision`.

Pure and total: the same command in the same situation gives the same decision, a bad command is answered and changes
nothing. The shard supplies the situation from its store and carries the decision out in one transaction.

The rules every handler below keeps (settle before change): nominals that are reached and undecided belong to the old
definition and are decided here, each with a record; the new definition counts strictly after the command's instant;
the schedule's floor therefore moves to now with every change that touches its nominals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from scheduler.core.calendars import bare, instant_of_once
from scheduler.core.decide_backfill import cancel_backfill, start_backfill
from scheduler.core.decision import (
    NO_EFFECTS,
    Decision,
    Effects,
    ManualRun,
    Settled,
    Situation,
    existing,
    leave,
    refuse,
    refuse_bad,
)
from scheduler.core.identity import manual_occurrence_id
from scheduler.core.lifecycle import TRANSITIONS, Act, act_for
from scheduler.core.memory import remembering, repeat
from scheduler.core.model import Nominal, Schedule, Spec, State
from scheduler.core.policy import NOTHING_OWED, Look, Settlement, nominal_at, settle
from scheduler.core.problem import Problem
from scheduler.core.settlements import (
    change_sentence,
    count_settled,
    end_debts,
    final_settlement,
    next_sentence,
    paired,
    reached,
    settle_old,
)
from scheduler.core.spec import SpecContext, changed_fields, parse_spec
from scheduler.core.time import format_instant

if TYPE_CHECKING:
    from scheduler.core.command import Command

PUT_OFF = frozenset({"update", "pause", "resume", "cancel", "delete"})  # verbs that may take effect later
_RESCHEDULING = frozenset({"priority", "window_ms"})  # fields a due-index key depends on besides the version's


def decide(command: Command, situation: Situation) -> Decision:
    """Answer one command; see the module's docstring for the law."""
    schedule = situation.schedule
    if command.problems:
        return refuse_bad(command, situation, command.problems + _spec_problems(command, situation))
    if schedule is not None:
        known = repeat(command, schedule)
        if known is not None:
            return known
        refused = _conflict(command, situation, schedule)
        if refused is not None:
            return refused if command.dry_run else remembering(command, situation, refused)
    act = act_for(command.verb, schedule.state if schedule else None)
    is_put_off = (
        command.effective_from is not None and command.effective_from > situation.look.now and command.verb != "create"
    )
    decision = (_put_off if is_put_off else _HANDLERS[act])(command, situation, act)
    is_left = decision.after is not None and decision.accepted and not decision.effects.delete
    if command.preview and not decision.preview and decision.after is not None and is_left:
        decision = replace(decision, preview=_planned(decision.after, situation.look.now, command.preview))
    if command.warnings:
        decision = replace(decision, warnings=command.warnings + decision.warnings)
    if command.dry_run:
        return replace(decision, effects=NO_EFFECTS)
    return remembering(command, situation, decision)


def decide_due(command: Command, situation: Situation) -> Decision:
    """A change whose `effective_from` has come: as a command that arrives now, except that it has its answer already.

    It replaces what it names, whatever was changed meanwhile: of two writers the one with the later instant wins. With
    an `expected_revision` it is refused if anything was.
    """
    schedule = situation.schedule
    if command.problems:
        return refuse_bad(command, situation, command.problems)
    refused = None if schedule is None else _conflict(command, situation, schedule)
    if refused is not None:
        return refused
    act = act_for(command.verb, schedule.state if schedule else None)
    return _HANDLERS[act](command, situation, act)


def _conflict(command: Command, situation: Situation, schedule: Schedule) -> Decision | None:
    if command.expected_revision is None or command.expected_revision == schedule.revision:
        return None
    text = f"revision is {schedule.revision}, not {command.expected_revision}: read it again and decide anew"
    return refuse(command, situation, "revision_conflict", text)


def _put_off(command: Command, situation: Situation, act: Act) -> Decision:
    """Accept a change for a later instant. What would be refused then, as things now stand, is refused at once."""
    at = command.effective_from
    if command.verb not in PUT_OFF or at is None:
        text = f"effective_from of a {command.verb} must not lie in the future; send it when it is to count"
        return refuse_bad(command, situation, (Problem("effective_from", "not_supported", text),))
    then = replace(
        situation, position=None, debts=(), backfills=(), appended_at=at, look=replace(situation.look, now=at)
    )
    outcome = _HANDLERS[act](command, then, act)
    if not outcome.accepted:
        return outcome
    schedule = existing(situation)
    planned = () if outcome.after is None or outcome.effects.delete else _planned(outcome.after, at, command.preview)
    return Decision(
        accepted=True,
        code="planned",
        message=f"the {command.verb} counts from {format_instant(at)}; cancel and delete drop it",
        before=schedule,
        after=schedule,
        effects=Effects(later=at),
        effective_at=at,
        preview=planned,
        warnings=outcome.warnings,
    )


# --- one handler per act --------------------------------------------------------------------------------------------


def _create(command: Command, situation: Situation, _act: Act) -> Decision:
    now = situation.look.now
    effective_at = max(now, command.effective_from or now)
    parsed = parse_spec(
        command.spec or {}, SpecContext(command.schedule_id, effective_at, calendars=situation.calendars)
    )
    if parsed.spec is None:
        return refuse_bad(command, situation, parsed.problems)
    fault = _in_the_past(parsed.spec, situation)
    if fault is not None:
        return refuse_bad(command, situation, (fault,))
    schedule = Schedule(
        schedule_id=command.schedule_id,
        state=State.ACTIVE,
        version=situation.next_version,
        revision=1,
        created_at=now,
        updated_at=now,
        effective_at=effective_at,
        floor=effective_at,
        spec=parsed.spec,
        actor=command.actor,
        reason=command.reason,
    )
    return _armed(command, situation, None, schedule, parsed.warnings)


def _compare(command: Command, situation: Situation, act: Act) -> Decision:
    schedule = existing(situation)
    # A create states the whole definition: only the old rule's grid may be kept, nothing else of the old definition.
    kept = Spec(trigger=bare(schedule.spec.trigger))
    context = SpecContext(command.schedule_id, schedule.effective_at, kept, situation.calendars)
    parsed = parse_spec(command.spec or {}, context)
    if parsed.spec is None:
        return refuse_bad(command, situation, parsed.problems)
    same = parsed.spec == schedule.spec and schedule.state in (State.ACTIVE, State.PAUSED)
    if same:
        return leave(schedule, "unchanged", "this schedule exists with the same definition", parsed.warnings)
    differing = ", ".join(changed_fields(schedule.spec, parsed.spec)) or f"state {schedule.state}"
    way = "delete it first" if schedule.state is State.CANCELLED else "use update, or delete it first"
    return refuse(command, situation, act.value, f"exists and differs in {differing}: {way}")


def _update(command: Command, situation: Situation, act: Act) -> Decision:
    before = existing(situation)
    now = situation.look.now
    parsed = parse_spec(command.spec or {}, SpecContext(command.schedule_id, now, before.spec, situation.calendars))
    spec = parsed.spec
    if spec is None:
        return refuse_bad(command, situation, parsed.problems)
    if spec == before.spec and act is not Act.REARM:
        return leave(before, "unchanged", "the definition is already so", parsed.warnings)
    fault = _in_the_past(spec, situation) if spec.trigger != before.spec.trigger else None
    if fault is not None:
        return refuse_bad(command, situation, (fault,))
    same_meaning = spec.same_meaning(before.spec)
    rescheduled = not same_meaning or any(getattr(spec, f) != getattr(before.spec, f) for f in _RESCHEDULING)
    after = replace(
        before,
        state=State.PAUSED if before.state is State.PAUSED else State.ACTIVE,
        version=before.version if same_meaning else before.version + 1,
        revision=before.revision + 1,
        updated_at=now,
        effective_at=before.effective_at if same_meaning else now,
        floor=max(before.floor, now) if rescheduled else before.floor,
        spec=spec,
        completed_at=None,
        broken_reason=None,
        actor=command.actor,
        reason=command.reason,
    )
    if rescheduled or before.state not in (State.ACTIVE, State.PAUSED):
        return _armed(command, situation, before, after, parsed.warnings)
    return Decision(
        accepted=True,
        code="updated",
        message="updated; the version stays, since the meaning did not change",
        before=before,
        after=after,
        effects=Effects(save=True, revised=True),
        effective_at=now,
        warnings=parsed.warnings,
    )


def _armed(
    command: Command,
    situation: Situation,
    before: Schedule | None,
    after: Schedule,
    warnings: tuple[Problem, ...],
) -> Decision:
    """A new rule takes effect: settle the old one's nominals, and see that the new one ever fires."""
    now = situation.look.now
    is_new_rule = before is None or before.spec.trigger != after.spec.trigger
    passed = _just_passed(after, now) if is_new_rule and after.state is State.ACTIVE else None
    is_idle = before is not None and before.state not in (State.ACTIVE, State.PAUSED)
    if passed is None and after.next_after(now if is_idle else after.floor) is None:
        text = "this definition never fires after now" + (": its end is reached first" if after.spec.end else "")
        return refuse_bad(command, situation, (Problem("spec.trigger", "never_fires", text),))
    settled: Settled = ()
    if before is not None:
        settled = paired(before, settle_old(command, situation, before))
        if command.supersede:
            settled += end_debts(situation, before, "cancelled", "superseded")
    late = NOTHING_OWED
    if passed is not None:
        # It passed between append and decision (or a little before): judged like any nominal nobody looked at.
        undecided = replace(after, floor=passed - 1)
        late = settle(undecided, passed, replace(situation.look, now=now, seen_until=passed - 1, looked_at=None))
        if late.waiting:
            after, late = undecided, NOTHING_OWED  # still in its window: it waits in the due index as any other
        elif not late.catch_up:
            after = replace(after, state=State.COMPLETED, completed_at=now)
        settled += paired(after, late)
    is_plain = before is None and late == NOTHING_OWED
    return Decision(
        accepted=True,
        code="created" if before is None else "updated",
        message=next_sentence(after, late),
        before=before,
        after=after,
        effects=Effects(
            save=True,
            revised=True,
            settled=settled,
            drop_debts=command.supersede,
            freeze_debts=before is not None and after.version != before.version and not command.supersede,
        ),
        effective_at=after.effective_at,
        counts=() if is_plain else count_settled(settled, situation, drop=command.supersede),
        warnings=warnings,
    )


def _pause(command: Command, situation: Situation, act: Act) -> Decision:
    before = existing(situation)
    now = situation.look.now
    settled = paired(before, reached(situation, before, "suppressed", "paused"))
    settled += end_debts(situation, before, "suppressed", "paused")
    return _changed(command, situation, act, replace(before, floor=max(before.floor, now)), settled)


def _resume(command: Command, situation: Situation, act: Act) -> Decision:
    before = existing(situation)
    now = situation.look.now
    owed = reached(situation, before, "suppressed", "paused")
    if command.catch_up:
        missed = settle(before, situation.position, Look(now, before.floor, situation.look.rules, "paused"))
        owed = Settlement(
            runs=missed.runs,
            catch_up=missed.catch_up,
            waiting=missed.waiting,
            gone=tuple(replace(g, state="suppressed") for g in missed.gone),
        )
    after = replace(before, floor=max(before.floor, now))
    if after.broken_reason is None and after.next_after(now) is None and not owed.catch_up and not owed.waiting:
        after = replace(after, completed_at=now)
    return _changed(command, situation, act, after, paired(before, owed))


def _cancel(command: Command, situation: Situation, act: Act) -> Decision:
    before = existing(situation)
    settled = final_settlement(situation, before, "cancelled")
    after = replace(before, floor=max(before.floor, situation.look.now), completed_at=None)
    return _changed(command, situation, act, after, settled)


def _delete(command: Command, situation: Situation, act: Act) -> Decision:
    before = existing(situation)
    settled = final_settlement(situation, before, "deleted")
    decision = _changed(command, situation, act, before, settled)
    return replace(decision, effects=replace(decision.effects, save=False, delete=True))


def _changed(command: Command, situation: Situation, act: Act, after: Schedule, settled: Settled) -> Decision:
    """A change of state alone: the definition and its version stay."""
    before = existing(situation)
    now = situation.look.now
    state = TRANSITIONS.get(act, before.state)
    if state is State.ACTIVE and after.completed_at is not None:
        state = State.COMPLETED
    if state is State.ACTIVE and after.broken_reason is not None:
        state = State.BROKEN  # it was paused while broken, and only an update mends it
    after = replace(
        after,
        state=state,
        revision=before.revision + 1,
        updated_at=now,
        actor=command.actor,
        reason=command.reason,
    )
    drop = act in (Act.PAUSE, Act.CANCEL, Act.DELETE)
    counts = count_settled(settled, situation, drop=drop)
    return Decision(
        accepted=True,
        code=act.value,
        message=change_sentence(act, after, counts),
        before=before,
        after=after,
        effects=Effects(
            save=True,
            revised=True,
            settled=settled,
            drop_debts=drop,
            end_backfills=act in (Act.CANCEL, Act.DELETE),
            drop_changes=act in (Act.CANCEL, Act.DELETE),
        ),
        effective_at=now,
        counts=counts,
    )


def _run(command: Command, situation: Situation, act: Act) -> Decision:
    schedule = existing(situation)
    return Decision(
        accepted=True,
        code=act.value,
        message="one run was put on its dispatch topic",
        before=schedule,
        after=schedule,
        effects=Effects(manual=ManualRun(command_id=command.command_id, payload=command.payload)),
        effective_at=situation.look.now,
        occurrence_id=manual_occurrence_id(schedule.schedule_id, schedule.version, command.command_id),
    )


def _show(command: Command, situation: Situation, act: Act) -> Decision:
    schedule = situation.schedule
    now = situation.look.now
    warnings: tuple[Problem, ...] = ()
    if command.spec is not None:
        context = SpecContext(command.schedule_id, now, schedule.spec if schedule else None, situation.calendars)
        parsed = parse_spec(command.spec, context)
        if parsed.spec is None:
            return refuse_bad(command, situation, parsed.problems)
        warnings = parsed.warnings
        shown = _draft(command, situation, parsed.spec)
    elif schedule is None:
        return refuse(command, situation, "not_found", "no such schedule; give a spec to preview a new one")
    else:
        shown = schedule
    planned = _planned(shown, now, command.preview or 5)
    return Decision(
        accepted=True,
        code=act.value,
        message=f"the next {len(planned)} occurrences" if planned else "nothing will fire",
        before=schedule,
        after=shown,
        effective_at=now,
        preview=planned,
        warnings=warnings,
    )


def _no_change(_command: Command, situation: Situation, act: Act) -> Decision:
    schedule = existing(situation)
    return leave(schedule, act.value, f"it is {schedule.state} already")


def _not_possible(command: Command, situation: Situation, act: Act) -> Decision:
    if act is Act.NOT_FOUND:
        text = f"no schedule is called {command.schedule_id!r}: create it first"
    else:
        text = f"{command.verb} is not possible while it is {existing(situation).state}"
    return refuse(command, situation, act.value, text)


_HANDLERS = {
    Act.CREATE: _create,
    Act.COMPARE: _compare,
    Act.UPDATE: _update,
    Act.REARM: _update,
    Act.PAUSE: _pause,
    Act.RESUME: _resume,
    Act.CANCEL: _cancel,
    Act.DELETE: _delete,
    Act.RUN: _run,
    Act.SHOW: _show,
    Act.BACKFILL: start_backfill,
    Act.CANCEL_BACKFILL: cancel_backfill,
    Act.UNCHANGED: _no_change,
    Act.NOT_FOUND: _not_possible,
    Act.NOT_ALLOWED: _not_possible,
}


# --- shared pieces --------------------------------------------------------------------------------------------------


def _draft(command: Command, situation: Situation, spec: Spec) -> Schedule:
    now = situation.look.now
    return Schedule(
        schedule_id=command.schedule_id, state=State.ACTIVE, version=situation.next_version, revision=1,
        created_at=now, updated_at=now, effective_at=now, floor=now, spec=spec,
    )  # fmt: skip


def _in_the_past(spec: Spec, situation: Situation) -> Problem | None:
    """A one-shot before the command's append time minus the grace was never meant to run."""
    at = instant_of_once(spec.trigger)
    if at is None:
        return None
    oldest = min(situation.appended_at, situation.look.now) - situation.look.rules.grace_max_ms
    if at >= oldest:
        return None
    return Problem("spec.trigger", "in_past", "this instant has passed; give one in the future, or use trigger")


def _just_passed(schedule: Schedule, now: int) -> int | None:
    """The instant of a one-shot that passed on the way here."""
    at = instant_of_once(schedule.spec.trigger)
    if at is None or at > now:
        return None
    return replace(schedule, floor=at - 1).next_after(at - 1)  # None outside of start and end


def _planned(schedule: Schedule, now: int, count: int) -> tuple[Nominal, ...]:
    if schedule.state not in (State.ACTIVE, State.PAUSED):
        return ()
    planned: list[Nominal] = []
    nominal = schedule.next_after(now)
    while nominal is not None and len(planned) < count:
        planned.append(nominal_at(schedule, nominal))
        nominal = schedule.next_after(nominal)
    return tuple(planned)


def _spec_problems(command: Command, situation: Situation) -> tuple[Problem, ...]:
    """The mistakes of the definition in a command that is refused anyway, so that its sender sees them all."""
    if command.spec is None or command.verb not in ("create", "update", "preview"):
        return ()
    previous = situation.schedule.spec if situation.schedule and command.verb != "create" else None
    context = SpecContext(command.schedule_id, situation.look.now, previous, situation.calendars)
    return parse_spec(command.spec, context).problems
