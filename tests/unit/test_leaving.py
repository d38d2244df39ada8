"""A process that leaves says so at once, and from then on nothing of it may fence whoever takes over."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition

from scheduler.core.tenants import NO_TENANTS
from scheduler.runtime.assignment import Assignment
from scheduler.runtime.member import Member
from scheduler.runtime.probe import Probe
from scheduler.runtime.task import Phase, ShardTask
from topics.codec import decode
from topics.messages import ClockProbe

if TYPE_CHECKING:
    from collections.abc import Callable


class World:
    """What the shell takes from outside: a topic, a group that goes on as soon as it is left, time that stands."""

    def __init__(self) -> None:
        self.settings = SimpleNamespace(heartbeat_interval_ms=400, shards=8)
        self.catalogue = SimpleNamespace(commands="commands")
        self.outside: Any = self
        self.plain = self
        self.said: list[ClockProbe] = []
        self.happened: list[str] = []

    def monotonic(self) -> float:
        return 0.0

    def event(self) -> None:
        return None

    def thread(self, _run: Callable[[], None], name: str) -> World:
        self._name = name
        return self

    def start(self) -> None:
        self.happened.append(f"{self._name} starts")

    def produce(self, _topic: str, value: bytes, _key: bytes, *, on_delivery: object) -> None:
        assert on_delivery
        self.said.append(decode(ClockProbe, value))

    def has_company(self) -> bool:
        return True

    def command_consumer(self, on_commit: Callable[..., None]) -> World:
        self.on_commit = on_commit
        return self

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        self.happened.append(f"{len(partitions)} given up")

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self.happened.append(f"{len(partitions)} taken")

    def pause(self, _partitions: list[TopicPartition]) -> None:
        pass

    def condition(self) -> None:
        return None

    def close(self) -> None:
        """Leave the group; on the way the answer to a commit is heard, which was asked for before."""
        self.happened.append("left")
        self.on_commit(None, [])


class Task:
    """A shard in some phase, which writes down what is asked of it."""

    def __init__(self, world: World, number: int, phase: Phase) -> None:
        self.number, self.phase, self._happened = number, phase, world.happened

    def still_assigned(self) -> None:
        self._happened.append(f"{self.number} owns itself anew")

    def leave(self, _seconds: float, _idle_s: float) -> None:
        self._happened.append(f"{self.number} fires on")

    def close(self) -> None:
        self._happened.append(f"{self.number} closes")

    def join(self, _seconds: float) -> bool:
        return True


def test_whether_a_process_waits_is_said_at_once_and_once() -> None:
    """Others wait three seconds for who is silent: the last owner of an older format must not go without a word."""
    world, clock = World(), SimpleNamespace(monotonic_ms=lambda: 0)
    probe = Probe(world.outside, "clock", "a-0", clock, clock)  # type: ignore[arg-type]
    for waits in (True, False, False, True):
        probe.say(waits=waits)
    assert [(one.sequence, one.waits) for one in world.said] == [(1, False), (2, True)]


def test_who_does_not_fire_stops_before_the_group_is_left() -> None:
    """It would initialise beside the new owner, which has the shard as soon as the group is left."""
    world = World()
    assignment = Assignment(world)  # type: ignore[arg-type]
    tasks: Any = [Task(world, 0, Phase.READY), Task(world, 1, Phase.OPENING), Task(world, 2, Phase.FAILED)]
    assignment.tasks = {task.number: task for task in tasks}
    assignment.close(1.0)
    assert world.happened[:4] == ["1 closes", "2 closes", "left", "0 fires on"]


def test_a_proof_heard_while_leaving_is_none() -> None:
    """The coordinator gave it to a member, which the process is no more."""
    world = World()
    assignment = Assignment(world)  # type: ignore[arg-type]
    task: Any = Task(world, 0, Phase.READY)
    assignment.tasks = {0: task}
    assignment._asking = [task]
    assignment.close(1.0)
    assert world.happened == ["left", "0 fires on", "0 closes"]


def revoke(*phases: Phase) -> tuple[World, Assignment]:
    """A process whose shards, in these phases, have just gone to another one."""
    world = World()
    assignment = Assignment(world)  # type: ignore[arg-type]
    tasks: Any = [Task(world, number, phase) for number, phase in enumerate(phases)]
    assignment.tasks = {task.number: task for task in tasks}
    assignment._revoked(world, [TopicPartition("commands", task.number) for task in tasks])  # type: ignore[arg-type]
    return world, assignment


def test_a_revoked_shard_fires_on() -> None:
    """Its new owner hears of it in the next rebalance; until that one fences it nobody else would fire."""
    world, assignment = revoke(Phase.READY)
    assert world.happened == ["0 fires on", "1 given up"]
    assert assignment.tasks == {}


def test_a_revoked_shard_that_comes_back_is_closed_before_it_begins_anew() -> None:
    """The old thread has the store, and would fence the new one if it went on."""
    world, assignment = revoke(Phase.READY)
    assignment._assigned(world, [TopicPartition("commands", 0)])  # type: ignore[arg-type]
    assert world.happened == ["0 fires on", "1 given up", "1 taken", "0 closes", "shard-0 starts"]


def test_a_lost_shard_stops_at_once() -> None:
    """The group has gone on without this process: there is an owner already."""
    world = World()
    assignment = Assignment(world)  # type: ignore[arg-type]
    task: Any = Task(world, 0, Phase.READY)
    assignment.tasks = {0: task}
    assignment._lost(world, [TopicPartition("commands", 0)])  # type: ignore[arg-type]
    assert world.happened == ["0 closes", "1 given up"]


def test_a_shard_that_comes_back_waits_for_its_last_task_whatever_assignment_that_was_of() -> None:
    """A process that leaves because it is outgrown, and joins again, may still have a task that takes long to end."""
    world = World()
    first = Assignment(world)  # type: ignore[arg-type]
    slow: Any = Task(world, 0, Phase.READY)
    first.tasks = {0: slow}
    first.close(1.0)
    again = Assignment(world, first.ending)  # type: ignore[arg-type]
    again._assigned(world, [TopicPartition("commands", 0)])  # type: ignore[arg-type]
    assert again.tasks[0]._predecessor is slow


def test_a_process_that_is_stopped_while_it_waits_for_others_does_not_join_the_group() -> None:
    """Its coming would make the owners of before pause for a member that is about to go."""
    heard: list[str] = []

    def part(name: str) -> Any:
        def called(*_: object, **__: object) -> bool:
            heard.append(name)
            return True

        return SimpleNamespace(
            **dict.fromkeys(("start", "stop", "say", "close", "poll"), called),
            join=lambda: heard.append("joins"),
            wait=lambda _: heard.append("waits"),
            flush=called,
        )

    member = object.__new__(Member)
    member._probe, member._tables, member._standbys, member._turn = (
        part(n) for n in ("probe", "tables", "copies", "turn")
    )
    member._aside = SimpleNamespace(wait=lambda: None)  # type: ignore[assignment]
    member._assignment = part("assignment")
    member._outside = SimpleNamespace(plain=part("plain"))  # type: ignore[assignment]
    member._stopped = lambda: "waits" in heard
    assert member.run()
    assert "waits" in heard
    assert "joins" not in heard


@pytest.mark.parametrize(("now", "waits_ms"), [(None, 0), (5, 50_000)], ids=["no time", "the clock went back"])
def test_a_revoked_shard_that_cannot_fire_closes(now: int | None, waits_ms: int) -> None:
    """It has nothing to stay for, and would keep its store from a new owner on this node."""
    looks = iter([now])  # the next look fails
    world: Any = SimpleNamespace(
        monotonic=lambda: 0.0,
        event=threading.Event,
        condition=threading.Condition,
        thread=lambda _run, _name: None,
    )
    around: Any = SimpleNamespace(
        outside=world, pace=None, telemetry=None, clock=SimpleNamespace(jumps=0, now=lambda: next(looks))
    )
    around.settings = SimpleNamespace(horizon_ms=1_000)
    around.tables = SimpleNamespace(calendars=None, tenants=NO_TENANTS)
    task = ShardTask(0, around)
    task.phase = Phase.READY
    task.leave(15.0, 0.5)
    shard: Any = SimpleNamespace(waits_ms=lambda _now: waits_ms)
    task._loop(shard, None, None, None, None)  # type: ignore[arg-type]
