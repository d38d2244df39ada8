"""Calendars: which days are business days, as a named and versioned value.

A day is a local date of the schedule's zone. The order of authority: `include_dates` opens a day whatever else says
so; then `exclude_dates`, `exclude_ranges` and the holidays of countries close days; then the week decides. A new
version of a calendar is a new value: what was decided by the old one stays decided.
"""

import re
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from typing import Any, Final, NamedTuple

from scheduler.core.cron_days import EVERY_WEEKDAY, LENGTHS, is_leap, weekday_mask
from scheduler.core.cron_fields import WEEKDAYS
from scheduler.core.problem import Problem
from scheduler.core.time import EPOCH_DAY

_LONGEST_RANGE: Final = 3660
_MOST_DATES: Final = 10_000
_KEPT_MONTHS: Final = 4096
_EXAMPLE: Final = '{"name": "us", "version": 1, "working_days": ["MON", "TUE", "WED", "THU", "FRI"]}'
CALENDAR_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}", re.ASCII)
CALENDAR_FIELDS: Final = (
    *("name", "version", "working_days", "exclude_dates", "exclude_ranges", "include_dates", "holidays"),
)


class Holidays(NamedTuple):
    """The public holidays of a country, as the `holidays` package knows them."""

    country: str
    subdivision: str | None = None


@dataclass(frozen=True, slots=True)
class Calendar:
    """Business days by name and version. Days are counted from 1970-01-01 (= 0)."""

    name: str
    version: int = 1
    working: int = EVERY_WEEKDAY
    """Weekdays of business, bit 0 = Sunday."""
    closed: frozenset[int] = frozenset()
    opened: frozenset[int] = frozenset()
    holidays: tuple[Holidays, ...] = ()
    _masks: dict[tuple[int, int], int] = field(default_factory=dict, compare=False, repr=False)

    def is_open(self, day: int) -> bool:
        """Whether the day is a business day. Days outside the years 1 to 9999 are not."""
        if not 1 <= day + EPOCH_DAY <= _LAST_ORDINAL:
            return False
        found = date.fromordinal(day + EPOCH_DAY)
        return bool(self.mask(found.year, found.month, (day - found.day + 5) % 7) >> found.day - 1 & 1)

    def mask(self, year: int, month: int, first: int) -> int:
        """The month's business days, bit 0 = the 1st; `first` is the weekday of the 1st, 0 = Sunday."""
        found = self._masks.get((year, month))
        if found is None:
            if len(self._masks) >= _KEPT_MONTHS:
                self._masks.clear()
            found = self._masks[year, month] = self._month(year, month, first)
        return found

    def why_closed(self, day: int) -> str:
        """The reason why a day is no business day, for people."""
        found = date.fromordinal(day + EPOCH_DAY)
        if day in self.closed:
            return f"{found} is excluded by calendar {self.name}@{self.version}"
        for source in self.holidays:
            if name := _holidays_of(source, found.year).get(found):
                return f"{found} is {name} ({source.country}) in calendar {self.name}@{self.version}"
        return f"{found} is a {WEEKDAYS[(day + 4) % 7]}, not worked in calendar {self.name}@{self.version}"

    def _month(self, year: int, month: int, first: int) -> int:
        length = LENGTHS[is_leap(year)][month]
        mask = weekday_mask(self.working, first, length)
        start = date(year, month, 1)
        for source in self.holidays:
            for holiday in _holidays_of(source, year):
                if holiday.month == month:
                    mask &= ~(1 << holiday.day - 1)
        first_day = start.toordinal() - EPOCH_DAY
        for at in range(length):
            if first_day + at in self.opened:
                mask |= 1 << at
            elif first_day + at in self.closed:
                mask &= ~(1 << at)
        return mask

    def __reduce__(self) -> tuple[object, ...]:
        """Travels without the masks it has computed."""
        return Calendar, (self.name, self.version, self.working, self.closed, self.opened, self.holidays)


class ParsedCalendar(NamedTuple):
    """What came of a calendar's wire form: a value, or every problem at once."""

    calendar: Calendar | None
    problems: tuple[Problem, ...] = ()


