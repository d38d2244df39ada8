"""Instants: integer milliseconds since the epoch inside, RFC 3339 text at the edges, compact stamps in ids.

The calendar covers the years 1 to 9999; text outside it, local text without an offset and leap seconds are refused.
"""

import re
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Final

MIN_MS: Final = -62_135_596_800_000
"""0001-01-01T00:00:00Z, the first instant there is."""
MAX_MS: Final = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the last instant there is."""
FIRST_BELIEVED: Final = 1_577_836_800_000
"""2020-01-01T00:00:00Z: a clock that says less is wrong."""
LAST_BELIEVED: Final = 4_102_444_800_000
"""2100-01-01T00:00:00Z: a clock that says more is wrong."""
EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
"""The proleptic Gregorian ordinal of day 0, for `date.fromordinal`."""

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - arithmetic in UTC without the cost of an aware value
_EXPECTED: Final = "expected RFC 3339 with an offset, for example 2026-03-08T07:30:00Z or 2026-03-08T09:30:00+02:00"
_WALL: Final = r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d+))?"
_INSTANT: Final = re.compile(rf"{_WALL}(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))", re.ASCII)
_LOCAL: Final = re.compile(_WALL, re.ASCII)
_LONGEST_TEXT: Final = 64


def parse_instant(text: str) -> int:
    """The instant of RFC 3339 text, in ms; digits beyond the third of a fraction are cut off (towards the past).

    Raises ValueError with a sentence for everything else: no offset, no such day, a leap second, years beyond 1-9999.
    """
    found = _INSTANT.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if found is None:
        raise ValueError(f"{text[:_LONGEST_TEXT]!r} is not an instant; {_EXPECTED}")
    day, clock, fraction, sign, off_hour, off_minute = found.groups()
    ms = _wall_ms(text, day, clock, fraction)
    if sign is not None:
        offset_ms = int(off_hour) * 3_600_000 + int(off_minute) * 60_000
        ms += offset_ms if sign == "-" else -offset_ms
    if not MIN_MS <= ms <= MAX_MS:
        raise ValueError(f"{text!r} lies outside the years 1 to 9999 in UTC; {_EXPECTED}")
    return ms


def parse_local(text: str) -> int:
    """Wall-clock text without an offset (`2026-03-08T02:30:00`) as ms since 1970-01-01T00:00 *on that wall clock*.

    Raises ValueError as `parse_instant` does, and for text that names an offset.
    """
    found = _LOCAL.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if found is None:
        raise ValueError(
            f"{text[:_LONGEST_TEXT]!r} is not a local time; expected one without an offset, for example "
            "2026-03-08T09:30:00 (an instant with Z or an offset belongs into `at`)"
        )
    return _wall_ms(text, *found.groups())


# Many records share few instants (a burst, a minute's worth of acknowledgements), so texts are kept.
@lru_cache(maxsize=4096)
def format_instant(ms: int) -> str:
    """RFC 3339 in UTC, with a fraction of three digits only when it is not zero. Raises ValueError beyond 1-9999."""
    second, fraction = divmod(ms, 1000)
    return f"{_second_text(second)}.{fraction:03d}Z" if fraction else f"{_second_text(second)}Z"


def format_local(local_s: int) -> str:
    """The wall-clock second `local_s` (since 1970-01-01T00:00 on that clock) as `2026-03-08T02:30:00`."""
    return _second_text(local_s)


@lru_cache(maxsize=4096)
def stamp(ms: int) -> str:
    """The compact form in occurrence ids, always with three digits: `20260308T073000.000Z`."""
    second, fraction = divmod(ms, 1000)
    return f"{_second_text(second).replace('-', '').replace(':', '')}.{fraction:03d}Z"


def _wall_ms(text: str, day: str, clock: str, fraction: str | None) -> int:
    try:
        since = datetime.fromisoformat(f"{day}T{clock}") - _EPOCH
    except ValueError as problem:
        raise ValueError(f"{text!r} names no day and time that exist: {problem} (no leap seconds)") from None
    ms = since.days * 86_400_000 + since.seconds * 1000
    return ms + int(fraction[:3].ljust(3, "0")) if fraction else ms


def _second_text(second: int) -> str:
    try:
        return (_EPOCH + timedelta(seconds=second)).isoformat()
    except OverflowError:
        raise ValueError(f"second {second} since the epoch lies outside the years 1 to 9999") from None
