"""Durations and instants as a person types them at a prompt. Pure: `now` is an argument."""

from __future__ import annotations

import re

from scheduler.core.time import format_instant, parse_instant

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_PART = re.compile(r"(\d{1,12}) ?(ms|[smhdw])", re.ASCII)
_DURATION = re.compile(rf"(?:{_PART.pattern} ?)+", re.ASCII)


def parse_duration_ms(text: str) -> int:
    """`90s`, `1h30m`, `250ms`, `2w` in milliseconds. Raises ValueError with valid examples."""
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is no duration; expected a number with ms, s, m, h, d or w, like 90s or 1h30m")
    return sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def format_duration_ms(ms: int) -> str:
    """The shortest exact form: 90000 → `1m30s`, 0 → `0s`; negative ones with `-` before."""
    if ms < 0:
        return "-" + format_duration_ms(-ms)
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, ms = divmod(ms, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def parse_moment(text: str, now: int) -> int:
    """`now`, `+90s` from now, or RFC 3339 with an offset, in ms. Raises ValueError with valid examples."""
    if text == "now":
        return now
    if text.startswith("+"):
        return now + parse_duration_ms(text[1:])
    return parse_instant(text)


def absolute(text: str, now: int) -> str:
    """`text` as the wire has instants; a relative one (`+90s`, whole seconds) counts from `now`."""
    return format_instant(parse_moment(text, now) // 1000 * 1000 if text.startswith("+") else parse_moment(text, now))
