"""Other zone tables: whose zones changed is planned anew, once, for the future alone; everybody else is left alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scheduler import wire
from scheduler.shard import keys
from scheduler.shard.shard import ShardSettings
from tests.support.driver import Driver
from tests.support.zone_tables import ZoneTables, tzif, zone_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

HOURS = ShardSettings(horizon_ms=7_200_000)
VANCOUVER = "America/Vancouver"
OLD = {VANCOUVER: tzif("PST8PDT,M3.2.0,M11.1.0", -8)}
NEW = {VANCOUVER: tzif("MST7", -8, {"2026-03-08T10:00:00Z": -7})}
"""The clock that was put forward on 8 March 2026 stays so."""
NINE = {"cron": "0 9 * * *", "zone": VANCOUVER}


@pytest.fixture
def tables() -> Iterator[ZoneTables]:
    with zone_tables() as found:
        found.use("2025b", OLD)
        yield found


def moved(driver: Driver, schedule_id: str = "acme/a") -> list[dict[str, Any]]:
    """The history of re-plans of a schedule."""
    history = driver.topics.values("scheduler.schedule-history")
    return [h for h in history if h["schedule_id"] == schedule_id and h["change"] == "re-planned"]


def test_p16_vancouver_at_the_right_hour_after_a_restart_with_newer_tables(tables: ZoneTables) -> None:
    """Stored under 2025b: 17:00Z. Restarted with 2026f the day before: 16:00Z, as a new version."""
    driver = Driver("2026-10-31T20:00:00Z", HOURS)
    driver.create(trigger=NINE)
    driver.leap("2026-11-01T20:00:00Z")
    assert driver.times() == ["2026-11-01T17:00:00Z"]
    driver.kill()
    tables.use("2026f", NEW)
    driver.start()
    driver.leap("2026-11-02T20:00:00Z")
    assert driver.times() == ["2026-11-01T17:00:00Z", "2026-11-02T16:00:00Z"]
    assert [d["version"] for d in driver.dispatched()] == [1, 2]
    assert [d["tz_version"] for d in driver.dispatched()] == ["2025b", "2026f"]
    assert [h["version"] for h in moved(driver)] == [2]


def test_only_schedules_whose_nominals_move_get_a_version(tables: ZoneTables) -> None:
    """Another zone, a rule that only names July, an hourly one, a fixed rate, an instant: none of them moves."""
    driver = Driver("2026-10-31T20:00:00Z", HOURS)
    rules: dict[str, dict[str, Any]] = {
        "acme/moves": NINE,
        "acme/july": {"cron": "0 9 1 7 *", "zone": VANCOUVER},
        "acme/hourly": {"cron": "0 * * * *", "zone": VANCOUVER},
        "acme/elsewhere": {"cron": "0 9 * * *", "zone": "Europe/Berlin"},
        "acme/rate": {"every_ms": 3_600_000},
        "acme/once": {"at": "2026-11-05T09:00:00Z"},
        "acme/once-there": {"at_local": "2026-11-05T09:00:00", "zone": VANCOUVER},
        "acme/once-in-july": {"at_local": "2027-07-05T09:00:00", "zone": VANCOUVER},
    }
    for name, trigger in rules.items():
        driver.create(name, trigger=trigger)
    driver.advance(1000)
    driver.kill()
    tables.use("2026f", NEW)
    driver.start()
    versions = {name: (driver.schedule(name) or {})["version"] for name in rules}
    assert versions == {name: 2 if name in ("acme/moves", "acme/once-there") else 1 for name in rules}
    driver.leap("2026-11-05T20:00:00Z")
    assert driver.times("acme/once-there") == ["2026-11-05T16:00:00Z"]


def test_a_local_time_runs_once_however_the_tables_move_it(tables: ZoneTables) -> None:
    """Back to the old tables at 16:30: 09:00 of that day has run at 16:00 and does not run again at 17:00."""
    tables.use("2026f", NEW)
    driver = Driver("2026-11-02T12:00:00Z", HOURS)
    driver.create(trigger=NINE)
    driver.leap("2026-11-02T16:30:00Z")
    driver.kill()
    tables.use("2025b", OLD)
    driver.start()
    driver.leap("2026-11-03T20:00:00Z")
    assert driver.times() == ["2026-11-02T16:00:00Z", "2026-11-03T17:00:00Z"]


@pytest.mark.parametrize("asleep", [False, True])
def test_p18_a_local_time_does_not_fall_out(tables: ZoneTables, *, asleep: bool) -> None:
    """At 16:30 new tables say that 09:00 was at 16:00: nobody looked at it in time, so misfire policy decides."""
    driver = Driver("2026-11-02T12:00:00Z", HOURS)
    driver.create(trigger=NINE)
    driver.leap("2026-11-02T15:30:00Z" if asleep else "2026-11-02T16:30:00Z")
    driver.kill()
    tables.use("2026f", NEW)
    driver.now = 1_793_637_000_000
    driver.start()
    assert driver.times() == ["2026-11-02T16:00:00Z"]
    assert driver.dispatched()[0]["origin"] == "catch_up"
    driver.leap("2026-11-03T20:00:00Z")
    assert driver.times() == ["2026-11-02T16:00:00Z", "2026-11-03T16:00:00Z"]


def test_a_paused_schedule_moves_and_stays_paused(tables: ZoneTables) -> None:
    """What was due while it was paused is suppressed; resumed, it follows the new tables."""
    driver = Driver("2026-10-31T20:00:00Z", HOURS)
    driver.create(trigger=NINE)
    driver.do("pause")
    driver.leap("2026-11-01T20:00:00Z")
    driver.kill()
    tables.use("2026f", NEW)
    driver.start()
    assert (driver.schedule() or {})["state"] == "paused"
    assert (driver.schedule() or {})["version"] == 2
    assert driver.counts() == {"suppressed": 1}
    driver.do("resume")
    driver.leap("2026-11-02T20:00:00Z")
    assert driver.times() == ["2026-11-02T16:00:00Z"]


@pytest.mark.parametrize("wipe", [False, True])
@pytest.mark.parametrize("crash", ["crash_after_commit", "crash_before_commit"])
def test_a_crash_in_the_middle_neither_skips_nor_repeats(
    tables: ZoneTables, monkeypatch: pytest.MonkeyPatch, crash: str, *, wipe: bool
) -> None:
    """Three schedules a step, a crash at each: in the end each of ten has moved exactly once."""
    monkeypatch.setattr("scheduler.shard.replan.SLICE", 3)
    driver = Driver("2026-10-31T20:00:00Z", HOURS)
    names = [f"acme/s{number}" for number in range(10)]
    for name in names:
        driver.create(name, trigger=NINE)
    driver.advance(1000)
    driver.kill()
    tables.use("2026f", NEW)
    for _ in range(8):
        driver.start(run=False, wipe=wipe)
        if driver.shard is not None:
            driver.shard.commands_read()
        if crash == "crash_before_commit":
            driver.turn()  # each start gets one step further
        getattr(driver, crash)()
    driver.start(wipe=wipe)
    assert [(name, len(moved(driver, name))) for name in names] == [(name, 1) for name in names]
    assert {(driver.schedule(name) or {})["version"] for name in names} == {2}
    driver.leap("2026-11-02T20:00:00Z")
    assert all(driver.times(name) == ["2026-11-01T16:00:00Z", "2026-11-02T16:00:00Z"] for name in names)
    assert driver.contents() == driver.cold_contents() == driver.cold_contents(compacted=True)


def test_the_zone_record_is_written_when_a_zone_is_new_or_tables_change(tables: ZoneTables) -> None:
    """Once for each, restored from the topic, with the instant it was taken for."""

    def written() -> int:
        return sum(key == b"0/zones" for key, *_ in driver.topics.records["scheduler.shards"])

    driver = Driver("2026-10-31T20:00:00Z", HOURS)
    for number in range(5):
        driver.create(f"acme/s{number}", trigger=NINE)
    driver.create("acme/rate", trigger={"every_ms": 60_000})
    driver.advance(180_000)
    assert written() == 1
    driver.create("acme/b", trigger={"cron": "0 9 * * *", "zone": "Europe/Berlin"})
    assert written() == 2
    driver.restart()
    driver.advance(180_000)
    assert written() == 2
    stored = driver.store.get(keys.ZONES)
    assert stored is not None
    record = json.loads(stored)
    assert {z["zone"]: z["taken_at"] for z in record["zones"]} == {
        VANCOUVER: "2026-10-31T20:00:00Z",
        "Europe/Berlin": "2026-10-31T20:03:00Z",
    }
    assert driver.cold_contents()[keys.ZONES] == stored
    driver.kill()
    tables.use("2026f", NEW)
    driver.start()
    assert wire.zones_from_bytes(driver.store.get(keys.ZONES) or b"").tz_version == "2026f"
    assert written() == 3


def test_p19_a_zone_the_tables_lack_breaks_its_schedules_and_nothing_else(tables: ZoneTables) -> None:
    """Visibly broken with the reason; the others go on, and an update mends it."""
    driver = Driver("2026-10-31T20:00:00Z", HOURS)
    driver.create(trigger=NINE)
    driver.create("acme/b", trigger={"cron": "0 * * * *", "zone": "UTC"})
    driver.kill()
    tables.use("2027a", {VANCOUVER: None})
    driver.start()
    driver.leap("2026-10-31T22:00:00Z")
    broken = driver.schedule() or {}
    assert broken["state"] == "broken"
    assert VANCOUVER in broken["broken_reason"]
    assert driver.times("acme/b") == ["2026-10-31T21:00:00Z", "2026-10-31T22:00:00Z"]
    assert driver.shard is not None
    assert driver.shard.zones.missing() == 1
    assert (
        driver.do("update", spec={"trigger": {"cron": "0 9 * * *", "zone": "America/Whitehorse"}})["code"] == "updated"
    )
    driver.leap("2026-11-01T20:00:00Z")
    assert driver.times() == ["2026-11-01T16:00:00Z"]
