"""The brute-force oracle of the time tests: each wall-clock second an expression names, asked of `zoneinfo`.

It shares nothing with the engine: no cron library, no bit sets, no transition tables. An expression is born as sets of
numbers *and* as text, so the oracle never parses. Days are decided with `datetime.date` and loops.
"""

from __future__ import annotations

import zoneinfo
from calendar import monthrange
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - wall time is naive here on purpose


@dataclass(frozen=True)
class Expression:
    """An expression in text and, independently, in meaning."""

    text: str
    dialect: str
    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: tuple[str, ...]
    """Items of the day of the month: numbers or special forms, as text; `*` = all."""
    months: frozenset[int]
    weekdays: tuple[str, ...]
    """Items of the day of the week: 0-6, `nL`, `n#k`; `*` = all."""
    either: bool
    runs_through: bool

    def names_day(self, day: date) -> bool:
        """Whether the date is one of the expression's."""
        if day.month not in self.months:
            return False
        by_day = any(_day_item(item, day) for item in self.days)
        by_weekday = any(_weekday_item(item, day) for item in self.weekdays)
        return by_day or by_weekday if self.either else by_day and by_weekday


def _day_item(item: str, day: date) -> bool:
    last = monthrange(day.year, day.month)[1]
    if item == "*":
        return True
    if item == "L":
        return day.day == last
    if item == "LW":
        return day == _last_working(day)
    if item.endswith("W"):
        target = int(item[:-1])
        return target <= last and day == _nearest_working(day.replace(day=target))
    return day.day == int(item)


def _last_working(day: date) -> date:
    found = day.replace(day=monthrange(day.year, day.month)[1])
    while found.isoweekday() > 5:
        found -= timedelta(days=1)
    return found


def _nearest_working(day: date) -> date:
    """The nearest Monday-to-Friday date in the same month: by trying the distances 0, -1, +1, -2, +2."""
    for distance in (0, -1, 1, -2, 2):
        found = day + timedelta(days=distance)
        if found.month == day.month and found.isoweekday() <= 5:
            return found
    raise AssertionError(day)


def _weekday_item(item: str, day: date) -> bool:
    if item == "*":
        return True
    weekday = day.isoweekday() % 7
    if item.endswith("L"):
        return weekday == int(item[:-1]) and (day + timedelta(days=7)).month != day.month
    if "#" in item:
        wanted, nth = item.split("#")
        return weekday == int(wanted) and (day.day - 1) // 7 + 1 == int(nth)
    return weekday == int(item)


@lru_cache(maxsize=1024)
def zone(name: str) -> zoneinfo.ZoneInfo:
    """The zone by the standard library, from the pinned tables."""
    return zoneinfo.ZoneInfo(name)


def nominals(expression: Expression, name: str, gap: str, fold: str, low: int, high: int) -> list[int]:
    """Every instant (seconds) the expression names in [low, high], ascending, one by one."""
    return sorted({at for at in _instants(expression, name, gap, fold, low, high) if low <= at <= high})


def _instants(expression: Expression, name: str, gap: str, fold: str, low: int, high: int) -> Iterator[int]:
    rules = zone(name)
    if fold == "auto":
        fold = "both" if expression.runs_through else "first"
    # Wall times whose instants can lie in [low, high]: by every offset in use around it.
    offsets = [_offset_at(rules, at) for at in range(low - 172_800, high + 172_800, 21_600)]
    first, last = EPOCH + timedelta(seconds=low + min(offsets)), EPOCH + timedelta(seconds=high + max(offsets))
    hour_of = first.replace(minute=0, second=0)
    while hour_of <= last:
        if hour_of.hour in expression.hours and expression.names_day(hour_of.date()):
            for minute in expression.minutes:
                for second in expression.seconds:
                    yield from _resolve(hour_of.replace(minute=minute, second=second), rules, gap, fold)
        hour_of += timedelta(hours=1)


def _resolve(wall: datetime, rules: zoneinfo.ZoneInfo, gap: str, fold: str) -> Iterator[int]:
    local = (wall - EPOCH) // timedelta(seconds=1)
    early, late = _offset(rules, wall), _offset(rules, wall.replace(fold=1))
    if early == late:
        yield local - early
    elif early > late:
        if fold in {"first", "both"}:
            yield local - early
        if fold in {"last", "both"}:
            yield local - late
    elif gap == "shift":
        yield local - early
    elif gap == "forward":
        yield _first_after(rules, local - late, local - early, late)


def _offset(rules: zoneinfo.ZoneInfo, wall: datetime) -> int:
    offset = rules.utcoffset(wall)
    assert offset is not None
    return offset // timedelta(seconds=1)


def _offset_at(rules: zoneinfo.ZoneInfo, second: int) -> int:
    aware = (EPOCH + timedelta(seconds=second)).replace(tzinfo=rules)
    return _offset(rules, rules.fromutc(aware))


def _first_after(rules: zoneinfo.ZoneInfo, before: int, after: int, offset: int) -> int:
    """The first instant at which the clock runs by `offset`, by halving the stretch that holds the change."""
    while after - before > 1:
        middle = (before + after) // 2
        if _offset_at(rules, middle) == offset:
            after = middle
        else:
            before = middle
    return after
