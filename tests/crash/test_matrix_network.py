"""What the network does: a node cut off past its session, answers of coordinators that never come.

The witness reads from the broker directly, so it sees what others see while a node is cut off.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scheduler.local.settings import HOST
from tests.support.load import Load
from tests.support.node import Cluster, Node, await_ready, owners, wait_until
from tests.support.proxy import Proxy, proxied_broker
from tests.support.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scheduler.local import Broker

pytestmark = pytest.mark.broker

COMMIT_OFFSETS, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 8, 10, 11, 12, 14
INIT_PRODUCER, ADD_PARTITIONS, END_TRANSACTION = 22, 24, 26


@pytest.fixture(scope="module")
def one_broker() -> Iterator[tuple[Broker, Proxy]]:
    """A broker that also answers through a proxy, for all tests of this file."""
    with pytest.MonkeyPatch.context() as patch, proxied_broker(patch) as found:
        yield found


@pytest.fixture
def cut(
    one_broker: tuple[Broker, Proxy], make_cluster: Callable[..., Cluster]
) -> Iterator[tuple[Cluster, Node, Proxy]]:
    """A cluster as it is, and a node of it behind the proxy, which is whole again afterwards."""
    broker, proxy = one_broker
    cluster = make_cluster(broker)
    through = replace(cluster, bootstrap_servers=f"{HOST}:{proxy.port}")  # its nodes are the cluster's, to be ended
    yield cluster, through.node("behind"), proxy
    proxy.mend()
    proxy.lose(END_TRANSACTION, 0, hang_up=False)


def test_a_node_cut_off_past_its_session(cut: tuple[Cluster, Node, Proxy]) -> None:
    """Nothing passes, either way: another node takes over; once it is back there is one owner of each shard."""
    cluster, node, proxy = cut
    other = cluster.node("other")
    node.start()
    await_ready(node)
    load = Load(cluster, 40, 14, per_s=20).create()

    def words() -> str:
        return f"{node.words()}\n{other.words()}"

    with Witness(cluster, load.steady, load.held) as witness:
        with load:
            witness.await_more(40, words)
            proxy.cut()
            other.start()
            wait_until(lambda: len(owners([other])) == cluster.shards, words)
            witness.await_more(80, words)
            proxy.mend()
            found = await_ready(node, other)
            witness.await_more(80, words)
        witness.await_all(words)
        assert node.stop() + other.stop() == [0, 0]
        counts = witness.count()
    assert counts.clean, f"{counts}\n{words()}"
    assert sorted(found) == list(range(cluster.shards))


@pytest.mark.parametrize(
    ("api", "times"),
    [
        pytest.param(HEARTBEAT, 12, id="heartbeats"),
        pytest.param(ADD_PARTITIONS, 4, id="partitions of a transaction", marks=pytest.mark.soak),
        pytest.param(COMMIT_OFFSETS, 6, id="offsets", marks=pytest.mark.soak),
        pytest.param(FIND_COORDINATOR, 4, id="where the coordinator is", marks=pytest.mark.soak),
    ],
)
def test_a_coordinator_that_does_not_answer(cut: tuple[Cluster, Node, Proxy], api: int, times: int) -> None:
    """What was asked is done or not, and nobody says: in time somebody owns each shard and nothing shows it."""
    cluster, node, proxy = cut
    node.start()
    await_ready(node)
    load = Load(cluster, 40, 12, per_s=20).create()
    with Witness(cluster, load.steady, load.held) as witness:
        with load:
            witness.await_more(40, node.words)
            proxy.lose(api, times, hang_up=False)
            witness.await_more(200, node.words)
            proxy.lose(api, 0, hang_up=False)
        witness.await_all(node.words)
        await_ready(node)
        assert node.stop() == [0]
        counts = witness.count()
    assert counts.clean, f"{counts}\n{node.words()}"


@pytest.mark.parametrize(
    "api",
    [
        pytest.param(INIT_PRODUCER, id="init of a producer"),
        pytest.param(JOIN_GROUP, id="join", marks=pytest.mark.soak),
        pytest.param(SYNC_GROUP, id="sync", marks=pytest.mark.soak),
    ],
)
def test_a_coordinator_that_does_not_answer_at_a_start(cut: tuple[Cluster, Node, Proxy], api: int) -> None:
    """Two answers each are lost, with their connections, while a node takes over from one that was killed."""
    cluster, node, proxy = cut
    first = cluster.node("first").start()
    await_ready(first)
    load = Load(cluster, 40, 10).create()
    with Witness(cluster, load.steady) as witness:
        witness.await_more(40, first.words)
        first.sigkill()
        proxy.lose(api, 2, hang_up=True)
        node.start()
        witness.await_more(80, node.words)
        assert not proxy.losing(api)
        witness.await_all(node.words)
        assert node.stop() == [0]
        counts = witness.count()
    assert counts.clean, f"{counts}\n{node.words()}"
