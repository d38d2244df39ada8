"""Cron expressions: from text in a dialect to a compiled trigger, or to everything that is wrong with it.

The rules are those of the contract:

* Day of month and day of week combine by OR, unless one of them begins with `*` (then AND); `?` is as good as `*`.
* `fold: auto` runs through both passes of a repeated local time when the hour or the minute begins with `*`; otherwise
  each local time counts once, the first time. `first`, `last` and `both` say it outright.
* `gap: skip` drops what falls into missing local time, `forward` moves it to the first instant after, `shift` by the
  gap's length.

Equal expressions are one object (`compile_cron` interns them), so a million schedules with a hundred expressions cost
a hundred.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple, cast

from scheduler.core import walk
from scheduler.core.cron_clock import Clock, WallClock
from scheduler.core.cron_days import FIRST_YEAR, DayRule, ever_fires
from scheduler.core.cron_fields import DIALECTS, Value, parse_field
from scheduler.core.cron_search import Gap, Search
from scheduler.core.problem import Problem
from scheduler.core.protocol import Parsed
from scheduler.core.time import format_local
from scheduler.core.zones import Passes, find_zone, unknown_zone, zone_warnings

GAPS: Final = ("skip", "forward", "shift")
FOLDS: Final = ("auto", "first", "last", "both")
DEFAULTS: Final = {"dialect": "unix", "gap": "skip", "fold": "auto"}
MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
EXAMPLES: Final = {
    "unix": "30 9 * * MON-FRI",
    "seconds": "0 30 9 * * MON-FRI",
    "quartz": "0 30 9 ? * MON-FRI",
    "aws": "cron(30 9 ? * MON-FRI *)",
}
LONGEST: Final = 1000
"""Characters in an expression; a list of all values of all fields has fewer."""
_INTERNED: Final = 16_384
_MINUTE_AT: Final = {name: kinds[0].name == "second" for name, kinds in DIALECTS.items()}
"""Where the minute stands: first (0), or after the second (1)."""
_HASH: Final = re.compile(r"(?:^|[\s,(])[Hh](?:$|[\s,/()])")
_RATE: Final = re.compile(r"rate\(\s*([0-9]{1,9})\s+(minute|hour|day)(s?)\s*\)")
_RATE_MS: Final = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}


class Skipped(NamedTuple):
    """A nominal that a gap swallowed: the visible record of what did not run."""

    local: str
    """The missing wall-clock time, `2026-03-08T02:30:00`."""
    at: int
    """The instant (ms) at which the clock jumped over it."""
    reason: str


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression in a zone; implements `Trigger`. Made by `compile_cron`."""

    expr: str
    zone: str
    dialect: str = "unix"
    gap: str = "skip"
    fold: str = "auto"
    seed: str | None = None
    """The schedule id, if the expression hashes it (`H`)."""
    search: Search = field(compare=False, repr=False, kw_only=True)

    def next_after(self, t: int) -> int | None:
        """See `Trigger.next_after`."""
        second = self.search.at_or_after(t // 1000 + 1)
        return None if second is None else second * 1000

    def prev_before(self, t: int) -> int | None:
        """See `Trigger.prev_before`."""
        second = self.search.at_or_before((t - 1) // 1000)
        return None if second is None else second * 1000

    def count_between(self, a: int, b: int) -> int:
        """See `Trigger.count_between`."""
        return self.search.count(a // 1000 + 1, b // 1000 + 1)

    def between(self, a: int, b: int, limit: int) -> list[int]:
        """See `Trigger.between`."""
        return [second * 1000 for second in self.search.between(a // 1000 + 1, b // 1000, limit)]

    def newest_before(self, t: int, k: int, after: int) -> list[int]:
        """See `Trigger.newest_before`."""
        return walk.backwards(self, t, k, after)

    def skipped_between(self, a: int, b: int) -> Iterator[Skipped]:
        """What the gaps in (a, b] swallowed, in order; empty unless `gap` is `skip`."""
        if self.gap != "skip":
            return
        zone = self.search.zone
        for start, before, after in zone.gaps(a // 1000, b // 1000):
            jump = f"from {format_local(start + before)} to {format_local(start + after)}"
            reason = f"gap: the clock of {self.zone} went {jump}"
            for local in self.search.lost_in(start, before, after):
                yield Skipped(format_local(local), start * 1000, reason)

    def skipped_count(self, a: int, b: int) -> int:
        """How many records `skipped_between` yields, without walking through them."""
        if self.gap != "skip":
            return 0
        return sum(self.search.lost_count(*gap) for gap in self.search.zone.gaps(a // 1000, b // 1000))

    def to_wire(self) -> dict[str, object]:
        """See `Trigger.to_wire`."""
        wire: dict[str, object] = {"cron": self.expr, "zone": self.zone}
        chosen = {"dialect": self.dialect, "gap": self.gap, "fold": self.fold}
        wire.update({name: value for name, value in chosen.items() if value != DEFAULTS[name]})
        return wire

    def __reduce__(self) -> tuple[object, ...]:
        """Travels as its text and is compiled anew, by the tables of the process that reads it."""
        return _rebuilt, (self.expr, self.zone, self.dialect, self.gap, self.fold, self.seed)


def seed_of(expr: str, schedule_id: str | None) -> str | None:
    """The schedule id if the expression hashes it (`H`); None for all others, which schedules share."""
    return schedule_id if ("H" in expr or "h" in expr) and _HASH.search(expr) else None


def parse_rate(expr: str) -> int | Problem | None:
    """The milliseconds of an AWS `rate(5 minutes)`; a problem with one; None when the text is no rate at all."""
    text = expr.strip(" \t")
    if not text.startswith("rate"):
        return None
    found = _RATE.fullmatch(text)
    if found is None or int(found[1]) == 0 or (int(found[1]) == 1) == bool(found[3]):
        message = f"{text[:60]!r} is no rate; write rate(1 minute), rate(5 minutes), rate(1 hour) or rate(7 days)"
        return Problem("cron", "bad_field", message)
    return int(found[1]) * _RATE_MS[found[2]]


@lru_cache(maxsize=_INTERNED)
def compile_cron(
    expr: str, zone_name: str, dialect: str = "unix", gap: str = "skip", fold: str = "auto", seed: str | None = None
) -> Parsed:
    """The trigger of an expression (always a `Cron`), or every problem with it. Never raises.

    `seed` comes from `seed_of`. The same arguments give the same object.
    """
    problems: list[Problem] = []
    if dialect not in DIALECTS or gap not in GAPS or fold not in FOLDS:
        problems += [
            Problem(name, "bad_field", f"{name}: {value[:40]!r} is not one of {', '.join(known)}")
            for name, value, known in (("dialect", dialect, DIALECTS), ("gap", gap, GAPS), ("fold", fold, FOLDS))
            if value not in known
        ]
    zone = find_zone(zone_name)
    if zone is None:
        problems.append(unknown_zone(zone_name))
    texts = split_fields(expr, dialect) if dialect in DIALECTS else []
    if isinstance(texts, Problem):
        problems.append(texts)
        texts = []
    values: dict[str, Value] = {}
    warnings: tuple[Problem, ...] = ()
    for kind, text in zip(DIALECTS.get(dialect, ()), texts, strict=False):
        value = values[kind.name] = parse_field(kind, text, seed)
        problems += value.problems
        warnings += value.warnings
    if problems or zone is None:
        return Parsed(None, tuple(problems))
    clock = _clock(values, dialect, texts)
    wall = _wall_clock(clock)
    if not (ever_fires(clock.rule, clock.months) if not clock.years else wall.at_or_after(0) is not None):
        message = f"{expr!r} never fires: no such day exists in any year; look at day_of_month, month and day_of_week"
        return Parsed(None, (Problem("day_of_month", "never_fires", message),))
    minute = _MINUTE_AT[dialect]
    runs_through = texts[minute][0] == "*" or texts[minute + 1][0] == "*"
    passes = cast("Passes", ("both" if runs_through else "first") if fold == "auto" else fold)
    search = Search(wall, zone, passes, cast("Gap", gap))
    cron = Cron(expr, zone_name, dialect, gap, fold, seed, search=search)
    return Parsed(cron, (), warnings + zone_warnings(zone_name))


@lru_cache(maxsize=_INTERNED)
def _wall_clock(clock: Clock) -> WallClock:
    return WallClock(clock)


def split_fields(expr: str, dialect: str) -> list[str] | Problem:
    """The texts of the dialect's fields in order, macros expanded; or what is wrong with the expression as a whole."""
    kinds = DIALECTS[dialect]
    text = expr.strip(" \t")
    if len(expr) > LONGEST:
        return _refuse(f"an expression of {len(expr)} characters; the longest allowed has {LONGEST}", dialect)
    if not (text.isascii() and text.replace("\t", " ").isprintable()):
        strange = next(letter for letter in text if not (letter == "\t" or (letter.isascii() and letter.isprintable())))
        return _refuse(f"{text[:60]!r} holds {strange!r}: ASCII only, fields parted by spaces, one line", dialect)
    if not text:
        return _refuse("the expression is empty", dialect)
    if dialect == "aws" and text.startswith("cron(") and text.endswith(")"):
        text = text[5:-1]
    if text.startswith("@"):
        expanded = MACROS.get(text.lower())
        if expanded is None or dialect not in {"unix", "seconds"}:
            return _refuse(_macro_hint(text, dialect), dialect)
        text = expanded if dialect == "unix" else f"0 {expanded}"
    texts = text.split()
    if dialect == "quartz" and len(texts) == len(kinds) - 1:
        texts.append("*")
    if len(texts) != len(kinds):
        return _refuse(_count_hint(texts, dialect), dialect)
    if dialect in {"quartz", "aws"} and texts.count("?") != 1:
        day, weekday = (texts[at] for at, kind in enumerate(kinds) if kind.name.startswith("day_"))
        if "?" not in {day, weekday} or day == weekday:
            message = f"exactly one of day_of_month {day!r} and day_of_week {weekday!r} is `?` in {dialect}"
            return _refuse(message, dialect)._replace(field="day_of_week")
    return texts


def _refuse(message: str, dialect: str) -> Problem:
    return Problem("cron", "bad_field", f"cron: {message}; a valid {dialect} expression is {EXAMPLES[dialect]!r}")


def _macro_hint(text: str, dialect: str) -> str:
    word = text.lower()[:40]
    if word.startswith("@every"):
        return f"{word!r} is not cron; a fixed rate is a trigger of its own, every_ms (milliseconds >= 1000)"
    if word.startswith("@reboot"):
        return "'@reboot' has no meaning here: nothing is bound to one machine's start"
    if word in MACROS:
        return f"{word!r} belongs to the dialects unix and seconds"
    return f"{word!r} is not one of {', '.join(MACROS)}" + (" (fields may not follow it)" if dialect == "unix" else "")


def _count_hint(texts: list[str], dialect: str) -> str:
    names = [kind.name for kind in DIALECTS[dialect]]
    expected = f"{dialect} has {len(names)} fields ({' '.join(names)}), found {len(texts)}"
    if texts[0].upper().startswith(("TZ=", "CRON_TZ=")):
        return f"the time zone is the field `zone`, not a part of the expression; {expected}"
    if texts[0].startswith(("rate(", "at(", "cron(")):
        return (
            f"{texts[0].split('(')[0]}(...) belongs to the dialect aws (`at(...)`: use at_local and zone); {expected}"
        )
    if dialect == "unix" and len(texts) == 6:
        return f"{expected}; with seconds first the dialect is `seconds`, with a year last it is `aws`"
    if dialect in {"unix", "seconds"} and len(texts) == 7:
        return f"{expected}; seconds first and a year last is the dialect `quartz`"
    return expected


def _clock(values: dict[str, Value], dialect: str, texts: list[str]) -> Clock:
    minute = _MINUTE_AT[dialect]
    days, weekdays = values["day_of_month"], values["day_of_week"]
    either = texts[minute + 2][0] not in "*?" and texts[minute + 4][0] not in "*?"
    year = texts[minute + 5] if len(texts) > minute + 5 else "*"
    return Clock(
        values["second"].bits if minute else 1,
        values["minute"].bits,
        values["hour"].bits,
        DayRule(days.bits >> 1, weekdays.bits, either, days.specials, weekdays.specials),
        values["month"].bits,
        0 if year == "*" else values["year"].bits >> FIRST_YEAR,
    )


def _rebuilt(expr: str, zone: str, dialect: str, gap: str, fold: str, seed: str | None) -> Cron:
    parsed = compile_cron(expr, zone, dialect, gap, fold, seed)
    if parsed.trigger is None:
        raise ValueError("; ".join(problem.message for problem in parsed.problems))
    return cast("Cron", parsed.trigger)
