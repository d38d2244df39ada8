"""Who goes first on a real broker when more is due than a transaction takes, and a kill in the middle of it."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from scheduler.cli import main
from scheduler.core.turns import QUANTUM
from tests.support.commands import create
from tests.support.node import Cluster, Node, await_ready, wait_until
from tests.support.verifier import Beat, Dispatches, Reader, judge, now_ms

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.broker import BrokerUnderTest

pytestmark = pytest.mark.broker

STEP = 100  # records in a transaction: the least that may be configured
AHEAD_MS = 6_000


def crowd(cluster: Cluster) -> dict[str, int]:
    """Three tenants, three priorities, one instant."""
    at = now_ms() // 1000 * 1000 + AHEAD_MS
    expected: dict[str, int] = {}
    for priority, counts in (
        ("background", {"big": 40}),
        ("normal", {"big": 150, "heavy": 100, "small": 10}),
        ("high", {"big": 60, "heavy": 60}),
    ):
        names = [f"{tenant}/{priority}-{n}" for tenant, count in counts.items() for n in range(count)]
        expected |= create(cluster, [Beat(name, at, at + 1) for name in names], priority=priority)
    return expected


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster], broker: BrokerUnderTest) -> Cluster:
    """One shard, whose order is then the order of each topic."""
    return make_cluster(broker, shards=1)


@pytest.fixture
def node(cluster: Cluster) -> Node:
    return cluster.node(max_transaction_records=STEP)


def test_priorities_in_order_and_tenants_in_turns(
    cluster: Cluster, node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is urgent is committed first; inside a priority each round gives a tenant as many as its weight says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCHEDULER_KAFKA__BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
    monkeypatch.setenv("SCHEDULER_NAMESPACE", cluster.namespace)
    monkeypatch.setenv("SCHEDULER_SHARDS", str(cluster.shards))
    applied = CliRunner().invoke(main, ("tenant", "apply", "-"), input="tenant: heavy\nweight: 2\n")
    assert applied.exit_code == 0, applied.output
    node.start()
    wait_until(lambda: node.events("tenants_read"), node.words)
    await_ready(node)
    expected = crowd(cluster)
    with Dispatches(cluster) as dispatches:
        dispatches.await_all(expected, words=node.words)
        assert node.stop() == [0]
        seen = dispatches.read_to_end()
    verdict = judge(seen, expected)
    assert verdict.clean, f"{verdict}\n{node.words()}"
    of = {p: [one for one in seen if one.topic.endswith(p)] for p in ("high", "normal", "background")}
    assert max(one.append_ms for one in of["high"][:STEP]) <= min(one.append_ms for one in of["normal"])
    assert max(one.append_ms for one in of["normal"][:STEP]) <= min(one.append_ms for one in of["background"])
    tenants = (one.fields["tenant"] for one in of["normal"])
    runs = [(tenant, len(list(run))) for tenant, run in groupby(tenants)]
    heavy = ("heavy", 2 * QUANTUM)
    assert runs[:5] == [("big", QUANTUM), heavy, ("small", 10), ("big", QUANTUM), heavy]


@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
def test_a_kill_in_the_middle_of_a_crowd(cluster: Cluster, node: Node, point: str) -> None:
    """Queues lag when the process dies: who restores them goes on behind what was committed, queue by queue."""
    node.start(crash=(point, 3))
    await_ready(node)
    expected = crowd(cluster)
    node.await_death()
    with Reader(cluster, [cluster.catalogue.shard_records]) as reader:
        lags = {one.key: one.value for one in reader.read_to_end() if one.key is not None and b"/queue/" in one.key}
    assert any(lags.values()), "no queue lags: this shows nothing"
    node.start()
    with Dispatches(cluster) as dispatches:
        dispatches.await_all(expected, words=node.words)
        assert node.stop() == [0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, f"{verdict}\n{node.words()}"
