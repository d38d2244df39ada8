"""Calendars at work: what a schedule does under one, and what a change of the calendar does to its schedules."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.shard import keys
from scheduler.shard.shard import ShardSettings
from tests.support.driver import Driver

HOURS = ShardSettings(horizon_ms=7_200_000)
WEEK = ["MON", "TUE", "WED", "THU", "FRI"]
NINE = {"cron": "0 9 * * *", "zone": "UTC"}
THURSDAY = "2026-01-01T08:00:00Z"


def office(now: str = THURSDAY, **fields: Any) -> Driver:
    """A shard that knows the calendar `office`, Monday to Friday."""
    driver = Driver(now, HOURS)
    driver.calendar("office", 1, working_days=WEEK, **fields)
    return driver


def changes(driver: Driver, schedule_id: str = "acme/a") -> list[str]:
    history = driver.topics.values("scheduler.schedule-history")
    return [h["change"] for h in history if h["schedule_id"] == schedule_id]


def days(driver: Driver, schedule_id: str = "acme/a") -> list[str]:
    return [text[8:10] for text in driver.times(schedule_id)]


def suppressed(driver: Driver, reason: str) -> list[tuple[str, str, int]]:
    """(first, last, count) of the records with this reason."""
    return [
        (o.get("first") or o["scheduled_for"], o.get("last") or o["scheduled_for"], o.get("count", 1))
        for o in driver.occurrences("suppressed")
        if o["reason"] == reason
    ]


def test_a_schedule_fires_on_business_days_and_the_rest_is_recorded() -> None:
    """Thursday, Friday, Monday; Saturday and Sunday are one record, written when Monday fires."""
    driver = office()
    driver.create(trigger=NINE, calendar="office")
    driver.leap("2026-01-04T12:00:00Z")
    assert days(driver) == ["01", "02"]
    assert driver.occurrences() == []
    driver.leap("2026-01-05T12:00:00Z")
    assert days(driver) == ["01", "02", "05"]
    assert suppressed(driver, "calendar") == [("2026-01-03T09:00:00Z", "2026-01-04T09:00:00Z", 2)]
    assert (driver.schedule() or {})["spec"]["calendar"] == "office"
    assert (driver.schedule() or {})["calendar_version"] == 1
    assert driver.contents() == driver.cold_contents() == driver.cold_contents(compacted=True)


@pytest.mark.parametrize(
    ("roll", "expected"), [("next", ["01", "02", "05", "06"]), ("previous", ["01", "02", "05", "06"])]
)
def test_rolled_days_meet_others_and_leave_no_record(roll: str, expected: list[str]) -> None:
    """What moves onto a day that fires anyway is one nominal with it: nothing was removed."""
    driver = office()
    driver.create(trigger=NINE, calendar="office", roll=roll)
    driver.leap("2026-01-06T12:00:00Z")
    assert days(driver) == expected
    assert driver.occurrences() == []


def test_a_fixed_rate_keeps_its_grid_on_business_days() -> None:
    """Every 12 hours from Thursday; the weekend's four are recorded."""
    driver = office()
    driver.create(trigger={"every_ms": 43_200_000, "anchor": "2026-01-01T09:00:00Z"}, calendar="office")
    driver.leap("2026-01-05T12:00:00Z")
    assert driver.times() == [f"2026-01-{d}:00:00Z" for d in ("01T09", "01T21", "02T09", "02T21", "05T09")]
    assert suppressed(driver, "calendar") == [("2026-01-03T09:00:00Z", "2026-01-04T21:00:00Z", 4)]


def test_preview_follows_the_calendar_and_an_unknown_one_is_named() -> None:
    """The same calculator; the problem names those that exist."""
    driver = office()
    reply = driver.do("preview", spec={"trigger": NINE, "calendar": "office"}, preview=3)
    assert [p["scheduled_for"][8:10] for p in reply["preview"]] == ["01", "02", "05"]
    reply = driver.do("create", spec={"trigger": NINE, "calendar": "offise"})
    assert reply["code"] == "unknown_calendar"
    assert reply["errors"][0]["field"] == "spec.calendar"
    assert "there are office" in reply["errors"][0]["message"]
    reply = driver.do("create", spec={"trigger": {"every_ms": 60_000}, "calendar": "office", "roll": "next"})
    assert (reply["code"], reply["errors"][0]["field"]) == ("not_supported", "spec.roll")
    assert driver.schedule() is None


