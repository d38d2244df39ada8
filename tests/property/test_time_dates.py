"""Days over 400 years, against an oracle of dates alone: leap days, weekdays, the n-th and the last of them."""

from __future__ import annotations

from datetime import date, timedelta
from functools import cache
from typing import TYPE_CHECKING

import pytest

from scheduler.core.cron import compile_cron

if TYPE_CHECKING:
    from collections.abc import Callable

_FIRST, _LAST = date(2000, 1, 1), date(2399, 12, 31)
_EPOCH = date(1970, 1, 1)


@cache
def every_day() -> list[date]:
    """The 146,097 days of a whole Gregorian cycle."""
    return [_FIRST + timedelta(days=at) for at in range((_LAST - _FIRST).days + 1)]


def last_of_month(day: date) -> bool:
    """Tomorrow is another month."""
    return (day + timedelta(days=1)).day == 1


def nearest_working(target: int) -> Callable[[date], bool]:
    """The day is the Monday-to-Friday one nearest to `target` in its month."""

    def law(day: date) -> bool:
        try:
            aim = day.replace(day=target)
        except ValueError:
            return False
        near = [aim + timedelta(days=distance) for distance in (0, -1, 1, -2, 2)]
        return day == next(at for at in near if at.month == day.month and at.isoweekday() < 6)

    return law


def weekday(number: int) -> Callable[[date], bool]:
    """The day is that weekday, 0 = Sunday."""
    return lambda day: day.isoweekday() % 7 == number


LAWS: dict[str, Callable[[date], bool]] = {
    "29 2 *": lambda day: (day.month, day.day) == (2, 29),
    "29 2 1": lambda day: day.month == 2 and (day.day == 29 or weekday(1)(day)),
    "L * *": last_of_month,
    "L 2 *": lambda day: day.month == 2 and last_of_month(day),
    "31 * *": lambda day: day.day == 31,
    "*/10 * *": lambda day: day.day in {1, 11, 21, 31},
    "*/2 * 1": lambda day: day.day % 2 == 1 and weekday(1)(day),
    "13 * 5": lambda day: day.day == 13 or weekday(5)(day),
    "* * 0": weekday(0),
    "* * 7": weekday(0),
    "* * 6-1": lambda day: day.isoweekday() in {6, 7, 1},
    "* NOV-FEB MON": lambda day: day.month in {11, 12, 1, 2} and day.isoweekday() == 1,
    "* * 5L": lambda day: weekday(5)(day) and (day + timedelta(days=7)).month != day.month,
    "* * 2#5": lambda day: weekday(2)(day) and day.day > 28,
    "* * FRI#2": lambda day: weekday(5)(day) and 8 <= day.day <= 14,
    "LW * *": lambda day: (
        day.isoweekday() < 6
        and not any(
            (day + timedelta(days=at)).month == day.month and (day + timedelta(days=at)).isoweekday() < 6
            for at in range(1, 4)
        )
    ),
    "1W * *": nearest_working(1),
    "15W * *": nearest_working(15),
    "31W * *": nearest_working(31),
    "29W 2 *": lambda day: day.month == 2 and nearest_working(29)(day),
    "3B * *": lambda day: (
        day.isoweekday() < 6
        and sum(day.replace(day=at).isoweekday() < 6 for at in range(1, day.day + 1)) == 3
    ),
    "LB * *": lambda day: (
        day.isoweekday() < 6
        and all((day + timedelta(days=at)).isoweekday() > 5 for at in range(1, 4) if not _leaves(day, at))
    ),
}  # fmt: skip


def _leaves(day: date, distance: int) -> bool:
    return (day + timedelta(days=distance)).month != day.month


@pytest.mark.parametrize("days", LAWS)
def test_four_centuries_of_days(days: str) -> None:
    """Every day of the cycle on which the rule holds, no other, forwards, counted, and the last one backwards."""
    expected = [((day - _EPOCH).days * 86_400 + 43_200) * 1000 for day in every_day() if LAWS[days](day)]
    trigger = compile_cron(f"0 12 {days}", "UTC").trigger
    assert trigger is not None
    a, b = (_FIRST - _EPOCH).days * 86_400_000, ((_LAST - _EPOCH).days + 1) * 86_400_000
    assert trigger.between(a, b, 200_000) == expected
    assert trigger.count_between(a, b) == len(expected)
    assert trigger.newest_before(b, 50, a) == expected[-50:]


@pytest.mark.parametrize("weekday_name", ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"])
def test_the_rarest_day_is_found(weekday_name: str) -> None:
    """29 February on a given weekday, by quartz's `#5`: up to 40 years away, and found at each step."""
    expected = [
        ((day - _EPOCH).days * 86_400) * 1000
        for day in every_day()
        if (day.month, day.day) == (2, 29) and day.strftime("%a").upper() == weekday_name
    ]
    trigger = compile_cron(f"0 0 0 ? 2 {weekday_name}#5", "UTC", "quartz").trigger
    assert trigger is not None
    at = (_FIRST - _EPOCH).days * 86_400_000 - 1
    for following in expected:
        at = trigger.next_after(at)
        assert at == following


def test_an_impossible_day_is_proven_impossible() -> None:
    """Over the whole cycle no day suits: refused when created, not searched for at run time."""
    for days in ("30 2 *", "31 2 *", "31 4,6,9,11 *", "31W 4 *", "30,31 2 *", "*/30 2 MON#1"):
        parsed = compile_cron(f"0 0 {days}", "UTC")
        possible = days == "*/30 2 MON#1"  # the 1st may be a first Monday
        assert (parsed.trigger is not None) == possible, days
        if not possible:
            assert [problem.code for problem in parsed.problems] == ["never_fires"]


def test_a_day_pattern_that_is_only_rare_is_accepted() -> None:
    """29 February fires in 97 of 400 years."""
    trigger = compile_cron("0 0 29 2 *", "UTC").trigger
    assert trigger is not None
    assert trigger.count_between(946_684_799_999, 946_684_799_999 + 146_097 * 86_400_000) == 97
