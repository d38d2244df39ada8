"""Work that is late: how much there is, how long it takes, why it is missed, and that nobody on time waits for it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from scheduler.core.time import parse_instant
from scheduler.shard.shard import ShardSettings
from tests.support.driver import Driver

SECONDS = {"cron": "* * * * * *", "dialect": "seconds", "zone": "UTC"}
MINUTES = {"cron": "* * * * *", "zone": "UTC"}
BEHIND = 10_000
PUNCTUAL = 100


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours pass here: an idle shard looks just often enough."""
    monkeypatch.setattr("tests.support.driver.LONGEST_LOOK_MS", 14_000)


def restarted(driver: Driver, until: str) -> Driver:
    """Killed now, opened at `until`, nothing decided yet."""
    driver.kill()
    driver.now = parse_instant(until)
    driver.start(run=False)
    return driver


def seen(driver: Driver) -> Any:
    assert driver.shard is not None
    return driver.shard.overdue(driver.now)


def test_what_is_overdue_is_counted_and_how_long_it_takes() -> None:
    """First undecided schedules, then runs under budgets with the time they take, then nothing."""
    driver = Driver("2026-01-01T00:00:00Z", ShardSettings(catch_up_overrides={"acme": 2.0, "beta": 0.5}))
    for name in ("acme/a", "acme/b", "beta/a"):
        driver.create(name, trigger=MINUTES, misfire={"catch_up": 10})
    driver.run_until("2026-01-01T00:00:30Z")
    assert seen(driver) == (None, 0, 0, 0, 0)
    restarted(driver, "2026-01-01T00:20:30Z")
    behind = seen(driver)
    assert (behind.oldest, behind.undecided) == (parse_instant("2026-01-01T00:01:00Z"), 3)
    driver.run_until(driver.now)
    behind = seen(driver)
    assert (behind.undecided, behind.catch_up, behind.drain_ms) == (0, 27, 18_000)  # two and one went at once
    assert behind.oldest == parse_instant("2026-01-01T00:11:00Z")
    driver.advance(19_000)
    assert seen(driver) == (None, 0, 0, 0, 0)


def test_backfills_count_with_their_own_rate() -> None:
    """The slower of the tenant's budget and the backfill's rate tells how long it takes; its age alarms nobody."""
    driver = Driver("2026-01-01T00:00:00Z")
    driver.create(trigger=MINUTES)
    asked: dict[str, Any] = {"from": "2025-12-31T23:00:00Z", "until": "2026-01-01T00:00:00Z", "per_s": 2}
    driver.do("backfill", **asked)
    behind = seen(driver)
    assert (behind.oldest, behind.backfill, behind.drain_ms) == (None, 58, 29_000)


@pytest.mark.parametrize("window_ms", [0, 800])
def test_much_to_catch_up_is_a_small_record(window_ms: int) -> None:
    """Ten thousand runs are written down as a few numbers, with every step that dispatches some of them, too."""
    driver = Driver("2026-01-01T00:00:00Z")
    every_second = {"every_ms": 1_000, "anchor": "2026-01-01T00:00:00Z"}
    driver.create(trigger=every_second, misfire={"catch_up": 10_000}, window_ms=window_ms, end="2026-01-01T04:00:00Z")
    driver.run_until("2026-01-01T00:00:10Z")
    driver.outage("2026-01-01T04:00:30Z")
    driver.advance(120_000)
    starts = [parse_instant(d["scheduled_for"]) for d in driver.dispatched() if d["origin"] == "catch_up"]
    last = parse_instant("2026-01-01T03:59:59Z")
    assert starts == list(range(last - 9_999_000, last + 1, 1_000))
    live = [value for _, value, _, _ in driver.topics.records["scheduler.live"] if value is not None]
    assert len(live) > 90
    assert max(map(len, live)) < 400


def test_what_no_budget_gets_through_is_missed_at_last() -> None:
    """Outage after outage: ten thousand are kept, the newest; of older ones it is said that they are missed."""
    driver = Driver("2026-01-01T00:00:00Z", ShardSettings(catch_up_per_s=0.001))
    driver.create(trigger={"every_ms": 1_000}, misfire={"catch_up": 6_000}, max_lateness_ms=None)
    for clock in ("02", "04", "06"):
        driver.run_until(f"2026-01-01T{int(clock) - 2:02}:00:10Z")
        driver.outage(f"2026-01-01T{clock}:00:10Z")
        driver.advance(1_000)
    owed = seen(driver).catch_up
    given_up = [(o["reason"], o["count"]) for o in driver.occurrences("missed") if o["reason"] != "downtime"]
    caught_up = sum(1 for d in driver.dispatched() if d["origin"] == "catch_up")
    assert {reason for reason, _ in given_up} == {"throttled"}
    assert caught_up < 10
    assert owed + caught_up >= 10_000 >= owed
    assert owed + caught_up + sum(count for _, count in given_up) == 3 * 6_000


