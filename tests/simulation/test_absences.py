"""A shard that was away for no longer than the least grace fires on from its cursor, with no backlog to be decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.core.time import parse_instant
from scheduler.shard.shard import ShardSettings
from tests.support.driver import Driver

if TYPE_CHECKING:
    from scheduler.core.record import ShardRecord

START = "2026-01-01T09:00:00Z"
SECONDS = {"every_ms": 1_000, "anchor": START}
HALF = "2026-01-01T09:00:30Z"
MANY = 1_500  # more than seven slices of a backlog


def record(driver: Driver) -> ShardRecord:
    assert driver.shard is not None
    return driver.shard.record


def away(driver: Driver, ms: int, **restart: Any) -> None:
    """Killed now, opened so much later, nothing decided yet but what can be read ahead."""
    driver.kill()
    driver.now += ms
    driver.start(run=False, **restart)
    driver.housekeep()


def beating(count: int, until: str, *, limit: int) -> Driver:
    """So many schedules that fire every second, up to an instant, under a limit of records in a step."""
    driver = Driver(START, ShardSettings(max_records=limit))
    for number in range(count):
        driver.create(f"acme/n{number:02}", trigger=SECONDS)
    driver.run_until(until)
    return driver


def test_what_fell_due_goes_out_in_bulk() -> None:
    """One step for all of it, and nothing of it is late by any policy."""
    driver = Driver(START)
    for number in range(MANY):
        driver.create(f"acme/n{number}", trigger={"at": HALF}, misfire="skip")
    driver.run_until("2026-01-01T09:00:29Z")
    away(driver, 4_000)
    assert record(driver).backlogs == ()
    driver.turn()
    assert len(driver.dispatched()) == MANY
    assert {d["origin"] for d in driver.dispatched()} == {"schedule"}
    driver.advance(60_000)
    assert len(driver.dispatched()) == MANY
    assert driver.counts() == {}


@pytest.mark.parametrize(("ms", "backlogs"), [(15_000, 0), (15_001, 4)])
def test_the_least_grace_is_the_limit(ms: int, backlogs: int) -> None:
    """By the oldest of what is due, however long nobody looked before that."""
    driver = Driver(START)
    driver.create(trigger={"at": HALF})
    driver.kill()  # half a minute of nothing due, which no step has noted
    driver.now = parse_instant(HALF)
    away(driver, ms)
    assert len(record(driver).backlogs) == backlogs
    driver.run_until(driver.now)
    assert len(driver.dispatched()) == 1


def test_commands_that_were_sent_meanwhile_go_first() -> None:
    """Nothing fires, not even what is on time, before the pause among them is applied."""
    driver = Driver(START)
    for name in ("acme/a", "acme/b"):
        driver.create(name, trigger=SECONDS)
    driver.run_until("2026-01-01T09:00:09.500Z")
    away(driver, 3_000, unread=1)
    assert driver.turn() is None
    driver.send({"command": "pause", "schedule_id": "acme/a"})
    driver.turn()
    assert driver.clocks("acme/a")[-1] == driver.clocks("acme/b")[-1] == "09:00:09"
    driver.run_until(driver.now)
    assert driver.clocks("acme/b")[-3:] == ["09:00:10", "09:00:11", "09:00:12"]
    driver.advance(5_000)
    assert driver.clocks("acme/a")[-1] == "09:00:09"
    assert driver.counts() == {"suppressed": 3}


def test_more_commands_than_a_step_takes_hold_only_what_is_overdue() -> None:
    """Waiting for them with everything would be a silence of seconds."""
    driver = Driver(START, ShardSettings(max_commands=20))
    driver.create(trigger=SECONDS)
    driver.run_until("2026-01-01T09:00:09.500Z")
    away(driver, 3_000, unread=20)
    assert record(driver).backlogs == ()
    away(driver, 3_000, unread=21)
    assert record(driver).backlogs != ()


def test_commands_that_take_too_long_hold_only_what_is_overdue() -> None:
    """After half a second it is an outage after all: what is on time fires, the rest waits on for the commands."""
    driver = Driver(START)
    driver.create("acme/a", trigger=SECONDS)
    driver.create("acme/b", trigger={"at": "2026-01-01T09:00:15Z"})
    driver.run_until("2026-01-01T09:00:09.500Z")
    away(driver, 3_000, unread=1)
    driver.advance(500)
    assert record(driver).backlogs == ()
    driver.advance(3_500)
    assert driver.clocks("acme/a")[-1] == "09:00:09"
    assert driver.clocks("acme/b") == ["09:00:15"]
    assert record(driver).backlogs != ()
    driver.send({"command": "create", "schedule_id": "acme/c", "spec": {"trigger": {"at": HALF}}})
    driver.run_until(driver.now)
    assert driver.clocks("acme/a")[-7:] == [f"09:00:{second}" for second in range(10, 17)]
    assert driver.counts() == {}


def test_less_than_the_least_grace_was_asked_for() -> None:
    """The policy covers all that such a schedule owes, and its neighbour fires as it would."""
    driver = Driver(START)
    driver.create("acme/a", trigger=SECONDS, max_lateness_ms=2_000)
    driver.create("acme/b", trigger=SECONDS)
    driver.run_until("2026-01-01T09:00:09.500Z")
    away(driver, 5_000)
    driver.run_until(driver.now)
    newest = driver.dispatched("acme/a")[-1]
    assert (newest["scheduled_for"], newest["origin"], newest["stands_for"]) == ("2026-01-01T09:00:14Z", "catch_up", 5)
    (missed,) = driver.occurrences("missed")
    assert (missed["reason"], missed["count"]) == ("downtime", 4)
    assert driver.clocks("acme/b")[-5:] == [f"09:00:{second}" for second in range(10, 15)]
    driver.advance(2_000)
    assert driver.clocks("acme/a")[-2:] == ["09:00:15", "09:00:16"]


def test_lateness_is_judged_when_somebody_looks_again() -> None:
    """Waiting for a turn afterwards does not age what the absence made late, also if the next owner dies, too."""
    driver = Driver(START, ShardSettings(max_records=20))
    for number in range(100):
        driver.create(f"acme/n{number:03}", trigger={"at": HALF}, max_lateness_ms=3_000)
    driver.run_until("2026-01-01T09:00:29Z")
    away(driver, 3_500)
    driver.turn()
    driver.now += 2_000
    driver.turn()
    assert len(driver.dispatched()) == 40
    away(driver, 4_000)
    assert record(driver).absence is not None
    driver.run_until(driver.now)
    assert (len(driver.dispatched()), driver.counts()) == (40, {"missed": 60})
    assert {o["reason"] for o in driver.occurrences("missed")} == {"downtime"}
    driver.turn()
    assert record(driver).absence is None


def accounted(driver: Driver) -> int:
    """Nominals that ran or have a record."""
    return len(driver.dispatched()) + sum(driver.counts().values())


def test_absences_in_a_row_do_not_add_up() -> None:
    """What the first one left undecided is too old for a second: then it is an outage, decided by policies."""
    driver = beating(10, HALF, limit=20)
    away(driver, 10_000)
    driver.turn()
    away(driver, 10_000)
    assert record(driver).backlogs != ()
    driver.run_until(driver.now)
    assert {d["origin"] for d in driver.dispatched()[-10:]} == {"catch_up"}
    assert accounted(driver) == 10 * 50


def test_what_lagged_before_an_absence_is_only_late() -> None:
    """Each nominal of a schedule by itself up to then, by the policy from then on, and none of them unaccounted for."""
    driver = Driver(START, ShardSettings(max_records=2))
    names = ("acme/a", "acme/b", "acme/c")
    for name in names:
        driver.create(name, trigger=SECONDS, max_lateness_ms=2_000)
    driver.run_until("2026-01-01T09:00:09.500Z")
    driver.now += 4_000
    driver.turn()
    assert record(driver).lags
    away(driver, 5_000)
    assert record(driver).backlogs == ()
    driver.run_until(driver.now)
    assert {o["reason"] for o in driver.occurrences("missed")} == {"throttled", "downtime"}
    assert {d["stands_for"] for d in driver.dispatched()[-3:]} == {5}
    assert accounted(driver) == 3 * 18


def test_an_absence_belongs_to_the_outage_that_follows() -> None:
    """Its owner dies before all is decided, and nobody comes for an hour: one set, of which the newest runs."""
    driver = beating(4, "2026-01-01T09:00:09.500Z", limit=2)
    away(driver, 5_000)
    driver.turn()
    ran = len(driver.dispatched())
    away(driver, 3_600_000)
    assert {backlog.seen_until for backlog in record(driver).backlogs} == {parse_instant("2026-01-01T09:00:10Z") - 1}
    driver.run_until(driver.now)
    assert len(driver.dispatched()) == ran + 4
    assert accounted(driver) == 4 * 3614


@pytest.mark.parametrize("owed", ["change", "timer", "calendar"])
def test_what_must_be_decided_first_makes_it_an_outage(owed: str) -> None:
    """However short: a change that was put off, a nominal in its window, a calendar that nobody had heard of."""
    driver = Driver(START)
    driver.calendar("days", 1, working_days=["mon", "tue", "wed", "thu", "fri"])
    driver.create("acme/a", trigger={"cron": "* * * * *", "zone": "UTC"}, calendar="days")
    driver.create("acme/b", trigger={"at": HALF}, window_ms=20_000)
    driver.run_until("2026-01-01T09:00:30Z")
    at = "2026-01-01T09:00:50Z"
    if owed == "change":
        driver.do("pause", "acme/a", effective_from=at)
    if owed == "timer":
        driver.do("update", "acme/b", spec={"trigger": {"at": "2026-01-02T09:00:00Z"}})
    driver.run_until("2026-01-01T09:00:49Z" if owed == "change" else driver.now)
    driver.kill()
    if owed == "calendar":
        driver.calendar("days", 2, working_days=["thu"])
    away(driver, 14_000 if owed == "change" else 14_900)
    assert record(driver).backlogs != ()
    driver.run_until("2026-01-01T09:02:30Z")
    assert len(driver.dispatched("acme/a")) == (0 if owed == "change" else 2)
    assert len(driver.dispatched("acme/b")) == 1


def test_a_loop_that_sleeps_wakes_when_it_has_waited_enough_for_commands() -> None:
    """And not all the time before."""
    driver = Driver(START)
    driver.create(trigger=SECONDS)
    driver.run_until("2026-01-01T09:00:09.500Z")
    away(driver, 3_000, unread=1)
    assert driver.shard is not None
    assert driver.shard.next_instant() == driver.now + 501
    driver.shard.commands_read()
    assert driver.shard.next_instant() == parse_instant("2026-01-01T09:00:10Z")


def test_an_outage_is_one_also_for_queues_that_lag() -> None:
    """Whose schedules stand in the index where they lag, whatever fell due since."""
    driver = Driver(START, ShardSettings(max_records=5))
    for number in range(10):
        driver.create(f"acme/a{number}", trigger={"at": "2026-01-01T09:00:10Z"})
    driver.create("acme/z", trigger={"every_ms": 10_000, "anchor": START})
    driver.run_until("2026-01-01T09:00:09Z")
    driver.now += 1_000
    driver.turn()
    assert len(driver.dispatched()) == 5
    away(driver, 3_600_000)
    assert record(driver).backlogs != ()
    driver.run_until(driver.now)
    assert driver.dispatched("acme/z")[-1]["stands_for"] == 360
    assert driver.counts() == {"missed": 359}


def test_an_absence_that_is_decided_judges_nothing_any_more() -> None:
    """Although queues lag ever since: what fell due later did so while somebody looked."""
    told = []
    for is_absent in (False, True):
        driver = beating(20, "2026-01-01T09:00:05.500Z", limit=5)
        if is_absent:
            away(driver, 5_000)
        else:
            driver.now += 5_000
        for _ in range(60):
            for _ in range(3):
                driver.turn()
                driver.housekeep()
            driver.now += 1_000
        assert record(driver).lags
        assert record(driver).absence is None
        away(driver, 20_000)
        driver.run_until(driver.now)
        told.append(driver.counts())
        assert accounted(driver) == 20 * 90
    assert told[0] == told[1]


def test_what_is_on_time_does_not_wait_too_long_for_commands() -> None:
    """Not so long that a schedule which asked for punctuality would be missed for it."""
    driver = Driver(START)
    driver.create(trigger={"at": "2026-01-01T09:00:12.600Z"}, max_lateness_ms=1_000)
    driver.run_until("2026-01-01T09:00:09.500Z")
    away(driver, 3_000, unread=1)
    driver.send({"command": "create", "schedule_id": "acme/b", "spec": {"trigger": {"at": HALF}}})
    driver.now += 950
    driver.run_until(driver.now)
    assert driver.times() == ["2026-01-01T09:00:12.600Z"]


SPECS = st.fixed_dictionaries(
    {"trigger": st.sampled_from([SECONDS, {"every_ms": 4_000, "anchor": START}, {"at": HALF}])},
    optional={
        "window_ms": st.sampled_from([1_000, 5_000]),
        "misfire": st.sampled_from(["fire_once", "skip", {"catch_up": 3}]),
        "max_lateness_ms": st.sampled_from([1_000, 2_000, 7_000, 20_000]),
        "priority": st.sampled_from(["critical", "normal"]),
    },
)
COMMANDS = st.one_of(
    st.sampled_from([{"command": verb} for verb in ("pause", "cancel", "delete")]),
    st.fixed_dictionaries({"command": st.just("update"), "spec": SPECS}),
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    specs=st.lists(SPECS, min_size=1, max_size=4),
    before=st.integers(24_000, 32_000),
    ms=st.integers(1, 14_000),
    commands=st.lists(st.tuples(st.integers(0, 3), COMMANDS), max_size=3),
)
def test_it_comes_to_the_same_as_a_backlog(
    specs: list[Any], before: int, ms: int, commands: list[tuple[int, dict[str, Any]]]
) -> None:
    """Whatever schedules ask for: what runs, on whose behalf, and what does not, as if an outage had been decided."""
    told = []
    for is_outage in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if is_outage:
                patch.setattr("scheduler.shard.shard.oldest_unseen", lambda *_: 0)
            driver = Driver(START, ShardSettings(catch_up_per_s=1e6))
            for number, spec in enumerate(specs):
                driver.create(f"acme/a{number}", **spec)
            driver.advance(before)
            driver.kill()
            for number, command in commands:
                driver.send({**command, "schedule_id": f"acme/a{number}"})
            driver.now += ms
            driver.start(run=False)
            driver.housekeep()
            driver.run_until(driver.now)
            driver.advance(3_000)
        ran = sorted((d["occurrence_id"], d["origin"], d["stands_for"]) for d in driver.dispatched())
        gone = sorted((o["schedule_id"], o["state"], o["reason"], o.get("count", 1)) for o in driver.occurrences())
        told.append((ran, gone))
    assert told[0] == told[1]
