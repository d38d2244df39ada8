"""A trigger under a calendar: the same six questions, asked of the business days only.

For a cron expression the calendar acts on *days*, before times of day, gaps and folds: the set of days is cut
(`roll: skip`) or moved (`next`, `previous`), and the ordinary search runs over the result. So a nominal moved onto a
day on which its local time is missing or repeated is treated as any other there, two that meet are one, and
forwards, backwards and counting agree by construction.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Final, NamedTuple

from scheduler.core import walk
from scheduler.core.calendar import Calendar
from scheduler.core.cron import Cron, Skipped
from scheduler.core.cron_clock import WallClock
from scheduler.core.cron_days import LENGTHS, BusinessDays, Days, is_leap
from scheduler.core.cron_search import Search
from scheduler.core.problem import Problem
from scheduler.core.protocol import Nominals
from scheduler.core.time import EPOCH_DAY
from scheduler.core.trigger import Every, Once, Trigger
from scheduler.core.zones import Zone, find_zone, unknown_zone

ROLLS: Final = ("skip", "next", "previous")
_DAY: Final = 86_400
_LONGEST_CLOSURE: Final = 366
"""Days a nominal may be moved; past them it is dropped."""
_SEARCH_DAYS: Final = 41 * 366
_KEPT_MONTHS: Final = 4096


class Moved(NamedTuple):
    """What the calendar did to one nominal of the bare trigger; instants in ms."""

    nominal: int
    to: int | None
    """Where it went; None = removed."""
    reason: str


@dataclass(frozen=True, slots=True)
class Calendared:
    """`trigger` on the business days of `calendar`; implements `Trigger`. See `under_calendar`, which checks first.

    `zone` names the zone whose dates count; a cron expression has its own.
    """

    trigger: Trigger
    calendar: Calendar
    roll: str
    zone: str
    _inner: Nominals = field(init=False, compare=False, repr=False)
    removed: Nominals | None = field(init=False, compare=False, repr=False)
    """The nominals that `roll: skip` removes, as a rule of their own; None if the calendar moves them instead."""

    def __post_init__(self) -> None:
        """Derive the trigger that answers, once."""
        zone = _zone(self.trigger.zone if isinstance(self.trigger, Cron) else self.zone)
        inner: Nominals
        removed: Nominals
        closed = Closed(self.calendar)
        match self.trigger:
            case Cron() as cron:
                own = _own_days(cron, self.calendar)
                removed = _with_days(cron, RolledDays(own, closed, "skip"))
                inner = _with_days(cron, RolledDays(own, self.calendar, self.roll))
            case Once() as once:
                removed = _Instants(tuple(_once_at(once, closed, "skip", zone)))
                inner = _Instants(tuple(_once_at(once, self.calendar, self.roll, zone)))
            case Every() as every if self.roll == "skip":
                removed = _OpenEvery(every, closed, zone)
                inner = _OpenEvery(every, self.calendar, zone)
            case other:
                raise TypeError(f"a calendar with roll {self.roll!r} cannot govern {other!r}")
        object.__setattr__(self, "_inner", inner)
        object.__setattr__(self, "removed", removed if self.roll == "skip" else None)

    def next_after(self, t: int) -> int | None:
        """See `Trigger.next_after`."""
        return self._inner.next_after(t)

    def prev_before(self, t: int) -> int | None:
        """See `Trigger.prev_before`."""
        return self._inner.prev_before(t)

    def count_between(self, a: int, b: int) -> int:
        """See `Trigger.count_between`."""
        return self._inner.count_between(a, b)

    def between(self, a: int, b: int, limit: int) -> list[int]:
        """See `Trigger.between`."""
        return self._inner.between(a, b, limit)

    def newest_before(self, t: int, k: int, after: int) -> list[int]:
        """See `Trigger.newest_before`."""
        return self._inner.newest_before(t, k, after)

    @property
    def cron(self) -> Cron | None:
        """The expression on the days the calendar leaves; None if the rule is none."""
        return self._inner if isinstance(self._inner, Cron) else None

    def to_wire(self) -> dict[str, object]:
        """The bare trigger's form: calendar and roll are fields of the schedule beside it."""
        return self.trigger.to_wire()

    def skipped_between(self, a: int, b: int) -> Iterator[Skipped]:
        """What the gaps in (a, b] swallowed of the days that are worked; see `Cron.skipped_between`."""
        return self._inner.skipped_between(a, b) if isinstance(self._inner, Cron) else iter(())

    def moved_between(self, a: int, b: int, limit: int) -> Iterator[Moved]:
        """What the calendar removed or moved of the first `limit` nominals that the bare trigger has in (a, b]."""
        bare = self.trigger
        if isinstance(bare, Cron):
            bare = _with_days(bare, _own_days(bare, self.calendar))
        zone = _zone(bare.zone if isinstance(bare, Cron) else self.zone)
        for nominal in bare.between(a, b, limit):
            second = nominal // 1000
            day, time = divmod(second + zone.offset_at(second), _DAY)
            if not self.calendar.is_open(day):
                target = _rolled(self.calendar, day, self.roll)
                to = None if target is None else zone.first_from(target * _DAY + time) * 1000 + nominal % 1000
                yield Moved(nominal, to, self.calendar.why_closed(day))

    def __reduce__(self) -> tuple[object, ...]:
        """Travels as what it was made of."""
        return Calendared, (self.trigger, self.calendar, self.roll, self.zone)


