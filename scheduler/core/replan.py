"""Schedules planned anew because what they are planned by has changed: a calendar, or the zone tables.

Both are changes of the definition's meaning and keep its law (see `core/decide.py`): what is reached is settled by what
it was planned by, a new version counts strictly after now, and nothing reaches into the past.

New zone tables differ from a change by command in one respect: a nominal is a *local* time, and a local time that has
run does not run again because the tables moved it, nor does one fall out because they moved it into the past.
"""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scheduler.core.calendared import Calendared
from scheduler.core.calendars import CALENDAR_FAULT, bare, planned_by, rebound
from scheduler.core.cron import Cron
from scheduler.core.cron_search import Search
from scheduler.core.decision import Decision, Effects
from scheduler.core.model import Schedule, State
from scheduler.core.policy import NOTHING_OWED, Look, Settlement, reached_as, settle
from scheduler.core.trigger import Once
from scheduler.core.unplannable import Unplannable
from scheduler.core.zone_marks import zone_before
from scheduler.core.zones import find_zone

if TYPE_CHECKING:
    from scheduler.core.decision import Situation
    from scheduler.core.protocol import Trigger
    from scheduler.core.zone_marks import ZoneMark
    from scheduler.core.zones import Zone

COMPARED = 1_000
"""Nominals compared from either end; with their number, which is compared too, that is every difference met so far."""


def by_calendar(situation: Situation) -> Decision | None:
    """The schedule by the newest version of its calendar; None when it is so already, or has none."""
    before = situation.schedule
    if before is None or before.spec.calendar is None:
        return None
    newest = situation.calendars.newest(before.spec.calendar)
    after = rebound(before, situation.calendars)
    gone = isinstance(after.spec.trigger, Unplannable)
    by_us = before.broken_reason is not None and before.broken_reason.startswith(CALENDAR_FAULT)
    if planned_by(before.spec.trigger) == newest and (gone or not by_us):
        return None
    match before.state:
        case State.ACTIVE | State.PAUSED:
            why = after.spec.trigger.why if isinstance(after.spec.trigger, Unplannable) else None
            state = before.state if before.state is State.PAUSED or not gone else State.BROKEN
            reason = before.broken_reason if why is None and not by_us else why
        case State.BROKEN if by_us and not gone:
            state, reason = State.ACTIVE, None
        case _:
            return None
    text = f"calendar {before.spec.calendar}@{newest}"
    return _replanned(situation, before, replace(after, state=state, broken_reason=reason), text=text)


def by_zone(situation: Situation, mark: ZoneMark, decided_until: int) -> Decision | None:
    """The schedule by the zone tables in use, of which `mark` has the former; None when no nominal of it moves.

    By the former tables everything up to `decided_until` (ms) was decided.
    """
    before = situation.schedule
    now = situation.look.now
    zone = find_zone(mark.zone)
    if before is None or before.state not in (State.ACTIVE, State.PAUSED) or zone is None:
        return None
    former_zone = zone_before(mark, zone)
    former = under_zone(before.spec.trigger, former_zone)
    if former is None or _same_nominals(former, before.spec.trigger, now, mark.until):
        return None
    ran = max(before.floor, _moved(former.prev_before(decided_until + 1), former_zone, zone))
    settled = None
    if before.state is State.ACTIVE:
        position = before.next_after(ran)
        if position is not None and position <= now:
            look = situation.look
            settled = settle(before, position, Look(now, min(look.seen_until, position - 1), look.rules, "zones"))
        elif position is not None:
            settled = NOTHING_OWED
    text = f"time zone {mark.zone} by new tables"
    return _replanned(situation, before, before, settled, ran, text=text)


def _replanned(
    situation: Situation,
    before: Schedule,
    after: Schedule,
    settled: Settlement | None = None,
    ran: int = 0,
    *,
    text: str,
) -> Decision:
    now = situation.look.now
    if settled is None:
        settled = _settled(situation, before)
    breaks = after.state is State.BROKEN
    after = replace(
        after,
        version=before.version if breaks else before.version + 1,
        revision=before.revision + 1,
        updated_at=now,
        effective_at=before.effective_at if breaks else max(before.effective_at, now),
        floor=max(before.floor, now, ran),
        actor=None,
        reason=text,
    )
    return Decision(
        accepted=True,
        code="broken" if breaks else "re-planned",
        message=text,
        before=before,
        after=after,
        effects=Effects(
            save=True,
            revised=True,
            settled=() if settled == NOTHING_OWED else ((before, settled),),
            freeze_debts=after.version != before.version,
        ),
        effective_at=now,
    )


def _settled(situation: Situation, before: Schedule) -> Settlement:
    if before.state is State.ACTIVE:
        return settle(before, situation.position, situation.look)
    if before.state is State.PAUSED:
        return Settlement(gone=reached_as("suppressed", "paused", before, situation.position, situation.look.now))
    return NOTHING_OWED


def _moved(instant: int | None, former: Zone, zone: Zone) -> int:
    """Where another clock has the local time that the former one had at an instant (ms)."""
    if instant is None:
        return 0
    second, fraction = divmod(instant, 1000)
    local = second + former.offset_at(second)
    instants = zone.instants_of(local)
    if not instants:
        return zone.first_from(local) * 1000 - 1
    return (second if second in instants else instants[-1]) * 1000 + fraction


def under_zone(trigger: Trigger, zone: Zone) -> Trigger | None:
    """The same rule by another clock; None for one that reads none, or whose local time that clock lacks."""
    rule = bare(trigger)
    moved: Trigger
    match rule:
        case Cron():
            search = rule.search
            moved = with_fields(rule, search=Search(search.wall, zone, search.passes, search.gap))
        case Once(local=str()):
            local = rule.at // 1000 + _offset_of(rule, zone.name)
            instants = zone.instants_of(local)
            if not instants:
                return None
            moved = with_fields(rule, at=instants[-1 if rule.fold == "last" else 0] * 1000 + rule.at % 1000)
        case _:
            return None
    if isinstance(trigger, Calendared):
        return Calendared(moved, trigger.calendar, trigger.roll, trigger.zone)
    return moved


def _offset_of(rule: Once, name: str) -> int:
    zone = find_zone(name)
    return 0 if zone is None else zone.offset_at(rule.at // 1000)


def _same_nominals(one: Trigger, other: Trigger, now: int, until: int) -> bool:
    """Whether two rules name the same instants in (now, until], as far as `COMPARED` tells."""
    if until <= now:
        return True
    return (
        one.between(now, until, COMPARED) == other.between(now, until, COMPARED)
        and one.count_between(now, until) == other.count_between(now, until)
        and one.newest_before(until, COMPARED, now) == other.newest_before(until, COMPARED, now)
    )
