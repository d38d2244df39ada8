"""Orders of events that broke earlier drafts: each row of the design's table, and more, as a named test.

Every one is followed by a cold restore from the topics, whole and compacted, which must give the live store.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.core.time import format_instant
from scheduler.shard.firing import MAX_DISPATCH_PARTITIONS
from scheduler.shard.horizon import Horizon
from scheduler.shard.shard import ShardSettings
from tests.support.driver import START, Driver
from topics.catalog import Catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

MINUTELY = {"cron": "* * * * *", "zone": "UTC"}
HOURLY = {"cron": "0 * * * *", "zone": "UTC"}
EVERY_SECOND = {"cron": "* * * * * *", "zone": "UTC", "dialect": "seconds"}
TEN = "2026-01-01T10:00:00Z"

RESTORES = pytest.mark.parametrize(
    "restore", [{}, {"wipe": True}, {"wipe": True, "compacted": True}], ids=["warm", "cold", "compacted"]
)


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    """Drivers put in here are compared with their cold restores at the end."""
    made: list[Driver] = []
    yield made
    for driver in made:
        live = driver.contents()
        assert driver.cold_contents() == live
        assert driver.cold_contents(compacted=True) == live


def new(drivers: list[Driver], **settings: Any) -> Driver:
    catalogue = settings.pop("catalogue", None)
    drivers.append(Driver(settings=ShardSettings(**settings), catalogue=catalogue))
    return drivers[-1]


def many(driver: Driver, count: int, at: str = TEN, **spec: Any) -> None:
    for n in range(count):
        driver.send({"command": "create", "schedule_id": f"acme/n{n}", "spec": {"trigger": {"at": at}, **spec}})
    driver.run_until(driver.now)


def each_once(driver: Driver, count: int) -> None:
    found = Counter(d["occurrence_id"] for d in driver.dispatched())
    assert len(found) == count
    assert set(found.values()) == {1}


# --- the burst ------------------------------------------------------------------------------------------------------


@RESTORES
@pytest.mark.parametrize(("count", "limit"), [(1_000, 640), (300, 7)])
def test_a_burst_cut_by_the_record_limit_and_a_crash(
    drivers: list[Driver], restore: dict[str, bool], count: int, limit: int
) -> None:
    """Equal instants, the transaction stops at its limit, crash: neither skipped nor repeated."""
    driver = new(drivers, max_records=limit)
    many(driver, count)
    driver.run_until("2026-01-01T09:59:59.999Z")
    driver.now += 1
    driver.turn()
    assert len(driver.dispatched()) == limit
    driver.crash_after_commit()
    driver.start(**restore)
    driver.advance(1_000)
    each_once(driver, count)
    assert driver.occurrences() == []


def test_a_burst_of_31250_equal_instants(drivers: list[Driver]) -> None:
    """The row itself: 20,000 in the first transaction, a crash, and the rest in the next owner's."""
    driver = new(drivers)
    drivers.clear()  # 31,250 schedules are compared by the smaller tests
    driver.create(trigger={"at": TEN})
    [(_, stored, at, step_number)] = driver.topics.records["scheduler.schedules"]
    assert stored is not None
    for n in range(31_249):
        name = b"acme/n%d" % n
        driver.topics.append("scheduler.schedules", name, stored.replace(b"acme/a", name), at, step_number)
    driver.now += 3_599_000
    driver.restart(wipe=True)
    driver.now += 1_000
    step = driver.crash_after_commit()
    assert step is not None
    assert len(step.items) == 20_000
    driver.start()
    each_once(driver, 31_250)


