"""The compact check of a time engine: recorded right answers, and every question that can be asked of them.

`golden.json` was made by the brute-force oracle (expressions, zones and windows drawn at random, half of them at clock
changes, none after 2024, so that newer zone tables leave it alone); `cases.json` holds the answers of public reports.
The engine is passed in, so that its mutants can be checked by the same code.
"""

from __future__ import annotations

import json
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

CASES = Path(__file__).parents[1] / "unit" / "time_cases"


def cases() -> list[dict[str, Any]]:
    """The given cases, as they were given."""
    found: list[dict[str, Any]] = json.loads((CASES / "cases.json").read_text("utf-8"))
    return found


def golden() -> list[dict[str, Any]]:
    """The oracle's recorded answers."""
    found: list[dict[str, Any]] = json.loads((CASES / "golden.json").read_text("utf-8"))
    return found


def ms(text: str) -> int:
    """RFC 3339 text in ms, by the standard library."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def check_golden(compile_cron: Callable[..., Any], item: dict[str, Any]) -> None:
    """Listing, counting and stepping either way over the item's window give the recorded fires."""
    trigger = compile_cron(item["expr"], item["zone"], item["dialect"], item["gap"], item["fold"]).trigger
    a, b = item["from"] * 1000 - 1, item["to"] * 1000
    fires = [at * 1000 for at in item["fires"]]
    assert trigger.between(a, b, 1000) == fires
    assert trigger.newest_before(b, 1000, a) == fires
    assert trigger.count_between(a, b) == len(fires)
    assert trigger.count_between(fires[0], b) == len(fires) - 1
    assert [trigger.next_after(at) for at in (a, *fires[:-1])] == fires
    for at, following in pairwise(fires):
        assert trigger.next_after(following - 1000) == following
        assert trigger.prev_before(following) == at
        assert trigger.prev_before(at + 1000) == at


def check_case(compile_cron: Callable[..., Any], case: dict[str, Any]) -> None:
    """The expression of a given case fires exactly as the case says."""
    dialect = "seconds" if case.get("seconds") else "unix"
    policies = case.get("dst", {"gap": "skip", "fold": "first"})
    parsed = compile_cron(case["expr"], case["tz"], dialect, policies["gap"], policies["fold"])
    start, expected = ms(case["start"]), [ms(text) for text in case["expect"]]
    limit = len(expected) + bool(case.get("complete"))
    until = ms(case["until"]) - 1 if "until" in case else 253_402_300_799_999
    if not expected and parsed.trigger is None:
        assert [problem.code for problem in parsed.problems] == ["never_fires"]
        return
    assert parsed.trigger.between(start, until, limit) == expected
    assert parsed.trigger.count_between(start, expected[-1]) == len(expected)
