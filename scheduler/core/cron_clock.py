"""Wall time: an ordinary clock and calendar without zones, and the seconds on it that an expression names.

Times are seconds since 1970-01-01T00:00 *on that clock*. Finding a match is finding bits: the day in its month's mask,
then hour, minute and second, each the lowest (or highest) bit of a set.
"""

from datetime import date
from functools import lru_cache
from typing import Final, NamedTuple

from scheduler.core.cron_days import (
    EVERY_DAY,
    EVERY_MONTH,
    EVERY_WEEKDAY,
    FIRST_YEAR,
    FULL,
    LENGTHS,
    DayRule,
    Days,
    has_year,
    is_leap,
    special_days,
    spread,
)
from scheduler.core.time import EPOCH_DAY

SEARCH_YEARS: Final = 41
"""No expression without years is silent longer: 29 February on a given weekday comes at least every 40 years."""
_DAY: Final = 86_400


class Clock(NamedTuple):
    """What an expression names, as bit sets."""

    seconds: int
    minutes: int
    hours: int
    rule: DayRule
    months: int
    years: int
    """Bit 0 = 1970; 0 = every year."""


class WallClock:
    """The matches of a compiled expression in wall time: bits and numbers only; every method is a pure function.

    It is asked about the years 1 to 2600 only: the search looks later ones up four centuries earlier.
    """

    __slots__ = (
        "_days",
        "_either",
        "_every_day",
        "_first",
        "_first_in_hour",
        "_first_in_minute",
        "_hours",
        "_last",
        "_last_in_hour",
        "_last_in_minute",
        "_minutes",
        "_month_days",
        "_months",
        "_seconds",
        "_weekdays",
        "_years",
        "bounded",
        "clock",
    )

    def __init__(self, clock: Clock, days: Days | None = None) -> None:
        self.clock = clock
        self._seconds, self._minutes, self._hours, rule, self._months, self._years = clock
        self._first_in_minute = _lowest(self._seconds)
        self._last_in_minute = self._seconds.bit_length() - 1
        self._first_in_hour = _lowest(self._minutes) * 60 + self._first_in_minute
        self._last_in_hour = (self._minutes.bit_length() - 1) * 60 + self._last_in_minute
        self._first = _lowest(self._hours) * 3600 + self._first_in_hour
        self._last = (self._hours.bit_length() - 1) * 3600 + self._last_in_hour
        self.bounded = bool(self._years) or days is not None
        """The expression names years, or a calendar decides: it does not repeat every 400 years."""
        if days is None and not rule.plain:
            days = special_days(rule)
        elif days is not None:
            self._months, self._years = EVERY_MONTH, 0
        self._days = days
        self._month_days = rule.days
        self._weekdays = spread(rule.weekdays)
        self._either = rule.either
        self._every_day = (
            days is None
            and (rule.days, rule.weekdays) == (EVERY_DAY, EVERY_WEEKDAY)
            and self._months == EVERY_MONTH
            and not self._years
        )

    def at_or_after(self, local: int) -> int | None:
        """The least match that is not before `local`; None = none within 41 years."""
        day, time = divmod(local, _DAY)
        if time > self._last:
            day += 1
            time = 0
        if not self._every_day:
            found = self._day_from(day)
            if found != day:
                return None if found is None else found * _DAY + self._first
        return day * _DAY + (self._first if time <= self._first else self._time_from(time))

    def at_or_before(self, local: int) -> int | None:
        """The greatest match that is not after `local`; None = none within 41 years or back to year 1."""
        day, time = divmod(local, _DAY)
        if time < self._first:
            day -= 1
            time = _DAY
        if not self._every_day:
            found = self._day_to(day)
            if found != day:
                return None if found is None else found * _DAY + self._last
        return day * _DAY + (self._last if time >= self._last else self._time_to(time))

    def _time_from(self, time: int) -> int:
        """The least time of day from `time` on, which is not after the last of the day."""
        hour, within = divmod(time, 3600)
        if self._hours >> hour & 1 and within <= self._last_in_hour:
            minute, second = divmod(within, 60)
            if self._minutes >> minute & 1 and second <= self._last_in_minute:
                left = self._seconds >> second
                return time + (left & -left).bit_length() - 1
            left = self._minutes >> minute + 1
            return hour * 3600 + (minute + (left & -left).bit_length()) * 60 + self._first_in_minute
        left = self._hours >> hour + 1
        return (hour + (left & -left).bit_length()) * 3600 + self._first_in_hour

    def _time_to(self, time: int) -> int:
        """The greatest time of day up to `time`, which is not before the first of the day."""
        hour, within = divmod(time, 3600)
        if self._hours >> hour & 1 and within >= self._first_in_hour:
            minute, second = divmod(within, 60)
            if self._minutes >> minute & 1 and second >= self._first_in_minute:
                return hour * 3600 + minute * 60 + (self._seconds & (2 << second) - 1).bit_length() - 1
            earlier = self._minutes & (1 << minute) - 1
            return hour * 3600 + (earlier.bit_length() - 1) * 60 + self._last_in_minute
        earlier = self._hours & (1 << hour) - 1
        return (earlier.bit_length() - 1) * 3600 + self._last_in_hour

    def _month_mask(self, year: int, month: int, first: int, full: int) -> int:
        """The days of a month that is in `_months`; `first` is the weekday of its 1st, `full` all its days."""
        if self._days is not None:
            return self._days.mask(year, month, first)
        weekdays = self._weekdays >> first
        return (self._month_days | weekdays if self._either else self._month_days & weekdays) & full

    def _day_from(self, day: int) -> int | None:
        """The least day (since the epoch) from `day` on; None = none within 41 years."""
        year, month, number, first, full = _date_of(day)
        if self._months >> month & 1 and (not self._years or has_year(self._years, year)):
            mask = self._month_mask(year, month, first, full) >> number - 1
            if mask:
                return day + (mask & -mask).bit_length() - 1
        stop = year + SEARCH_YEARS
        if self._years:
            year, month = self._to_years(year, month)
            stop = self._years.bit_length() - 1 + FIRST_YEAR
        while year <= stop:
            left = self._months >> month + 1
            if not left or (self._years and not has_year(self._years, year)):
                year += 1
                month = 0
                continue
            month += (left & -left).bit_length()
            start, first, full = _month_of(year, month)
            mask = self._month_mask(year, month, first, full)
            if mask:
                return start + (mask & -mask).bit_length() - 1
        return None

    def _day_to(self, day: int) -> int | None:
        """The greatest day (since the epoch) up to `day`; None = none within 41 years."""
        year, month, number, first, full = _date_of(day)
        if self._months >> month & 1 and (not self._years or has_year(self._years, year)):
            mask = self._month_mask(year, month, first, full) & FULL[number]
            if mask:
                return day - number + mask.bit_length()
        stop = max(year - SEARCH_YEARS, 1)
        if self._years:
            last = self._years.bit_length() - 1 + FIRST_YEAR
            if year > last:
                year, month = last, 13
            stop = FIRST_YEAR
        while year >= stop:
            earlier = self._months & (1 << month) - 1
            if not earlier or (self._years and not has_year(self._years, year)):
                year -= 1
                month = 13
                continue
            month = earlier.bit_length() - 1
            start, first, full = _month_of(year, month)
            mask = self._month_mask(year, month, first, full)
            if mask:
                return start + mask.bit_length() - 1
        return None

    def _to_years(self, year: int, month: int) -> tuple[int, int]:
        first = _lowest(self._years) + FIRST_YEAR
        return (year, month) if year >= first else (first, 0)

    # Counting: days by whole months, times of day by their rank.

    def count(self, low: int, high: int) -> int:
        """How many matches there are in [low, high)."""
        if high <= low:
            return 0
        low_day, low_time = divmod(low, _DAY)
        high_day, high_time = divmod(high, _DAY)
        a_day = self._hours.bit_count() * self._minutes.bit_count() * self._seconds.bit_count()
        total = a_day * self._days_between(low_day, high_day)
        if low_time and self.has_day(low_day):
            total -= self._times_before(low_time)
        if high_time and self.has_day(high_day):
            total += self._times_before(high_time)
        return total

    def has_day(self, day: int) -> bool:
        """Whether the day (since the epoch) has matches."""
        return self._every_day or self._day_from(day) == day

    def _times_before(self, time: int) -> int:
        hour, within = divmod(time, 3600)
        minute, second = divmod(within, 60)
        a_minute = self._seconds.bit_count()
        total = (self._hours & (1 << hour) - 1).bit_count() * self._minutes.bit_count() * a_minute
        if self._hours >> hour & 1:
            total += (self._minutes & (1 << minute) - 1).bit_count() * a_minute
            if self._minutes >> minute & 1:
                total += (self._seconds & (1 << second) - 1).bit_count()
        return total

    def _days_between(self, low: int, high: int) -> int:
        """How many days in [low, high) match."""
        if high <= low:
            return 0
        if self._every_day:
            return high - low
        total = 0
        year, month, number, _first, _full = _date_of(low)
        start = low - number + 1
        while start < high:
            _start, first, full = _month_of(year, month)
            if self._months >> month & 1 and (not self._years or has_year(self._years, year)):
                mask = self._month_mask(year, month, first, full)
                if start < low:
                    mask &= -1 << low - start
                if start + full.bit_length() > high:
                    mask &= FULL[high - start]
                total += mask.bit_count()
            start += full.bit_length()
            month += 1
            if month == 13:
                year, month = year + 1, 1
        return total

    def bits(self, low: int, high: int) -> int:
        """The matches in [low, high) as a bit set, bit 0 = `low`."""
        hour = sum(self._seconds << 60 * minute for minute in range(60) if self._minutes >> minute & 1)
        day_bits = sum(hour << 3600 * number for number in range(24) if self._hours >> number & 1)
        bits = 0
        for day in range(low // _DAY, (high - 1) // _DAY + 1):
            if self._day_from(day) == day:
                shift = day * _DAY - low
                bits |= day_bits << shift if shift >= 0 else day_bits >> -shift
        return bits & (1 << high - low) - 1

    def times_of_day(self) -> list[int]:
        """Every match of a day that has any, as seconds since midnight."""
        return [
            hour * 3600 + minute * 60 + second
            for hour in _numbers(self._hours)
            for minute in _numbers(self._minutes)
            for second in _numbers(self._seconds)
        ]


# All schedules are asked about the same few days and months.
@lru_cache(maxsize=8192)
def _date_of(day: int) -> tuple[int, int, int, int, int]:
    """(year, month, day of the month, weekday of the 1st, all days of the month as bits) of a day since the epoch."""
    today = date.fromordinal(day + EPOCH_DAY)
    _start, first, full = _month_of(today.year, today.month)
    return today.year, today.month, today.day, first, full


@lru_cache(maxsize=8192)
def _month_of(year: int, month: int) -> tuple[int, int, int]:
    """(day since the epoch of the 1st, its weekday, all days as bits) of a month."""
    start = date(year, month, 1).toordinal() - EPOCH_DAY
    return start, (start + 4) % 7, FULL[LENGTHS[is_leap(year)][month]]


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _numbers(bits: int) -> list[int]:
    return [number for number in range(bits.bit_length()) if bits >> number & 1]
