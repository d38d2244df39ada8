"""Real reports, played on the shard itself with real outages, kills and cold restores; named after their ids.

The same reports run through `scheduler simulate` elsewhere; here the point is that live operation, a warm start and
a start from the topics alone give the same answer.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from scheduler.core.time import format_instant, parse_instant
from scheduler.errors import StateCorrupted
from scheduler.shard import keys
from scheduler.shard.shard import ShardSettings
from scheduler.state.store import Batch
from tests.support.driver import Driver

FIVE = {"cron": "*/5 * * * *", "zone": "UTC"}
HOURLY = {"cron": "0 * * * *", "zone": "UTC"}
MINUTELY = {"cron": "* * * * *", "zone": "UTC"}
SECONDLY = {"cron": "* * * * * *", "zone": "UTC", "dialect": "seconds"}
DAY = "2026-01-01T"
TWELVE = [f"{12 + m // 60}:{m % 60:02}:00" for m in range(5, 65, 5)]

COLD = pytest.mark.parametrize("restore", [{}, {"wipe": True}, {"wipe": True, "compacted": True}])
POLICIES = pytest.mark.parametrize("misfire", ["skip", "fire_once", {"catch_up": 5}])


def at(clock: str) -> str:
    return f"{DAY}{clock}Z"


def since(clock: str) -> Driver:
    return Driver(at(clock))


# --- pause and resume -----------------------------------------------------------------------------------------------


@POLICIES
def test_p01_paused_time_is_suppressed_not_missed(misfire: Any) -> None:
    """Paused 09:30, resumed 12:55: 13:00 is next under every policy; 10, 11 and 12 are suppressed."""
    driver = since("08:30:00")
    driver.create(trigger=HOURLY, misfire=misfire)
    driver.run_until(at("09:30:00"))
    driver.do("pause")
    driver.run_until(at("12:55:00"))
    driver.do("resume")
    driver.run_until(at("13:00:00"))
    assert driver.clocks() == ["09:00:00", "13:00:00"]
    assert [(o["state"], o["reason"], o["count"]) for o in driver.occurrences()] == [("suppressed", "paused", 3)]


@pytest.mark.parametrize(
    ("misfire", "fired"),
    [("skip", []), ("fire_once", ["12:00:00"]), ({"catch_up": 2}, ["11:00:00", "12:00:00"])],
)
def test_p02_resume_may_ask_for_what_was_suppressed(misfire: Any, fired: list[str]) -> None:
    """`catch_up: true` obeys the policy, its K and max_lateness; the rest stays suppressed."""
    driver = since("09:30:00")
    driver.create(trigger=HOURLY, misfire=misfire)
    driver.do("pause")
    driver.run_until(at("12:55:00"))
    driver.do("resume", catch_up=True)
    driver.advance(60_000)
    assert driver.clocks() == fired
    assert driver.counts() == {"suppressed": 3 - len(fired)}


def test_p03_one_start_after_a_resume() -> None:
    """`*/5`, paused 10:01, resumed 10:22: 10:25 and nothing before."""
    driver = since("10:00:30")
    driver.create(trigger=FIVE)
    driver.run_until(at("10:01:00"))
    driver.do("pause")
    driver.run_until(at("10:22:00"))
    driver.do("resume")
    driver.run_until(at("10:29:00"))
    assert driver.clocks() == ["10:25:00"]


def test_p05_a_rate_keeps_its_anchor_over_a_pause() -> None:
    """Every hour from 10:30, paused 10:45, resumed 14:10: 14:30."""
    driver = since("10:00:00")
    driver.create(trigger={"every_ms": 3_600_000, "anchor": at("10:30:00")})
    driver.run_until(at("10:45:00"))
    driver.do("pause")
    driver.run_until(at("14:10:00"))
    driver.do("resume")
    driver.run_until(at("15:00:00"))
    assert driver.clocks() == ["10:30:00", "14:30:00"]


def test_p06_an_edit_does_not_resume() -> None:
    """The cron of a paused schedule is changed: it stays paused, and its pause is accounted for."""
    driver = since("09:30:00")
    driver.create(trigger=HOURLY)
    driver.do("pause")
    driver.run_until(at("10:30:00"))
    assert driver.do("update", spec={"trigger": FIVE})["state"] == "paused"
    driver.run_until(at("11:00:00"))
    assert driver.dispatched() == []
    assert driver.counts() == {"suppressed": 1}


# --- edits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "old", "edit", "new", "first"),
    [
        ("2024-02-01T00:00:00Z", "0 9 10 * *", "2024-02-12T12:00:00Z", "0 9 11 * *", "2024-03-11T09:00:00Z"),
        ("2024-02-08T00:00:00Z", "0 21 * * 2,5", "2024-02-09T02:10:00Z", "0 23 * * wed,sun", "2024-02-11T23:00:00Z"),
    ],
)  # fmt: skip
def test_p09_an_edit_never_reaches_into_the_past(start: str, old: str, edit: str, new: str, first: str) -> None:
    """The next start after an edit is the new rule's first nominal strictly after it."""
    driver = Driver(start)
    driver.create(trigger={"cron": old, "zone": "UTC"}, max_lateness_ms=None)
    driver.outage(edit)
    fired = driver.times()
    reply = driver.do("update", spec={"trigger": {"cron": new, "zone": "UTC"}}, preview=1)
    assert reply["preview"][0]["scheduled_for"] == first
    driver.advance(3_600_000)
    assert driver.times() == fired


