"""Triggers in words: what a rule says, and which rule made an instant what it is.

Read from the compiled bits, not from the text: the words describe what will happen, whatever was typed.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple, cast

from scheduler.core.calendared import Calendared
from scheduler.core.cron import Cron
from scheduler.core.cron_clock import Clock
from scheduler.core.cron_days import EVERY_DAY, EVERY_MONTH, EVERY_WEEKDAY, FIRST_YEAR, DayRule
from scheduler.core.cron_fields import MARKS, WEEKDAYS, Special
from scheduler.core.time import format_instant, format_local
from scheduler.core.trigger import Every, Once, Trigger
from scheduler.core.zones import Zone, find_zone

_ALL_60: Final = (1 << 60) - 1
_ALL_24: Final = (1 << 24) - 1
_FEW_TIMES: Final = 6
_LONGEST_GAP: Final = 86_400
_DAY_NAMES: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTH_NAMES: Final = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    *("November", "December"),
)
_UNITS: Final = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))
_FOLD_WORDS: Final = {
    "first": "a repeated local time counts once, the first time",
    "last": "a repeated local time counts once, the last time",
    "both": "a repeated local time counts both times",
}
_GAP_WORDS: Final = {
    "skip": "a missing local time is skipped, and recorded",
    "forward": "a missing local time moves to the first instant after the gap",
    "shift": "a missing local time moves by the length of the gap",
}


class Note(NamedTuple):
    """What is worth knowing about an instant: a machine word and a sentence."""

    kind: str
    """`fold`, `gap`, `skipped`, `removed` or `moved`."""
    at: int
    """The instant (ms) it is about."""
    text: str


def describe(trigger: Trigger) -> str:
    """The whole rule as a sentence or two."""
    match trigger:
        case Cron():
            clock = trigger.search.wall.clock
            policy = f"{_FOLD_WORDS[trigger.search.passes]}; {_GAP_WORDS[trigger.gap]}"
            return f"{_times(clock)}{_days(clock.rule)}{_months(clock)}, in {trigger.zone}; {policy}"
        case Every():
            return f"every {_duration(trigger.every_ms)} of elapsed time, counted from {format_instant(trigger.anchor)}"
        case Once(local=None):
            return f"once, at {format_instant(trigger.at)}"
        case Once():
            return f"once, at {trigger.local} in {trigger.zone} ({format_instant(trigger.at)})"
        case Calendared():
            moves = {
                "skip": "days that are not worked are left out",
                "next": "days that are not worked move to the next business day",
                "previous": "days that are not worked move to the business day before",
            }
            of = f"{trigger.calendar.name}@{trigger.calendar.version}"
            return f"{describe(trigger.trigger)}; by calendar {of} {moves[trigger.roll]}"
        case _:
            raise TypeError(f"{trigger!r} is not a trigger that has words")


def local_text(zone: Zone, ms: int) -> str:
    """The wall clock at an instant: `Sun 2026-03-08 03:30:00 EDT (-04:00)`."""
    second = ms // 1000
    offset = zone.offset_at(second)
    local = second + offset
    name = zone.name_at(second)
    weekday = WEEKDAYS[(local // 86_400 + 4) % 7].capitalize()
    text = f"{weekday} {format_local(local).replace('T', ' ')}"
    return f"{text} {name} ({_offset(offset)})" if name.isalpha() else f"{text} ({_offset(offset)})"


def zone_of(trigger: Trigger, otherwise: str = "UTC") -> Zone:
    """The zone whose wall clock people read for this trigger."""
    match trigger:
        case Cron():
            return trigger.search.zone
        case Calendared():
            return zone_of(trigger.trigger, trigger.zone)
        case Once(zone=str(name)):
            pass
        case _:
            name = otherwise
    zone = find_zone(name) or find_zone("UTC")
    return cast("Zone", zone)


def notes_on(trigger: Trigger, at: int) -> list[Note]:
    """Why a nominal is where it is, when that is not plain."""
    cron = _cron_of(trigger)
    if cron is None:
        return []
    zone, second = cron.search.zone, at // 1000
    local = second + zone.offset_at(second)
    found = []
    twice = zone.instants_of(local)
    if len(twice) > 1:
        which = "first" if second == twice[0] else "second"
        rule = _FOLD_WORDS[cron.search.passes]
        auto = "" if cron.fold != "auto" else " (fold auto: " + _auto_reason(cron) + ")"
        found.append(Note("fold", at, f"{which} of two passes through {format_local(local)}: {rule}{auto}"))
    if cron.gap != "skip":
        for start, before, after in zone.gaps(second - _LONGEST_GAP, second):
            if cron.gap == "forward":
                missing = next(cron.search.lost_in(start, before, after), None) if second == start else None
            else:
                missing = second + before if cron.search.wall.at_or_after(second + before) == second + before else None
            if missing is not None and missing < start + after:
                text = f"{format_local(missing)} does not exist on this day: {_GAP_WORDS[cron.gap]}"
                found.append(Note("gap", at, text))
    return found


def events_between(trigger: Trigger, a: int, b: int, limit: int) -> Iterator[Note]:
    """What did *not* fire in (a, b], or not where the bare rule says: gaps, and what a calendar removed or moved."""
    if isinstance(trigger, Cron | Calendared):
        for lost in islice(trigger.skipped_between(a, b), limit):
            yield Note("skipped", lost.at, f"{lost.local} does not exist: {lost.reason}")
    if isinstance(trigger, Calendared):
        for change in trigger.moved_between(a, b, limit):
            kind = "removed" if change.to is None else "moved"
            to = "" if change.to is None else f" to {local_text(zone_of(trigger), change.to)}"
            nominal = local_text(zone_of(trigger), change.nominal)
            yield Note(kind, change.nominal, f"{nominal} {kind}{to}: {change.reason}")


def _cron_of(trigger: Trigger) -> Cron | None:
    bare = trigger.trigger if isinstance(trigger, Calendared) else trigger
    return bare if isinstance(bare, Cron) else None


def _auto_reason(cron: Cron) -> str:
    if cron.search.passes == "both":
        return "hour or minute begins with *"
    return "hour and minute are fixed"


def _times(clock: Clock) -> str:
    numbers = [_members(bits) for bits in (clock.hours, clock.minutes, clock.seconds)]
    hours, minutes, seconds = numbers
    if len(hours) * len(minutes) * len(seconds) <= _FEW_TIMES:
        plain = seconds == [0]
        times = [
            f"{hour:02}:{minute:02}" + ("" if plain else f":{second:02}")
            for hour in hours
            for minute in minutes
            for second in seconds
        ]
        return "at " + _and(times)
    parts = []
    if seconds != [0]:
        parts.append(_unit(clock.seconds, _ALL_60, "second"))
    if not (parts and clock.minutes == _ALL_60 and clock.seconds != 1):
        parts.append(_unit(clock.minutes, _ALL_60, "minute"))
    if clock.hours != _ALL_24:
        parts.append(_hours(hours))
    elif minutes and clock.minutes != _ALL_60 and len(minutes) < 60 and not parts[-1].startswith("every"):
        parts.append("of every hour")
    return ", ".join(parts) if len(parts) > 1 and not parts[-1].startswith("of") else " ".join(parts)


def _unit(bits: int, everything: int, name: str) -> str:
    numbers = _members(bits)
    if bits == everything:
        return f"every {name}"
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 0
    if step and numbers == list(range(0, 60, step)) and 60 % step == 0:
        return f"every {step} {name}s"
    return f"at {name}{'s' if len(numbers) > 1 else ''} {_runs(numbers)}"


def _hours(hours: list[int]) -> str:
    runs = [f"{low:02}:00 to {high:02}:59" for low, high in _pairs(hours)]
    return "from " + _and(runs)


def _days(rule: DayRule) -> str:
    weekdays = _weekday_words(rule)
    days = _day_words(rule)
    if rule.either:
        return f", on {_and(days, 'or')} or on {_and(weekdays, 'or')}"
    both = ([f"on {_and(days, 'or')}"] if days else []) + ([f"on {_and(weekdays, 'or')}"] if weekdays else [])
    if not both:
        return ", every day"
    return ", " + " that fall ".join(both)


def _day_words(rule: DayRule) -> list[str]:
    if rule.days == EVERY_DAY:
        return []
    numbers = _members(rule.days << 1)
    words = [f"day{'s' if len(numbers) > 1 else ''} {_runs(numbers)} of the month"] if numbers else []
    return words + [_special(special) for special in rule.day_specials]


def _weekday_words(rule: DayRule) -> list[str]:
    if rule.weekdays == EVERY_WEEKDAY:
        return []
    numbers = _members(rule.weekdays)
    words = []
    for low, high in _pairs(numbers):
        words += (
            [f"{_DAY_NAMES[low]} to {_DAY_NAMES[high]}"]
            if high > low + 1
            else [_DAY_NAMES[day] for day in range(low, high + 1)]
        )
    return words + [_special(special) for special in rule.weekday_specials]


def _special(special: Special) -> str:
    kind, number, nth = special
    match kind:
        case "L-n":
            return f"{number} days before the last day of the month"
        case "L-nW":
            return f"the Monday-to-Friday day nearest to {number} days before the last day of the month"
        case "nW":
            return f"the Monday-to-Friday day nearest to day {number}"
        case "nB":
            return f"business day {number} of the month"
        case "LB":
            return "the last business day of the month"
        case "nL":
            return f"the last {_DAY_NAMES[number]} of the month"
        case "n#k":
            return f"{_DAY_NAMES[number]} number {nth} of the month"
        case _:
            return MARKS[kind][0].partition(";")[0]


def _months(clock: Clock) -> str:
    text = ""
    if clock.months != EVERY_MONTH:
        names = [
            _MONTH_NAMES[low - 1] if low == high else f"{_MONTH_NAMES[low - 1]} to {_MONTH_NAMES[high - 1]}"
            for low, high in _pairs(_members(clock.months))
        ]
        text += f", in {_and(names)}"
    if clock.years:
        text += f", in {_runs([year + FIRST_YEAR for year in _members(clock.years)])}"
    return text


def _duration(ms: int) -> str:
    for unit, name in _UNITS:
        if ms % unit == 0:
            return name if ms == unit else f"{ms // unit} {name}s"
    return f"{ms} ms"


def _offset(seconds: int) -> str:
    sign = "-" if seconds < 0 else "+"
    hours, rest = divmod(abs(seconds), 3600)
    text = f"{sign}{hours:02}:{rest // 60:02}"
    return f"{text}:{rest % 60:02}" if rest % 60 else text


def _members(bits: int) -> list[int]:
    return [number for number in range(bits.bit_length()) if bits >> number & 1]


def _pairs(numbers: list[int]) -> list[tuple[int, int]]:
    """Runs of neighbours as (first, last)."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _runs(numbers: list[int]) -> str:
    return _and([str(low) if low == high else f"{low}-{high}" for low, high in _pairs(numbers)])


def _and(words: list[str], last: str = "and") -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"
