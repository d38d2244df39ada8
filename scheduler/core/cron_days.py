"""Which days a cron expression names: the rule as bits, and the mask of one month.

A month is, for this purpose, its length and the weekday of its first day: 28 kinds. So one cheap function decides all
days that will ever be, and "does it ever fire" is a question about 28 masks, not a search: in the 400-year cycle each
month begins on every weekday, 29-day Februaries included.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from scheduler.core.cron_fields import Special

EVERY_DAY: Final = (1 << 31) - 1
EVERY_MONTH: Final = 0b1_1111_1111_1110
EVERY_WEEKDAY: Final = 0b111_1111
FIRST_YEAR: Final = 1970
"""Bit 0 of a set of years."""

LENGTHS: Final = (
    (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31),
    (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31),
)
"""Days in each month, of common and of leap years."""
FULL: Final = tuple((1 << length) - 1 for length in range(32))
"""The mask of a month's days by its length."""
_BY_LENGTH: Final = (
    (31, sum(1 << month for month in (1, 3, 5, 7, 8, 10, 12))),
    (30, sum(1 << month for month in (4, 6, 9, 11))),
    (29, 1 << 2),
    (28, 1 << 2),
)
_REPEATED: Final = sum(1 << 7 * week for week in range(6))
_UNKNOWN: Final = -1
_MONDAY_TO_FRIDAY: Final = 0b011_1110


class DayRule(NamedTuple):
    """Day of month and day of week together: bit d - 1 = day d; bit w = weekday w, 0 = Sunday."""

    days: int
    weekdays: int
    either: bool
    """Both fields are restricted: a day of one *or* the other. Else a day must suit both."""
    day_specials: tuple[Special, ...] = ()
    weekday_specials: tuple[Special, ...] = ()

    @property
    def plain(self) -> bool:
        """Two masks tell everything."""
        return not self.day_specials and not self.weekday_specials


class Days(Protocol):
    """What decides about a month when two masks do not: special forms, calendars, rolls."""

    def mask(self, year: int, month: int, first: int) -> int:
        """The month's days; `first` is the weekday of its 1st, 0 = Sunday."""


def is_leap(year: int) -> bool:
    """Whether the Gregorian year has a 29 February."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def spread(weekdays: int) -> int:
    """A set of weekdays repeated, so that shifting it right by the weekday of the 1st gives a month's mask."""
    return weekdays * _REPEATED


def weekday_mask(weekdays: int, first: int, length: int) -> int:
    """The days of a month that fall on the weekdays."""
    return spread(weekdays) >> first & FULL[length]


def rule_mask(rule: DayRule, first: int, length: int, business: int | None = None) -> int:
    """The days the rule names in a month of `length` days whose 1st is weekday `first`.

    `business` = the month's business days (None: Monday to Friday).
    """
    days = rule.days
    for special in rule.day_specials:
        days |= _day_special(special, first, length, business)
    weekdays = spread(rule.weekdays) >> first
    for special in rule.weekday_specials:
        weekdays |= _weekday_special(special, first, length)
    return (days | weekdays if rule.either else days & weekdays) & FULL[length]


def ever_fires(rule: DayRule, months: int) -> bool:
    """Whether some month of some year has a day of the rule, proven over the whole 400-year cycle."""
    lengths = [length for length, alike in _BY_LENGTH if months & alike]
    return any(rule_mask(rule, first, length) for length in lengths for first in range(7))


def _day_special(special: Special, first: int, length: int, business: int | None) -> int:
    kind, number, _nth = special
    if kind in {"nB", "LB"}:
        open_days = weekday_mask(_MONDAY_TO_FRIDAY, first, length) if business is None else business
        return _nth_bit(open_days, number) if kind == "nB" else _top_bit(open_days)
    day = number if kind == "nW" else length - number
    if not 1 <= day <= length:
        return 0
    return 1 << (_nearest_weekday(day, first, length) if kind in {"nW", "LW", "L-nW"} else day) - 1


def _nearest_weekday(day: int, first: int, length: int) -> int:
    """The Monday-to-Friday day nearest to `day`, never across the month's edge."""
    weekday = (first + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def _weekday_special(special: Special, first: int, length: int) -> int:
    of_weekday = weekday_mask(1 << special.number, first, length)
    return _top_bit(of_weekday) if special.kind == "nL" else _nth_bit(of_weekday, special.nth)


def _nth_bit(mask: int, nth: int) -> int:
    for _ in range(nth - 1):
        mask &= mask - 1
    return mask & -mask


def _top_bit(mask: int) -> int:
    return 1 << mask.bit_length() - 1 if mask else 0


class SpecialDays:
    """The months of a rule with special forms: each of the 28 kinds of month is worked out once."""

    __slots__ = ("_masks", "_rule")

    def __init__(self, rule: DayRule) -> None:
        self._rule = rule
        self._masks = [_UNKNOWN] * 28

    def mask(self, year: int, month: int, first: int) -> int:
        """See `Days.mask`."""
        length = LENGTHS[is_leap(year)][month]
        kind = first * 4 + length - 28
        found = self._masks[kind]
        if found == _UNKNOWN:
            found = self._masks[kind] = rule_mask(self._rule, first, length)
        return found


@lru_cache(maxsize=2048)
def special_days(rule: DayRule) -> SpecialDays:
    """The rule's months, shared by all expressions that name the same days."""
    return SpecialDays(rule)


class BusinessDays:
    """The months of a rule within its months and years, `nB` and `LB` counted by a calendar's business days."""

    __slots__ = ("_business", "_months", "_rule", "_years")

    def __init__(self, rule: DayRule, months: int, years: int, business: Callable[[int, int, int], int]) -> None:
        self._rule = rule
        self._months = months
        self._years = years
        self._business = business

    def mask(self, year: int, month: int, first: int) -> int:
        """See `Days.mask`."""
        if not self._months >> month & 1 or (self._years and not has_year(self._years, year)):
            return 0
        return rule_mask(self._rule, first, LENGTHS[is_leap(year)][month], self._business(year, month, first))


def has_year(years: int, year: int) -> bool:
    """Whether a set of years (bit 0 = 1970) holds the year."""
    return year >= FIRST_YEAR and bool(years >> year - FIRST_YEAR & 1)