def test_p10_applying_the_same_definition_moves_nothing() -> None:
    """A redeploy inside the window: it still starts at its offset, once."""
    driver = since("12:19:00")
    trigger = {"every_ms": 300_000, "anchor": at("12:20:00")}
    driver.create(trigger=trigger, window_ms=60_000)
    driver.run_until(at("12:20:00"))
    assert driver.do("create", spec={"trigger": trigger, "window_ms": 60_000})["code"] == "unchanged"
    driver.run_until(at("12:24:00"))
    [sent] = driver.dispatched()
    assert at("12:20:00") < sent["at"] < at("12:21:00")


@COLD
@pytest.mark.parametrize("edit_ms", [-50, 0, 1])
def test_p11_a_change_at_the_instant_starts_it_once(restore: dict[str, bool], edit_ms: int) -> None:
    """Hourly becomes half-hourly around 12:00: 12:00 starts once and names its version, then 12:30."""
    driver = since("11:30:00")
    driver.create(trigger=HOURLY)
    driver.run_until(parse_instant(at("12:00:00")) + edit_ms)
    driver.do("update", spec={"trigger": {"cron": "0,30 * * * *", "zone": "UTC"}})
    driver.restart(**restore)
    driver.run_until(at("12:30:00"))
    assert [(d["scheduled_for"][11:16], d["version"]) for d in driver.dispatched()] == [
        ("12:00", 2 if edit_ms < 0 else 1), ("12:30", 2),
    ]  # fmt: skip


def test_p13_a_new_zone_may_name_the_same_local_day_twice() -> None:
    """Berlin to New York after Berlin's nine o'clock ran: New York's follows on the same date."""
    driver = Driver("2026-01-10T07:00:00Z")
    driver.create(trigger={"cron": "0 9 * * *", "zone": "Europe/Berlin"})
    driver.run_until("2026-01-10T13:30:00Z")
    driver.do("update", spec={"trigger": {"cron": "0 9 * * *", "zone": "America/New_York"}})
    driver.run_until("2026-01-10T15:00:00Z")
    assert driver.times() == ["2026-01-10T08:00:00Z", "2026-01-10T14:00:00Z"]


# --- zone tables ----------------------------------------------------------------------------------------------------


