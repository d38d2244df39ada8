"""The brokers: topics, transactions, the group, and how well they can be reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.world.fibers import MILLISECOND
from tests.support.world.group import Group
from tests.support.world.log import Log
from tests.support.world.transactions import Coordinator, Txn

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.world.fibers import Signal, World
    from topics.catalog import Catalogue

EXPIRY_US = 20 * MILLISECOND
LATE = 0.01  # of requests and markers that take long


class Brokers:
    """`up` is whether they answer at all; `slow` multiplies how long everything takes; `lossy` answers get lost."""

    def __init__(self, world: World, catalogue: Catalogue, wall_ms: int, on_commit: Callable[[Txn], None]) -> None:
        self.world = world
        self.catalogue = catalogue
        self._began_ms = wall_ms
        self.up = True
        self.reached: list[Signal] = []  # who waits until they are up again
        self.slow = 1.0
        self.lossy = 0.0
        self._waiting: list[Callable[[], None]] = []
        self.topics: dict[str, list[Log]] = {
            spec.name: [
                Log(spec.name, number, append_time=spec.config.get("message.timestamp.type") == "LogAppendTime")
                for number in range(spec.partitions)
            ]
            for spec in catalogue.specs()
        }
        self.transactions = Coordinator(self, on_commit)
        self.group = Group(world, catalogue.shards)
        self._watch_group()

    def wall_ms(self) -> int:
        """The time by which records are stamped."""
        return self._began_ms + self.world.now // MILLISECOND

    def set_up(self, *, up: bool) -> None:
        """Away, or back again: nothing is lost, but nobody gets an answer meanwhile."""
        self.up = up
        if up:
            self.group.reloaded()
            for signal in self.reached:
                signal.send()
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()

    def when_up(self, call: Callable[[], None]) -> None:
        self._waiting.append(call)

    def travel_us(self) -> int:
        """How long a request or an answer is on its way."""
        random = self.world.random
        if random.random() < LATE:
            return int(random.uniform(5, 120) * MILLISECOND * self.slow)
        return int(random.uniform(0.1, 1.5) * MILLISECOND * self.slow)

    def marker_us(self) -> int:
        """How long until the next partition hears how a transaction ended."""
        random = self.world.random
        if random.random() < LATE:
            return int(random.uniform(10, 400) * MILLISECOND * self.slow)
        return int(random.uniform(0.0, 0.8) * MILLISECOND * self.slow)

    def log(self, topic: str, number: int) -> Log:
        return self.topics[topic][number]

    def _watch_group(self) -> None:
        if self.up:
            self.group.expire()
        self.world.call_in(EXPIRY_US, self._watch_group)
