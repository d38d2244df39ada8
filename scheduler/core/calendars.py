"""All calendars as a schedule's definition refers to them: by name, each in its versions; and the binding of the two.

A definition names its calendar. What it is planned by is one *version* of it, which stands in the schedule's record, so
that every evaluation of one schedule version gives the same answer however often the calendar changes. A newer version
becomes a schedule's own by a re-plan (`core/replan.py`), never by itself.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from scheduler.core.calendared import Calendared, under_calendar
from scheduler.core.cron import Cron
from scheduler.core.problem import Problem
from scheduler.core.trigger import Once
from scheduler.core.unplannable import Unplannable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.core.calendar import Calendar
    from scheduler.core.model import Schedule
    from scheduler.core.protocol import Trigger

CALENDAR_FAULT = "calendar "
"""How every reason begins for which a calendar makes a schedule broken."""
_SHOWN = 20


class Calendars:
    """An immutable set of calendars: every version known, the newest of each name, None where that one is deleted."""

    __slots__ = ("_names",)

    def __init__(self, names: Mapping[str, Mapping[int, Calendar | None]] = MappingProxyType({})) -> None:
        self._names = {name: dict(versions) for name, versions in names.items() if versions}

    def newest(self, name: str) -> int:
        """The newest version of a name, also of a deleted one; 0 = never heard of."""
        return max(self._names.get(name, ()), default=0)

    def find(self, name: str, version: int) -> Calendar | None:
        """One version; None if it is unknown or says that the calendar is deleted."""
        return self._names.get(name, {}).get(version)

    def has(self, name: str, version: int) -> bool:
        """Whether this version is known, if only as deleted."""
        return version in self._names.get(name, {})

    def names(self) -> list[str]:
        """The calendars there are, deleted ones left out, by name."""
        return sorted(name for name in self._names if self.find(name, self.newest(name)) is not None)

    def put(self, name: str, version: int, calendar: Calendar | None) -> Calendars:
        """The set with one more version."""
        return Calendars({**self._names, name: {**self._names.get(name, {}), version: calendar}})

    def drop(self, name: str, version: int) -> Calendars:
        """The set without one version."""
        rest = {number: found for number, found in self._names.get(name, {}).items() if number != version}
        return Calendars({**self._names, name: rest})

    def unknown(self, name: str) -> Problem:
        """The problem of a definition that names no calendar there is."""
        known = self.names()
        more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
        there = f"there are {', '.join(known[:_SHOWN])}{more}" if known else "there is none yet"
        text = f"no calendar is called {name!r:.60}; {there}. `scheduler calendar apply FILE` makes one"
        return Problem("spec.calendar", "unknown_calendar", text)


NO_CALENDARS = Calendars()


def bare(trigger: Trigger) -> Trigger:
    """The rule without its calendar."""
    if isinstance(trigger, Calendared):
        return trigger.trigger
    if isinstance(trigger, Unplannable) and trigger.trigger is not None:
        return trigger.trigger
    return trigger


def planned_by(trigger: Trigger) -> int:
    """The version of the calendar a trigger follows, or followed before it went missing; 0 = none."""
    if isinstance(trigger, Calendared):
        return trigger.calendar.version
    return trigger.version if isinstance(trigger, Unplannable) else 0


def bound(schedule: Schedule, calendars: Calendars) -> Schedule:
    """A schedule as read, with its calendar: the version it was planned by, or the newest if that one is gone."""
    name = schedule.spec.calendar
    if name is None:
        return schedule
    version = planned_by(schedule.spec.trigger)
    if not calendars.has(name, version):
        newest = calendars.newest(name)
        return _with(schedule, bind(schedule.spec.trigger, name, schedule.spec.roll, calendars, newest, version))
    return _with(schedule, bind(schedule.spec.trigger, name, schedule.spec.roll, calendars, version, version))


def rebound(schedule: Schedule, calendars: Calendars) -> Schedule:
    """A schedule by the newest version of its calendar."""
    name = schedule.spec.calendar
    if name is None:
        return schedule
    newest = calendars.newest(name)
    return _with(schedule, bind(schedule.spec.trigger, name, schedule.spec.roll, calendars, newest, newest))


def bind(trigger: Trigger, name: str, roll: str, calendars: Calendars, version: int, planned: int) -> Trigger:
    """A trigger under one version of a calendar; one that names nothing if there is no such version.

    `planned` is the version to remember in that case.
    """
    rule: Any = bare(trigger)  # a Trigger: the protocol does not say that it hashes
    if isinstance(rule, Unplannable):
        return rule
    calendar = calendars.find(name, version)
    if calendar is None:
        what = "was deleted" if version else "does not exist"
        return Unplannable(
            b"", f"{CALENDAR_FAULT}{name!r} {what}: apply it again, or update the schedule", rule, planned
        )
    found: Trigger | Problem = _under(rule, calendar, roll)
    if isinstance(found, Problem):
        return Unplannable(b"", f"{CALENDAR_FAULT}{name!r}: {found.message}", rule, planned)
    return found


def _with(schedule: Schedule, trigger: Trigger) -> Schedule:
    return replace(schedule, spec=replace(schedule.spec, trigger=trigger))


@lru_cache(maxsize=16_384)  # a compiled trigger keeps the months it has computed: schedules that share one share these
def _under(rule: Any, calendar: Calendar, roll: str) -> Calendared | Problem:
    return under_calendar(rule, calendar, roll, zone_name(rule) or "UTC")


def under_newest(trigger: Trigger, name: str, roll: str, calendars: Calendars) -> Trigger | Problem:
    """A new definition's trigger under its calendar, or why there is none."""
    rule: Any = bare(trigger)  # see `bind`
    calendar = calendars.find(name, calendars.newest(name))
    if calendar is None:
        return calendars.unknown(name)
    if isinstance(rule, Unplannable):
        return rule
    found: Trigger | Problem = _under(rule, calendar, roll)
    return found._replace(field=f"spec.{found.field}") if isinstance(found, Problem) else found


def zone_name(trigger: Trigger) -> str | None:
    """The zone whose wall clock a trigger reads; None for one that reads none."""
    rule = bare(trigger)
    return rule.zone if isinstance(rule, Cron | Once) else None


def instant_of_once(trigger: Trigger) -> int | None:
    """The one instant of a one-shot, as its calendar leaves it; None for other rules, and if it is removed."""
    rule = bare(trigger)
    if not isinstance(rule, Once):
        return None
    return rule.at if rule is trigger else trigger.next_after(rule.at - _YEAR_MS)


_YEAR_MS = 367 * 86_400_000  # further than a calendar moves anything
