"""The brokers fail, or the network to them: what is committed stays, what is unknown is read again, none is doubled."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from scheduler.local.settings import HOST
from tests.support.commands import create
from tests.support.node import Cluster, await_ready, owners, wait_until
from tests.support.proxy import END_TXN, Proxy, proxied_broker
from tests.support.verifier import Dispatches, beats, judge, now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scheduler.local import Broker

pytestmark = pytest.mark.broker


def test_the_broker_is_killed_while_firing(make_cluster: Callable[..., Cluster], private_broker: Broker) -> None:
    """SIGKILL of the only broker in the middle of steps: the same process goes on when it is back."""
    cluster = make_cluster(private_broker)
    node = cluster.node().start()
    await_ready(node)
    expected = create(cluster, beats(8, now_ms() + 3_000, 8))
    with Dispatches(cluster) as dispatches:
        dispatches.await_count(12, words=node.words)
        private_broker.kill()
        private_broker.restart()
        dispatches.await_all(expected, words=node.words)
        assert node.stop() == [0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, f"{verdict}\n{node.words(60)}"


def test_a_transaction_that_the_brokers_hold_open(make_cluster: Callable[..., Cluster], private_broker: Broker) -> None:
    """What a lost marker looks like: the shard says how to end it and waits, the others fire."""
    cluster = make_cluster(private_broker)
    first, second = cluster.node("first"), cluster.node("second", transaction_timeout_ms=1_000)
    first.start()
    await_ready(first)
    expected = create(cluster, beats(8, now_ms() + 3_000, 12))
    with Dispatches(cluster) as dispatches:
        dispatches.await_count(12, words=first.words)
        assert first.stop() == [0]
        hanging = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "hangs"})
        hanging.init_transactions(30)
        hanging.begin_transaction()
        hanging.produce(cluster.catalogue.shard_records, b"", b"hangs", 0)
        hanging.flush(30)
        second.start()
        wait_until(lambda: any(event["shard"] == 0 for event in second.events("shard_failed")), second.words)
        wait_until(lambda: len(owners([second])) == cluster.shards - 1, second.words)
        said = next(event["text"] for event in second.events("shard_failed") if event["shard"] == 0)
        assert f"--topic {cluster.catalogue.shard_records} --partition 0 --start-offset" in said
        hanging.abort_transaction(30)
        dispatches.await_all(expected, words=second.words)
        assert second.stop() == [0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, f"{verdict}\n{second.words(60)}"


@pytest.fixture
def proxied(make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Cluster, Proxy]]:
    """A scheduler whose broker also answers through a proxy."""
    with proxied_broker(monkeypatch) as (broker, proxy):
        cluster = make_cluster(broker)
        yield cluster, proxy
        cluster.close()


def behind(cluster: Cluster, proxy: Proxy) -> Cluster:
    """The same cluster as seen through the proxy."""
    return replace(cluster, bootstrap_servers=f"{HOST}:{proxy.port}")


@pytest.mark.parametrize(
    ("times", "hang_up"),
    [
        pytest.param(1, True, id="connection lost", marks=pytest.mark.soak),
        pytest.param(8, False, id="silence", marks=pytest.mark.soak),
    ],
)
def test_the_answer_to_a_commit_is_lost(proxied: tuple[Cluster, Proxy], times: int, *, hang_up: bool) -> None:
    """Committed, and the shard does not know: the client asks again, or all is read again; nothing is repeated."""
    cluster, proxy = proxied
    seen_by_node = behind(cluster, proxy)
    node = seen_by_node.node().start()
    cluster.nodes += seen_by_node.nodes
    await_ready(node)
    expected = create(cluster, beats(8, now_ms() + 3_000, 8))
    with Dispatches(cluster) as dispatches:
        dispatches.await_count(8, words=node.words)
        proxy.lose(END_TXN, times, hang_up=hang_up)
        dispatches.read_until(lambda: not proxy.losing(END_TXN) or node.events("shard_failed"), node.words)
        proxy.lose(END_TXN, 0, hang_up=False)
        dispatches.await_all(expected, words=node.words)
        assert node.stop() == [0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, f"{verdict}\n{node.words(60)}"
    # The client resumes a commit whose connection broke; one that stays silent is ambiguous.
    assert {event["why"] for event in node.events("shard_failed")} == (set() if hang_up else {"retriable"})


def test_cut_off_during_a_commit_and_back_again(proxied: tuple[Cluster, Proxy]) -> None:
    """A hangs in a commit behind a dead network, B takes over, A returns: one owner each, never none, none doubled."""
    cluster, proxy = proxied
    seen_by_a = behind(cluster, proxy)
    a, b = seen_by_a.node("a"), cluster.node("b")
    cluster.nodes += seen_by_a.nodes
    a.start()
    await_ready(a)
    expected = create(cluster, beats(8, now_ms() + 3_000, 10))
    with Dispatches(cluster) as dispatches:
        dispatches.await_count(8, words=a.words)
        proxy.lose(END_TXN, 1, hang_up=False)
        dispatches.read_until(lambda: not proxy.losing(END_TXN), a.words)
        proxy.cut()
        b.start()
        wait_until(lambda: len(owners([b])) == cluster.shards, b.words)
        dispatches.await_count(16, words=b.words)
        proxy.mend()
        dispatches.await_all(expected, words=b.words)
        found = await_ready(a, b)
        assert a.stop() + b.stop() == [0, 0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, f"{verdict}\n{a.words(60)}\n{b.words(60)}"
    assert sorted(found) == list(range(cluster.shards))
