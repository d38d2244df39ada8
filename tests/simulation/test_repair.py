"""A shard that a wrong clock drove into the future, and its way back: nothing doubled, nothing lost without a record.

The clock goes wrong at 15:00:10 by two hours and is put right a hundred seconds later. What the shard had fired or
given up of those two hours stays decided, whatever the repair, its crashes and the restarts after it.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any
from unittest import mock

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from scheduler.core.time import format_instant, parse_instant
from scheduler.errors import StateCorrupted
from scheduler.shard import outage
from scheduler.shard.rebuild import ORDER, mark_applied
from scheduler.shard.repair import Order, Outcome, Repair
from scheduler.shard.shard import ShardSettings
from tests.support.driver import Driver, restore

DAY = "2026-03-12T"
RIGHT, WRONG, BACK = f"{DAY}15:00:10Z", f"{DAY}17:00:10Z", f"{DAY}15:01:50Z"
END = f"{DAY}17:20:00Z"
MINUTELY = {"cron": "* * * * *", "zone": "UTC"}
EVERY_10_MIN = {"cron": "*/10 * * * *", "zone": "UTC"}


def at(clock: str) -> str:
    return f"{DAY}{clock}Z"


def driver_at(instant: str) -> Driver:
    return Driver(instant, ShardSettings(catch_up_per_s=1.0))


def repair(driver: Driver, *, to: str | None = None, crash_after: int | None = None) -> Outcome:
    """What the command does, on the driver's topics, with an empty store of its own; or only its first steps."""
    store = driver._new_store()
    restore(driver.topics, store, driver.catalogue)
    order = Order(
        to=driver.now if to is None else parse_instant(to), now=driver.now, reason="the clock was wrong", actor="maria"
    )
    work = Repair(0, driver.catalogue, store, order)
    for number, step in enumerate(work.steps()):
        if crash_after is not None and number >= crash_after:
            break
        driver.publish(step)
        for base in ORDER:
            mark_applied(step.batch, base, driver.topics.end(driver.catalogue.namespace + base))
        store.write(step.batch)
    store.close()
    return work.outcome


def misled(*create: tuple[str, dict[str, Any]], until: str = WRONG, clock: str = BACK) -> Driver:
    """Schedules created while all is well, then two hours too far, then the clock is put right; the shard is down."""
    driver = driver_at(RIGHT)
    for name, spec in create:
        driver.create(name, **spec)
    driver.now = parse_instant(WRONG)
    driver.run_until(until)
    driver.kill()
    driver.now = parse_instant(clock)
    return driver


def twice(driver: Driver) -> list[str]:
    counts = Counter(d["occurrence_id"] for d in driver.dispatched())
    return [name for name, count in counts.items() if count > 1]


def test_a_clock_that_goes_back_too_far_stops_a_running_shard() -> None:
    """Up to a minute is waited for; beyond, the shard stops with what to look at, and is opened anew by its owner."""
    driver = driver_at(RIGHT)
    driver.create(trigger=MINUTELY)
    driver.run_until(at("15:02:00"))
    shard = driver.shard
    assert shard is not None
    driver.now -= 60_000
    assert shard.waits_ms(driver.now) == 60_000
    assert driver.plan() is None
    driver.now -= 1
    with pytest.raises(StateCorrupted, match=r"went back by 60 s.*Check the clocks"):
        driver.plan()


def test_a_shard_that_stopped_goes_on_where_it_had_committed() -> None:
    """Looks that found nothing are not stored: if the last commit is near enough, the way back is only a wait."""
    driver = driver_at(RIGHT)
    driver.create(trigger=EVERY_10_MIN)
    driver.run_until(at("15:08:00"))
    driver.now = parse_instant(at("15:01:00"))
    with pytest.raises(StateCorrupted):
        driver.plan()
    driver.restart()
    driver.run_until(at("15:20:00"))
    assert driver.clocks() == ["15:10:00", "15:20:00"]


def test_a_mark_in_the_future_stops_the_shard_and_names_the_command() -> None:
    """The text is what the operator needs: how far, why, and what to type."""
    driver = misled(("acme/a", {"trigger": MINUTELY}))
    with pytest.raises(StateCorrupted, match=r"`scheduler repair-cursor --shard 0 --reason TEXT`"):
        driver.start()


def test_a_repaired_shard_serves_and_doubles_nothing() -> None:
    """What was fired of the future is not fired again; a schedule created after the repair fires at once."""
    driver = misled(
        ("acme/a", {"trigger": MINUTELY}), ("acme/hourly", {"trigger": {"cron": "0 * * * *", "zone": "UTC"}})
    )
    outcome = repair(driver)
    assert outcome.needed
    assert outcome.schedules == 2
    assert outcome.silent == [("acme/a", parse_instant(at("17:00:10"))), ("acme/hourly", parse_instant(at("17:00:10")))]
    driver.start()
    driver.create("acme/new", trigger=MINUTELY)
    driver.run_until(at("17:03:00"))
    assert twice(driver) == []
    assert driver.clocks("acme/new")[:2] == ["15:02:00", "15:03:00"]
    assert len(driver.clocks("acme/new")) == 122
    assert driver.clocks("acme/a") == ["17:00:00", "17:01:00", "17:02:00", "17:03:00"], "the first by the wrong clock"
    assert driver.counts() == {"missed": 119 + 2}, "once: the newest hourly one still waited for the budget"