def under_calendar(trigger: Trigger, calendar: Calendar, roll: str, zone: str) -> Calendared | Problem:
    """The trigger under the calendar, or why there is none."""
    if roll not in ROLLS:
        return Problem("roll", "bad_field", f"roll: {roll!r:.40} is not one of {', '.join(ROLLS)}")
    if isinstance(trigger, Every) and roll != "skip":
        message = "roll: a fixed rate has no local time of day to keep; use a cron trigger, or roll: skip"
        return Problem("roll", "not_supported", message)
    if find_zone(zone) is None:
        return unknown_zone(zone)
    return Calendared(trigger, calendar, roll, zone)


class Closed:
    """A calendar turned round: its business days are those on which the other has none."""

    __slots__ = ("_calendar",)

    def __init__(self, calendar: Calendar) -> None:
        self._calendar = calendar

    def is_open(self, day: int) -> bool:
        """See `Calendar.is_open`."""
        return not self._calendar.is_open(day)

    def mask(self, year: int, month: int, first: int) -> int:
        """See `Calendar.mask`; the bits beyond the month are set."""
        return ~self._calendar.mask(year, month, first)


class RolledDays:
    """The days of a rule after the calendar removed or moved them."""

    __slots__ = ("_base", "_calendar", "_kept", "_roll")

    def __init__(self, base: Days, calendar: Calendar | Closed, roll: str) -> None:
        self._base = base
        self._calendar = calendar
        self._roll = roll
        self._kept: dict[tuple[int, int], int] = {}

    def mask(self, year: int, month: int, first: int) -> int:
        """See `Days.mask`."""
        found = self._kept.get((year, month))
        if found is None:
            if len(self._kept) >= _KEPT_MONTHS:
                self._kept.clear()
            found = self._kept[year, month] = self._month(year, month, first)
        return found

    def _month(self, year: int, month: int, first: int) -> int:
        named = self._base.mask(year, month, first)
        business = self._calendar.mask(year, month, first)
        if self._roll == "skip":
            return named & business
        length = LENGTHS[is_leap(year)][month]
        start = date(year, month, 1).toordinal() - EPOCH_DAY
        ahead = self._roll == "next"
        # Walk in the direction in which nominals move, carrying one until a business day takes it.
        carried = self._carried_over(start if ahead else start + length - 1, -1 if ahead else 1)
        result = 0
        for at in range(length) if ahead else reversed(range(length)):
            carried = carried or bool(named >> at & 1)
            if business >> at & 1:
                result |= carried << at
                carried = False
        return result

    def _carried_over(self, edge: int, step: int) -> bool:
        """Whether the closed days just beyond the month's edge hold a nominal that moves into the month."""
        for distance in range(1, _LONGEST_CLOSURE):
            day = edge + step * distance
            if not 1 <= day + EPOCH_DAY <= date.max.toordinal() or self._calendar.is_open(day):
                return False
            beyond = date.fromordinal(day + EPOCH_DAY)
            if self._base.mask(beyond.year, beyond.month, (day - beyond.day + 5) % 7) >> beyond.day - 1 & 1:
                return True
        return False