def test_p16_a_stored_next_instant_is_a_cache() -> None:
    """The store was written under other zone tables: every place is computed anew, and 17:00 is not believed."""
    driver = Driver("2026-11-01T20:00:00Z")
    driver.create(trigger={"cron": "0 9 * * *", "zone": "America/Vancouver"})
    right = driver.store.get(b"kacme/a")
    assert right is not None
    stale = right[:1] + parse_instant("2026-11-02T18:00:00Z").to_bytes(8) + right[9:]
    batch = Batch()
    batch.delete(right)
    batch.put(stale, b"")
    batch.put(b"kacme/a", stale)
    record = driver.store.get(b"h")
    assert record is not None
    batch.put(b"h", record.replace(b'"tz_version":"2026', b'"tz_version":"1999'))
    zones = json.loads(driver.store.get(b"z") or b"")
    zones["zones"][0]["fingerprint"] = "of other tables"
    batch.put(b"z", json.dumps({**zones, "tz_version": "1999z"}).encode())
    driver.store.write(batch)
    driver.restart()
    assert driver.store.get(b"kacme/a") == right
    driver.run_until("2026-11-02T19:00:00Z")
    preview = driver.times()
    assert len(preview) == 1
    assert preview[0] == format_instant(int.from_bytes(right[1:9]))


def test_p18_a_fire_names_its_tables() -> None:
    """The version of the zone tables is stamped on every occurrence."""
    driver = since("09:00:00")
    driver.create(trigger=MINUTELY)
    driver.advance(60_000)
    assert driver.dispatched()[0]["tz_version"].startswith("20")


@pytest.mark.parametrize("overdue", [False, True])
def test_p19_a_zone_the_tables_lack_breaks_one_schedule(*, overdue: bool) -> None:
    """Broken with the reason and a history record; others go on; never UTC, never completed."""
    driver = since("09:00:00")
    driver.create(trigger=HOURLY)
    driver.create("acme/b", trigger=HOURLY)
    if overdue:
        driver.kill()
        driver.now = parse_instant(at("10:00:10"))
    driver.rewrite("acme/a", b'"zone":"UTC"', b'"zone":"US/Pacific-New"')
    driver.run_until(at("11:30:00"))
    schedule = driver.schedule()
    assert schedule is not None
    assert schedule["state"] == "broken"
    assert "US/Pacific-New" in schedule["broken_reason"]
    assert driver.times() == []
    assert driver.clocks("acme/b") == ["10:00:00", "11:00:00"]
    assert driver.topics.values("scheduler.schedule-history")[-1]["change"] == "broken"
    assert schedule["spec"]["trigger"]["zone"] == "US/Pacific-New"


# --- misfires -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "fired", "missed"),
    [
        ({"misfire": "skip"}, [], 12),
        ({"misfire": "fire_once"}, ["13:00:00"], 11),
        ({"misfire": {"catch_up": 3}, "max_lateness_ms": 3_600_000}, ["12:50:00", "12:55:00", "13:00:00"], 9),
        ({"misfire": {"catch_up": 3}, "max_lateness_ms": 600_000}, ["12:55:00", "13:00:00"], 10),
        ({"misfire": {"catch_up": 100}, "max_lateness_ms": 3_600_000}, TWELVE, 0),
        ({"misfire": "fire_once", "max_lateness_ms": 60_000}, [], 12),
        ({"misfire": "skip", "max_lateness_ms": 600_000}, ["12:55:00", "13:00:00"], 10),
    ],
)  # fmt: skip
@COLD
def test_p20_an_hour_away(policy: dict[str, Any], fired: list[str], missed: int, restore: dict[str, bool]) -> None:
    """`*/5`, down 12:01 to 13:02: the newest K oldest first, the rest one summary, and 13:05 as ever."""
    driver = since("12:00:30")
    driver.create(trigger=FIVE, **policy)
    driver.run_until(at("12:01:00"))
    driver.outage(at("13:02:00"), **restore)
    driver.advance(60_000)
    assert driver.clocks() == fired
    assert driver.counts() == ({"missed": missed} if missed else {})
    if policy["misfire"] == "fire_once" and fired:
        assert driver.dispatched()[0]["stands_for"] == 12
    driver.run_until(at("13:05:00"))
    assert driver.clocks() == [*fired, "13:05:00"]


