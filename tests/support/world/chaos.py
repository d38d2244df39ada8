"""What goes wrong: one fault after the other, each with its end, drawn from the seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.world.fibers import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.world.brokers import Brokers
    from tests.support.world.machines import Body, Node

FAULTS = {
    "kill": 6,
    "stop": 3,
    "freeze": 4,
    "cut": 3,
    "away": 2,
    "lose_answers": 3,
    "slow_down": 2,
    "lose_power": 1,
    "wipe": 1,
    "refuse": 1,
    "compact": 2,
    "black_out": 0.5,
}


class Chaos:
    """Breaks things and mends them again, until `heal`."""

    def __init__(self, brokers: Brokers, nodes: list[Node], faults: Mapping[str, float]) -> None:
        self._faults = faults
        self._brokers, self._nodes = brokers, nodes
        self._world, self._random = brokers.world, brokers.world.random

    def strike(self) -> None:
        """One fault now."""
        name = self._random.choices([*self._faults], [*self._faults.values()])[0]
        getattr(self, name)()

    def heal(self) -> None:
        """Everything works again, and every process runs."""
        self._world.note("world", "everything works again")
        brokers = self._brokers
        brokers.lossy, brokers.slow = 0.0, 1.0
        brokers.set_up(up=True)
        for node in self._nodes:
            node.disk.refuses = False
            for body in node.bodies.values():
                self._thaw(body)
                body.outside.link.set_cut(cut=False)
            for index in range(node.settings.processes):
                self._keep_started(node, index)

    # --- faults

    def kill(self) -> None:
        node, index = self._some_process()
        node.kill(index)
        self._restart_later(node, index, self._pause(6))

    def stop(self) -> None:
        node, index = self._some_process()
        node.stop(index)
        self._restart_later(node, index, self._pause(6))

    def freeze(self) -> None:
        body = self._some_body()
        if body is not None and not body.process.frozen:
            self._world.note("world", f"freeze {body.name}")
            self._world.freeze(body.process)
            self._world.call_in(self._pause(6), lambda: self._thaw(body))

    def cut(self) -> None:
        body = self._some_body()
        if body is not None:
            self._world.note("world", f"cut off {body.name}")
            body.outside.link.set_cut(cut=True)
            self._world.call_in(self._pause(8), lambda: self._join_up(body))

    def away(self) -> None:
        if self._brokers.up:
            self._world.note("world", "the brokers are away")
            self._brokers.set_up(up=False)
            self._world.call_in(self._pause(5), self._come_back)

    def lose_answers(self) -> None:
        self._world.note("world", "answers get lost")
        self._brokers.lossy = self._random.choice((0.05, 0.3))
        self._world.call_in(self._pause(6), lambda: setattr(self._brokers, "lossy", 0.0))

    def slow_down(self) -> None:
        self._world.note("world", "everything is slow")
        self._brokers.slow = self._random.choice((5.0, 50.0))
        self._world.call_in(self._pause(4), lambda: setattr(self._brokers, "slow", 1.0))

    def lose_power(self) -> None:
        node = self._random.choice(self._nodes)
        node.lose_power()
        self._restart_all(node, self._pause(5))

    def wipe(self) -> None:
        node = self._random.choice(self._nodes)
        node.lose_power()
        self._world.note("world", f"{node.settings.node_id} loses its disk")
        node.disk.wipe()
        self._restart_all(node, self._pause(5))

    def refuse(self) -> None:
        node = self._random.choice(self._nodes)
        self._world.note("world", f"the disk of {node.settings.node_id} refuses")
        node.disk.refuses = True
        self._world.call_in(self._pause(10), lambda: setattr(node.disk, "refuses", False))

    def compact(self) -> None:
        catalogue = self._brokers.catalogue
        gone = sum(
            log.compact(self._random.randrange(log.end + 1))
            for topic in (catalogue.schedules, catalogue.live, catalogue.shard_records)
            for log in self._brokers.topics[topic]
        )
        self._world.note("world", f"compaction removes {gone} records")

    def black_out(self) -> None:
        self._world.note("world", "black-out")
        length = int(self._random.uniform(10, 45) * SECOND)
        for node in self._nodes:
            node.lose_power()
            self._restart_all(node, length + self._pause(1))

    # --- their ends

    def _thaw(self, body: Body) -> None:
        if body.process.frozen:
            self._world.note("world", f"thaw {body.name}")
            self._world.thaw(body.process)

    def _join_up(self, body: Body) -> None:
        self._world.note("world", f"{body.name} is no longer cut off")
        body.outside.link.set_cut(cut=False)

    def _come_back(self) -> None:
        if not self._brokers.up:
            self._world.note("world", "the brokers are back")
            self._brokers.set_up(up=True)

    def _restart_later(self, node: Node, index: int, us: int) -> None:
        self._world.call_in(us, lambda: self._keep_started(node, index))

    def _restart_all(self, node: Node, us: int) -> None:
        for index in range(node.settings.processes):
            self._restart_later(node, index, us)

    def _keep_started(self, node: Node, index: int) -> None:
        """As the supervisor would; a process that is still stopping is waited for."""
        node.start(index)
        if node.bodies[index].stopping:
            self._restart_later(node, index, 200 * MILLISECOND)

    def _pause(self, mean_s: float) -> int:
        """Often short, sometimes long."""
        return int(min(self._random.expovariate(1 / mean_s), 4 * mean_s) * SECOND)

    def _some_process(self) -> tuple[Node, int]:
        node = self._random.choice(self._nodes)
        return node, self._random.randrange(node.settings.processes)

    def _some_body(self) -> Body | None:
        node, index = self._some_process()
        return node.bodies.get(index)
