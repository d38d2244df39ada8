"""Many commands in one step: each meets what its schedule owes, whether few or many owe anything."""

from __future__ import annotations

import pytest

from scheduler.shard import keys
from scheduler.shard.commands import FEW, MANY
from tests.support.driver import Driver

LATER = "2026-02-01T00:00:00Z"


@pytest.mark.parametrize("owing", [0, 3, FEW + 5])
def test_each_of_many_cancels_drops_what_its_schedule_has_put_off(owing: int) -> None:
    """The step may know beforehand who owes at all; those who do keep nothing, and the others are cancelled as well."""
    driver = Driver()
    names = [f"acme/job-{n}" for n in range(max(MANY, owing) + 5)]
    for name in names:
        driver.send({"command": "create", "schedule_id": name, "spec": {"trigger": {"at": LATER}}})
    for name in names[:owing]:
        driver.send({"command": "pause", "schedule_id": name, "effective_from": "2026-01-15T00:00:00Z"})
    driver.run_until(driver.now)
    owed = list(driver.store.keys(keys.LIVE, keys.after_prefix(keys.LIVE)))
    assert len(owed) == owing
    before = driver.steps
    cancelled = [driver.send({"command": "cancel", "schedule_id": name}) for name in names]
    driver.run_until(driver.now)
    assert driver.steps == before + 1
    assert {driver.reply(one)["code"] for one in cancelled} == {"cancelled"}
    assert not list(driver.store.keys(keys.LIVE, keys.after_prefix(keys.LIVE)))
