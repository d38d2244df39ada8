"""Backfill as a user sees it: exactly what is missing, at the speed asked for, whatever happens on the way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.shard.shard import ShardSettings
from tests.support.driver import Driver

DAY = "2026-01-01T"
HOURLY = {"cron": "0 * * * *", "zone": "UTC"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours pass here: an idle shard looks just often enough."""
    monkeypatch.setattr("tests.support.driver.LONGEST_LOOK_MS", 14_000)


def at(clock: str) -> str:
    return f"{DAY}{clock}:00Z"


def with_a_hole(settings: ShardSettings | None = None, **spec: Any) -> Driver:
    """Hourly; ran at 01:00, 02:00, 06:00 and 07:00, suppressed at 03:00, 04:00 and 05:00; it is 07:30."""
    driver = Driver(at("00:00"), settings)
    driver.create(trigger=HOURLY, **spec)
    driver.run_until(at("02:30"))
    driver.do("pause")
    driver.run_until(at("05:30"))
    driver.do("resume")
    driver.run_until(at("07:30"))
    return driver


def backfill(driver: Driver, since: str = "01:00", until: str = "07:00", **fields: Any) -> dict[str, Any]:
    return driver.do("backfill", **{"from": at(since), "until": at(until), **fields})


def backfilled(driver: Driver) -> list[str]:
    return [d["scheduled_for"][11:16] for d in driver.dispatched() if d["origin"] == "backfill"]


def history(driver: Driver) -> list[tuple[str, dict[str, int]]]:
    return [(r["change"], r.get("counts", {})) for r in driver.topics.values("scheduler.schedule-history")]


def running(driver: Driver) -> dict[str, Any] | None:
    """The newest value of the backfill's live record; None once it is gone."""
    found = None
    for key, value, _, _ in driver.topics.records.get("scheduler.live", []):
        if key.startswith(b"backfill:"):
            found = value
    return None if found is None else dict(json.loads(found))


def test_only_what_is_missing_runs() -> None:
    """P63: what ran in the range is left out, the ids are the ordinary ones, and the end is told with counts."""
    driver = with_a_hole()
    reply = backfill(driver)
    assert (reply["code"], reply["counts"]) == ("backfilling", {"nominals": 6})
    assert backfilled(driver) == ["03:00", "04:00", "05:00"]
    assert driver.dispatched()[-1]["occurrence_id"] == "acme/a:1:20260101T050000.000Z"
    assert history(driver)[-2:] == [
        ("backfill", {"nominals": 6}),
        ("backfilled", {"nominals": 6, "dispatched": 3, "left_out": 3}),
    ]
    assert running(driver) is None


def test_the_schedule_goes_on_as_if_there_were_none() -> None:
    """Neither cursor nor floor moves: the live nominals of the schedule are those without a backfill."""
    with_one, without = with_a_hole(), with_a_hole()
    backfill(with_one, per_s=1)
    floor = (with_one.schedule() or {}).get("floor")
    for driver in (with_one, without):
        driver.run_until(at("10:30"))
    live = [[d["at"] for d in driver.dispatched() if d["origin"] == "schedule"] for driver in (with_one, without)]
    assert live[0] == live[1]
    assert (with_one.schedule() or {}).get("floor") == floor


def test_a_dry_run_counts_what_would_run_and_changes_nothing() -> None:
    """Its reply waits until it is known what ran; afterwards the topics are as before."""
    driver = with_a_hole()
    before = driver.schedule()
    reply = backfill(driver, dry_run=True)
    assert (reply["code"], reply["dry_run"]) == ("backfilling", True)
    assert reply["counts"] == {"nominals": 6, "dispatched": 0, "left_out": 3, "remaining": 3}
    driver.advance(60_000)
    assert (backfilled(driver), running(driver), driver.schedule()) == ([], None, before)


