"""One field of a cron expression: the tables of what may stand in it, and the parser that reads it by them.

The syntax reference (`scheduler.core.reference`) is generated from these tables, so they cannot disagree.
Values are bit sets: bit n set = value n is named. A field's parser never raises: it collects problems.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from scheduler.core.problem import Problem

MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FULL_NAMES: Final = {
    full: full[:3]
    for full in (
        *("JANUARY", "FEBRUARY", "MARCH", "APRIL", "JUNE", "JULY", "AUGUST", "SEPTEMBER", "OCTOBER", "NOVEMBER"),
        *("DECEMBER", "SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY"),
        *("SEPT", "TUES", "THUR", "THURS"),
    )
}
LAST_HASHED_DAY: Final = 28
"""`H` names a day of the month that every month has."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Field:
    """What one field may hold in one dialect; a constant of this module, compared by identity."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    first_named: int = 0
    """The number the first of `names` stands for."""
    sunday: int | None = None
    """For days of the week: the number that is Sunday; 0 also admits 7."""
    marks: frozenset[str] = frozenset()
    """The special forms admitted besides numbers, names, `*`, ranges, steps, lists and `H`."""
    example: str = "*"

    @property
    def size(self) -> int:
        """How many different values there are."""
        return self.high - self.low + 1

    @property
    def allowed(self) -> str:
        """The values in words, for error texts and the reference."""
        text = f"{self.low}-{7 if self.sunday == 0 else self.high}"
        if self.names:
            text += f" or {self.names[0]}-{self.names[-1]}"
        if self.sunday is not None:
            text += f" ({'0 and 7 are' if self.sunday == 0 else '1 is'} Sunday)"
        return text


_OUR_DAYS: Final = frozenset({"L", "nW", "LW", "nB", "LB"})
_OUR_WEEKDAYS: Final = frozenset({"nL", "n#k"})
_QUARTZ_DAYS: Final = _OUR_DAYS | {"?", "L-n", "L-nW"}
_QUARTZ_WEEKDAYS: Final = _OUR_WEEKDAYS | {"?", "L"}
_SECOND: Final = Field(name="second", low=0, high=59, example="*/15")
_MINUTE: Final = Field(name="minute", low=0, high=59, example="*/15")
_HOUR: Final = Field(name="hour", low=0, high=23, example="9-17")
_DAY: Final = Field(name="day_of_month", low=1, high=31, marks=_OUR_DAYS, example="1,15")
_MONTH: Final = Field(name="month", low=1, high=12, names=MONTHS, first_named=1, example="JAN-MAR")
_WEEKDAY: Final = Field(
    name="day_of_week", low=0, high=6, names=WEEKDAYS, sunday=0, marks=_OUR_WEEKDAYS, example="MON-FRI"
)
_QUARTZ_DAY: Final = Field(name="day_of_month", low=1, high=31, marks=_QUARTZ_DAYS, example="1,15")
_QUARTZ_WEEKDAY: Final = Field(
    name="day_of_week",
    low=1,
    high=7,
    names=WEEKDAYS,
    first_named=1,
    sunday=1,
    marks=_QUARTZ_WEEKDAYS,
    example="MON-FRI",
)
_QUARTZ_YEAR: Final = Field(name="year", low=1970, high=2099, example="2026-2030")
_AWS_YEAR: Final = Field(name="year", low=1970, high=2199, example="2026-2030")

UNIX: Final = (_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)
DIALECTS: Final[dict[str, tuple[Field, ...]]] = {
    "unix": UNIX,
    "seconds": (_SECOND, *UNIX),
    "quartz": (_SECOND, _MINUTE, _HOUR, _QUARTZ_DAY, _MONTH, _QUARTZ_WEEKDAY, _QUARTZ_YEAR),
    "aws": (_MINUTE, _HOUR, _QUARTZ_DAY, _MONTH, _QUARTZ_WEEKDAY, _AWS_YEAR),
}
"""The fields of each dialect in order; quartz may omit the year."""

MARKS: Final[dict[str, tuple[str, str]]] = {
    "?": ("no rule in this field; the other day field decides", "`?`"),
    "L": ("the last day of the month; in a Quartz or AWS day of the week: Saturday", "`L`"),
    "L-n": ("n days before the last day of the month", "`L-3`"),
    "LW": ("the last Monday-to-Friday day of the month", "`LW`"),
    "nW": ("the Monday-to-Friday day nearest to day n, within its month; months without day n are left out", "`15W`"),
    "L-nW": ("the Monday-to-Friday day nearest to `L-n`", "`L-3W`"),
    "nB": ("the n-th business day of the month by the schedule's calendar (without one: Monday to Friday)", "`3B`"),
    "LB": ("the last business day of the month by the schedule's calendar (without one: Monday to Friday)", "`LB`"),
    "nL": ("the last such weekday of the month", "`5L`, `FRIL`"),
    "n#k": ("the k-th such weekday of the month, k from 1 to 5", "`FRI#2`"),
}
"""The special forms: meaning and examples."""


class Special(NamedTuple):
    """A rule whose days depend on the month: `kind` is the key of `MARKS` it came from."""

    kind: str
    number: int
    """n: a day, a distance from the last day, or a weekday with 0 = Sunday."""
    nth: int = 0


class Value(NamedTuple):
    """What a field's text means."""

    bits: int
    specials: tuple[Special, ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


_VALUE: Final = r"[0-9]{1,9}|[A-Z]+"
_ITEM: Final = re.compile(rf"(?:(\*)|({_VALUE})(?:-({_VALUE}))?)(?:/([0-9]{{1,9}}))?")
_HASHED: Final = re.compile(r"H(?:\(([0-9]{1,4})-([0-9]{1,4})\))?(?:/([0-9]{1,9}))?")
_DAY_MARK: Final = re.compile(r"(L)(?:-([0-9]{1,2}))?(W)?|([0-9]{1,2})(W)|([0-9]{1,2})(B)|(LB)")
_WEEKDAY_MARK: Final = re.compile(r"([0-9]|[A-Z]{3})(?:(L)|#([0-9]{1,2}))|(L)")


@lru_cache(maxsize=8192)
def parse_field(field: Field, text: str, seed: str | None) -> Value:
    """The meaning of a field's text; `seed` is the schedule id that `H` hashes (None: `H` is an error)."""
    if text == "*" or (text == "?" and "?" in field.marks):
        return Value(_span(field, field.low, field.high, 1))
    return _Reader(field, text, seed).value()


class _Reader:
    """Reads the items of one field, collecting everything that is wrong with them."""

    def __init__(self, field: Field, text: str, seed: str | None) -> None:
        self.field = field
        self.text = text
        self.seed = seed
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.specials: list[Special] = []

    def value(self) -> Value:
        bits = 0
        for item in self.text.upper().split(","):
            bits |= self._item(item)
        return Value(bits, tuple(self.specials), tuple(self.problems), tuple(self.warnings))

    def _item(self, item: str) -> int:
        found = _ITEM.fullmatch(item)
        if found is None:
            return self._other(item)
        star, low_text, high_text, step_text = found.groups()
        if not star and not low_text.isdigit() and low_text not in self.field.names:
            return self._other(item)
        if step_text is not None and int(step_text) == 0:
            return self._refuse(item, "a step is at least 1")
        step = int(step_text or 1)
        if star:
            if step >= self.field.size and step_text is not None:
                return self._step_too_wide(item, step)
            self._uneven(item, step)
            return _span(self.field, self.field.low, self.field.high, step)
        low = self._number(item, low_text)
        high = self._number(item, high_text) if high_text is not None else None
        if low is None or (high is None and high_text is not None):
            return 0
        if high is not None:
            return self._range(item, low, high, step)
        if step_text is None:
            return _span(self.field, low, low, 1)
        if step >= self.field.size:
            return self._step_too_wide(item, step)
        return _span(self.field, low % 7 if self.field.sunday == 0 else low, self.field.high, step)

    def _range(self, item: str, low: int, high: int, step: int) -> int:
        field = self.field
        if low > high:
            if field.name == "year":
                return self._refuse(item, "years do not wrap around")
            high += field.size
        if step > high - low and step > 1:
            first = item.split("-", maxsplit=1)[0]
            self._warn(item, f"the step {step} is wider than the range, so only its first value {first} counts")
        if field.name == "hour" and step > 1 and high - low >= 20:
            self._warn(item, "this is a list of fixed hours: in a repeated hour each runs once (`*/n` runs through)")
        return _span(field, low, high, step)

    def _other(self, item: str) -> int:
        """Everything that is not a number, a name, `*`, a range or a step: `H`, special forms, mistakes."""
        if item.startswith("H") and (hashed := _HASHED.fullmatch(item)):
            return self._hash(item, *hashed.groups())
        if self.field.name == "day_of_month" and (mark := _DAY_MARK.fullmatch(item)):
            return self._day_mark(item, *mark.groups())
        if self.field.name == "day_of_week" and (mark := _WEEKDAY_MARK.fullmatch(item)):
            return self._weekday_mark(item, *mark.groups())
        return self._refuse(item, self._hint(item))

    def _day_mark(self, item: str, *groups: str | None) -> int:
        last, back, last_w, near, near_w, business, _b, last_business = groups
        if last_business or last:
            kind = "LB" if last_business else "L" if back is None else "L-n"
            kind = {"L": "LW", "L-n": "L-nW"}[kind] if last_w else kind
            number = int(back or 0)
            if kind not in self.field.marks:
                return self._refuse(item, f"`{kind}` belongs to the dialects quartz and aws")
            if number > 30 or (back is not None and number == 0):
                return self._refuse(item, "the distance from the last day is 1 to 30")
            self.specials.append(Special(kind, number))
            return 0
        number = int(near or business or 0)
        highest = 31 if near_w else 23
        if not 1 <= number <= highest:
            return self._refuse(item, f"the number before {'W' if near_w else 'B'} is 1 to {highest}")
        self.specials.append(Special("nW" if near_w else "nB", number))
        return 0

    def _weekday_mark(self, item: str, *groups: str | None) -> int:
        day_text, _last, nth, alone = groups
        if alone:
            if "L" not in self.field.marks:
                return self._refuse(item, "`L` needs its weekday before it, such as 5L for the last Friday")
            return _span(self.field, 7, 7, 1)
        day = self._number(item, day_text or "")
        if day is None:
            return 0
        weekday = (day - (self.field.sunday or 0)) % 7
        if nth is None:
            self.specials.append(Special("nL", weekday))
        elif not 1 <= int(nth) <= 5:
            return self._refuse(item, "the number after # is 1 to 5; the last one is spelt 5L")
        else:
            self.specials.append(Special("n#k", weekday, int(nth)))
        return 0

    def _hash(self, item: str, low_text: str | None, high_text: str | None, step_text: str | None) -> int:
        field = self.field
        if self.seed is None:
            return self._refuse(item, "`H` is a hash of the schedule id, and there is none here")
        low, high = field.low, LAST_HASHED_DAY if field.name == "day_of_month" else field.high
        if low_text is not None and high_text is not None:
            low, high = int(low_text), int(high_text)
            if not field.low <= low <= high <= field.high:
                return self._refuse(item, f"the range of `H` lies within {field.low}-{field.high}, low end first")
        digest = int.from_bytes(blake2b(f"{self.seed}\0{field.name}".encode(), digest_size=8).digest())
        if step_text is None:
            value = low + digest % (high - low + 1)
            return _span(field, value, value, 1)
        step = int(step_text)
        if not 1 <= step <= high - low:
            return self._refuse(item, f"the step of `H` is 1 to {high - low} here")
        return _span(field, low + digest % step, high, step)

    def _number(self, item: str, text: str) -> int | None:
        """The value a number or a name stands for; None after recording what is wrong with it."""
        field = self.field
        if text.isdigit():
            number = int(text)
            if field.low <= number <= (7 if field.sunday == 0 else field.high):
                return number
            self._refuse(item, f"{text.lstrip('0') or '0'} is out of range")
            return None
        if text in field.names:
            return field.names.index(text) + field.first_named
        self._refuse(item, self._hint(text))
        return None

    def _step_too_wide(self, item: str, step: int) -> int:
        hint = f"a step of {step} leaves only one value; name that value"
        if self.field.name in {"second", "minute", "hour"}:
            ms = step * {"second": 1000, "minute": 60_000, "hour": 3_600_000}[self.field.name]
            hint = f"{item} is not every {step} {self.field.name}s; for that use every_ms = {ms}"
        return self._refuse(item, hint)

    def _uneven(self, item: str, step: int) -> None:
        if self.field.name in {"second", "minute", "hour"} and self.field.size % step:
            whole = {"second": "minute", "minute": "hour", "hour": "day"}[self.field.name]
            self._warn(item, f"does not divide the {whole}: it starts anew at 0, with a shorter last step")

    def _hint(self, text: str) -> str:
        """Why the text is no value, by the commonest mistakes."""
        field = self.field
        if not text:
            return "a value is missing"
        if "?" in text:
            return "`?` belongs to the day fields of the dialects quartz and aws"
        if full := [word for word in re.split(r"[-/#]", text) if word in _FULL_NAMES]:
            return f"names have three letters: {_FULL_NAMES[full[0]]}"
        if re.fullmatch(r"L[0-7]|[0-7]#L|L-?(?:SUN|MON|TUE|WED|THU|FRI|SAT)", text) and field.sunday is not None:
            return "the last such weekday of the month is spelt 5L or FRIL"
        if re.search(r"[0-9L]W|L", text) and field.name == "day_of_month":
            return "`L`, `W` and `B` stand alone or in a list, not in ranges or steps"
        if re.search(r"[-+][0-9]|--", text) and not re.fullmatch(r"\w+-\w+.*", text):
            return "there are no signs"
        return "this is not a value, a range, a step or a special form of this field"

    def _refuse(self, item: str, why: str) -> int:
        shown = item if len(item) <= 40 else item[:37] + "..."
        self.problems.append(
            Problem(
                self.field.name,
                "bad_field",
                f"{self.field.name}: {shown!r}: {why}; allowed are {self.field.allowed}, *, ranges, steps and lists"
                f"{_marks_text(self.field)}, for example {self.field.example}",
            )
        )
        return 0

    def _warn(self, item: str, why: str) -> None:
        self.warnings.append(Problem(self.field.name, "surprising", f"{self.field.name}: {item!r}: {why}"))


def _marks_text(field: Field) -> str:
    return f", {', '.join(sorted(field.marks))}" if field.marks else ""


def _span(field: Field, low: int, high: int, step: int) -> int:
    """The bits of low, low + step, ... up to high, wrapped into the field; weekdays count from 0 = Sunday."""
    shift = field.sunday or 0
    base = field.low
    bits = 0
    for value in range(low, high + 1, step):
        bits |= 1 << ((value - base) % field.size + base - shift)
    return bits