@pytest.mark.parametrize(
    ("spec", "late_ms", "runs"),
    [
        ({"misfire": "skip"}, 1_800, True),
        ({"misfire": "skip"}, 60_000, True),
        ({"misfire": "skip"}, 60_001, False),
        ({"max_lateness_ms": 5_000}, 5_000, True),
        ({"max_lateness_ms": 5_000}, 5_001, False),
        ({"max_lateness_ms": 120_000}, 120_000, True),
        ({"max_lateness_ms": 120_000}, 120_001, False),
        ({"misfire": "skip", "max_lateness_ms": 90_000}, 90_000, True),
        ({"misfire": "skip", "max_lateness_ms": 90_000}, 90_001, False),
    ],
)
def test_p21_the_grace_and_the_limit_are_inclusive(spec: dict[str, Any], late_ms: int, *, runs: bool) -> None:
    """Exactly at the limit it runs, 1 ms more and it is missed; an ordinary delay is no misfire."""
    driver = since("12:04:00")
    driver.create(trigger=FIVE, **spec)
    driver.outage(parse_instant(at("12:05:00")) + late_ms)
    driver.advance(1_000)
    assert driver.clocks() == (["12:05:00"] if runs else [])
    assert driver.counts() == ({} if runs else {"missed": 1})


@pytest.mark.parametrize("minutes", [101, 7 * 24 * 60])
def test_p22_no_number_of_missed_ones_kills_a_schedule(minutes: int) -> None:
    """Down for 101 minutes, then for a week: it works again at once."""
    driver = since("09:00:30")
    driver.create(trigger=MINUTELY)
    driver.outage(driver.now + minutes * 60_000)
    driver.advance(120_000)
    assert len(driver.dispatched()) == 3
    assert driver.dispatched()[0]["stands_for"] == minutes


@pytest.mark.parametrize(
    ("misfire", "fired"),
    [
        ("fire_once", ["2026-01-01T00:00:00Z"]),
        ({"catch_up": 3}, ["2025-12-31T23:59:58Z", "2025-12-31T23:59:59Z", "2026-01-01T00:00:00Z"]),
    ],
)
def test_p23_a_year_of_seconds(misfire: Any, fired: list[str]) -> None:
    """31,536,000 missed are decided backwards from now: one summary, and nothing walks the year."""
    driver = Driver("2025-01-01T00:00:00Z")
    driver.create(trigger=SECONDLY, misfire=misfire)
    began = time.process_time()
    driver.outage("2026-01-01T00:00:00.400Z")
    assert time.process_time() - began < 1  # walking takes a minute
    assert driver.times() == fired
    assert driver.counts() == {"missed": 31_536_000 - len(fired)}
    assert len(driver.occurrences()) == 1


def test_p24_the_next_instant_is_never_in_the_past() -> None:
    """Uneven gaps: after Monday 13:11 the next is 14:30, 4,736 s away."""
    driver = Driver("2023-06-16T14:00:00Z")
    driver.create(trigger={"cron": "30 6-16/4 * * 1-5", "zone": "UTC"})
    driver.outage("2023-06-19T13:11:04Z")
    assert driver.times() == ["2023-06-19T10:30:00Z"]
    shown = driver.do("preview", preview=1)["preview"][0]["scheduled_for"]
    assert parse_instant(shown) - driver.now == 4_736_000


@pytest.mark.parametrize(
    ("fold", "fired", "next_"),
    [("first", ["05:30:00"], "2026-11-02T06:30:00Z"), ("both", ["05:30:00", "06:30:00"], "2026-11-02T06:30:00Z")],
)
def test_p26_the_second_pass_of_an_hour_is_no_punctual_start(fold: str, fired: list[str], next_: str) -> None:
    """Down over the first 01:30 of a repeated hour: a misfire at 06:29; the second is a nominal only if asked for."""
    driver = Driver("2026-11-01T05:29:00Z")
    driver.create(trigger={"cron": "30 1 * * *", "zone": "America/New_York", "fold": fold})
    driver.outage("2026-11-01T06:29:00Z")
    assert driver.dispatched()[0]["origin"] == "catch_up"
    driver.run_until("2026-11-01T07:00:00Z")
    assert driver.clocks() == fired
    assert driver.do("preview", preview=1)["preview"][0]["scheduled_for"] == next_