@pytest.mark.parametrize(("away", "reason"), [("clock", "clock"), ("downtime", "downtime")])
def test_a_long_look_away_says_why(away: str, reason: str) -> None:
    """A believed jump of the clock and a machine that slept are the same outage with another reason."""
    driver = Driver("2026-01-01T00:00:00Z")
    driver.create(trigger=MINUTES, misfire="skip")
    driver.run_until("2026-01-01T00:00:30Z")
    driver.now = parse_instant("2026-01-01T01:00:30Z")
    assert driver.shard is not None
    step = driver.shard.plan(driver.now, away=away)
    assert step is not None
    driver.publish(step)
    driver.shard.committed(step)
    driver.advance(1_000)
    assert {(o["reason"], o["count"]) for o in driver.occurrences("missed")} == {(reason, 59)}


def test_a_restart_is_downtime() -> None:
    """Nobody was there."""
    driver = Driver("2026-01-01T00:00:00Z")
    driver.create(trigger=MINUTES, misfire="skip")
    driver.run_until("2026-01-01T00:00:30Z")
    driver.outage("2026-01-01T01:00:30Z")
    assert [(o["reason"], o["count"]) for o in driver.occurrences("missed")] == [("downtime", 59)]


def test_late_while_the_shard_was_there_is_throttled() -> None:
    """Too much at once for what one step may hold: beyond max_lateness it is missed, and not for an outage."""
    driver = Driver("2026-01-01T00:00:00Z", ShardSettings(max_records=100))
    for number in range(150):
        driver.create(f"acme/n{number}", trigger={"at": "2026-01-01T00:00:30Z"}, max_lateness_ms=1_000)
    driver.run_until("2026-01-01T00:00:29Z")
    assert driver.shard is not None
    driver.now = parse_instant("2026-01-01T00:00:30Z")
    driver.turn()
    driver.now += 1_500
    driver.run_until(driver.now)
    assert len(driver.dispatched()) == 100
    assert {o["reason"] for o in driver.occurrences("missed")} == {"throttled"}
    assert driver.counts() == {"missed": 50}


def test_a_busy_machine_decides_less_at_once() -> None:
    """A step that took long is followed by smaller slices, a quick one by larger ones; what is decided is the same."""
    driver = Driver("2026-01-01T00:00:00Z")
    for number in range(1_000):
        driver.create(f"acme/n{number}", trigger=MINUTES, misfire="skip")
    driver.run_until("2026-01-01T00:00:30Z")
    restarted(driver, "2026-01-01T01:00:30Z")
    assert driver.shard is not None
    left = [1_000]
    for ms in (100.0, 100.0, 10.0, 20.0, 10.0):
        driver.turn()
        left.append(seen(driver).undecided)
        driver.shard.took(ms)
    assert [before - after for before, after in pairwise(left)] == [200, 100, 50, 100, 100]
    driver.run_until(driver.now)
    assert driver.counts() == {"missed": 59_000}


def test_nobody_on_time_waits_for_ten_thousand_with_a_backlog() -> None:
    """While 10,000 schedules are decided and caught up, each step dispatches what is due before any late work."""
    start = "2026-01-01T00:00:00Z"
    driver = Driver(start, ShardSettings(catch_up_per_s=5_000.0))
    for number in range(BEHIND):
        name = f"late/n{number}"
        spec = {"trigger": {"cron": f"{number % 60} * * * *", "zone": "UTC"}, "misfire": {"catch_up": 2}}
        driver.send({"command": "create", "schedule_id": name, "spec": spec})
    for number in range(PUNCTUAL):
        spec = {"trigger": SECONDS, "start": "2026-01-01T06:00:11Z", "end": "2026-01-01T06:00:21Z"}
        driver.send({"command": "create", "schedule_id": f"good/n{number}", "spec": spec})
    driver.run_until("2026-01-01T00:00:01Z")
    driver.topics.log.clear()
    restarted(driver, "2026-01-01T06:00:10Z")
    assert driver.shard is not None
    steps = 0
    while driver.shard.record.backlogs or steps % 10 or seen(driver).catch_up:
        driver.now += 100
        driver.housekeep()
        done = len(driver.topics.log)
        driver.turn()
        steps += 1
        mine = [i for i, (topic, key, *_) in enumerate(driver.topics.log[done:]) if topic.startswith("dispatch.")]
        owners = [driver.topics.log[done + i][1].split(b"/")[0] for i in mine]
        assert owners == sorted(owners), "late work was written before on-time work of the same step"
    driver.run_until("2026-01-01T06:00:22Z")
    good = [d for d in driver.dispatched() if d["tenant"] == "good"]
    assert len(good) == PUNCTUAL * 10
    lateness = [parse_instant(d["at"]) - parse_instant(d["scheduled_for"]) for d in good]
    assert max(lateness) <= 100
    late = [d for d in driver.dispatched() if d["tenant"] == "late"]
    assert len(late) == 2 * BEHIND
    assert steps > BEHIND // 200