def test_what_fired_beyond_the_horizon_of_the_error_is_not_silenced() -> None:
    """A schedule with nothing decided between the right time and the wrong one needs no floor and gets no history."""
    driver = misled(("acme/night", {"trigger": {"cron": "30 17 * * *", "zone": "UTC"}}))
    outcome = repair(driver)
    assert (outcome.needed, outcome.schedules, outcome.missed) == (True, 0, 0)
    driver.start()
    driver.run_until(at("18:00:00"))
    assert driver.clocks("acme/night") == ["17:30:00"]


def test_the_repair_is_on_record() -> None:
    """Who, why, from where to where: on the shard topic, and in the history of each schedule it touched."""
    driver = misled(("acme/a", {"trigger": MINUTELY}))
    repair(driver)
    (key, value, _, step) = driver.topics.records["scheduler.shards"][-2]
    assert key == b"0/repair"
    assert value is not None
    record = json.loads(value)
    assert record == {
        "shard": 0,
        "step": step,
        "at": BACK,
        "was": {"available_at": WRONG},
        "now": {"available_at": BACK},
        "reason": "the clock was wrong",
        "actor": "maria",
        "schedules": 1,
    }
    history = driver.topics.values("scheduler.schedule-history")[-1]
    assert (history["change"], history["actor"], history["reason"]) == (
        "cursor_repaired", "maria", "the clock was wrong",
    )  # fmt: skip


def test_a_shard_that_needs_no_repair_is_left_alone() -> None:
    """Neither one that is right, nor one that has been repaired already."""
    driver = driver_at(RIGHT)
    driver.create(trigger=MINUTELY)
    steps = driver.steps
    assert not repair(driver).needed
    assert driver.steps == steps
    driver = misled(("acme/a", {"trigger": MINUTELY}))
    assert repair(driver).needed
    assert not repair(driver).needed


def test_a_backlog_that_was_never_decided_fires_in_its_time() -> None:
    """The wrong look opened an outage and crashed before deciding any of it: after the repair nothing of it is gone."""
    driver = driver_at(RIGHT)
    driver.create("acme/a", trigger=MINUTELY)
    driver.kill()
    driver.now = parse_instant(WRONG)
    driver.send({"command": "create", "schedule_id": "acme/b", "spec": {"trigger": MINUTELY}})
    driver.start(run=False, unread=1)  # one that has not read its commands decides nothing overdue yet
    driver.turn()
    driver.kill()
    driver.now = parse_instant(BACK)
    outcome = repair(driver)
    assert (outcome.needed, outcome.missed) == (True, 0)
    stands = driver.topics.values("scheduler.shards")[-1]
    assert stands["cursor"]["available_at"] == stands["seen_until"] == BACK
    assert {backlog["until"]["available_at"] for backlog in stands["backlogs"]} == {BACK}
    driver.start()
    driver.run_until(at("15:05:00"))
    assert driver.clocks("acme/a") == ["15:01:00", "15:02:00", "15:03:00", "15:04:00", "15:05:00"]


def test_an_absence_of_the_future_ends_where_the_repair_does() -> None:
    """Its owner came back on the wrong clock, had not fired all of it, and died: nothing of that is judged by it."""
    names = ("acme/a", "acme/b", "acme/c")
    driver = Driver(RIGHT, ShardSettings(catch_up_per_s=1.0, max_records=1))
    for name in names:
        driver.create(name, trigger=MINUTELY)
    driver.now = parse_instant(WRONG)
    driver.run_until(at("17:01:30"))
    driver.kill()
    driver.now = parse_instant(at("17:02:03"))
    driver.start(run=False)
    driver.housekeep()
    driver.turn()
    assert driver.shard is not None
    assert driver.shard.record.absence is not None
    driver.kill()
    driver.now = parse_instant(BACK)
    assert repair(driver).needed
    assert driver.topics.values("scheduler.shards")[-1]["absence"]["until"] == BACK
    driver.start()
    driver.run_until(at("17:05:00"))
    assert twice(driver) == []
    for name in names:
        assert driver.clocks(name)[-3:] == ["17:03:00", "17:04:00", "17:05:00"]


