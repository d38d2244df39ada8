"""Every nominal of the bare rule ends in exactly one record, whatever calendars, outages and pauses do meanwhile."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from scheduler.core.time import format_instant, parse_instant
from scheduler.shard.shard import ShardSettings
from tests.support.driver import Driver

HOUR_MS = 3_600_000
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
START = "2026-03-06T00:30:00Z"  # the Friday before New York's gap


@pytest.mark.parametrize("seed", range(25))
def test_every_nominal_is_accounted_for_once(seed: int) -> None:
    """Two weeks of chance: dispatched, missed and suppressed nominals add up to the rule's, and none counts twice."""
    chance = Random(seed)
    driver = Driver(START, ShardSettings(horizon_ms=2 * HOUR_MS))
    rule = chance.choice(["0 9 * * *", "30 2 * * *", "0 2,14 * * *", "15 */6 * * *"])
    zone = chance.choice(["America/New_York", "UTC"])
    misfire = chance.choice(["fire_once", "skip", {"catch_up": 3}])
    version = 1
    driver.calendar("c", version, working_days=WEEKDAYS[1:6])
    driver.create("acme/bare", trigger={"cron": rule, "zone": zone})
    driver.create(trigger={"cron": rule, "zone": zone}, calendar="c", misfire=misfire)
    paused = False
    for _ in range(12):
        driver.leap(driver.now + chance.randrange(1, 30 * HOUR_MS))
        what = chance.choice(["calendar", "outage", "pause", "restart", "update", "nothing"])
        if what == "calendar":
            version += 1
            driver.calendar("c", version, working_days=chance.sample(WEEKDAYS, chance.randrange(1, 8)))
        elif what == "outage":
            driver.outage(driver.now + chance.randrange(1, 50 * HOUR_MS), wipe=chance.random() < 0.5)
        elif what == "pause":
            driver.do("resume" if paused else "pause")
            paused = not paused
        elif what == "restart":
            driver.restart(wipe=True, compacted=True)
        elif what == "update":
            driver.do("update", spec={"payload": chance.random()})
    if paused:
        driver.do("resume")
    # A day that is worked, so that the last stretch of others has been passed.
    driver.calendar("c", version + 1, working_days=WEEKDAYS)
    driver.leap(driver.now + 25 * HOUR_MS)
    assert driver.contents() == driver.cold_contents()

    def spans(records: list[dict[str, Any]]) -> list[tuple[int, int]]:
        return [(parse_instant(r["first"]), parse_instant(r["last"])) for r in records if "first" in r]

    mine = [o for o in driver.occurrences() if o["schedule_id"] == "acme/a"]
    times = driver.times()
    assert len(times) == len(set(times))
    counted = len(times) + sum(o.get("count", 1) for o in mine)
    named = bare_count(rule, zone, driver.now)
    told = [(o["reason"], o.get("count", 1), o.get("first") or o["scheduled_for"]) for o in mine]
    assert counted == named, (named, len(times), told, format_instant(driver.now))
    calendar = spans([o for o in mine if o["reason"] == "calendar"])
    assert all(before[1] < after[0] for before, after in zip(sorted(calendar), sorted(calendar)[1:], strict=False))


def bare_count(rule: str, zone: str, now: int) -> int:
    """The nominals of the rule since the start, and the local times that its gaps swallowed."""
    from scheduler.core.cron import compile_cron

    cron: Any = compile_cron(rule, zone).trigger
    start = parse_instant(START)
    return int(cron.count_between(start, now)) + int(cron.skipped_count(start, now))
