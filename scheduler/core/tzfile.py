"""Compiled zone data: TZif bytes and the POSIX rule in their footer, as plain integers (seconds).

The bytes list the offset changes of the past and of the near future; the rule says how it goes on for ever after.
"""

import re
from datetime import date
from struct import unpack_from
from typing import Final, NamedTuple

from scheduler.core.time import EPOCH_DAY

BEGINNING: Final = -(1 << 60)
"""Earlier than any instant: the start of a zone's first stretch."""

_HEADER: Final = 44
_OFFSET: Final = r"[+-]?\d{1,3}(?::\d\d){0,2}"
_NAME: Final = r"<[A-Za-z0-9+-]+>|[A-Za-z]+"
_POSIX: Final = re.compile(
    rf"({_NAME})({_OFFSET})(?:({_NAME})({_OFFSET})?,([JM]?[\d.]+)(?:/({_OFFSET}))?,([JM]?[\d.]+)(?:/({_OFFSET}))?)?",
    re.ASCII,
)


class Change(NamedTuple):
    """From the UTC second `start` on, local time is UTC + `offset`, called `name`."""

    start: int
    offset: int
    name: str


class YearRule(NamedTuple):
    """The two changes of every year: into summer time (`into`) and back, in the wall time that ends there."""

    standard: tuple[int, str]
    summer: tuple[int, str]
    into: tuple[str, int]
    back: tuple[str, int]

    def changes(self, year: int) -> list[Change]:
        """Both changes of the year, in order of time."""
        into = _day(self.into[0], year) * 86_400 + self.into[1] - self.standard[0]
        back = _day(self.back[0], year) * 86_400 + self.back[1] - self.summer[0]
        return sorted((Change(into, *self.summer), Change(back, *self.standard)))


def read_tzif(data: bytes) -> tuple[list[Change], YearRule | None]:
    """The changes in the data, the first from `BEGINNING`, and the rule that continues them (None: it stays so).

    Raises ValueError when the bytes are not TZif of version 2 or later.
    """
    if data[:4] != b"TZif" or data[4:5] < b"2":
        raise ValueError("not a TZif file of version 2 or later")
    skip = _HEADER + _body_size(unpack_from(">6l", data, 20), 4)
    counts = unpack_from(">6l", data, skip + 20)
    transitions, types, letters = counts[3:]
    at = skip + _HEADER
    starts = unpack_from(f">{transitions}q", data, at)
    kinds = unpack_from(f"{transitions}B", data, at + 8 * transitions)
    at += 9 * transitions
    described = [unpack_from(">lBB", data, at + 6 * kind) for kind in range(types)]
    names = data[at + 6 * types : at + 6 * types + letters].decode("ascii")
    offsets = [(offset, names[start : names.index("\0", start)]) for offset, _summer, start in described]
    footer = data[skip + _HEADER + _body_size(counts, 8) :].strip(b"\n").decode("ascii")

    changes = [Change(BEGINNING, *offsets[0])]
    changes += [Change(start, *offsets[kind]) for start, kind in zip(starts, kinds, strict=True)]
    return changes, _year_rule(footer)


def _body_size(counts: tuple[int, ...], width: int) -> int:
    universal, standard, leaps, transitions, types, letters = counts
    return transitions * (width + 1) + types * 6 + letters + leaps * (width + 4) + standard + universal


def _year_rule(footer: str) -> YearRule | None:
    """The rule of a POSIX TZ string such as `EET-2EEST,M3.5.0/3,M10.5.0/4`; its offsets count westwards."""
    found = _POSIX.fullmatch(footer)
    if found is None:
        raise ValueError(f"zone rule {footer!r} is not understood")
    name, offset, summer, summer_offset, into, into_at, back, back_at = found.groups()
    if summer is None:
        return None
    standard = -_seconds(offset)
    advanced = standard + 3600 if summer_offset is None else -_seconds(summer_offset)
    return YearRule(
        (standard, name.strip("<>")),
        (advanced, summer.strip("<>")),
        (into, _seconds(into_at or "2")),
        (back, _seconds(back_at or "2")),
    )


def _seconds(text: str) -> int:
    parts = [int(part) for part in text.lstrip("+-").split(":")]
    total = sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))
    return -total if text.startswith("-") else total


def _day(rule: str, year: int) -> int:
    """The day since the epoch: `Mm.w.d` (w = 5: the last), `Jn` (29 February never counted) or `n` (counted)."""
    first = date(year, 1, 1).toordinal() - EPOCH_DAY
    if rule.startswith("M"):
        month, week, weekday = (int(part) for part in rule[1:].split("."))
        start = date(year, month, 1).toordinal() - EPOCH_DAY
        end = date(year + month // 12, month % 12 + 1, 1).toordinal() - EPOCH_DAY
        day = start + (weekday - (start + 4)) % 7 + 7 * (week - 1)
        return day if day < end else day - 7
    if rule.startswith("J"):
        day = int(rule[1:])
        march = date(year, 3, 1).toordinal() - EPOCH_DAY
        return first + day - 1 if day < 60 else march + day - 60
    return first + int(rule)
