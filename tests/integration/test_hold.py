"""An offline tool that holds a shard, on the real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from scheduler.config import Kafka, Settings
from scheduler.runtime.hold import Hold
from scheduler.runtime.kafka import Inquiry, plain_producer
from scheduler.runtime.restore import Hanging

if TYPE_CHECKING:
    from tests.support.node import Cluster

pytestmark = pytest.mark.broker


def test_a_shard_with_a_hanging_transaction_is_not_changed(cluster: Cluster) -> None:
    """What it decided might be decided again by the tool, too. Once it is ended, the tool goes on."""
    settings = Settings(
        kafka=Kafka(bootstrap_servers=cluster.bootstrap_servers),
        namespace=cluster.namespace,
        shards=cluster.shards,
        transaction_timeout_ms=1_000,
    )
    hanging = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"{cluster.namespace}hangs"}
    )
    hanging.init_transactions(30)
    hanging.begin_transaction()
    hanging.produce(cluster.catalogue.schedules, b"", b"hangs", 0)
    hanging.flush(30)
    hold = Hold(settings, plain_producer(settings), Inquiry(settings), 0)
    with pytest.raises(Hanging, match="--partition 0 --start-offset 0"):
        hold.keep(lambda _transaction: None)
    hanging.abort_transaction(30)
    assert hold.keep(lambda _transaction: "held") == "held"