# --- delete, crash, failover ----------------------------------------------------------------------------------------


@COLD
def test_p36_a_delete_100_ms_before_the_instant(restore: dict[str, bool]) -> None:
    """Acknowledged at 09:59:59.900: no start at 10:00, whatever restarts."""
    driver = since("09:30:00")
    driver.create(trigger=HOURLY)
    driver.run_until("2026-01-01T09:59:59.900Z")
    assert driver.do("delete")["status"] == "accepted"
    driver.restart(**restore)
    driver.advance(7_200_000)
    assert driver.dispatched() == []


@COLD
@pytest.mark.parametrize("crash", ["before_commit", "after_commit"])
def test_p42_a_crash_on_either_side_of_the_commit(crash: str, restore: dict[str, bool]) -> None:
    """The fire and "fired up to here" are one transaction: seen exactly once."""
    driver = since("11:59:00")
    driver.create(trigger=HOURLY)
    driver.run_until("2026-01-01T11:59:59.999Z")
    driver.now += 1
    getattr(driver, f"crash_{crash}")()
    driver.now += 2_000
    driver.start(**restore)
    driver.advance(60_000)
    assert driver.clocks() == ["12:00:00"]
    assert driver.occurrences() == []


@COLD
@pytest.mark.parametrize(("max_lateness_ms", "first"), [(60_000, ["12:01:00"]), (30_000, [])])
def test_p45_a_successor_goes_on_from_the_stored_mark(
    max_lateness_ms: int, first: list[str], restore: dict[str, bool]
) -> None:
    """The leader dies at 12:00:20, its successor is ready 12:01:45: 12:01 is 45 s late, and its limit decides."""
    driver = since("11:59:30")
    driver.create(trigger=MINUTELY, max_lateness_ms=max_lateness_ms)
    driver.run_until(at("12:00:20"))
    driver.outage(at("12:01:45"), **restore)
    driver.run_until(at("12:02:00"))
    assert driver.clocks() == ["12:00:00", *first, "12:02:00"]
    assert driver.counts() == ({} if first else {"missed": 1})


def test_p48_a_look_that_comes_early_waits() -> None:
    """930 ms before the instant nothing starts; at the instant it starts once."""
    driver = Driver("2026-12-31T23:59:00Z")
    driver.create(trigger={"at": "2027-01-01T00:00:00Z"})
    driver.run_until("2026-12-31T23:59:59.070Z")
    assert driver.dispatched() == []
    driver.run_until("2027-01-01T00:00:01Z")
    assert [d["at"] for d in driver.dispatched()] == ["2027-01-01T00:00:00Z"]


def test_p49_a_clock_that_went_back_is_waited_for() -> None:
    """A look at an earlier instant than the last decides nothing, moves nothing, applies nothing."""
    driver = since("15:00:10")
    driver.create(trigger=MINUTELY)
    driver.advance(60_000)
    before = dict(driver.topics.records)
    driver.send({"command": "pause", "schedule_id": "acme/a"})
    driver.now -= 30_000
    assert driver.plan() is None
    assert driver.topics.records == before
    driver.now += 30_000
    driver.run_until(at("15:02:30"))
    assert driver.clocks() == ["15:01:00"]


def test_p49_a_successor_with_a_clock_behind_decides_nothing_twice() -> None:
    """It waits until the time its predecessor had reached; a create sent meanwhile loses no nominal."""
    driver = since("15:00:30")
    driver.create(trigger=MINUTELY)
    driver.run_until(at("15:01:20"))
    driver.kill()
    driver.now -= 30_000
    driver.start(run=False)
    driver.send({"command": "create", "schedule_id": "acme/b", "spec": {"trigger": {"at": at("15:01:10")}}})
    assert driver.plan() is None
    driver.now += 30_000
    driver.run_until(at("15:02:00"))
    assert driver.clocks() == ["15:01:00", "15:02:00"]
    assert driver.clocks("acme/b") == ["15:01:10"]