def test_a_definition_is_compared_with_its_calendar() -> None:
    """The same create is unchanged; taking the calendar away, or another roll, is a new version."""
    driver = office()
    driver.create(trigger=NINE, calendar="office")
    assert driver.do("create", spec={"trigger": NINE, "calendar": "office"})["code"] == "unchanged"
    assert driver.do("update", spec={"trigger": NINE})["code"] == "unchanged"
    assert driver.do("update", spec={"description": "x"})["version"] == 1
    assert driver.do("update", spec={"roll": "next"})["version"] == 2
    assert driver.do("update", spec={"calendar": None, "roll": None})["version"] == 3
    assert "calendar_version" not in (driver.schedule() or {})
    driver.leap("2026-01-03T12:00:00Z")
    assert days(driver) == ["01", "02", "03"]


def test_p27_a_backlog_leaves_out_what_the_calendar_removed() -> None:
    """Weekdays 08:00, two days excluded, down for five days: the two worked nominals only; the others are recorded."""
    driver = office("2025-12-31T07:00:00Z", exclude_dates=["2026-01-01", "2026-01-02"])
    driver.create(
        trigger={"cron": "0 8 * * *", "zone": "UTC"},
        calendar="office",
        misfire={"catch_up": 5},
        max_lateness_ms=7 * 86_400_000,
    )
    driver.outage("2026-01-05T09:00:00Z", wipe=True)
    driver.advance(2_000)
    assert driver.times() == ["2025-12-31T08:00:00Z", "2026-01-05T08:00:00Z"]
    assert suppressed(driver, "calendar") == [("2026-01-01T08:00:00Z", "2026-01-04T08:00:00Z", 4)]
    driver.leap("2026-01-06T09:00:00Z")
    assert suppressed(driver, "calendar") == [("2026-01-01T08:00:00Z", "2026-01-04T08:00:00Z", 4)]
    assert days(driver)[-1] == "06"


def test_a_change_counts_for_the_future_alone() -> None:
    """Version 2 closes Friday: a new version of the schedule, re-planned in its history; Thursday stays what it was."""
    driver = office()
    driver.create(trigger=NINE, calendar="office")
    driver.create("acme/other", trigger=NINE)
    driver.leap("2026-01-01T12:00:00Z")
    driver.calendar("office", 2, working_days=["MON", "TUE", "WED", "THU"])
    assert changes(driver) == ["created", "re-planned"]
    assert changes(driver, "acme/other") == ["created"]
    assert ((driver.schedule() or {})["version"], (driver.schedule() or {})["calendar_version"]) == (2, 2)
    driver.leap("2026-01-05T12:00:00Z")
    assert days(driver) == ["01", "05"]
    assert [d["version"] for d in driver.dispatched("acme/a")] == [1, 2]
    assert suppressed(driver, "calendar") == [("2026-01-02T09:00:00Z", "2026-01-04T09:00:00Z", 3)]
    assert driver.contents() == driver.cold_contents() == driver.cold_contents(compacted=True)


def test_a_change_settles_what_is_owed_by_the_old_calendar() -> None:
    """Down over Friday 09:00, and Friday is closed meanwhile: Friday was worked when it came, so it is caught up."""
    driver = office()
    driver.create(trigger=NINE, calendar="office")
    driver.leap("2026-01-01T12:00:00Z")
    driver.kill()
    driver.calendar("office", 2, working_days=["MON", "TUE", "WED", "THU"])
    driver.now += 24 * 3_600_000
    driver.start()
    driver.advance(2_000)
    assert days(driver) == ["01", "02"]
    assert (driver.dispatched()[1]["version"], driver.dispatched()[1]["origin"]) == (1, "catch_up")
    driver.leap("2026-01-05T12:00:00Z")
    assert days(driver) == ["01", "02", "05"]


def test_a_window_still_open_is_kept_through_a_change() -> None:
    """A nominal in its window is owed under the version it belongs to, on a day the new calendar closes."""
    driver = office("2026-01-02T08:59:59Z")
    driver.create(trigger=NINE, calendar="office", window_ms=3_600_000)
    driver.leap("2026-01-02T09:00:00Z")
    driver.calendar("office", 2, working_days=["MON"])
    driver.leap("2026-01-02T10:30:00Z")
    assert [(d["scheduled_for"], d["version"]) for d in driver.dispatched()] == [("2026-01-02T09:00:00Z", 1)]


