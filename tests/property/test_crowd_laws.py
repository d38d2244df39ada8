"""The laws of a shard once more, where more is always due than a step takes: queues lag, and are changed while they do.

Steps of two records and a horizon of three: every burst leaves queues behind, in memory and in the store.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from scheduler.core.time import format_instant, parse_instant
from scheduler.shard.shard import ShardSettings
from tests.property.test_shard_laws import MINUTE, SECOND, ShardLaws, check_laws, run
from tests.property.test_shard_laws import NAMES as OTHERS
from tests.support.driver import Driver

TENANTS = ("acme", "acme-b", "zeta")
PRIORITIES = ("critical", "normal", "background")
NAMES = tuple(f"{tenant}/{n}" for tenant in TENANTS for n in range(4))
SPECS = st.fixed_dictionaries(
    {
        "trigger": st.sampled_from([5_000, 20_000, 60_000]).map(lambda ms: {"every_ms": ms}),
        "priority": st.sampled_from(PRIORITIES),
    },
    optional={
        "misfire": st.sampled_from(["skip", {"catch_up": 50}]),
        "max_lateness_ms": st.sampled_from([None, 1_000, 30_000]),
        "window_ms": st.sampled_from([0, 5_000]),
    },
)


class CrowdLaws(ShardLaws):
    """All schedules fall due together, again and again."""

    settings = ShardSettings(horizon_bytes=2_500, max_records=2, max_commands=3, catch_up_per_s=5)
    lagged = 0

    @initialize(specs=st.lists(SPECS, min_size=len(NAMES), max_size=len(NAMES)))
    def everybody(self, specs: list[dict[str, Any]]) -> None:
        for name, spec in zip(NAMES, specs, strict=True):
            trigger = {**spec["trigger"], "anchor": format_instant(self.driver.now + 5 * SECOND)}
            self._send({"command": "create", "schedule_id": name, "spec": {**spec, "trigger": trigger}})
        self.driver.run_until(self.driver.now + 5 * SECOND - 1)
        self.driver.now += 1
        self.driver.turn()

    @invariant()
    def queues_lag(self) -> None:
        """Counted, so that lives without any do not pass for proof."""
        shard = self.driver.shard
        CrowdLaws.lagged += shard is not None and bool(shard.record.lags)

    @rule(steps=st.integers(1, 12), ms=st.sampled_from([0, 7, 2_500, 5_000]))
    def a_few_steps(self, steps: int, ms: int) -> None:
        """The shard stops in the middle of a burst: whatever comes next finds queues that lag."""
        driver = self.driver
        driver.now += ms
        assert driver.shard is not None
        for n in range(steps):
            driver.turn()
            if n % 2:
                driver.shard.housekeep(driver.now)

    @rule(name=st.sampled_from(NAMES), priority=st.sampled_from(PRIORITIES), supersede=st.booleans())
    def reprioritise(self, name: str, priority: str, *, supersede: bool) -> None:
        spec = {"priority": priority}
        self._send({"command": "update", "schedule_id": name, "spec": spec, "supersede": supersede})
        self.driver.turn()

    @rule(names=st.sets(st.sampled_from(NAMES)), verb=st.sampled_from(["pause", "resume", "cancel"]))
    def act_on_many(self, names: set[str], verb: str) -> None:
        for name in sorted(names):
            self._send({"command": verb, "schedule_id": name})
        self.driver.turn()

    @rule(name=st.sampled_from(NAMES), tenths=st.integers(0, 3))
    def describe(self, name: str, tenths: int) -> None:
        """A change that leaves the version alone leaves what waits where it is."""
        self._send({"command": "update", "schedule_id": name, "spec": {"description": f"{tenths}"}})
        self.driver.turn()

    def teardown(self) -> None:
        driver = self.driver
        driver.run_until(driver.now)
        for verb, ms in (("resume", MINUTE), ("cancel", MINUTE)):
            for name in (*NAMES, *OTHERS):
                driver.do(verb, name)
            driver.run_until(driver.now + ms)
        check_laws(driver)


def test_every_nominal_is_decided_once_while_queues_lag() -> None:
    """Any sequence of bursts, small steps, crashes, restores, changes of what waits: one visible state each."""
    CrowdLaws.lagged = 0
    run(examples=40, steps=15, machine=CrowdLaws)
    assert CrowdLaws.lagged > 100, "queues hardly ever lag: this shows nothing"


@pytest.mark.soak
def test_every_nominal_is_decided_once_while_queues_lag_for_long() -> None:
    """The same law over many and longer lives."""
    run(examples=2_000, steps=60, machine=CrowdLaws)


def test_a_lag_is_restored_key_by_key() -> None:
    """Cold, compacted, and warm from an old store: the lags of the newest step, and none that had caught up since."""
    driver = Driver(settings=ShardSettings(max_records=3, horizon_bytes=100_000))
    at = format_instant(driver.now + 10 * SECOND)
    for tenant in TENANTS:
        for n in range(5):
            driver.create(f"{tenant}/{n}", trigger={"at": at}, priority="normal" if n % 2 else "high")
    driver.run_until(parse_instant(at) - 1)
    driver.now += 1
    seen: list[int] = []
    for _ in range(5):
        driver.turn()
        assert driver.shard is not None
        seen.append(len(driver.shard.record.lags))
        live = driver.contents()
        assert driver.cold_contents() == live
        assert driver.cold_contents(compacted=True) == live
        driver.housekeep()
    assert seen == [5, 4, 3, 2, 0]
    assert len(driver.dispatched()) == len({d["occurrence_id"] for d in driver.dispatched()}) == 15
