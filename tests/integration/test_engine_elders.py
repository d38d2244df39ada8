"""A rolling upgrade of the zone tables: the newer node waits for the last older process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from scheduler.core.record import FORMAT
from tests.support.node import Cluster, await_ready, wait_until
from topics.codec import encode
from topics.messages import ClockProbe

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.broker import BrokerUnderTest


def test_newer_tables_wait_until_the_last_older_process_is_gone(
    broker: BrokerUnderTest, namespace: str, tmp_path: Path
) -> None:
    """Not ready, no shard, and says for whom it waits; serves once the other has been silent for three seconds."""
    cluster = Cluster(broker.bootstrap_servers, namespace, 1, tmp_path).make_topics()
    stop = threading.Event()

    def older() -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
        sequence = 0
        while not stop.is_set():
            sequence += 1
            probe = ClockProbe(process="old-0", sequence=sequence, tz_version="1999a", format=FORMAT)
            producer.produce(cluster.catalogue.clock, encode(probe), b"old-0")
            producer.flush(5)
            stop.wait(0.5)

    thread = threading.Thread(target=older)
    thread.start()
    try:
        node = cluster.node().start()
        waits = wait_until(lambda: (node.state() or {}).get("waits_for"), node.words)
        assert waits == {"old-0": "zone tables 1999a"}
        state = node.state()
        assert state is not None
        assert not state["ready"]
        assert state["live"]
        assert state["shards"] == {}
        stop.set()
        await_ready(node)
    finally:
        stop.set()
        thread.join()
        cluster.close()
