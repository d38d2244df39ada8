"""The producer of a shard, on the real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scheduler.config import Kafka, Settings
from scheduler.runtime import kafka

if TYPE_CHECKING:
    from tests.support.node import Cluster

pytestmark = pytest.mark.broker


def test_a_commit_sends_what_still_fills_its_batch(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long batches may fill, a step of one record is not held up (ADR 0032)."""
    monkeypatch.setattr(kafka, "FILL_MS", 90_000)
    settings = Settings(
        kafka=Kafka(bootstrap_servers=cluster.bootstrap_servers),
        namespace=cluster.namespace,
        shards=cluster.shards,
        transaction_timeout_ms=120_000,
    )
    producer = kafka.transactional_producer(settings, 0)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(cluster.catalogue.schedules, b"", b"one", 0)
    producer.commit_transaction(30)
    assert len(producer) == 0