def test_the_rate_is_kept_and_progress_is_visible() -> None:
    """`per_s` bounds it; each step writes what remains."""
    driver = with_a_hole()
    backfill(driver, per_s=1)
    seen = running(driver)
    assert seen is not None
    assert (seen["total"], seen["dispatched"], seen["left_out"], seen["remaining"]) == (6, 1, 3, 2)
    driver.run_until(at("08:30"))
    assert [d["at"][11:19] for d in driver.dispatched() if d["origin"] == "backfill"] == [
        "07:30:00", "07:30:01", "07:30:02",
    ]  # fmt: skip


def test_the_tenants_budget_bounds_it_too() -> None:
    """A backfill spends the catch-up budget of its tenant."""
    driver = with_a_hole(ShardSettings(catch_up_overrides={"acme": 0.5}))
    backfill(driver, per_s=100)
    driver.run_until(at("08:30"))
    assert [d["at"][11:19] for d in driver.dispatched() if d["origin"] == "backfill"] == [
        "07:30:00", "07:30:02", "07:30:04",
    ]  # fmt: skip


def test_nothing_runs_until_it_is_known_what_ran() -> None:
    """The question stays open over a cold restart and is asked again; the answer is taken once."""
    driver = with_a_hole()
    driver.answers = False
    backfill(driver)
    driver.advance(60_000)
    driver.restart(wipe=True, compacted=True)
    driver.advance(60_000)
    assert backfilled(driver) == []
    assert driver.contents() == driver.cold_contents()
    driver.answers = True
    driver.advance(1_000)
    assert backfilled(driver) == ["03:00", "04:00", "05:00"]


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("after_commit", [False, True])
def test_a_crash_anywhere_neither_loses_nor_doubles(*, cold: bool, after_commit: bool) -> None:
    """Whatever step dies, before or after its commit, the three run once each."""
    for crash_at in range(6):
        driver = with_a_hole()
        driver.send({
            "command": "backfill", "schedule_id": "acme/a", "from": at("01:00"), "until": at("07:00"), "per_s": 1,
        })  # fmt: skip
        for _ in range(crash_at):
            driver.turn()
            driver.now += 400
        driver.inform()
        if after_commit:
            driver.crash_after_commit()
        else:
            driver.crash_before_commit()
        driver.start(wipe=cold)
        driver.advance(5_000)
        assert backfilled(driver) == ["03:00", "04:00", "05:00"], crash_at
        assert driver.contents() == driver.cold_contents(), crash_at


def test_pause_holds_it_and_resume_lets_it_go_on() -> None:
    """A held backfill asks for nothing and survives a cold restart."""
    driver = with_a_hole()
    backfill(driver, per_s=1)
    driver.do("pause")
    driver.run_until(at("07:40"))
    driver.restart(wipe=True)
    driver.run_until(at("07:50"))
    assert backfilled(driver) == ["03:00"]
    driver.do("resume")
    driver.advance(10_000)
    assert backfilled(driver) == ["03:00", "04:00", "05:00"]


@pytest.mark.parametrize(
    ("verb", "reason", "code"),
    [
        ("cancel", "cancelled", "cancelled"),
        ("delete", "deleted", "deleted"),
        ("cancel-backfill", "backfill_cancelled", "backfill_cancelled"),
    ],
)
def test_what_is_left_is_cancelled_with_its_count(verb: str, reason: str, code: str) -> None:
    """Ending the schedule ends its backfill; `cancel-backfill` ends it alone."""
    driver = with_a_hole()
    backfill(driver, per_s=1)
    reply = driver.do(verb)
    assert (reply["code"], reply["counts"]["cancelled"]) == (code, 2)
    gone = driver.occurrences("cancelled")[-1]
    assert (gone["reason"], gone["count"], gone["first"], gone["last"]) == (reason, 2, at("04:00"), at("05:00"))
    driver.advance(60_000)
    assert backfilled(driver) == ["03:00"]
    assert running(driver) is None
    assert driver.contents() == driver.cold_contents()


