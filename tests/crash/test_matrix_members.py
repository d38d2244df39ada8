"""Processes come, go, die and freeze in an order of chance; others keep their shards and fire on.

`MEMBER_SEEDS` (a number) of `test_any_order_of_members` run in the long form; a failing one is named by its seed.
"""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.load import Load
from tests.support.node import Cluster, Node, await_ready, owners, wait_until
from tests.support.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.broker import BrokerUnderTest

pytestmark = pytest.mark.broker

SHARDS = 4
SEEDS = int(os.environ.get("MEMBER_SEEDS", "6"))
STEP_S = (0.3, 2.5)  # between two things that happen


class Members:
    """1 to 4 processes on 1 to 3 nodes. At least one of them always runs, so that every shard can have an owner."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._chance = random.Random(seed)
        self.nodes = [cluster.node("a", processes=2), cluster.node("b"), cluster.node("c")]
        self._all = [(node, index) for node in self.nodes for index in range(node.processes)]
        self._frozen: set[tuple[str, int]] = set()
        self.done: list[str] = []

    def words(self) -> str:
        return "\n".join([*self.done, *(node.words(12) for node in self.nodes)])

    def happen(self) -> None:
        """One process joins, leaves, dies, freezes or returns."""
        node, index = self._chance.choice(self._all)
        name = (node.node_id, index)
        others = [one for one in self._all if one != (node, index) and one[0].runs(one[1])]
        is_last = not [one for one in others if (one[0].node_id, one[1]) not in self._frozen]
        if not node.runs(index):
            what = "join"
            node.start(index)
        elif name in self._frozen:
            what = self._chance.choice(["thaw", "die"])
            self._frozen.discard(name)
            node.thaw(index) if what == "thaw" else self._die(node, index)
        elif is_last:
            what = "die and join"
            self._die(node, index)
            node.start(index)
        else:
            what = self._chance.choice(["leave", "die", "freeze"])
            if what == "leave":
                # A process that has hardly begun has no handlers yet, and nothing to hand over.
                assert node.leave(index) in (0, -signal.SIGTERM), node.words()
            elif what == "die":
                self._die(node, index)
            else:
                node.freeze(index)
                self._frozen.add(name)
        self.done.append(f"{node.node_id}-{index} {what}")

    def wait(self) -> None:
        time.sleep(self._chance.uniform(*STEP_S))

    def mend(self) -> None:
        """All of them run."""
        for node, index in self._all:
            if (node.node_id, index) in self._frozen:
                node.thaw(index)
            elif not node.runs(index):
                node.start(index)

    @staticmethod
    def _die(node: Node, index: int) -> None:
        node.sigkill(index)
        assert node.await_death(index) == -signal.SIGKILL


def any_order(cluster: Cluster, seed: int, happenings: int) -> None:
    members = Members(cluster, seed)
    members.nodes[0].start(0)
    wait_until(lambda: len(owners(members.nodes)) == cluster.shards, members.words)
    load = Load(cluster, 40, round(happenings * sum(STEP_S) / 2) + 6, per_s=10, seed=seed).create()
    with Witness(cluster, load.steady, load.held) as witness:
        with load:
            witness.await_more(40, members.words)
            for _ in range(happenings):
                members.happen()
                members.wait()
            members.mend()
        found = await_ready(*members.nodes)
        witness.await_all(members.words)
        assert [code for node in members.nodes for code in node.stop()] == [0] * 4
        counts = witness.count()
    assert counts.clean, f"seed {seed}: {counts}\n{members.words()}"
    assert sorted(found) == list(range(cluster.shards))


@pytest.fixture
def four(make_cluster: Callable[..., Cluster], broker: BrokerUnderTest) -> Cluster:
    """Four shards: one for each of four processes."""
    return make_cluster(broker, shards=SHARDS)


def test_some_order_of_members(four: Cluster) -> None:
    """Another one every day; the seed is in the failure."""
    any_order(four, int(time.time()) // 86_400, 7)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_order_of_members(four: Cluster, seed: int) -> None:
    """In the end each shard has exactly one owner, and on the way nothing is lost, doubled or early."""
    any_order(four, seed, 40)


def test_kept_shards_fire_on_while_others_come_and_go(four: Cluster) -> None:
    """Whoever joins, leaves or dies: a shard that stays where it is is opened once and its longest silence is short.

    A session is half a minute here: a shard that had to wait for one would show it.
    """
    patient = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 500}
    first = four.node("first", **patient).start()
    await_ready(first)
    load = Load(four, 40, 16).create()
    kept = set(range(SHARDS))
    with Witness(four, load.steady) as witness:
        witness.await_more(40, first.words)
        for number in range(2):
            other = four.node(f"other-{number}", **patient).start()
            found = shared(first, other)
            kept &= {shard for shard, owner in found.items() if owner == "first-0"}
            witness.await_more(40, first.words)
            assert other.stop() == [0]
            wait_until(lambda: len(owners([first])) == SHARDS, first.words)
        witness.await_all(first.words)
        assert first.stop() == [0]
        counts = witness.count()
    assert counts.clean, f"{counts}\n{first.words()}"
    assert kept, "some shards stay where they are"
    opened = [event["shard"] for event in first.events("shard_ready")]
    assert [opened.count(shard) for shard in kept] == [1] * len(kept), first.words(60)
    assert max(counts.silence_ms[shard] for shard in kept) < patient["session_timeout_ms"] / 4, counts


def shared(*nodes: Node) -> dict[int, str]:
    """Wait until all shards are served and every process has some; shard -> process."""

    def fair() -> dict[int, str] | None:
        found = await_ready(*nodes)
        return found if len(set(found.values())) == len(nodes) else None

    found: dict[int, str] = wait_until(fair, lambda: "\n".join(node.words() for node in nodes))
    return found


@pytest.mark.parametrize("point", ["in_assigned", "in_revoked"])
def test_killed_inside_a_rebalance_callback(cluster: Cluster, point: str) -> None:
    """Taking shards or giving them up: whoever is left serves all of them."""
    node = cluster.node(processes=2)
    dying = 1 if point == "in_assigned" else 0
    node.start(0, crash=(point, 1) if dying == 0 else None)
    wait_until(lambda: len(owners([node])) == cluster.shards, node.words)
    load = Load(cluster, 40, 8).create()
    with Witness(cluster, load.steady) as witness:
        witness.await_more(40, node.words)
        node.start(1, crash=(point, 1) if dying == 1 else None)
        assert node.await_death(dying) == -signal.SIGKILL, node.words()
        witness.await_all(node.words)
        assert node.stop() == [0]
        counts = witness.count()
    assert counts.clean, f"{counts}\n{node.words()}"