@pytest.mark.parametrize("year", ["1970", "2019", "2101"])
def test_p50_an_unbelievable_instant_moves_nothing(year: str) -> None:
    """Outside 2020 to 2100 nothing is emitted and no cursor stored; afterwards all is normal."""
    driver = since("12:00:30")
    driver.create(trigger=HOURLY)
    right, records = driver.now, sum(map(len, driver.topics.records.values()))
    driver.now = parse_instant(f"{year}-06-01T00:00:00Z")
    assert driver.plan() is None
    assert sum(map(len, driver.topics.records.values())) == records
    driver.now = right
    driver.run_until(at("13:00:00"))
    assert driver.clocks() == ["13:00:00"]


def test_p50_a_mark_in_the_future_stops_the_shard() -> None:
    """A cursor more than a minute ahead of now was written under a wrong clock: say so, and name the repair."""
    driver = since("12:00:30")
    driver.create(trigger=MINUTELY)
    driver.advance(120_000)
    driver.kill()
    driver.now -= 100_000
    with pytest.raises(StateCorrupted, match="repair-cursor"):
        driver.start()


def test_a_shard_with_schedules_and_no_record_of_what_has_run_stops() -> None:
    """Taken for a new shard it would pass over all that fell due since it last looked, without a word."""
    driver = since("12:00:30")
    driver.create(trigger=MINUTELY)
    driver.advance(120_000)
    driver.kill()
    lost = Batch()
    lost.delete(keys.RECORD)
    driver.store.write(lost)
    with pytest.raises(StateCorrupted, match=r"no record on scheduler\.shards of what of them has run"):
        driver.start()


def test_p51_a_jump_of_the_loop_is_an_outage() -> None:
    """The machine sleeps 20 minutes: the policy applies to what passed, and old ticks are not run as live ones."""
    driver = since("12:00:30")
    driver.create(trigger=MINUTELY)
    driver.run_until(at("12:01:00"))
    driver.now += 20 * 60_000
    driver.run_until(driver.now)
    assert driver.clocks() == ["12:01:00", "12:21:00"]
    assert driver.counts() == {"missed": 19}
    driver.advance(60_000)
    assert driver.clocks()[-1] == "12:22:00"


# --- windows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        {"trigger": {"at": at("12:00:00")}},
        {"trigger": {"cron": "0 12 1 1 *", "zone": "UTC"}},
        {"trigger": HOURLY, "end": at("12:30:00")},
    ],
)
def test_p53_the_last_nominal_keeps_to_its_window(spec: dict[str, Any]) -> None:
    """With exactly one nominal left the offset is still under the window."""
    driver = since("11:59:00")
    driver.create(window_ms=60_000, **spec)
    driver.run_until(at("12:05:00"))
    [sent] = driver.dispatched()
    assert 0 <= parse_instant(sent["available_at"]) - parse_instant(at("12:00:00")) < 60_000


@COLD
def test_p54_the_offset_is_the_same_on_every_node(restore: dict[str, bool]) -> None:
    """A restart inside the window: same instant, once; and schedules with the same cron spread out."""
    plain = since("11:59:00")
    restarted = since("11:59:00")
    for driver in (plain, restarted):
        for n in range(10):
            driver.create(f"acme/n{n}", trigger=HOURLY, window_ms=3_600_000, end=at("12:30:00"))
    plain.run_until(at("13:00:00"))
    restarted.run_until(at("12:20:00"))
    restarted.restart(**restore)
    restarted.run_until(at("13:00:00"))
    instants = {d["occurrence_id"]: d["at"] for d in plain.dispatched()}
    assert {d["occurrence_id"]: d["at"] for d in restarted.dispatched()} == instants
    assert len(restarted.dispatched()) == 10
    assert len(set(instants.values())) == 10