def test_cancelled_before_it_is_known_what_ran() -> None:
    """An answer that comes too late is of no use."""
    driver = with_a_hole()
    driver.answers = False
    backfill(driver)
    assert driver.do("cancel-backfill")["code"] == "backfill_cancelled"
    assert driver.do("cancel-backfill")["code"] == "unchanged"
    driver.answers = True
    driver.advance(60_000)
    assert (backfilled(driver), running(driver)) == ([], None)


def test_overlapping_ones_are_refused_disjoint_ones_run_beside() -> None:
    """At most one backfill is responsible for a nominal."""
    driver = with_a_hole()
    assert backfill(driver, "03:00", "05:00", per_s=1)["code"] == "backfilling"
    assert backfill(driver, "04:00", "06:00")["code"] == "backfill_running"
    assert backfill(driver, "05:00", "07:00")["code"] == "backfilling"
    driver.advance(10_000)
    assert sorted(backfilled(driver)) == ["03:00", "04:00", "05:00"]
    assert backfill(driver, "03:00", "06:00")["code"] == "backfilling"
    driver.advance(10_000)
    assert sorted(backfilled(driver)) == ["03:00", "04:00", "05:00"]


def test_a_repeated_command_is_one_backfill() -> None:
    """The same command id gets the same answer while it runs and afterwards."""
    driver = with_a_hole()
    first = backfill(driver, command_id="once", per_s=1)
    again = backfill(driver, command_id="once", per_s=1)
    driver.advance(10_000)
    later = backfill(driver, command_id="once", per_s=1)
    assert [r["code"] for r in (first, again, later)] == ["backfilling"] * 3
    driver.advance(10_000)
    assert backfilled(driver) == ["03:00", "04:00", "05:00"]


def test_other_versions_count_as_run_and_the_definition_stays() -> None:
    """What ran under version 1 is left out of version 2's backfill; an update on the way does not change the rest."""
    driver = with_a_hole()
    driver.do("update", spec={"payload": {"n": 2}})
    backfill(driver, per_s=1)
    driver.do("update", spec={"payload": {"n": 3}})
    driver.advance(10_000)
    runs = [d for d in driver.dispatched() if d["origin"] == "backfill"]
    assert [(d["scheduled_for"][11:16], d["version"], d["payload"]) for d in runs] == [
        ("03:00", 2, {"n": 2}), ("04:00", 2, {"n": 2}), ("05:00", 2, {"n": 2}),
    ]  # fmt: skip


def test_all_nominals_again_are_new_attempts() -> None:
    """Without `only_missing` what ran runs again, under its id as the next attempt."""
    driver = with_a_hole()
    backfill(driver, only_missing=False)
    backfill(driver, "01:00", "04:00", only_missing=False)
    runs = [(d["scheduled_for"][11:16], d["attempt"]) for d in driver.dispatched() if d["origin"] == "backfill"]
    assert runs == [
        ("01:00", 2), ("02:00", 2), ("03:00", 1), ("04:00", 1), ("05:00", 1), ("06:00", 2),
        ("01:00", 3), ("02:00", 3), ("03:00", 2),
    ]  # fmt: skip


def test_what_is_still_owed_is_left_to_that() -> None:
    """Catch-up that waits for its budget is not run a second time."""
    driver = Driver(at("00:00"), ShardSettings(catch_up_overrides={"acme": 0.01}))
    driver.create(trigger=HOURLY, misfire={"catch_up": 3})
    driver.run_until(at("00:30"))
    driver.outage(at("06:30"))
    assert driver.clocks() == ["04:00:00"]
    backfill(driver, "01:00", "07:00")
    driver.advance(3_600_000)
    assert sorted(d["scheduled_for"][11:16] for d in driver.dispatched() if d["origin"] != "schedule") == [
        "01:00", "02:00", "03:00", "04:00", "05:00", "06:00",
    ]  # fmt: skip


