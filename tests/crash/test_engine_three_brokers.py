"""Three brokers, replication 3: one of them dies; firing goes on, nothing is lost or doubled, no answer is made up."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from scheduler.config import Kafka, Settings
from scheduler.errors import Retriable
from scheduler.local import Broker
from scheduler.runtime.kafka import Inquiry
from tests.support.commands import create
from tests.support.node import ROOT, Cluster, await_ready, wait_until
from tests.support.verifier import Dispatches, beats, judge, now_ms
from topics.admin import connect, observe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.broker

SHARDS = 3
BEATS = 12


@pytest.fixture
def brokers() -> Iterator[Broker]:
    """Three small brokers of this test alone."""
    with Broker.start(nodes=3, heap_mb=256) as three:
        yield three


@pytest.fixture
def cluster(brokers: Broker, namespace: str, tmp_path: Path) -> Iterator[Cluster]:
    """A scheduler that asks for three copies of which two must be written; it has no topics yet."""
    one = Cluster(brokers.bootstrap_servers, namespace, SHARDS, tmp_path, replication_factor=3, min_isr=2)
    yield one
    one.close()


def leaders(cluster: Cluster) -> dict[int, int]:
    """Shard -> the node id of the broker that leads its command partition."""
    topic = cluster.catalogue.commands
    found = connect(cluster.kafka).list_topics(topic, timeout=30).topics[topic].partitions
    return {number: one.leader for number, one in found.items()}


def copies(cluster: Cluster) -> set[tuple[int, int]]:
    """(replicas, in sync) of all partitions of all topics of the scheduler."""
    topics = connect(cluster.kafka).list_topics(timeout=30).topics
    mine = [one for name, one in topics.items() if name.startswith(cluster.namespace)]
    return {(len(p.replicas), len(p.isrs)) for one in mine for p in one.partitions.values()}


def test_one_of_three_brokers_dies_while_firing(brokers: Broker, cluster: Cluster) -> None:
    """The settings reach the topics; with two of three left every shard fires on, and the third catches up."""
    node = cluster.node()
    apply = [sys.executable, "-m", "scheduler", "--config", str(node.config), "topics", "apply"]
    subprocess.run(apply, check=True, cwd=ROOT, capture_output=True)
    assert copies(cluster) == {(3, 3)}
    found = observe(connect(cluster.kafka), cluster.catalogue.specs())
    assert {topic.config["min.insync.replicas"] for topic in found.values()} == {"2"}
    node.start()
    await_ready(node)
    assert set(leaders(cluster).values()) == {1, 2, 3}, "each broker leads a shard's inputs"
    expected = create(cluster, beats(BEATS, now_ms() + 3_000, 16))
    with Dispatches(cluster) as dispatches:
        dispatches.await_count(2 * BEATS, words=node.words)
        brokers.kill(1)
        # All that is expected comes while the broker is away, what falls due after its death too.
        dispatches.await_all(expected, words=node.words)
        assert copies(cluster) == {(3, 2)}
        brokers.restart(1)
        wait_until(lambda: copies(cluster) == {(3, 3)}, lambda: f"all copies in sync: {copies(cluster)}")
        await_ready(node)
        assert node.stop() == [0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, f"{verdict}\n{node.words(60)}"


def test_where_partitions_end_is_found_though_a_leader_is_dead(brokers: Broker, cluster: Cluster) -> None:
    """A client goes on asking the dead one, and some take its silence for an end: a shard would decide again."""
    cluster.make_topics()
    topic, numbers = cluster.catalogue.commands, range(SHARDS)
    producer = Producer(cluster.kafka)
    for number in numbers:
        producer.produce(topic, b"{}", partition=number)
    assert producer.flush(30) == 0
    kafka = Kafka(bootstrap_servers=cluster.bootstrap_servers)
    inquiry = Inquiry(Settings(kafka=kafka, namespace=cluster.namespace, shards=SHARDS))
    assert [inquiry.ends([topic], number, lambda: False) for number in numbers] == [{topic: 1}] * SHARDS
    assert 2 in leaders(cluster).values()
    brokers.kill(1)

    def end_of(number: int) -> dict[str, int] | None:
        try:
            return inquiry.ends([topic], number, lambda: False)
        except Retriable:
            return None

    for number in numbers:
        assert wait_until(lambda n=number: end_of(n), f"an end of {number}") == {topic: 1}