def parse_calendar(spec: object) -> ParsedCalendar:
    """The calendar a decoded JSON object describes. Never raises; all problems at once.

    `{"name"?, "version"?, "working_days"? [all], "exclude_dates"?, "exclude_ranges"? [{"from","to"}] (both inclusive),
    "include_dates"?, "holidays"? [{"country","subdivision"?}]}`; dates as `2026-07-04`.
    """
    if not isinstance(spec, dict):
        return ParsedCalendar(None, (_problem("calendar", f"not an object such as {_EXAMPLE}"),))
    reader = _Reader(spec)
    calendar = Calendar(
        reader.name(),
        reader.version(),
        reader.working_days(),
        reader.dates("exclude_dates") | reader.ranges("exclude_ranges"),
        reader.dates("include_dates"),
        reader.holidays(),
    )
    if not calendar.working and not calendar.opened:
        reader.problems.append(_problem("working_days", "no day of the week is worked and no date is included"))
    reader.problems += [
        _problem(str(name)[:40], f"not a field of a calendar; there are {', '.join(CALENDAR_FIELDS)}")
        for name in spec
        if name not in CALENDAR_FIELDS
    ]
    return ParsedCalendar(None if reader.problems else calendar, tuple(reader.problems))


class _Reader:
    """Reads a calendar's fields, collecting what is wrong with them."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.problems: list[Problem] = []

    def name(self) -> str:
        name = self.spec.get("name", "unnamed")
        if isinstance(name, str) and 1 <= len(name) <= 100:
            return name
        self._refuse("name", "a name is text of 1 to 100 characters")
        return ""

    def version(self) -> int:
        version = self.spec.get("version", 1)
        if isinstance(version, int) and not isinstance(version, bool) and version >= 1:
            return version
        self._refuse("version", "a version is a whole number >= 1")
        return 1

    def working_days(self) -> int:
        names = self.spec.get("working_days")
        if names is None:
            return EVERY_WEEKDAY
        mask = 0
        for name in self._items("working_days"):
            if isinstance(name, str) and name.upper() in WEEKDAYS:
                mask |= 1 << WEEKDAYS.index(name.upper())
            else:
                self._refuse("working_days", f"{name!r:.40} is not one of {', '.join(WEEKDAYS)}")
        return mask

    def dates(self, where: str) -> frozenset[int]:
        return frozenset(day for text in self._items(where) if (day := self._day(where, text)) is not None)

    def ranges(self, where: str) -> frozenset[int]:
        days: set[int] = set()
        for item in self._items(where):
            if not isinstance(item, dict):
                self._refuse(where, f"{item!r:.40} is not an object with from and to")
                continue
            low, high = self._day(where, item.get("from")), self._day(where, item.get("to"))
            if low is not None and high is not None:
                if low <= high < low + _LONGEST_RANGE:
                    days.update(range(low, high + 1))
                else:
                    self._refuse(where, f"from {item['from']} to {item['to']} is not a range of 1 to 3660 days")
        return frozenset(days)

    def holidays(self) -> tuple[Holidays, ...]:
        found = []
        for item in self._items("holidays"):
            country, subdivision = (
                (item.get("country"), item.get("subdivision")) if isinstance(item, dict) else (None, None)
            )
            known = supported_holidays()
            if not isinstance(country, str) or country not in known:
                self._refuse("holidays", f"{item!r:.60} has no country of the holidays package, such as US, DE or JP")
            elif subdivision is not None and subdivision not in known[country]:
                allowed = ", ".join(known[country][:60]) or "none"
                self._refuse("holidays", f"{subdivision!r:.40} is not a subdivision of {country}; there are {allowed}")
            else:
                found.append(Holidays(country, subdivision))
        return tuple(found)

    def _items(self, where: str) -> list[Any]:
        items = self.spec.get(where)
        if items is None:
            return []
        if isinstance(items, list) and len(items) <= _MOST_DATES:
            return items
        self._refuse(where, f"a list of at most {_MOST_DATES} is expected")
        return []

    def _day(self, where: str, text: object) -> int | None:
        try:
            if isinstance(text, str) and len(text) == len("2026-07-04"):
                return date.fromisoformat(text).toordinal() - EPOCH_DAY
        except ValueError:
            pass
        self._refuse(where, f"{text!r:.40} is not a date such as 2026-07-04")
        return None

    def _refuse(self, where: str, why: str) -> None:
        self.problems.append(_problem(where, why))


def _problem(where: str, why: str) -> Problem:
    return Problem(where, "bad_field", f"calendar: {where}: {why}")


@lru_cache(maxsize=1)
def supported_holidays() -> dict[str, list[str]]:
    """The countries whose holidays are known, each with its subdivisions."""
    import holidays  # as slow to import as everything else together, and few calendars need it

    return dict(holidays.list_supported_countries(include_aliases=False))


@lru_cache(maxsize=4096)
def _holidays_of(source: Holidays, year: int) -> dict[date, str]:
    import holidays

    return dict(holidays.country_holidays(source.country, subdiv=source.subdivision, years=year))


_LAST_ORDINAL: Final = date.max.toordinal()
