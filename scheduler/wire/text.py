"""JSON and its texts, for every module of this package: encoding, decoding, instants, and the error of bad bytes."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from scheduler.core.time import format_instant, parse_instant
from scheduler.errors import StateCorrupted

to_json = msgspec.json.Encoder().encode
plain = msgspec.json.Decoder().decode


def unreadable(what: str, fault: Exception, value: bytes) -> StateCorrupted:
    return StateCorrupted(f"{what} cannot be read ({fault}): {value[:200]!r}")


def instant_text(ms: int | None) -> str | None:
    return None if ms is None else format_instant(ms)


def instant_or_none(text: str | None) -> int | None:
    return None if text is None else instant_at(text)


instant_at = lru_cache(maxsize=8192)(parse_instant)  # the instants of one record, and of neighbours, are often the same