def test_what_was_to_be_caught_up_of_the_future_is_given_up() -> None:
    """Nothing starts before its time: owed runs that lie ahead of the right time are missed, with the reason."""
    spec = {"trigger": EVERY_10_MIN, "misfire": {"catch_up": 3}}
    driver = driver_at(RIGHT)
    for name in ("acme/a", "acme/b"):
        driver.create(name, **spec)
    driver.now = parse_instant(WRONG)
    driver.turn()
    driver.kill()
    driver.now = parse_instant(BACK)
    fired = {d["occurrence_id"] for d in driver.dispatched()}
    outcome = repair(driver)
    assert outcome.missed == 6 - len(fired)
    driver.start()
    driver.run_until(at("17:30:00"))
    assert twice(driver) == []
    assert {d["occurrence_id"] for d in driver.dispatched() if d["scheduled_for"] < WRONG} == fired
    assert sum(o["count"] for o in driver.occurrences("missed") if o["reason"] == "clock") == outcome.missed > 0


def test_back_to_an_earlier_instant() -> None:
    """`--to` before now: the time since then is an outage, in which only what was not decided is judged."""
    driver = misled(("acme/a", {"trigger": MINUTELY}))
    repair(driver, to=RIGHT)
    driver.start()
    driver.run_until(at("17:01:00"))
    assert twice(driver) == []
    assert driver.clocks("acme/a") == ["17:00:00", "17:01:00"]


def test_deleted_and_created_again_it_fires_before_its_floor() -> None:
    """The way out for a schedule that must not stay silent: its new version has ids of its own."""
    driver = misled(("acme/a", {"trigger": MINUTELY}))
    repair(driver)
    driver.start()
    assert driver.do("delete")["status"] == "accepted"
    driver.create(trigger=MINUTELY)
    driver.run_until(at("15:03:00"))
    assert driver.clocks("acme/a") == ["15:02:00", "15:03:00", "17:00:00"]
    assert twice(driver) == []


SPECS = st.fixed_dictionaries(
    {
        "trigger": st.sampled_from(
            [MINUTELY, EVERY_10_MIN, {"every_ms": 90_000, "anchor": at("15:00:00")}, {"at": at("15:30:00")}]
        ),
        "priority": st.sampled_from(["critical", "normal"]),
        "window_ms": st.sampled_from([0, 40_000]),
        "misfire": st.sampled_from(["fire_once", "skip", {"catch_up": 3}]),
    }
)


@settings(max_examples=40, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    st.lists(SPECS, min_size=1, max_size=4),
    st.integers(0, 12),
    st.sampled_from([0, 500, 20_000, 61_000]),
    st.one_of(st.none(), st.integers(0, 2)),
    st.sampled_from([None, RIGHT]),
    st.booleans(),
)
def test_law_every_nominal_once(
    specs: list[dict[str, Any]], turns: int, pause_ms: int, crash_after: int | None, to: str | None, wipe: bool
) -> None:
    """However far the wrong run got, wherever the repair crashed: each nominal has one outcome, and none is early."""
    driver = driver_at(RIGHT)
    names = [f"acme/s{number}" for number in range(len(specs))]
    for name, spec in zip(names, specs, strict=True):
        driver.create(name, **spec)
    driver.now = parse_instant(WRONG)
    with mock.patch.object(outage, "SLICE", 1):
        for _ in range(turns):
            driver.turn()
            driver.now += pause_ms
    driver.kill()
    driver.now = parse_instant(BACK)
    before = {d["occurrence_id"] for d in driver.dispatched()}
    if crash_after is not None:
        repair(driver, to=to, crash_after=crash_after)
    repair(driver, to=to)
    driver.start(wipe=wipe)
    assert driver.contents() == driver.cold_contents()
    driver.run_until(END)
    assert twice(driver) == []
    for dispatch in driver.dispatched():
        if dispatch["occurrence_id"] not in before:
            assert dispatch["at"] >= dispatch["available_at"]
    for name, spec in zip(names, specs, strict=True):
        assert_accounted(driver, name, nominals(spec["trigger"]))


def nominals(trigger: dict[str, Any]) -> list[int]:
    """Those in (RIGHT, END - 1 min], by an arithmetic of its own."""
    first, last = parse_instant(RIGHT), parse_instant(END) - 60_000
    if "at" in trigger:
        return [parse_instant(trigger["at"])]
    step = trigger.get("every_ms") or (60_000 if trigger is MINUTELY else 600_000)
    return [instant for instant in range(parse_instant(at("15:00:00")), last + 1, step) if instant > first]


def assert_accounted(driver: Driver, name: str, expected: list[int]) -> None:
    """Each nominal has exactly one outcome: a dispatch, or one record that covers it."""
    fired = [parse_instant(d["scheduled_for"]) for d in driver.dispatched(name)]
    gone = [o for o in driver.occurrences() if o["schedule_id"] == name]
    counted: Counter[int] = Counter(instant for instant in fired if instant in set(expected))
    for record in gone:
        first = parse_instant(record.get("first") or record["scheduled_for"])
        last = parse_instant(record.get("last") or record["scheduled_for"])
        covered = [instant for instant in expected if first <= instant <= last]
        assert len(covered) == record.get("count", 1) or last > expected[-1], record
        counted.update(covered)
    wrong = {format_instant(n): counted[n] for n in expected if counted[n] != 1}
    assert wrong == {}, (name, gone)
