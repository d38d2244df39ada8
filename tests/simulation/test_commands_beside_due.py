"""A load of commands and what falls due beside it: a step takes no more of the one than the other can wait for."""

from __future__ import annotations

from scheduler.shard.shard import FEW_COMMANDS, ShardSettings
from tests.support.driver import Driver

START = "2026-01-01T00:00:00Z"
MOST = 1_000
FAR = {"at": "2026-06-01T00:00:00Z"}


def loaded(due: str) -> Driver:
    """A thousand commands wait while one schedule is due at `due`."""
    driver = Driver(START, ShardSettings(max_commands=MOST))
    driver.create("acme/due", trigger={"at": due})
    for number in range(3 * MOST):
        spec = {"trigger": FAR}
        driver.send({"command": "create", "schedule_id": f"load/n{number}", "spec": spec})
    return driver


def taken(driver: Driver, ms: float) -> int:
    """How many commands the next step takes, which then takes so long to plan."""
    step = driver.turn()
    assert step is not None
    assert driver.shard is not None
    driver.shard.took(ms)
    return step.consumed


def test_with_something_due_soon_a_step_takes_what_fits() -> None:
    """1,000 commands in 400 ms: the next step takes 500. It takes 50 ms: then as many as ever."""
    driver = loaded("2026-01-01T00:00:01Z")
    assert [taken(driver, ms) for ms in (400.0, 50.0, 50.0)] == [MOST, 500, MOST]


def test_a_slow_step_still_takes_some() -> None:
    """However slow the machine, the load goes on."""
    driver = loaded("2026-01-01T00:00:01Z")
    assert [taken(driver, ms) for ms in (60_000.0, 60_000.0, 60_000.0)] == [MOST, FEW_COMMANDS, FEW_COMMANDS]


def test_with_nothing_due_soon_steps_stay_large() -> None:
    """Then nobody waits, and large steps cost least."""
    driver = loaded("2026-01-01T00:00:10Z")
    assert [taken(driver, ms) for ms in (400.0, 400.0)] == [MOST, MOST]
