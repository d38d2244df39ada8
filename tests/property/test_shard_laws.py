"""The laws of a shard under random commands, time, outages, kills, wipes and compactions.

An oracle that knows nothing of the shard lists the nominals of every version by brute force; what came out on the
topics is then counted against it.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from scheduler.core.time import format_instant, parse_instant
from scheduler.shard.shard import ShardSettings
from tests.support.copy import Copy
from tests.support.driver import Driver

if TYPE_CHECKING:
    from scheduler.shard.step import Step

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
NAMES = ("acme/a", "acme/b", "zeta/c")

TRIGGERS = st.one_of(
    st.sampled_from([1, 2, 7, 30]).map(lambda n: {"cron": f"*/{n} * * * *", "zone": "UTC"}),
    st.sampled_from([7_000, 20_000, 90_000, 3_600_000]).map(lambda ms: {"every_ms": ms}),
    st.integers(1, 7200).map(lambda s: {"after_s": s}),  # a one-shot, made an instant when it is sent
)
SPECS = st.fixed_dictionaries(
    {"trigger": TRIGGERS},
    optional={
        "window_ms": st.sampled_from([0, 5_000, 45_000, 600_000]),
        "misfire": st.sampled_from(["fire_once", "skip", {"catch_up": 1}, {"catch_up": 3}, {"catch_up": 50}]),
        "max_lateness_ms": st.sampled_from([None, 1_000, 30_000, 3_600_000]),
        "priority": st.sampled_from(["critical", "high", "background"]),
        "end_s": st.integers(60, 7200),
    },
)
CHANGES = st.one_of(
    SPECS,
    st.fixed_dictionaries({"description": st.sampled_from(["x", "y"])}),
    st.fixed_dictionaries({"priority": st.sampled_from(["critical", "normal", "background"])}),
    st.fixed_dictionaries({"payload": st.sampled_from([1, 2])}),
    st.fixed_dictionaries({"window_ms": st.sampled_from([0, 30_000])}),
)


def nominals(spec: dict[str, Any], after: int, until: int) -> list[int]:
    """All instants a definition names in (after, until], by walking the clock."""
    trigger = spec["trigger"]
    if "at" in trigger:
        found = [parse_instant(trigger["at"])]
    elif "cron" in trigger:
        minutes = int(trigger["cron"].split("/")[1].split()[0])
        first = after - after % MINUTE
        found = [t for t in range(first, until + 1, MINUTE) if t // MINUTE % 60 % minutes == 0]
    else:
        found = list(range(parse_instant(trigger["anchor"]), until + 1, trigger["every_ms"]))
    end = parse_instant(spec["end"]) if spec.get("end") else until + 1
    return [t for t in found if after < t <= until and t < end]


@dataclass
class Version:
    """One version's life: its nominals are those in (born, died]; a one-shot that passed on its way counts too."""

    spec: dict[str, Any]
    born: int
    died: int | None = None


@dataclass
class Oracle:
    """Built from the history topic alone: which definition was in force when."""

    versions: dict[tuple[str, int], Version] = field(default_factory=dict)

    def read(self, history: list[dict[str, Any]]) -> None:
        current: dict[str, int] = {}
        for record in history:
            name, version, at = record["schedule_id"], record["version"], parse_instant(record["at"])
            before = current.get(name)
            gone = record["state"] in ("deleted", "cancelled")
            if before is not None and (gone or before != version):
                living = self.versions[name, before]
                living.died = at if living.died is None else living.died
            if record["state"] == "deleted":
                current.pop(name, None)
            elif before != version:
                current[name] = version
                self.versions[name, version] = Version(record["spec"], at)
            elif record.get("spec"):
                self.versions[name, version].spec = record["spec"]