@dataclass(frozen=True, slots=True)
class _Instants:
    """A few given instants, ascending."""

    instants: tuple[int, ...]

    def next_after(self, t: int) -> int | None:
        return next((at for at in self.instants if at > t), None)

    def prev_before(self, t: int) -> int | None:
        return next((at for at in reversed(self.instants) if at < t), None)

    def count_between(self, a: int, b: int) -> int:
        return sum(a < at <= b for at in self.instants)

    def between(self, a: int, b: int, limit: int) -> list[int]:
        return walk.forwards(self, a, b, limit)

    def newest_before(self, t: int, k: int, after: int) -> list[int]:
        return walk.backwards(self, t, k, after)


@dataclass(frozen=True, slots=True)
class _OpenEvery:
    """A fixed rate without the instants on closed days."""

    every: Every
    calendar: Calendar | Closed
    zone: Zone

    def next_after(self, t: int) -> int | None:
        until = t + _SEARCH_DAYS * _DAY * 1000
        at = self.every.next_after(t)
        while at is not None and at <= until:
            day = self._day(at)
            if self.calendar.is_open(day):
                return at
            following = _rolled(self.calendar, day, "next", _SEARCH_DAYS)
            if following is None:
                return None
            at = self.every.next_after(max(at, self.zone.first_from(following * _DAY) * 1000 - 1))
        return None

    def prev_before(self, t: int) -> int | None:
        until = t - _SEARCH_DAYS * _DAY * 1000
        at = self.every.prev_before(t)
        while at is not None and at >= until:
            day = self._day(at)
            if self.calendar.is_open(day):
                return at
            before = _rolled(self.calendar, day, "previous", _SEARCH_DAYS)
            if before is None:
                return None
            at = self.every.prev_before(min(at, self.zone.last_to((before + 1) * _DAY - 1) * 1000 + 1000))
        return None

    def count_between(self, a: int, b: int) -> int:
        a = max(a, self.every.anchor - 1)
        total = 0
        for start, stop, offset in self.zone.stretches(a // 1000, b // 1000 + 1):
            for day in range((start + offset) // _DAY, (stop - 1 + offset) // _DAY + 1):
                if self.calendar.is_open(day):
                    low = max(a, max(start, day * _DAY - offset) * 1000 - 1)
                    high = min(b, min(stop, (day + 1) * _DAY - offset) * 1000 - 1)
                    total += self.every.count_between(low, high)
        return total

    def between(self, a: int, b: int, limit: int) -> list[int]:
        return walk.forwards(self, a, b, limit)

    def newest_before(self, t: int, k: int, after: int) -> list[int]:
        return walk.backwards(self, t, k, after)

    def _day(self, at: int) -> int:
        return (at // 1000 + self.zone.offset_at(at // 1000)) // _DAY


def _once_at(once: Once, calendar: Calendar | Closed, roll: str, zone: Zone) -> Iterator[int]:
    second, fraction = divmod(once.at, 1000)
    day, time = divmod(second + zone.offset_at(second), _DAY)
    if calendar.is_open(day):
        yield once.at
    elif (target := _rolled(calendar, day, roll)) is not None:
        yield zone.first_from(target * _DAY + time) * 1000 + fraction


def _rolled(calendar: Calendar | Closed, day: int, roll: str, reach: int = _LONGEST_CLOSURE) -> int | None:
    """The business day a closed day moves to."""
    if roll == "skip":
        return None
    step = 1 if roll == "next" else -1
    return next((at for distance in range(1, reach) if calendar.is_open(at := day + step * distance)), None)


def _own_days(cron: Cron, calendar: Calendar) -> Days:
    clock = cron.search.wall.clock
    return BusinessDays(clock.rule, clock.months, clock.years, calendar.mask)


def _with_days(cron: Cron, days: Days) -> Cron:
    search = cron.search
    wall = WallClock(search.wall.clock, days)
    return replace(cron, search=Search(wall, search.zone, search.passes, search.gap))


def _zone(name: str) -> Zone:
    zone = find_zone(name)
    if zone is None:
        raise LookupError(unknown_zone(name).message)
    return zone
