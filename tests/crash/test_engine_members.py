"""Processes die, freeze, return, stop and join: each shard has one owner again, and no occurrence shows it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.support.commands import create
from tests.support.node import Cluster, Node, await_ready, owners, wait_until
from tests.support.verifier import Dispatches, beats, judge, now_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.broker import BrokerUnderTest

pytestmark = pytest.mark.broker

SHARDS = 4


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster], broker: BrokerUnderTest) -> Cluster:
    """Four shards: two for each of two processes."""
    return make_cluster(broker, shards=SHARDS)


def shared(*nodes: Node) -> dict[int, str]:
    """Wait until all shards are served and every process has some; shard -> process."""
    processes = {f"{node.node_id}-{index}" for node in nodes for index in range(node.processes)}

    def fair() -> dict[int, str] | None:
        found = await_ready(*nodes)
        return found if set(found.values()) == processes else None

    found: dict[int, str] = wait_until(fair, lambda: "\n".join(node.words() for node in nodes))
    return found


def gone(pids: set[int]) -> bool:
    return not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids)


def test_a_killed_process_is_replaced_and_nothing_is_missed(cluster: Cluster) -> None:
    """Its shards move or wait for the supervisor to start it again: per-second schedules of all shards miss nothing."""
    node = cluster.node(processes=2, supervised=True).start()
    shared(node)
    with Dispatches(cluster) as dispatches:
        expected = create(cluster, beats(12, now_ms() + 3_000, 6))
        dispatches.await_count(12, words=node.words)
        before = node.pid(1)
        node.sigkill(1)
        wait_until(lambda: node.pid(1) != before, node.words)
        dispatches.await_all(expected, words=node.words)
        assert set(shared(node).values()) == {"n1-0", "n1-1"}
        pids = node.pids()
        assert node.stop() == [0]
        assert gone(pids), "a planned stop leaves no process"
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, f"{verdict}\n{node.words(60)}"
    died = node.events("process_died")
    assert [(event["index"], event["code"]) for event in died] == [(1, -signal.SIGKILL)]
    assert all(event["drained"] for event in node.events("process_stopped"))


def test_a_frozen_process_returns_as_a_zombie(cluster: Cluster) -> None:
    """SIGSTOP with a transaction ready to be committed, SIGCONT when others have gone on: refused, nothing doubled.

    The brokers would not abort that transaction by themselves for a minute: only the fence stops it.
    """
    node = cluster.node(processes=2, transaction_timeout_ms=60_000).start(0)
    node.start(1, crash=("before_commit", 3), by="SIGSTOP")
    frozen = [shard for shard, owner in shared(node).items() if owner == "n1-1"]
    with Dispatches(cluster) as dispatches:
        expected = create(cluster, beats(12, now_ms() + 3_000, 9))
        wait_until(lambda: node.is_frozen(1), node.words)
        # The frozen process keeps its stores locked: the other one must not wait for them.
        wait_until(lambda: served(node, 0) == set(range(SHARDS)), node.words)
        dispatches.await_count(24, words=node.words)
        node.thaw(1)
        dispatches.await_all(expected, words=node.words)
        shared(node)
        assert node.stop() == [0, 0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, f"{verdict}\n{node.words(80)}"
    assert len(frozen) == 2
    assert {event["shard"] for event in node.events("store_held")} >= set(frozen)


def served(node: Node, index: int) -> set[int]:
    """The shards a process says it serves."""
    shards = (node.state(index) or {}).get("shards", {})
    return {int(number) for number, what in shards.items() if what["phase"] == "ready"}


def test_a_node_joins_and_leaves_and_kept_shards_fire_on(cluster: Cluster) -> None:
    """Every shard has one owner throughout; those that stay have no gap because others move, and a planned stop hands
    over with nobody waiting for a session of half a minute to run out.
    """
    patient: Any = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 500}
    first, second = cluster.node("n1", **patient), cluster.node("n2", **patient)
    first.start()
    await_ready(first)
    with Dispatches(cluster) as dispatches:
        expected = create(cluster, beats(12, now_ms() + 3_000, 12))
        dispatches.await_count(12, words=first.words)
        second.start()
        after = shared(first, second)
        assert second.stop() == [0]
        wait_until(lambda: len(owners([first])) == SHARDS, first.words, 20)  # less than the session
        dispatches.await_all(expected, words=first.words)
        assert first.stop() == [0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, f"{verdict}\n{first.words(40)}\n{second.words(40)}"
    assert sorted(after.values()) == ["n1-0", "n1-0", "n2-0", "n2-0"]
    # A kept shard was opened once, at the very start: it never stopped for the ones that moved.
    opened = [event["shard"] for event in first.events("shard_ready")]
    assert all(opened.count(shard) == 1 for shard, owner in after.items() if owner == "n1-0"), first.words(60)
    assert first.events("shard_failed") == []


def test_a_node_whose_supervisor_is_killed_ends(cluster: Cluster) -> None:
    """No process outlives its parent, so none is left that nobody would restart."""
    node = cluster.node(processes=2, supervised=True).start()
    shared(node)
    pids = node.pids()
    supervisor = next(pid for pid in pids if psutil.Process(pid).parent() == psutil.Process())
    psutil.Process(supervisor).kill()
    wait_until(lambda: gone(pids), node.words)