@pytest.mark.parametrize("wipe", [False, True])
@pytest.mark.parametrize("crash", ["crash_after_commit", "crash_before_commit"])
def test_a_crash_in_the_middle_of_a_replan_neither_skips_nor_repeats(
    monkeypatch: pytest.MonkeyPatch, crash: str, *, wipe: bool
) -> None:
    """Three schedules a step, a crash at each: each of ten is re-planned exactly once."""
    monkeypatch.setattr("scheduler.shard.replan.SLICE", 3)
    driver = office()
    names = [f"acme/s{number}" for number in range(10)]
    for name in names:
        driver.create(name, trigger=NINE, calendar="office")
    driver.calendar("office", 2, run=False, working_days=["MON", "SAT"])
    for _ in range(6):
        if crash == "crash_before_commit":
            driver.turn()
        getattr(driver, crash)()
        driver.start(run=False, wipe=wipe)
        assert driver.shard is not None
        driver.shard.commands_read()
    driver.run_until(driver.now)
    assert [changes(driver, name) for name in names] == [["created", "re-planned"]] * 10
    driver.leap("2026-01-03T12:00:00Z")
    assert all(days(driver, name) == ["03"] for name in names)
    assert driver.contents() == driver.cold_contents() == driver.cold_contents(compacted=True)


def test_the_horizon_follows_a_change_at_once() -> None:
    """A nominal already read ahead and encoded does not fire once the calendar has closed its day."""
    driver = office("2026-01-02T08:59:50Z")
    driver.create(trigger=NINE, calendar="office")
    driver.leap("2026-01-02T08:59:55Z")
    driver.calendar("office", 2, working_days=["MON"])
    driver.leap("2026-01-02T09:00:10Z")
    assert driver.times() == []


def test_a_command_meets_the_newest_calendar() -> None:
    """A command in the step in which the calendar changes comes after the change; the create of before is unchanged."""
    driver = office()
    driver.create(trigger=NINE, calendar="office")
    driver.calendar("office", 2, run=False, working_days=["MON"])
    reply = driver.do("create", spec={"trigger": NINE, "calendar": "office"})
    assert (reply["code"], reply["version"]) == ("unchanged", 2)
    assert changes(driver) == ["created", "re-planned"]


def test_a_deleted_calendar_breaks_its_schedules_until_it_is_back() -> None:
    """Visibly broken with the reason; paused ones stay paused; back again it mends both by itself."""
    driver = office()
    driver.create(trigger=NINE, calendar="office")
    driver.create("acme/paused", trigger=NINE, calendar="office")
    driver.do("pause", "acme/paused")
    driver.calendar("office", 2, deleted=True)
    broken = driver.schedule() or {}
    assert (broken["state"], broken["version"], changes(driver)[-1]) == ("broken", 1, "broken")
    assert "office" in broken["broken_reason"]
    assert (driver.schedule("acme/paused") or {})["state"] == "paused"
    assert driver.do("create", "acme/new", spec={"trigger": NINE, "calendar": "office"})["code"] == "unknown_calendar"
    driver.leap("2026-01-01T12:00:00Z")
    assert driver.times() == []
    driver.restart(wipe=True)
    driver.calendar("office", 3, working_days=WEEK)
    mended = driver.schedule() or {}
    assert (mended["state"], mended["version"], mended["calendar_version"]) == ("active", 2, 3)
    assert "broken_reason" not in mended
    driver.do("resume", "acme/paused")
    driver.leap("2026-01-02T12:00:00Z")
    assert days(driver) == days(driver, "acme/paused") == ["02"]
    assert driver.contents() == driver.cold_contents()


def test_a_broken_one_is_mended_by_update() -> None:
    """Another calendar, or none."""
    driver = office()
    driver.create(trigger=NINE, calendar="office")
    driver.calendar("office", 2, deleted=True)
    assert driver.do("update", spec={"calendar": None})["code"] == "updated"
    assert (driver.schedule() or {})["state"] == "active"


def test_a_calendar_that_is_missing_as_a_whole_is_missed_from_the_start() -> None:
    """Restored where the calendar topic holds nothing: broken, not fired on every day; there again it mends."""
    driver = office()
    driver.create(trigger=NINE, calendar="office")
    driver.kill()
    driver.calendars = driver.calendars.drop("office", 1)
    driver.start(wipe=True)
    assert (driver.schedule() or {})["state"] == "broken"
    driver.leap("2026-01-01T12:00:00Z")
    assert driver.times() == []
    driver.calendar("office", 1, working_days=WEEK)
    driver.leap("2026-01-02T12:00:00Z")
    assert days(driver) == ["02"]


