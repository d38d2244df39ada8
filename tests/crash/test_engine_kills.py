"""SIGKILL at every point of a step and of a start: read-committed consumers see each occurrence once, none early.

One scheduler lives through a chain of kills while its schedules fire every second; the expected set is arithmetic
(`tests/support/ledger.py`). A process is killed by itself at the point (`tests/crash/child.py`), so the point is
exact, and the next process takes over.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.support.load import Load
from tests.support.node import Cluster, await_ready
from tests.support.verifier import Beat, Reader, now_ms
from tests.support.witness import Witness
from topics.partition import partition_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from tests.support.verifier import Seen

pytestmark = pytest.mark.broker

A_KILL_S = int(
    os.environ.get("A_KILL_S", "5")
)  # what a kill and a take-over cost: the session has to run out and shards to open
COLD = frozenset({"in_restore"})  # points that are only reached when there is something to restore


def live_through(cluster: Cluster, points: Sequence[tuple[str, int]], schedules: int = 40, per_s: int = 20) -> None:
    """Kill at each of the points in turn while schedules fire and commands come, then let the rest be in peace."""
    node = cluster.node().start()
    await_ready(node)
    load = Load(cluster, schedules, A_KILL_S * len(points) + 4, per_s=per_s).create()
    with Witness(cluster, load.steady, load.held) as witness:
        with load:
            witness.await_more(schedules, node.words)
            node.sigkill()
            for point in points:
                if point[0] in COLD:
                    shutil.rmtree(node.data)
                node.start(crash=point)
                assert node.await_death() == -signal.SIGKILL, node.words()
            node.start()
        witness.await_all(node.words)
        assert node.stop() == [0]
        counts = witness.count()
    assert counts.clean, f"{counts}\n{node.words(60)}"


def test_killed_at_every_point_of_a_step(cluster: Cluster) -> None:
    """Before produce, between produce and commit, after the commit before the store, after the store, advancing."""
    points = [("before_produce", 3), ("before_commit", 3), ("after_commit", 3), ("after_store", 3), ("in_advance", 3)]
    live_through(cluster, points)


def test_killed_while_taking_over(cluster: Cluster) -> None:
    """After fencing the old owner, and in a cold restore: the next owner does it all again."""
    live_through(cluster, [("in_init", 1), ("in_restore", 3)])


@pytest.mark.soak
def test_killed_anywhere_in_a_start(cluster: Cluster) -> None:
    """In the rebalance callback, at each place of a restore, and at later steps: the chain of kills goes on."""
    points = [("in_assigned", 1), ("in_init", 2), *(("in_restore", n) for n in range(1, 5)), ("after_restore", 2)]
    points += [(point, n) for point in ("before_produce", "before_commit", "after_commit") for n in (1, 2, 7)]
    points += [(point, n) for point in ("after_store", "in_advance") for n in (1, 2, 7)]
    live_through(cluster, points, 1_000, 200)


def test_killed_while_forwarding(cluster: Cluster) -> None:
    """Died between the copy of a misrouted create and its own commit: copied twice, applied once.

    The schedule is deleted between the two copies. The second is set aside: nothing comes back.
    """
    beat = Beat("acme/misrouted", now_ms() + 3_600_000, now_ms() + 7_200_000)
    catalogue = cluster.catalogue
    home = partition_for(beat.schedule_id.encode(), cluster.shards)
    producer = Producer(cluster.kafka)

    def produce(command: dict[str, Any], partition: int) -> None:
        producer.produce(catalogue.commands, json.dumps(command).encode(), beat.schedule_id, partition)
        assert producer.flush(30) == 0

    produce(beat.create(), (home + 1) % cluster.shards)
    node = cluster.node().start(crash=("while_forwarding", 1))
    assert node.await_death() == -signal.SIGKILL, node.words()
    produce({"command": "delete", "schedule_id": beat.schedule_id}, home)
    node.start()
    with Reader(cluster, [catalogue.commands, catalogue.replies, catalogue.rejected, catalogue.schedules]) as reader:

        def of(topic: str) -> list[Seen]:
            return [seen for seen in reader.seen if seen.topic == topic]

        reader.read_until(lambda: of(catalogue.rejected), node.words)
        assert node.stop() == [0]
        reader.read_to_end()
        assert len([seen for seen in of(catalogue.commands) if dict(seen.headers).get("fwd")]) == 2
        assert [seen.fields["code"] for seen in of(catalogue.replies)] == ["created", "deleted"]
        assert [seen.fields["code"] for seen in of(catalogue.rejected)] == ["repeated"]
        assert of(catalogue.schedules)[-1].value is None