def test_the_range_is_cut_to_what_is_decided() -> None:
    """Later nominals are the schedule's own, a paused schedule's are decided by the resume: a warning says so."""
    driver = with_a_hole()
    reply = backfill(driver, "03:00", "12:00")
    assert [w["code"] for w in reply["warnings"]] == ["cut"]
    driver.run_until(at("08:10"))
    driver.do("pause")
    driver.run_until(at("10:30"))
    assert backfill(driver, "08:00", "10:30")["counts"] == {"nominals": 1}
    driver.do("resume", catch_up=True)
    driver.advance(60_000)
    times = driver.times()
    assert sorted(times) == sorted(set(times))


@pytest.mark.parametrize(
    ("fields", "field", "code"),
    [
        ({}, "from", "bad_field"),
        ({"from": at("03:00")}, "until", "bad_field"),
        ({"from": at("03:00"), "until": at("03:00")}, "until", "bad_field"),
        ({"from": at("09:00"), "until": at("12:00")}, "from", "bad_field"),
        ({"from": "2025-12-01T00:00:00Z", "until": at("03:00")}, "from", "too_old"),
        ({"from": at("03:00"), "until": at("04:00"), "per_s": 0}, "per_s", "bad_field"),
    ],
)
def test_a_range_that_cannot_be_is_refused(fields: dict[str, Any], field: str, code: str) -> None:
    """Each mistake names its field; older than the dispatch topics keep is one of them."""
    reply = with_a_hole().do("backfill", **fields)
    assert reply["status"] == "rejected"
    assert (field, code) in [(e["field"], e["code"]) for e in reply["errors"]]


def test_too_many_are_refused_and_all_nominals_may_be_old() -> None:
    """A bound on one record; and what is run anyway need not be known."""
    driver = with_a_hole()
    assert backfill(driver, "01:00", "07:00", only_missing=False)["code"] == "backfilling"
    driver.create("acme/fast", trigger={"cron": "* * * * * *", "dialect": "seconds", "zone": "UTC"})
    reply = driver.do("backfill", "acme/fast", **{"from": at("00:30"), "until": at("07:00")})
    assert [(e["field"], e["code"]) for e in reply["errors"]] == [("until", "too_many")]
    old: dict[str, Any] = {"from": "2025-12-01T00:00:00Z", "until": "2025-12-01T03:00:00Z", "only_missing": False}
    assert driver.do("backfill", **old)["counts"] == {"nominals": 3}


def test_a_completed_schedule_stays_until_its_backfill_ends() -> None:
    """It is not forgotten a day after completion while something of it is owed."""
    driver = Driver(at("00:00"), ShardSettings(catch_up_overrides={"acme": 0.00002}))
    driver.create(trigger=HOURLY, end=at("03:30"))
    driver.run_until(at("03:40"))
    assert (driver.schedule() or {})["state"] == "completed"
    backfill(driver, "01:00", "03:30", only_missing=False)
    driver.run_until("2026-01-02T06:00:00Z")
    assert (driver.schedule() or {})["state"] == "completed"
    driver.run_until("2026-01-02T12:00:00Z")
    assert len(backfilled(driver)) == 3
    assert driver.schedule() is None


def test_on_time_work_does_not_wait_for_it() -> None:
    """A backfill of thousands beside a schedule that fires every second: each second is fired at its instant."""
    driver = Driver(at("00:00"), ShardSettings(catch_up_per_s=1_000))
    driver.create(trigger={"cron": "* * * * * *", "dialect": "seconds", "zone": "UTC"})
    driver.run_until(at("00:02"))
    asked: dict[str, Any] = {"from": "2025-12-31T23:50:00Z", "until": at("00:00"), "per_s": 100}
    driver.do("backfill", **asked)
    driver.run_until("2026-01-01T00:02:10Z")
    live = [d for d in driver.dispatched() if d["origin"] == "schedule"]
    assert [d["at"] for d in live] == [d["scheduled_for"] for d in live]
    assert len(backfilled(driver)) == 600