class ShardLaws(RuleBasedStateMachine):
    """Random life of one shard; `teardown` brings everything to an end and counts."""

    settings = ShardSettings(horizon_bytes=4_000, max_records=7, max_commands=3, catch_up_per_s=0.5)

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(settings=self.settings)
        self.sent: list[dict[str, Any]] = []
        self.copy = Copy(self.driver)

    # --- what may happen

    def _send(self, command: dict[str, Any]) -> None:
        spec = command.get("spec")
        if spec is not None:
            spec = command["spec"] = dict(spec)
            trigger = spec.get("trigger", {})
            if "after_s" in trigger:
                at = self.driver.now + trigger["after_s"] * SECOND
                spec["trigger"] = {"at": format_instant(at)}
            if "end_s" in spec:
                spec["end"] = format_instant(self.driver.now + spec.pop("end_s") * SECOND)
        self.driver.send(command)
        self.sent.append(command)

    @rule(name=st.sampled_from(NAMES), spec=SPECS)
    def create(self, name: str, spec: dict[str, Any]) -> None:
        self._send({"command": "create", "schedule_id": name, "spec": spec})

    @rule(name=st.sampled_from(NAMES), spec=CHANGES, supersede=st.booleans())
    def update(self, name: str, spec: dict[str, Any], *, supersede: bool) -> None:
        self._send({"command": "update", "schedule_id": name, "spec": spec, "supersede": supersede})

    @rule(name=st.sampled_from(NAMES), verb=st.sampled_from(["pause", "cancel", "delete", "trigger"]))
    def act(self, name: str, verb: str) -> None:
        self._send({"command": verb, "schedule_id": name})

    @rule(name=st.sampled_from(NAMES), catch_up=st.booleans())
    def resume(self, name: str, *, catch_up: bool) -> None:
        self._send({"command": "resume", "schedule_id": name, "catch_up": catch_up})

    @precondition(lambda self: bool(self.sent))
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        """A producer whose answer was lost repeats its command: the same id, the same bytes."""
        self.driver.send(dict(data.draw(st.sampled_from(self.sent[-6:]))))

    @rule(ms=st.sampled_from([0, 1, 999, 5_000, 61_000, 400_000]))
    def pass_time(self, ms: int) -> None:
        self.driver.run_until(self.driver.now + ms)

    @rule(
        ms=st.sampled_from([0, 1, 800, 14_000, 45_000, 700_000, 5 * HOUR]),
        crash=st.sampled_from(["killed", "before_commit", "after_commit"]),
        restore=st.sampled_from([{}, {"wipe": True}, {"wipe": True, "compacted": True}]),
        warm=st.booleans(),
        run=st.booleans(),
    )
    def die(self, ms: int, crash: str, restore: dict[str, bool], *, warm: bool, run: bool) -> None:
        """An end at any point of a step, a pause, and a new owner: on the same store, on none, or on another node's
        copy, while that node's standby goes on with what the dead one left.
        """
        driver = self.driver
        if crash == "before_commit":
            driver.crash_before_commit()
        elif crash == "after_commit":
            driver.crash_after_commit()
        driver.kill()
        driver.now += ms
        if warm:
            self.copy.swap()
        driver.start(**({} if warm else restore), run=run)

    @rule(ms=st.sampled_from([16_000, 500_000]))
    def sleep(self, ms: int) -> None:
        """The machine sleeps: the same process looks again much later."""
        self.driver.now += ms
        self.driver.run_until(self.driver.now)

    @rule()
    def one_step(self) -> None:
        self.driver.turn()

    @rule(
        shown=st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100)),
        sweep=st.integers(0, 3),
        anew=st.booleans(),
    )
    def follow(self, shown: tuple[int, int, int], sweep: int, *, anew: bool) -> None:
        """The standby reads on; how much of each topic shows differs, as it does between brokers."""
        if anew:
            self.copy.begin()
        self.copy.read(*shown)
        if sweep:
            self.copy.sweep(sweep)

    # --- what must hold

    @invariant()
    def restored_is_live(self) -> None:
        """A store restored from the topics, whole or compacted, equals the live one key by key."""
        if self.driver.steps % 5:
            return
        live = self.driver.contents()
        assert self.driver.cold_contents() == live
        assert self.driver.cold_contents(compacted=True) == live
        assert self.copy.taken_over() == live

    def teardown(self) -> None:
        driver = self.driver
        assert self.copy.taken_over() == driver.contents()
        driver.run_until(driver.now)
        for name in NAMES:
            driver.do("resume", name)
        driver.run_until(driver.now + 11 * MINUTE)
        for name in NAMES:
            driver.do("cancel", name)
        driver.run_until(driver.now + MINUTE)
        check_laws(driver)


