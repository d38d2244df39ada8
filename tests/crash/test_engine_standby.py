"""Warm copies: a takeover reads a tail, whatever happened to the copy before; and a planned stop leaves no gap."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from scheduler import wire
from scheduler.shard import keys
from scheduler.state.rocks import RocksStore
from scheduler.state.store import Batch
from tests.support.commands import create, send
from tests.support.node import Cluster, Node, await_ready, owners, wait_until
from tests.support.verifier import Beat, Dispatches, beats, judge, now_ms

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.broker import BrokerUnderTest

pytestmark = pytest.mark.broker

HOUR = 3_600_000
MANY = 300  # schedules that a cold restore would have to read


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster], broker: BrokerUnderTest) -> Cluster:
    return make_cluster(broker, shards=4)


def load(cluster: Cluster) -> None:
    """Something to copy that does not fire meanwhile."""
    far = [Beat(f"acme/far-{n}", now_ms() + HOUR, now_ms() + 2 * HOUR) for n in range(MANY)]
    assert send(cluster, *(beat.create() for beat in far)) == ["created"] * MANY


def copies(node: Node) -> dict[int, dict[str, Any]]:
    """What the processes of a node say of their copies."""
    states = [node.state(index) or {} for index in range(node.processes)]
    return {int(number): copy for state in states for number, copy in state.get("standbys", {}).items()}


def await_warm(node: Node, shards: set[int]) -> None:
    """The node has up-to-date copies of just these shards."""

    def warm() -> bool:
        found = copies(node)
        return found.keys() == shards and all(copy.get("lag_records") == 0 for copy in found.values())

    wait_until(warm, lambda: f"copies of {shards}, up to date: {copies(node)}\n{node.words()}")


def two_nodes(cluster: Cluster, processes: int = 1) -> tuple[Node, Node, set[int]]:
    """Both started and served, with the load, and the second's copies warm; the third are the first one's shards."""
    first, second = cluster.node("n1", processes), cluster.node("n2", processes)
    first.start()
    await_ready(first)
    load(cluster)
    second.start()

    def shared() -> set[int] | None:
        served = await_ready(first, second)
        of_first = {shard for shard, name in served.items() if name.startswith("n1")}
        return of_first if 0 < len(of_first) < cluster.shards else None

    shards: set[int] = wait_until(shared, lambda: f"{first.words()}\n{second.words()}")
    await_warm(second, shards)
    return first, second, shards


def opened(node: Node, shards: set[int]) -> dict[int, int]:
    """How many records the newest openings of these shards had to apply."""
    return {event["shard"]: event["applied"] for event in node.events("shard_ready") if event["shard"] in shards}


def test_a_takeover_from_a_warm_copy_reads_a_tail(cluster: Cluster) -> None:
    """Of two processes, whichever gets the shard finds the copy that either kept, and reads what came since."""
    first, second, shards = two_nodes(cluster, processes=2)
    with Dispatches(cluster) as dispatches:
        expected = create(cluster, beats(12, now_ms() + 3_000, 8))
        dispatches.await_count(24, words=second.words)
        first.kill()
        wait_until(lambda: len(owners([second])) == cluster.shards, second.words)
        dispatches.await_all(expected, words=second.words)
        assert second.stop() == [0, 0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, f"{verdict}\n{second.words(60)}"
    applied = opened(second, shards)
    assert applied.keys() == shards
    assert sum(applied.values()) < MANY / 4, applied
    assert second.events("store_held") == [], "the copies were let go of, no second ones were made"


def test_killed_while_writing_a_copy(cluster: Cluster) -> None:
    """The copy goes on where its last whole batch ends, and is as good as ever when it is needed."""
    first, second, _ = two_nodes(cluster)
    second.sigkill()
    await_ready(first)
    second.start(crash=("in_standby", 5))
    with Dispatches(cluster) as dispatches:
        expected = create(cluster, beats(12, now_ms() + 3_000, 14))
        assert second.await_death() == -signal.SIGKILL, second.words()
        second.start()
        served = wait_until(
            lambda: found if len(set((found := await_ready(first, second)).values())) == 2 else None, second.words
        )
        shards = {shard for shard, name in served.items() if name.startswith("n1")}
        await_warm(second, shards)
        first.kill()
        wait_until(lambda: len(owners([second])) == cluster.shards, second.words)
        dispatches.await_all(expected, words=second.words)
        assert second.stop() == [0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, f"{verdict}\n{second.words(60)}"
    assert sum(opened(second, shards).values()) < MANY / 4


def store_path(node: Node, shard: int) -> Path:
    return node.data / "stores" / f"{node.cluster.namespace}-{node.node_id}" / str(shard)


def age(path: Path, ms: int) -> None:
    """Make a store say that it is older."""
    store = RocksStore(path)
    stored = store.get(keys.RECORD)
    assert stored is not None
    record = wire.record_from_bytes(stored)
    batch = Batch()
    batch.put(keys.RECORD, wire.record_to_bytes(record.moved(seen_until=record.seen_until - ms), now_ms()))
    batch.put(keys.meta("whole"), b"%d" % (now_ms() - ms))
    store.write(batch)
    store.close()


def test_a_copy_older_than_half_the_retention_of_tombstones_is_made_anew(cluster: Cluster) -> None:
    """Found again after 13 hours it may lack a deletion that the topic has forgotten, though nothing else has moved."""
    first, second, shards = two_nodes(cluster)
    assert second.stop() == [0]
    await_ready(first)
    for shard in range(cluster.shards):
        age(store_path(second, shard), 13 * HOUR)
    before = len(second.events("standby_begun"))
    second.start()
    served = wait_until(
        lambda: found if len(set((found := await_ready(first, second)).values())) == 2 else None, second.words
    )
    shards = {shard for shard, name in served.items() if name.startswith("n1")}
    await_warm(second, shards)
    begun = {event["shard"]: event["applied"] for event in second.events("standby_begun")[before:]}
    assert {event["shard"] for event in second.events("store_too_old")} == set(range(cluster.shards))
    assert all(begun[shard] > MANY / 8 for shard in shards), begun


def test_a_planned_stop_fires_on_until_others_have_taken_over(cluster: Cluster) -> None:
    """The shards of a node that leaves are closed by their new owners: with stock heartbeats nobody waits for one."""
    slow: dict[str, Any] = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_500}
    first, second = cluster.node("n1", **slow), cluster.node("n2", **slow)
    first.start()
    second.start()
    served = wait_until(
        lambda: found if len(set((found := await_ready(first, second)).values())) == 2 else None, second.words
    )
    moved = {shard for shard, name in served.items() if name.startswith("n1")}
    with Dispatches(cluster) as dispatches:
        expected = create(cluster, beats(40, now_ms() + 10_000, 8))
        dispatches.await_count(80, words=first.words)
        assert first.stop() == [0]
        wait_until(lambda: len(owners([second])) == cluster.shards, second.words)
        dispatches.await_all(expected, words=second.words)
        assert second.stop() == [0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, f"{verdict}\n{first.words(40)}\n{second.words(40)}"
    # Closed because their new owners had begun to open: not before those were even told.
    told = next(e["at"] for e in second.events("shards_assigned") if set(e["shards"]) & moved)
    closed = {event["shard"]: event["at"] for event in first.events("shard_closed")}
    assert all(closed[shard] > told for shard in moved), (told, closed)
    assert first.events("shard_failed") == []


def test_a_shard_that_moves_fires_until_its_new_owner_has_it(cluster: Cluster) -> None:
    """Between the two rebalances of a move nobody but the old owner can fire."""
    first, second = cluster.node("n1"), cluster.node("n2")
    first.start()
    await_ready(first)
    with Dispatches(cluster) as dispatches:
        expected = create(cluster, beats(60, now_ms() + 3_000, 15))
        dispatches.await_count(60, words=first.words)
        second.start()
        moved = wait_until(lambda: opened(second, set(range(cluster.shards))), second.words)
        dispatches.await_all(expected, words=second.words)
        assert [*first.stop(), *second.stop()] == [0, 0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, f"{verdict}\n{first.words(60)}"
    assigned = {shard: event["at"] for event in second.events("shards_assigned") for shard in event["shards"]}
    closed = {event["shard"]: event["at"] for event in reversed(first.events("shard_closed"))}
    assert all(closed[shard] >= assigned[shard] for shard in moved), first.words(60)