def test_more_lanes_than_a_transaction_touches(drivers: list[Driver]) -> None:
    """A long burst over many lanes is cut before it touches too many partitions; nothing is skipped or repeated."""
    lanes = ("default", *(f"l{n}" for n in range(19)))
    driver = new(drivers, catalogue=Catalogue(shards=1, lanes=lanes))
    count = 2_000
    for n in range(count):
        spec = {"trigger": {"at": TEN}, "lane": lanes[min(19, n // 60)]}
        driver.send({"command": "create", "schedule_id": f"acme/n{n:05}", "spec": spec})
    driver.run_until("2026-01-01T09:59:59.999Z")
    driver.now += 1
    step = driver.turn()
    assert step is not None
    touched = {item.entry.target.topic for item in step.items}
    assert len(touched) <= MAX_DISPATCH_PARTITIONS
    assert len(step.items) < count
    driver.advance(1_000)
    each_once(driver, count)


# --- around the advance ---------------------------------------------------------------------------------------------


@RESTORES
def test_an_update_between_fire_and_advance_leaves_no_ghost(drivers: list[Driver], restore: dict[str, bool]) -> None:
    """The fire commits, the update arrives before the place is advanced: no entry of the old rule stays."""
    driver = new(drivers)
    driver.create(trigger=MINUTELY)
    driver.run_until("2026-01-01T09:00:59.999Z")
    driver.now += 1
    driver.turn()  # fires 09:01, no housekeeping
    driver.send(
        {"command": "update", "schedule_id": "acme/a", "spec": {"trigger": {"cron": "*/30 * * * *", "zone": "UTC"}}}
    )
    driver.turn()
    driver.restart(**restore)
    driver.run_until("2026-01-01T10:00:00Z")
    assert driver.clocks() == ["09:01:00", "09:30:00", "10:00:00"]
    assert sum(key.startswith(b"d") for key in driver.contents()) == 1


def test_an_update_after_the_advance_leaves_no_ghost(drivers: list[Driver]) -> None:
    """The fired place is advanced, the horizon does not reach the next nominal yet: the old rule is forgotten."""
    driver = new(drivers)
    driver.create(trigger=MINUTELY)
    driver.run_until("2026-01-01T09:01:05Z")
    driver.do("update", spec={"trigger": {"cron": "*/30 * * * *", "zone": "UTC"}})
    driver.run_until("2026-01-01T09:30:00Z")
    assert driver.clocks() == ["09:01:00", "09:30:00"]


@pytest.mark.parametrize("verb", ["pause", "cancel", "delete"])
@pytest.mark.parametrize("ahead_ms", [100, 20_000, 45_000])
def test_an_end_before_the_instant_is_an_end(drivers: list[Driver], verb: str, ahead_ms: int) -> None:
    """P36: acknowledged before the instant, in the horizon or not, long after an earlier fire was advanced."""
    driver = new(drivers, horizon_bytes=2_000)
    driver.create(trigger=MINUTELY)
    driver.run_until(START + 5 * 60_000)
    driver.advance(60_000 - ahead_ms)
    fired = driver.times()
    assert driver.do(verb)["status"] == "accepted"
    driver.advance(600_000)
    driver.restart(wipe=True)
    driver.advance(600_000)
    assert driver.times() == fired


def test_a_one_shot_that_fired_before_a_crash_is_completed_by_the_next_owner(drivers: list[Driver]) -> None:
    """Fired and committed, then everything local is lost: the schedule does not stay active for ever."""
    driver = new(drivers)
    driver.create(trigger={"at": "2026-01-01T09:10:00Z"})
    driver.run_until("2026-01-01T09:09:59.999Z")
    driver.now += 1
    driver.crash_after_commit()
    driver.start(wipe=True)
    driver.advance(1_000)
    assert (driver.schedule() or {})["state"] == "completed"
    assert len(driver.dispatched()) == 1


# --- outages --------------------------------------------------------------------------------------------------------


@RESTORES
@pytest.mark.parametrize("crash", ["before_commit", "after_commit"])
def test_fire_once_decided_and_a_crash(drivers: list[Driver], restore: dict[str, bool], crash: str) -> None:
    """The outage is decided, then a crash before the store batch or before the commit: chosen once, counted once."""
    driver = new(drivers)
    driver.create(trigger={"cron": "*/5 * * * *", "zone": "UTC"})
    driver.kill()
    driver.now = START + 58 * 60_000
    driver.start(run=False)
    assert driver.shard is not None
    driver.shard.commands_read()
    getattr(driver, f"crash_{crash}")()
    driver.now += 1_000
    driver.start(**restore)
    driver.advance(30_000)
    assert driver.clocks() == ["09:55:00"]
    assert driver.counts() == {"missed": 10}


@RESTORES
@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_catch_up_three_and_a_crash_after_some(drivers: list[Driver], restore: dict[str, bool], done: int) -> None:
    """Three are to be caught up one a second; a crash after any number of them: exactly three."""
    driver = new(drivers, catch_up_per_s=1.0)
    driver.create(trigger={"cron": "*/5 * * * *", "zone": "UTC"}, misfire={"catch_up": 3})
    driver.outage("2026-01-01T10:02:00Z")
    driver.advance(1_000 * max(0, done - 1))
    driver.crash_after_commit()
    driver.now += 100
    driver.start(**restore)
    driver.advance(10_000)
    assert driver.clocks() == ["09:50:00", "09:55:00", "10:00:00"]
    assert driver.counts() == {"missed": 9}


@RESTORES
def test_a_one_shot_accepted_300_ms_late(drivers: list[Driver], restore: dict[str, bool]) -> None:
    """Accepted after its instant, then a restore: it fires once."""
    driver = new(drivers)
    spec = {"trigger": {"at": format_instant(driver.now + 100)}}
    driver.send({"command": "create", "schedule_id": "acme/a", "spec": spec})
    driver.now += 400
    driver.crash_after_commit()
    driver.start(**restore)
    driver.advance(120_000)
    assert len(driver.dispatched()) == 1


@RESTORES
@pytest.mark.parametrize("field", [{"priority": "critical"}, {"priority": "background"}, {"lane": "other"}])
@pytest.mark.parametrize("offset_ms", [-1, 0, 1])
def test_priority_or_lane_changed_around_the_instant(
    drivers: list[Driver], restore: dict[str, bool], field: dict[str, str], offset_ms: int
) -> None:
    """Another key for the same nominal, just before, at or after it: one occurrence."""
    driver = new(drivers, catalogue=Catalogue(shards=1, lanes=("default", "other")))
    driver.create(trigger=MINUTELY)
    driver.run_until(START + 60_000 + offset_ms)
    driver.do("update", spec=field)
    driver.restart(**restore)
    driver.run_until(START + 90_000)
    assert driver.clocks() == ["09:01:00"]
    assert driver.occurrences() == []


@RESTORES
def test_paused_for_two_weeks_and_resumed(drivers: list[Driver], restore: dict[str, bool]) -> None:
    """Nothing of the pause fires, also when the store is made anew; the pause is one summary."""
    driver = new(drivers)
    driver.create(trigger=HOURLY)
    driver.do("pause")
    driver.outage(START + 14 * 86_400_000)
    driver.do("resume")
    driver.restart(**restore)
    driver.advance(3_600_000)
    assert driver.times() == ["2026-01-15T10:00:00Z"]
    assert driver.counts() == {"suppressed": 14 * 24}


@RESTORES
def test_a_shard_ten_minutes_behind_misses_nothing(drivers: list[Driver], restore: dict[str, bool]) -> None:
    """Alive but far behind, with `skip` and every minute, and a restart in the middle: only late, never a misfire."""
    driver = new(drivers, max_records=1)
    for n in range(3):
        driver.create(f"acme/a{n}", trigger=MINUTELY, misfire="skip")
    for _ in range(40):  # looks every 15 s and fires one a look, of three a minute
        driver.now += 15_000
        driver.turn()
        assert driver.shard is not None
        driver.housekeep()
    assert len(driver.dispatched()) < 30
    driver.crash_after_commit()
    driver.start(**restore)
    driver.advance(1_000)
    each_once(driver, 30)
    assert driver.occurrences() == []


@pytest.mark.parametrize(
    ("verb", "fields", "fired", "gone"),
    [
        ("update", {"spec": {"payload": 1}}, 1, {}),
        ("update", {"spec": {"payload": 1}, "supersede": True}, 0, {"cancelled": 1}),
        ("update", {"spec": {"owner": "x"}}, 1, {}),
        ("update", {"spec": {"priority": "high"}}, 1, {}),
        ("pause", {}, 0, {"suppressed": 1}),
        ("cancel", {}, 0, {"cancelled": 1}),
        ("delete", {}, 0, {"cancelled": 1}),
    ],
)
@RESTORES
@pytest.mark.parametrize("restart_first", [False, True])
def test_a_change_while_waiting_in_the_window(
    drivers: list[Driver], verb: str, fields: dict[str, Any], fired: int, gone: dict[str, int],
    restore: dict[str, bool], *, restart_first: bool,
) -> None:  # fmt: skip
    """Reached and not yet available: each change leaves the nominal one record, whatever restarts around it."""
    driver = new(drivers)
    driver.create(trigger={"cron": "0 10 * * *", "zone": "UTC"}, window_ms=3_000_000)
    driver.run_until("2026-01-01T10:00:05Z")
    assert driver.dispatched() == []
    if restart_first:
        driver.restart(**restore)
    driver.do(verb, **fields)
    driver.restart(**restore)
    driver.run_until("2026-01-01T11:00:00Z")
    assert (len(driver.dispatched()), driver.counts()) == (fired, gone)
    for sent in driver.dispatched():
        assert sent["version"] == 1
        assert sent["at"] == sent["available_at"]


@pytest.mark.parametrize(
    ("verb", "fields", "fired", "gone"),
    [
        ("update", {"spec": {"owner": "x"}}, 3, {"missed": 9}),
        ("update", {"spec": {"payload": 1}}, 3, {"missed": 9}),
        ("update", {"spec": {"priority": "high"}}, 3, {"missed": 9}),
        ("update", {"spec": {"payload": 1}, "supersede": True}, 0, {"cancelled": 12}),
        ("pause", {}, 0, {"suppressed": 12}),
        ("cancel", {}, 0, {"cancelled": 12}),
        ("delete", {}, 0, {"cancelled": 12}),
    ],
)
@RESTORES
def test_a_change_sent_during_an_outage(
    drivers: list[Driver], verb: str, fields: dict[str, Any], fired: int, gone: dict[str, int],
    restore: dict[str, bool],
) -> None:  # fmt: skip
    """Commands of the outage come before anything overdue is decided: "pause all" wins over the catch-up."""
    driver = new(drivers)
    driver.create(trigger={"cron": "*/5 * * * *", "zone": "UTC"}, misfire={"catch_up": 3})
    driver.kill()
    driver.now = START + 62 * 60_000
    driver.send({"command": verb, "schedule_id": "acme/a", **fields})
    driver.start(**restore)
    driver.advance(60_000)
    assert (len(driver.dispatched()), driver.counts()) == (fired, gone)


@pytest.mark.parametrize(
    ("verb", "fields", "fired", "gone"),
    [
        ("update", {"spec": {"owner": "x"}}, 10, {"missed": 2}),
        ("update", {"spec": {"payload": 1}}, 10, {"missed": 2}),
        ("update", {"spec": {"payload": 1}, "supersede": True}, 3, {"missed": 2, "cancelled": 7}),
        ("pause", {}, 3, {"missed": 2, "suppressed": 7}),
        ("cancel", {}, 3, {"missed": 2, "cancelled": 7}),
        ("delete", {}, 3, {"missed": 2, "cancelled": 7}),
    ],
)
@RESTORES
def test_a_change_while_catching_up(
    drivers: list[Driver], verb: str, fields: dict[str, Any], fired: int, gone: dict[str, int],
    restore: dict[str, bool],
) -> None:  # fmt: skip
    """Three of ten are caught up when the change comes: kept ones run as the old version, others have a record."""
    driver = new(drivers, catch_up_per_s=1.0)
    driver.create(trigger={"cron": "*/5 * * * *", "zone": "UTC"}, misfire={"catch_up": 10})
    driver.outage("2026-01-01T10:02:00Z")
    driver.advance(2_000)
    assert len(driver.dispatched()) == 3
    driver.do(verb, **fields)
    driver.restart(**restore)
    driver.advance(60_000)
    assert (len(driver.dispatched()), driver.counts()) == (fired, gone)
    assert {d["version"] for d in driver.dispatched()} == {1}


@RESTORES
def test_a_new_priority_between_two_outages_with_catch_up(drivers: list[Driver], restore: dict[str, bool]) -> None:
    """What is still to be caught up moves with the priority when more joins it; it is listed once."""
    driver = new(drivers, catch_up_per_s=0.01)
    driver.create(trigger={"cron": "*/5 * * * *", "zone": "UTC"}, misfire={"catch_up": 3}, max_lateness_ms=None)
    driver.outage("2026-01-01T10:02:00Z")
    assert driver.do("update", spec={"priority": "critical"})["code"] == "updated"
    driver.outage("2026-01-01T11:02:00Z", **restore)
    assert driver.counts() == {"missed": 18}
    driver.outage("2026-01-01T11:03:00Z", **restore)
    driver.do("cancel")
    assert len(driver.dispatched()) + driver.counts()["cancelled"] == 6


def test_a_repeated_pause_and_resume_in_one_step_revives_nothing(drivers: list[Driver]) -> None:
    """What a pause dropped stays dropped, though the next command of the same step looks at it again."""
    driver = new(drivers, catch_up_per_s=1.0)
    driver.create(trigger={"cron": "*/5 * * * *", "zone": "UTC"}, misfire={"catch_up": 10})
    driver.outage("2026-01-01T10:02:00Z")
    driver.send({"command": "pause", "schedule_id": "acme/a"})
    driver.send({"command": "resume", "schedule_id": "acme/a", "catch_up": True})
    driver.run_until("2026-01-01T10:04:00Z")
    assert len(driver.dispatched()) == 1
    assert driver.counts() == {"missed": 2, "suppressed": 9}


@RESTORES
@pytest.mark.parametrize("crash", ["before_commit", "after_commit"])
def test_two_outages_in_a_row(drivers: list[Driver], restore: dict[str, bool], crash: str) -> None:
    """The second begins before the first one's backlog is decided: one set, decided once, nothing lost between."""
    driver = new(drivers)
    for n in range(5):
        driver.create(f"acme/a{n}", trigger=MINUTELY, priority=["critical", "normal", "high"][n % 3])
    driver.kill()
    driver.now = START + 10 * 60_000
    driver.start(run=False, unread=1)  # opened, nothing decided
    getattr(driver, f"crash_{crash}")()
    driver.now = START + 20 * 60_000
    driver.start(**restore)
    driver.run_until(START + 22 * 60_000)
    assert driver.counts() == {"missed": 5 * 19}
    for n in range(5):
        assert driver.clocks(f"acme/a{n}") == ["09:20:00", "09:21:00", "09:22:00"]


def test_an_aborted_step_after_a_pause_was_read(drivers: list[Driver]) -> None:
    """The step that read the pause is aborted and redone: readers see the pause and no start after it."""
    driver = new(drivers)
    driver.create(trigger=MINUTELY)
    driver.run_until("2026-01-01T09:00:59.990Z")
    driver.send({"command": "pause", "schedule_id": "acme/a"})
    driver.crash_before_commit()
    driver.now += 30
    driver.start()
    driver.advance(60_000)
    assert driver.dispatched() == []
    assert [r["code"] for r in driver.topics.values("scheduler.replies")] == ["created", "paused"]
    assert driver.counts() == {"suppressed": 1}


def test_a_step_that_was_aborted_is_decided_the_same_again(drivers: list[Driver]) -> None:
    """Same state, same input, same now: the same records."""
    driver = new(drivers)
    driver.create(trigger=MINUTELY, window_ms=30_000)
    driver.run_until("2026-01-01T09:05:10Z")
    driver.send({"command": "update", "schedule_id": "acme/a", "spec": {"payload": 1}})
    first = driver.crash_before_commit()
    driver.start(run=False)
    second = driver.plan()
    assert first is not None
    assert second is not None
    assert len(first.records) == len(second.records) >= 4
    for one, other in zip(first.records, second.records, strict=True):
        if one.topic != "scheduler.shards":  # the second owner was away in between, and says so
            assert one == other


def test_deleted_and_recreated_for_the_same_nominal(drivers: list[Driver]) -> None:
    """Delete and create before and after one nominal: different ids."""
    driver = new(drivers)
    driver.create(trigger={"at": TEN}, window_ms=3_600_000)
    driver.do("delete")
    driver.create(trigger={"at": TEN})
    driver.restart(wipe=True)
    driver.run_until("2026-01-01T11:30:00Z")
    assert [d["occurrence_id"] for d in driver.dispatched()] == ["acme/a:2:20260101T100000.000Z"]


@RESTORES
def test_a_floor_is_kept_until_the_window_is_over(drivers: list[Driver], restore: dict[str, bool]) -> None:
    """An outage ended inside the window; the floor that guards the waiting nominal outlives its instant."""
    driver = new(drivers)
    driver.create(trigger=HOURLY, window_ms=3_600_000)
    driver.outage("2026-01-01T11:00:01Z")  # 10:00 is missed in it, 11:00 waits
    assert driver.clocks() == ["10:00:00"]
    driver.run_until("2026-01-01T11:00:03Z")
    driver.restart(**restore)
    driver.do("update", spec={"owner": "x"})
    driver.restart(**restore)
    driver.run_until("2026-01-01T12:00:00Z")
    assert driver.clocks()[:2] == ["10:00:00", "11:00:00"]
    each_once(driver, len(driver.dispatched()))


@RESTORES
def test_a_crash_between_the_slices_of_a_backlog(
    drivers: list[Driver], restore: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One schedule is decided in each step and every owner dies after it: each is decided once, all of it."""
    monkeypatch.setattr("scheduler.shard.outage.SLICE", 1)
    driver = new(drivers)
    for n in range(4):
        driver.create(f"acme/n{n}", trigger={"cron": "*/5 * * * *", "zone": "UTC"}, misfire={"catch_up": 2})
    driver.kill()
    driver.now = START + 62 * 60_000
    for _ in range(6):
        driver.start(run=False, **restore)
        assert driver.shard is not None
        driver.shard.commands_read()
        driver.crash_after_commit()
    driver.start(**restore)
    driver.advance(60_000)
    each_once(driver, 8)
    assert driver.counts() == {"missed": 40}


@RESTORES
def test_a_nominal_waiting_in_its_window_is_judged_after_an_outage(
    drivers: list[Driver], restore: dict[str, bool]
) -> None:
    """It fell due while nobody was there: max_lateness bounds it as any other."""
    driver = new(drivers)
    driver.create(trigger={"cron": "0 10 * * *", "zone": "UTC"}, window_ms=3_000_000, max_lateness_ms=60_000)
    driver.run_until("2026-01-01T10:00:05Z")
    driver.do("update", spec={"payload": 1})
    driver.outage("2026-01-01T12:00:00Z", **restore)
    driver.advance(60_000)
    assert driver.dispatched() == []
    assert driver.counts() == {"missed": 1}
    assert driver.occurrences()[0]["version"] == 1


@RESTORES
def test_a_nominal_waiting_in_its_window_is_caught_up_before_later_ones(
    drivers: list[Driver], restore: dict[str, bool]
) -> None:
    """11:00 waits when the node stops; an update of the outage settles 12:00 and 13:00 first: 11:00 keeps its turn."""
    driver = new(drivers)
    driver.create(trigger=HOURLY, window_ms=3_600_000, misfire={"catch_up": 5})
    driver.outage("2026-01-01T11:00:01Z")  # 10:00 is missed in it, 11:00 waits
    driver.kill()
    driver.send({"command": "update", "schedule_id": "acme/a", "spec": {"payload": 1}})
    driver.now = START + 5 * 3_600_000
    driver.start(**restore)
    driver.advance(1_000)
    assert driver.clocks()[:4] == ["10:00:00", "11:00:00", "12:00:00", "13:00:00"]


# --- the horizon ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("horizon_bytes", [1_000, 20_000, 200_000])
def test_a_full_horizon_only_reads_less_far(drivers: list[Driver], horizon_bytes: int) -> None:
    """Pages are cut where memory ends; per-second schedules and the burst beside them each fire once, on time."""
    driver = new(drivers, horizon_bytes=horizon_bytes)
    for n in range(20):
        driver.create(f"acme/s{n}", trigger=EVERY_SECOND)
    many(driver, 700, at="2026-01-01T09:00:40Z")
    driver.run_until(START + 60_000)
    each_once(driver, 20 * 60 + 700)
    assert all(d["at"] == d["available_at"] for d in driver.dispatched())


def test_a_page_is_cut_while_schedules_join_it(drivers: list[Driver], monkeypatch: pytest.MonkeyPatch) -> None:
    """Creates and pauses between the chunks of a page that then overflows: each counts, none is stuck or lost."""
    monkeypatch.setattr("scheduler.shard.horizon.CHUNK", 10)
    driver = new(drivers, horizon_bytes=30_000, max_commands=10)
    for n in range(100):
        driver.create(f"acme/a{n:03}", trigger={"every_ms": 2_000})
    for n in range(60):
        driver.send({"command": "create", "schedule_id": f"acme/b{n:03}", "spec": {"trigger": {"every_ms": 3_000}}})
        driver.send({"command": "pause", "schedule_id": f"acme/a{n:03}"})
    for _ in range(40):
        driver.turn()
        assert driver.shard is not None
        driver.shard.housekeep(driver.now)
        driver.now += 5
    driver.run_until(START + 29_000)
    for n in range(60, 100):
        assert len(driver.times(f"acme/a{n:03}")) == 14, n
    for n in range(60):
        assert driver.times(f"acme/a{n:03}") == []
        assert len(driver.times(f"acme/b{n:03}")) == 9, n


def test_a_storm_of_near_creates_drops_the_horizon_and_loses_nothing(
    drivers: list[Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice the bound in creates for the next seconds: the horizon is read again from the store."""
    driver = new(drivers, horizon_bytes=20_000)
    driver.create("acme/tick", trigger=EVERY_SECOND)
    driver.run_until(START + 5_000)
    dropped_at: list[int] = []
    reset = Horizon.reset

    def drop(self: Horizon, end: bytes, lagging: dict[bytes, bytes]) -> None:
        dropped_at.append(driver.now)
        reset(self, end, lagging)

    monkeypatch.setattr(Horizon, "reset", drop)
    many(driver, 500, at=format_instant(START + 9_000))
    assert dropped_at == [START + 5_000]
    driver.run_until(START + 20_000)
    each_once(driver, 500 + 20)


def test_the_boundaries_of_pages_are_seamless(drivers: list[Driver]) -> None:
    """Every second and every seven over many pages: each nominal once, in order."""
    driver = new(drivers, horizon_ms=6_000)
    driver.create(trigger=EVERY_SECOND)
    driver.create("acme/b", trigger={"every_ms": 7_000}, window_ms=6_000)
    driver.run_until(START + 210_000)
    assert len(driver.times()) == 210
    assert driver.times() == sorted(set(driver.times()))
    assert len(driver.times("acme/b")) in (29, 30)


def test_on_time_work_does_not_wait_for_a_backlog(drivers: list[Driver]) -> None:
    """500 schedules to catch up and one on time: the one is not late."""
    driver = new(drivers, catch_up_per_s=500)
    for n in range(500):
        driver.send(
            {
                "command": "create",
                "schedule_id": f"old/n{n}",
                "spec": {"trigger": {"cron": "0,30 9 * * *", "zone": "UTC"}},
            }
        )
    driver.create("new/a", trigger={"at": "2026-01-01T10:30:00.500Z"})
    driver.kill()
    driver.now = START + 90 * 60_000
    driver.start(run=False)
    driver.run_until("2026-01-01T10:30:30Z")
    assert driver.dispatched("new/a")[0]["at"] == "2026-01-01T10:30:00.500Z"
    each_once(driver, 501)
