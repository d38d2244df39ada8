"""The engine against croniter and cronsim, where all three should agree: UTC and zones without clock changes.

Every disagreement belongs to a class that is explained in `ops/time.md`; one that belongs to none fails the test.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from cronsim import CronSim, CronSimError

from scheduler.core.cron import compile_cron

DOCUMENT = Path(__file__).parents[2] / "ops" / "time.md"
ZONES = ("UTC", "Asia/Kolkata", "Asia/Tokyo", "America/Phoenix", "Africa/Lagos", "Etc/GMT+5", "Asia/Kathmandu")
START = datetime(2023, 12, 30, 11, 17, tzinfo=UTC)
FIRES = 12


def expressions(count: int) -> list[str]:
    """Random expressions of the common grammar and of its edges, the same on every run."""
    rnd = random.Random(20260308)
    minutes = ["0", "*/15", "5", "59", "0,30", "10-20", "*", "7/20", "50-10"]
    hours = ["*", "0", "9-17", "*/6", "23", "22-2", "8,20"]
    days = ["*", "1", "15", "31", "L", "1,L", "*/10", "15W", "1-7", "29"]
    months = ["*", "2", "JAN-MAR", "*/3", "NOV-FEB", "4,6"]
    weekdays = ["*", "MON-FRI", "0", "7", "5L", "1#2", "FRI-MON", "*/2", "SUN", "3"]
    return [" ".join(map(rnd.choice, (minutes, hours, days, months, weekdays))) for _ in range(count)]


def by_croniter(expr: str, zone: str) -> list[datetime] | None:
    """The peer's first fires, in UTC; None when it refuses."""
    try:
        walk = croniter(expr, START.astimezone(ZoneInfo(zone)))
        return [walk.get_next(datetime).astimezone(UTC) for _ in range(FIRES)]
    except (ValueError, KeyError):
        return None


def by_cronsim(expr: str, zone: str) -> list[datetime] | None:
    """The peer's first fires, in UTC; None when it refuses."""
    try:
        walk = CronSim(expr, START.astimezone(ZoneInfo(zone)))
        return [next(walk).astimezone(UTC) for _ in range(FIRES)]
    except (CronSimError, StopIteration):
        return None


def ours(expr: str, zone: str) -> list[datetime] | None:
    """Our first fires; None when we refuse."""
    trigger = compile_cron(expr, zone).trigger
    if trigger is None:
        return None
    start = int(START.timestamp() * 1000)
    return [datetime.fromtimestamp(at / 1000, UTC) for at in trigger.between(start, 253_402_300_799_999, FIRES)]


def why(expr: str, theirs: list[datetime] | None) -> str | None:
    """The class of a disagreement by its key in the document's table, or None when nothing explains it."""
    minute, _hour, day, _month, weekday = expr.split()
    starred = day.startswith("*/") or weekday.startswith("*/")
    restricted = day != "*" and weekday != "*"
    if theirs is None:
        if any(part in expr for part in ("50-10", "22-2", "NOV-FEB", "FRI-MON")):
            return "refuses-wrap"
        if "W" in day:
            return "refuses-W"
        if day == "1,L":
            return "refuses-L-in-list"
        if minute == "7/20":
            return "refuses-step-from-value"
        if weekday == "5L":
            return "refuses-5L"
        return "refuses-nth-with-day" if restricted and weekday == "1#2" else None
    if starred and restricted:
        return "star-step-or"
    return "W-and" if "W" in day and restricted else None


@pytest.mark.parametrize("peer", [by_croniter, by_cronsim], ids=["croniter", "cronsim"])
def test_every_disagreement_is_explained(peer: object) -> None:
    """Same fires as the peer over 600 expressions in zones without clock changes, or a documented reason."""
    assert callable(peer)
    found: dict[str, str] = {}
    agreed = 0
    for number, expr in enumerate(expressions(600)):
        zone = ZONES[number % len(ZONES)]
        mine, theirs = ours(expr, zone), peer(expr, zone)
        if mine == theirs:
            agreed += 1
            continue
        reason = why(expr, theirs)
        assert reason is not None, (expr, zone, mine and mine[:3], theirs and theirs[:3])
        found.setdefault(reason, expr)
    assert agreed > 200
    text = DOCUMENT.read_text("utf-8")
    missing = [f"| {reason} | {expr}" for reason, expr in found.items() if f"`{reason}`" not in text]
    assert not missing, missing