def check_laws(driver: Driver) -> None:
    """Count what came out against the oracle."""
    oracle = Oracle()
    oracle.read(driver.topics.values("scheduler.schedule-history"))
    decided: Counter[tuple[str, int]] = Counter()
    ids: Counter[str] = Counter()
    last: dict[tuple[str, int, str], int] = {}
    quiet: set[str] = set()
    for topic, _key, value, at in driver.topics.log:
        record = json.loads(value) if value is not None else {}
        if topic == "scheduler.schedule-history":
            name = record["schedule_id"]
            (quiet.add if record["state"] in ("paused", "cancelled", "deleted") else quiet.discard)(name)
        elif topic.startswith("dispatch."):
            ids[record["occurrence_id"]] += 1
            if record["origin"] == "manual":
                continue
            key = (record["schedule_id"], record["version"])
            scheduled_for, available_at = parse_instant(record["scheduled_for"]), parse_instant(record["available_at"])
            assert record["schedule_id"] not in quiet, ("after an acknowledged pause, cancel or delete", record)
            assert scheduled_for <= available_at <= at, ("too early", record, format_instant(at))
            version = oracle.versions[key]
            assert available_at - scheduled_for <= 600_000
            assert scheduled_for in nominals(version.spec, scheduled_for - 1, scheduled_for), ("no nominal", record)
            if not version.spec.get("window_ms"):  # one that waits in its window may be overtaken after an outage
                order = (*key, record["origin"])
                assert last.get(order, 0) < scheduled_for, ("out of order", record)
                last[order] = scheduled_for
            decided[key] += 1
        elif topic == "scheduler.occurrences":
            decided[record["schedule_id"], record["version"]] += record.get("count", 1)
    assert max(ids.values(), default=1) == 1, ids.most_common(1)
    for key, version in oracle.versions.items():
        until = driver.now if version.died is None else version.died
        born = version.born
        if "at" in version.spec["trigger"]:
            born = min(born, parse_instant(version.spec["trigger"]["at"]) - 1)  # it may have passed on its way here
        expected = nominals(version.spec, born, until)
        assert decided[key] == len(expected), (key, version, decided[key], len(expected))


def run(examples: int, steps: int, machine: type[ShardLaws] = ShardLaws) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=False,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
            print_blob=True,
        ),
    )


def test_every_nominal_is_decided_once_whatever_happens() -> None:
    """Fired + missed + suppressed + cancelled = nominals, each once, in order, never early, never after a pause."""
    run(examples=100, steps=25)


class Aborting(Driver):
    """Every step is planned, aborted and decided again by a new owner at the same instant."""

    def turn(self) -> Step | None:
        self.crash_before_commit()
        self.start(run=False)
        self.housekeep()
        return super().turn()


OPS = st.lists(
    st.one_of(
        st.sampled_from([1, 999, 20_000, 61_000, 400_000]),
        st.tuples(st.just("create"), SPECS.filter(lambda spec: "after_s" not in spec["trigger"])),
        st.tuples(st.just("update"), st.fixed_dictionaries({"payload": st.sampled_from([1, 2])})),
        st.tuples(st.just("update"), st.fixed_dictionaries({"priority": st.sampled_from(["high", "normal"])})),
        st.tuples(st.sampled_from(["pause", "resume", "cancel", "delete", "trigger"]), st.none()),
    ),
    min_size=3,
    max_size=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(ops=OPS)
def test_live_and_replay_reach_the_same_decisions(ops: list[Any]) -> None:
    """An owner that decides each step for the second time, on a store it did not write, says exactly the same."""
    told = []
    for kind in (Driver, Aborting):
        driver = kind(settings=ShardSettings(catch_up_per_s=1e6))
        for op in ops:
            if isinstance(op, int):
                driver.run_until(driver.now + op)
                continue
            verb, spec = op
            fields = {} if spec is None else {"spec": {k: v for k, v in spec.items() if k != "end_s"}}
            driver.do(verb, **fields)
        told.append(
            {topic: sorted(value for of, _, value, _ in driver.topics.log if of == topic and value is not None)
             for topic in {of for of, *_ in driver.topics.log} - {"scheduler.shards", "scheduler.live"}}
        )  # fmt: skip
    assert told[0] == told[1]


@pytest.mark.soak
def test_every_nominal_is_decided_once_in_long_lives() -> None:
    """The same law over many and longer lives."""
    run(examples=3_000, steps=60)
