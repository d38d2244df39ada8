"""What a standby has copied, in whatever order it showed, is taken over as if it was restored from nothing."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from scheduler.errors import Retriable
from scheduler.runtime.restore import Outlived
from scheduler.runtime.standby import Follower, OtherTables
from scheduler.runtime.stores import STORE_LIFE_MS
from scheduler.shard import keys
from scheduler.shard.rebuild import ORDER, Rebuild
from scheduler.state.store import MemoryStore
from tests.support.copy import Copy
from tests.support.driver import Driver, changes
from topics import catalog

MINUTE, HOUR = 60_000, 3_600_000


def test_a_floor_shows_later_than_the_cursor_that_went_with_it() -> None:
    """Decided after an outage while it waits in its window: the floor shows last, and no copy fires that nominal."""
    driver = Driver()
    driver.create("acme/wide", trigger={"every_ms": 10 * MINUTE}, window_ms=10 * MINUTE, misfire={"catch_up": 3})
    copy = Copy(driver)
    driver.run_until(driver.now + HOUR)
    copy.read()
    driver.outage(driver.now + 3 * HOUR + 5 * MINUTE)
    assert "floor" in {record["kind"] for record in driver.topics.values("scheduler.live")}
    copy.read(topics=(catalog.SHARDS,))
    copy.sweep()
    copy.read()
    assert copy.taken_over() == driver.contents() == driver.cold_contents()


def test_what_fired_meanwhile_is_derived_anew_ahead_of_the_takeover() -> None:
    """Firing leaves no record of the schedules: a sweep moves their places, and opening finds nothing left to move."""
    driver = Driver()
    for n in range(20):
        driver.create(f"acme/{n}", trigger={"every_ms": 60_000})
    copy = Copy(driver)
    copy.read()
    driver.run_until(driver.now + 10 * MINUTE)
    copy.read()
    cursor = keys.DUE + copy.follower.rebuild.record.cursor
    assert len(list(copy.store.keys(keys.DUE, cursor))) == 20
    copy.sweep(chunk=3)
    assert list(copy.store.keys(keys.DUE, cursor)) == []
    assert copy.taken_over() == driver.contents()


def test_a_backlog_is_left_where_it_is() -> None:
    """What an outage left undecided keeps its place however often it is swept."""
    driver = Driver()
    driver.create("acme/a", trigger={"every_ms": 60_000}, misfire={"catch_up": 3})
    copy = Copy(driver)
    copy.read()
    place = copy.store.get(keys.place("acme/a"))
    driver.kill()
    driver.now += HOUR
    driver.start(run=False, unread=2)  # the backlog shows with whatever is committed next
    driver.send({"command": "create", "schedule_id": "acme/b", "spec": {"trigger": {"every_ms": 60_000}}})
    driver.turn()
    copy.read()
    assert copy.follower.rebuild.record.backlogs
    copy.sweep()
    assert copy.store.get(keys.place("acme/a")) == place
    assert copy.follower.rebuild._moved == 0, "and costs nothing each time"
    assert driver.shard is not None
    driver.shard.commands_read()
    driver.run_until(driver.now)
    assert copy.taken_over() == driver.contents()


def test_a_record_waits_for_its_shard_record() -> None:
    """Of one transaction the schedule shows first: it is applied with the shard record, not before."""
    driver = Driver()
    copy = Copy(driver)
    driver.create("acme/a", trigger={"every_ms": 60_000})
    copy.read(topics=(catalog.SCHEDULES,))
    assert copy.store.get(keys.schedule("acme/a")) is None
    copy.read(topics=(catalog.SHARDS,))
    assert copy.store.get(keys.schedule("acme/a")) is not None
    assert copy.taken_over() == driver.contents()


def test_a_calendar_that_was_not_heard_of_yet() -> None:
    """Planned by a version that this node's reader of calendars has not met: looked at again when the shard opens."""
    driver = Driver()
    copy = Copy(driver)
    driver.calendar("days", 1, working_days=["mon", "tue"])
    known = driver.calendars
    driver.calendar("days", 2, working_days=["wed"])
    driver.create("acme/a", trigger={"cron": "0 9 * * *", "zone": "UTC"}, calendar="days")
    found = {topic: changes(driver.topics, topic) for topic in ORDER}
    copy.follower.rebuild.use(known)
    copy.follower.apply({topic: some for topic, some in found.items() if some}, {}, driver.now)
    assert copy.store.get(keys.place("acme/a")) == keys.DUE + bytes(8) + b"\x02acme/a"
    assert copy.taken_over() == driver.contents()


def test_other_zone_tables_are_not_followed() -> None:
    """Places derived by other tables than the owner's would be wrong, and nobody would see it."""
    driver = Driver()
    driver.create("acme/a", trigger={"cron": "0 9 * * *", "zone": "Europe/Berlin"})
    shards = changes(driver.topics, catalog.SHARDS)
    last = shards[-1]
    assert last.value is not None
    older = replace(last, value=last.value.replace(b'"tz_version":"20', b'"tz_version":"19'))
    assert older != last
    store = MemoryStore()
    follower = Follower(0, store, Rebuild(store, 0), driver.now)
    with pytest.raises(OtherTables, match="zone tables 19"):
        follower.apply({catalog.SHARDS: [older]}, {}, driver.now)
    assert isinstance(OtherTables("x"), Retriable)


def test_a_copy_that_could_not_be_followed_for_long() -> None:
    """Half the tombstones' retention without the ends of the topics: the copy may have missed one, also when nothing
    seems to have happened.
    """
    driver = Driver()
    copy = Copy(driver)
    copy.follower.apply({}, {}, driver.now + STORE_LIFE_MS)
    with pytest.raises(Outlived, match="12 h"):
        copy.follower.apply({}, {}, driver.now + STORE_LIFE_MS + 1)
