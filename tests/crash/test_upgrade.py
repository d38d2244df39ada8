"""Rolling upgrades under load: processes of an earlier commit are replaced one by one by this code's, and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from scheduler.core.record import FORMAT
from tests.support import release
from tests.support.load import Load
from tests.support.node import Cluster, Node, await_ready, owners, wait_until
from tests.support.verifier import Reader
from tests.support.witness import Witness

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.broker


def words(*nodes: Node) -> str:
    return "\n".join(node.words() for node in nodes)


def await_turn(node: Node) -> dict[str, str]:
    """Wait until a node says for whom it waits."""
    found: dict[str, str] = wait_until(lambda: (node.state() or {}).get("waits_for"), node.words)
    return found


def test_from_the_previous_record_format(cluster: Cluster, tmp_path: Path) -> None:
    """The new nodes wait, own nothing and write nothing until the last old process has stopped; then they go on."""
    old_code = release.unpack(release.last_of_an_older_format(), tmp_path / "old")
    old = [cluster.node(name, root=old_code).start() for name in ("a", "b")]
    await_ready(*old)
    load = Load(cluster, 40, 30, per_s=20).create()
    new: list[Node] = []
    with Witness(cluster, load.steady, load.held) as witness:
        with load:
            witness.await_more(80, lambda: words(*old))
            for node in old:
                assert node.stop() == [0]
                new.append(cluster.node(node.node_id).start())
                if node is old[0]:
                    assert set(await_turn(new[0]).values()) == {f"record format {FORMAT - 1}"}
                    wait_until(lambda: len(owners([old[1]])) == cluster.shards, lambda: words(*old, *new))
                    witness.await_more(80, lambda: words(*old, *new))
            await_ready(*new)
        witness.await_all(lambda: words(*old, *new))
        assert [node.stop() for node in new] == [[0], [0]]
        counts = witness.count()
    assert counts.clean, f"{counts}\n{words(*new)}"


def test_within_one_record_format_and_back(cluster: Cluster, tmp_path: Path) -> None:
    """Old and new processes share the shards at the same time, and each restores what the other wrote."""
    old_code = release.unpack(release.first_of_this_format(), tmp_path / "old")
    a, b = cluster.node("a", root=old_code).start(), cluster.node("b").start()
    await_ready(a, b)
    load = Load(cluster, 40, 20, per_s=20).create()
    with Witness(cluster, load.steady, load.held) as witness:
        with load:
            witness.await_more(80, lambda: words(a, b))
            for upgraded in (True, False):  # forward, then back
                for node_id in ("a", "b"):
                    node = a if node_id == "a" else b
                    assert node.stop() == [0]
                    node = cluster.node(node_id, **({} if upgraded else {"root": old_code})).start()
                    a, b = (node, b) if node_id == "a" else (a, node)
                    await_ready(a, b)
        witness.await_all(lambda: words(a, b))
        assert a.stop() + b.stop() == [0, 0]
        counts = witness.count()
    assert counts.clean, f"{counts}\n{words(a, b)}"


def test_an_old_process_that_wakes_up_outgrown_leaves(cluster: Cluster) -> None:
    """Frozen while newer ones took over, it comes back to shards it cannot read: it leaves them to who can."""
    old, new = cluster.node("old").start(), cluster.node("new")
    await_ready(old)
    load = Load(cluster, 40, 20).create()

    def serves() -> bool:
        return sorted(owners([new])) == list(range(cluster.shards))

    with Witness(cluster, load.steady) as witness:
        witness.await_more(80, old.words)
        old.freeze()
        new.start(program="tests.crash.newer_release")
        wait_until(serves, lambda: words(old, new))
        witness.await_more(80, lambda: words(old, new))
        old.thaw()
        assert await_turn(old) == {"new-0": f"record format {FORMAT + 1}, newer than {FORMAT}"}
        wait_until(serves, lambda: words(old, new))
        witness.await_all(lambda: words(old, new))
        assert old.stop() + new.stop() == [0, 0]
        counts = witness.count()
    assert counts.clean, f"{counts}\n{words(old, new)}"


def test_a_record_of_a_newer_format_is_refused(cluster: Cluster) -> None:
    """The shard says what to do and waits, the other fires on; the shards' record speaks for all that a step writes."""
    node = cluster.node().start()
    await_ready(node)
    load = Load(cluster, 40, 8).create()
    with Witness(cluster, load.steady) as witness:
        witness.await_more(80, node.words)
        assert node.stop() == [0]
        with Reader(cluster, [cluster.catalogue.shard_records]) as reader:
            mine = [seen for seen in reader.read_to_end() if seen.key == b"0"][-1]
        producer = Producer({**cluster.kafka, "transactional.id": f"{cluster.namespace}shard-0"})
        producer.init_transactions(30)
        producer.begin_transaction()

        def put(number: int) -> None:
            value = json.dumps({**mine.fields, "format": number}).encode()
            producer.produce(mine.topic, value, mine.key, 0, headers=mine.headers)

        put(FORMAT + 1)
        producer.commit_transaction(30)
        node.start()

        def refused() -> str:
            return str((node.state() or {}).get("shards", {}).get("0", {}).get("trouble", ""))

        wait_until(refused, node.words)
        assert f"record format {FORMAT + 1}" in refused()
        assert "run the newer version" in refused()
        wait_until(lambda: 1 in owners([node]), node.words)
        assert node.events("shard_failed"), "it is not quietly passed over"
        producer = Producer({**cluster.kafka, "transactional.id": f"{cluster.namespace}shard-0"})
        producer.init_transactions(30)
        producer.begin_transaction()
        put(mine.fields["format"])
        producer.commit_transaction(30)
        await_ready(node)
        witness.await_all(node.words)
        assert node.stop() == [0]
        counts = witness.count()
    assert counts.clean, f"{counts}\n{node.words()}"