def test_the_shard_record_names_the_versions_in_force() -> None:
    """Used calendars only, each with the version its schedules follow."""
    driver = office()
    driver.calendar("unused", 7, working_days=WEEK)
    driver.create(trigger=NINE, calendar="office")
    assert driver.topics.values("scheduler.shards")[-1]["calendars"] == {"office": 1}
    driver.calendar("office", 2, working_days=["MON"])
    assert driver.topics.values("scheduler.shards")[-1]["calendars"] == {"office": 2}
    steps = driver.steps
    driver.calendar("unused", 8, working_days=["MON"])
    assert driver.steps == steps


def test_a_gap_leaves_a_record_when_it_is_passed() -> None:
    """02:30 does not exist in New York on 8 March 2026: the next fire says so, and no other does."""
    driver = Driver("2026-03-07T06:00:00Z", HOURS)
    driver.create(trigger={"cron": "30 2 * * *", "zone": "America/New_York"})
    driver.create("acme/hourly", trigger={"cron": "30 * * * *", "zone": "America/New_York"})
    driver.create("acme/elsewhere", trigger={"cron": "30 2 * * *", "zone": "UTC"})
    driver.leap("2026-03-10T08:00:00Z")
    assert driver.times() == ["2026-03-07T07:30:00Z", "2026-03-09T06:30:00Z", "2026-03-10T06:30:00Z"]
    records = driver.occurrences("suppressed")
    assert [(r["schedule_id"], r["reason"], r["first"], r["at"]) for r in records] == [
        ("acme/hourly", "gap", "2026-03-08T07:00:00Z", "2026-03-08T07:30:00Z"),
        ("acme/a", "gap", "2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"),
    ]
    assert not any("occurrence_id" in r for r in records)


@pytest.mark.parametrize("verb", ["pause", "cancel", "delete", "update", "outage", "replan"])
def test_what_is_passed_over_is_recorded_once_whoever_passes(verb: str) -> None:
    """A change of the schedule, an outage or a new calendar on Sunday: the weekend so far is recorded, and once."""
    driver = office()
    driver.create(trigger=NINE, calendar="office")
    driver.leap("2026-01-02T12:00:00Z")
    driver.now += 48 * 3_600_000
    driver.restart()
    if verb == "outage":
        driver.outage("2026-01-05T10:00:00Z")
    elif verb == "replan":
        driver.calendar("office", 2, working_days=["MON", "TUE"])
    else:
        driver.do(verb, **({"spec": {"roll": "next"}} if verb == "update" else {}))
    expected = [("2026-01-03T09:00:00Z", "2026-01-04T09:00:00Z", 2)]
    assert suppressed(driver, "calendar") == expected
    driver.leap("2026-01-06T12:00:00Z")
    assert suppressed(driver, "calendar") == expected


def test_what_lies_behind_the_last_nominal_is_recorded_when_it_is_over() -> None:
    """A one-shot whose day was closed meanwhile, and the weekend before a schedule's end."""
    driver = office()
    driver.create("acme/once", trigger={"at": "2026-01-06T09:00:00Z"}, calendar="office")
    driver.create(trigger=NINE, calendar="office", end="2026-01-05T00:00:00Z")
    driver.calendar("office", 2, working_days=WEEK, exclude_dates=["2026-01-06"])
    assert (driver.schedule("acme/once") or {})["state"] == "completed"
    driver.leap("2026-01-02T12:00:00Z")
    assert (driver.schedule() or {})["state"] == "completed"
    assert suppressed(driver, "calendar") == [
        ("2026-01-06T09:00:00Z", "2026-01-06T09:00:00Z", 1),
        ("2026-01-03T09:00:00Z", "2026-01-04T09:00:00Z", 2),
    ]


def test_a_zone_record_far_back_is_missed_until_it_is_read() -> None:
    """The shard record says which step wrote the zone record, so that a tail without it is known to be too short."""
    from scheduler.shard.rebuild import Change, Rebuild
    from scheduler.state.store import MemoryStore

    driver = office()
    driver.create(trigger=NINE, calendar="office")
    driver.do("pause")
    log = driver.topics.records["scheduler.shards"]
    changes = [Change(i, key, value, step) for i, (key, value, _, step) in enumerate(log)]
    rebuild = Rebuild(MemoryStore(), 0, driver.calendars)
    rebuild.apply("scheduler.shards", changes[-1:], len(log))
    assert rebuild.is_partial
    rebuild.again("scheduler.shards")
    rebuild.apply("scheduler.shards", changes, len(log))
    assert not rebuild.is_partial
    assert rebuild.foreign == 0
    assert rebuild._store.get(keys.ZONES) == driver.store.get(keys.ZONES)
