"""Nodes and their processes: the shell's own code, on the fake outside.

`start`, `kill`, `stop`, `freeze` and `thaw` are different verbs: see `fibers.py`. A process that stops drains its
shards and leaves the group; one that is killed does nothing at all any more.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scheduler.config import Kafka, Settings
from scheduler.errors import Retriable
from scheduler.runtime.member import STOP_S, Member
from scheduler.runtime.task import Phase, ShardTask
from scheduler.runtime.telemetry import Telemetry
from tests.support.world.consumers import Consumer, GroupConsumer
from tests.support.world.disks import Disk, DiskMark, DiskStore
from tests.support.world.fibers import MILLISECOND, SECOND, Process, World
from tests.support.world.network import Expired, Link
from tests.support.world.producers import PlainProducer, TransactionalProducer
from tests.support.world.threads import Condition, Event, Thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.shard.rebuild import Identity
    from tests.support.world.brokers import Brokers

COMPANY_US = 2 * SECOND
ENDS_US = 5 * SECOND
DRIFT = 50e-6  # against the brokers: what crystals do
SKEW_MS = 300


class MachineClock:
    """The clocks of one machine: they begin anywhere, drift a little, and are not the brokers'."""

    def __init__(self, brokers: Brokers) -> None:
        random = brokers.world.random
        self._brokers = brokers
        self._began = random.uniform(1e3, 1e9)
        self._rate = 1 + random.uniform(-DRIFT, DRIFT)
        self._skew = random.uniform(-SKEW_MS, SKEW_MS)

    def monotonic_ms(self) -> float:
        return self._began + self._brokers.world.now * self._rate / MILLISECOND

    def wall_ms(self) -> float:
        return self._brokers.wall_ms() + self._skew


class FakeOutside:
    """As `runtime/outside.py`, for one process of this world."""

    def __init__(self, node: Node, process: Process, settings: Settings) -> None:
        self._node, self._process, self._settings = node, process, settings
        self._world = node.world
        self._worked = 0.0
        self.link = Link(node.brokers, process)
        self.plain = PlainProducer(self.link)

    def monotonic(self) -> float:
        return self._node.clock.monotonic_ms() / 1000

    def cpu(self) -> float:
        """As if every look had cost something: often little, at times a lot."""
        random = self._world.random.random
        self._worked += random() * (0.2 if random() < 0.01 else 0.002)
        return self._worked

    def switch(self, _seconds: float) -> None:
        """Fibers change when they wait."""

    def condition(self) -> Condition:
        return Condition(self._world)

    def event(self) -> Event:
        return Event(self._world)

    def thread(self, run: Callable[[], None], name: str) -> Thread:
        return Thread(self._world, self._process, run, name)

    def transactional_producer(self, shard: int) -> TransactionalProducer:
        name = f"{self._settings.namespace}shard-{shard}"
        return TransactionalProducer(self.link, name, self._settings.transaction_timeout_ms)

    def retire(self, client: TransactionalProducer) -> None:
        pass

    def command_consumer(self, on_commit: Callable[..., None]) -> GroupConsumer:
        settings = self._settings
        times = (settings.session_timeout_ms, settings.heartbeat_interval_ms)
        return GroupConsumer(self.link, settings.node_id, on_commit, times)

    def ends(self, topics: list[str], number: int, _stopped: Callable[[], bool]) -> dict[str, int]:
        found = {topic: self._node.brokers.log(topic, number) for topic in topics}
        try:
            return self.link.request(
                lambda: {topic: log.end for topic, log in found.items()}, self._world.now + ENDS_US
            )
        except Expired:
            raise Retriable("ends: timed out") from None

    def changelog_consumer(self) -> Consumer:
        return Consumer(self.link)

    def changelog_follower(self) -> Consumer:
        return Consumer(self.link)

    def has_company(self) -> bool:
        try:
            clients = self.link.request(self._node.brokers.group.clients, self._world.now + COMPANY_US)
        except Expired:
            return False
        return any(client != self._settings.node_id for client in clients)

    def mark(self, folder: Path) -> DiskMark:
        return DiskMark(self._node.disk, self._process, folder)

    def open_store(
        self, folder: Path, identity: Identity, now: int, stopped: Callable[[], bool], *, wipe: bool = False
    ) -> DiskStore:
        return self._node.disk.open_store(self._process, folder, identity, now, stopped, wipe=wipe)

    def open_standby(self, folder: Path, identity: Identity, now: int, *, wipe: bool = False) -> DiskStore:
        return self._node.disk.open_standby(self._process, folder, identity, now, wipe=wipe)

    def refusal(self, folder: Path) -> str | None:
        return self._node.disk.refusal(folder)


class Body:
    """What runs in one process from start to end: the shell's member on the fake outside."""

    def __init__(self, node: Node, index: int) -> None:
        self.name = f"{node.settings.node_id}-{index}"
        self.process = Process(self.name)
        self.outside: Any = FakeOutside(node, self.process, node.settings)
        self.stopping = False
        self._member = Member(
            node.settings, index, "simulated", self.outside, node.clock, Telemetry(), lambda: self.stopping
        )
        node.world.spawn(self.process, self._member.run, "main")

    @property
    def is_ready(self) -> bool:
        """Whether `/ready` would say so. Who is not yet, or was aside, joins the group, and shards move then."""
        return bool(self._member.state()["ready"])

    def serving(self) -> dict[int, ShardTask]:
        """The shards this process serves now."""
        return {n: task for n, task in self._member.tasks.items() if task.phase is Phase.READY and not task.trouble}


class Node:
    """A machine with a disk, a clock and some processes."""

    def __init__(self, world: World, brokers: Brokers, name: str, processes: int, **settings: Any) -> None:
        self.world, self.brokers = world, brokers
        self.disk = Disk(world)
        self.clock = MachineClock(brokers)
        self.settings = Settings(
            kafka=Kafka(bootstrap_servers="simulated:9092"),
            shards=brokers.catalogue.shards,
            node_id=name,
            data_dir=Path("simulated"),
            processes=processes,
            session_timeout_ms=2_500,
            heartbeat_interval_ms=400,
            **settings,
        )
        self.bodies: dict[int, Body] = {}

    def start(self, index: int) -> None:
        if index not in self.bodies:
            self.world.note("world", f"start {self.settings.node_id}-{index}")
            self.bodies[index] = Body(self, index)

    def kill(self, index: int) -> None:
        body = self.bodies.pop(index, None)
        if body is not None:
            self.world.note("world", f"kill {body.name}")
            self._end(body)

    def stop(self, index: int) -> None:
        """Ends by itself, after a while; if it does not, it is killed."""
        body = self.bodies.get(index)
        if body is None or body.stopping:
            return
        self.world.note("world", f"stop {body.name}")
        body.stopping = True
        self._await_end(index, body, self.world.now + round(2 * STOP_S * SECOND))

    def _await_end(self, index: int, body: Body, end: int) -> None:
        if self.bodies.get(index) is not body:
            return
        if self.world.now >= end or not any(fiber.name == "main" for fiber in body.process.fibers):
            self.world.note("world", f"{body.name} has stopped")
            del self.bodies[index]
            self._end(body)
        else:
            self.world.call_in(50 * MILLISECOND, lambda: self._await_end(index, body, end))

    def _end(self, body: Body) -> None:
        self.world.kill(body.process)
        body.outside.link.die()

    def lose_power(self) -> None:
        for index in list(self.bodies):
            self.kill(index)
        self.world.note("world", f"{self.settings.node_id} loses power")
        self.disk.lose_power()
