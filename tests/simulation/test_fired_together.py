"""What was read ahead and what came later is fired as one."""

from __future__ import annotations

import pytest

from scheduler.core.time import format_instant
from scheduler.shard.shard import ShardSettings
from tests.support.driver import START, Driver

DUE = START + 20_000


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_read_ahead_and_late_creates_fire_in_key_order_once(limit: int) -> None:
    """Steps of any size take turns between the two, and nothing of either is left in memory."""
    driver = Driver(settings=ShardSettings(max_records=limit))
    for name in "aceg":
        driver.create(f"acme/{name}", trigger={"at": format_instant(DUE)})
    driver.restart()
    for name in "bdf":
        driver.create(f"acme/{name}", trigger={"at": format_instant(DUE)})
    driver.run_until(DUE)
    assert [one["schedule_id"] for one in driver.dispatched()] == [f"acme/{name}" for name in "abcdefg"]
    driver.advance(1_000)
    assert driver.shard is not None
    assert driver.shard.horizon.held.bytes == 0
    assert not driver.shard.has_chores
    assert driver.counts() == {}


def test_without_chores_what_is_due_goes_on_and_the_rest_waits() -> None:
    """A shard that is told to leave its chores fires all the same; they are done when they may be."""
    driver = Driver()
    driver.create(trigger={"at": format_instant(DUE)})
    driver.run_until(DUE - 1)
    shard = driver.shard
    assert shard is not None
    driver.now = DUE
    step = shard.plan(DUE, chores=False)
    assert step is not None
    driver.publish(step)
    shard.committed(step)
    assert len(driver.dispatched()) == 1
    while shard.housekeep(DUE, chores=False):
        pass
    assert shard.has_chores
    assert shard.plan(DUE, chores=False) is None
    assert (driver.schedule() or {})["state"] == "active"
    driver.run_until(DUE + 10)
    assert (driver.schedule() or {})["state"] == "completed"
    assert not shard.has_chores