def test_p55_a_window_is_cut_to_the_next_nominal() -> None:
    """Every minute with a window of five: the order of nominals is kept and none is swallowed."""
    driver = since("12:00:00")
    driver.create(trigger=MINUTELY, window_ms=300_000)
    driver.run_until(at("12:20:00"))
    assert driver.times() == [at(f"12:{m:02}:00") for m in range(1, 20)]
    assert all(
        d["available_at"] < format_instant(parse_instant(d["scheduled_for"]) + 60_000) for d in driver.dispatched()
    )


# --- one-shots and rates --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("misfire", "fired", "gone"),
    [("skip", 0, {"missed": 1}), ("fire_once", 1, {}), ({"catch_up": 3}, 1, {})],
)
@COLD
def test_p59_a_one_shot_due_while_everything_was_down(
    misfire: Any, fired: int, gone: dict[str, int], restore: dict[str, bool]
) -> None:
    """The start succeeds; the policy decides; the schedule ends as completed."""
    driver = since("09:00:00")
    driver.create(trigger={"at": at("10:00:00")}, misfire=misfire)
    driver.outage(at("12:00:00"), **restore)
    driver.advance(60_000)
    assert (len(driver.dispatched()), driver.counts()) == (fired, gone)
    assert (driver.schedule() or {})["state"] == "completed"


def test_p60_a_finished_one_shot_starts_only_at_a_new_time() -> None:
    """Resumed or edited it does not start; a new time re-arms it under a new id."""
    driver = since("09:00:00")
    driver.create(trigger={"at": at("09:01:00")})
    driver.run_until(at("09:02:00"))
    assert driver.do("resume")["code"] == "not_allowed"
    assert driver.do("update", spec={"owner": "x"})["code"] == "never_fires"
    assert driver.do("update", spec={"trigger": {"at": at("09:05:00")}})["code"] == "updated"
    driver.run_until(at("09:06:00"))
    assert [d["occurrence_id"][-22:] for d in driver.dispatched()] == [
        "1:20260101T090100.000Z",
        "2:20260101T090500.000Z",
    ]


def test_p60_a_one_shot_that_passed_in_a_pause_does_not_start_on_resume() -> None:
    """Its nominal was suppressed; nothing is left, so it is completed."""
    driver = since("09:00:00")
    driver.create(trigger={"at": at("09:01:00")})
    driver.do("pause")
    driver.run_until(at("09:02:00"))
    assert driver.do("resume")["state"] == "completed"
    driver.advance(60_000)
    assert driver.dispatched() == []
    assert driver.counts() == {"suppressed": 1}


def test_p61_a_rate_does_not_drift() -> None:
    """Every ten seconds from the anchor, after a thousand periods still on the grid."""
    driver = Driver(at("00:00:00"), ShardSettings(horizon_ms=3_000_000))
    driver.create(trigger={"every_ms": 10_000, "anchor": at("00:00:00")})
    driver.advance(10_000_000)
    assert len(driver.times()) == 1_000
    assert driver.times()[-1] == format_instant(parse_instant(at("00:00:00")) + 10_000_000)


def test_p62_a_rate_of_a_day_is_24_hours() -> None:
    """Across a clock change it is elapsed time that counts."""
    driver = Driver("2026-03-28T11:00:00Z")
    driver.create(trigger={"every_ms": 86_400_000, "anchor": "2026-03-28T12:00:00Z"})
    shown = driver.do("preview", preview=3)["preview"]
    assert [p["scheduled_for"][11:] for p in shown] == ["12:00:00Z"] * 3


def test_p64_a_repeated_create_is_one_stream() -> None:
    """The answer was lost: the same command again, by id or by definition, gives one schedule and one start each."""
    driver = since("09:00:00")
    for command_id in ("once", "once", "other"):
        driver.do("create", command_id=command_id, spec={"trigger": MINUTELY})
    driver.advance(120_000)
    assert driver.clocks() == ["09:01:00", "09:02:00"]
