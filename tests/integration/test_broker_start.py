"""The embedded broker as its users meet it: started, shared, killed, restarted, stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

if TYPE_CHECKING:
    from scheduler.local import Broker
    from tests.support.broker import BrokerUnderTest

pytestmark = pytest.mark.broker


def create_topic(bootstrap_servers: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, -1)])[name].result(30)


def write(bootstrap_servers: str, topic: str, values: list[bytes], *, transactional_id: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.commit_transaction(30)


def read(bootstrap_servers: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "reconnect.backoff.max.ms": 500,
        }
    )
    try:
        consumer.subscribe([topic])
        return [message.value() for message in consumer.consume(count, 60)]
    finally:
        consumer.close()


def test_a_transaction_written_is_read_by_a_group(broker: BrokerUnderTest, namespace: str) -> None:
    """A started broker is complete: topics, transactions and consumer groups work at once."""
    topic = f"{namespace}first"
    create_topic(broker.bootstrap_servers, topic)
    write(broker.bootstrap_servers, topic, [b"1", b"2"], transactional_id=topic)
    assert read(broker.bootstrap_servers, topic, 2) == [b"1", b"2"]


def test_a_killed_broker_comes_back_with_its_data_on_its_port(private_broker: Broker) -> None:
    """SIGKILL loses no acknowledged record, and clients find the broker where it was."""
    address = private_broker.bootstrap_servers
    create_topic(address, "kept")
    write(address, "kept", [b"1"], transactional_id="writer")
    private_broker.kill()
    assert private_broker.pids == []
    private_broker.restart()
    assert private_broker.bootstrap_servers == address
    assert read(address, "kept", 1) == [b"1"]


def test_a_broker_in_a_container_serves_the_same(docker_broker: str, namespace: str) -> None:
    """Where a Docker engine answers, the stock image does what the embedded node does."""
    topic = f"{namespace}container"
    create_topic(docker_broker, topic)
    write(docker_broker, topic, [b"1"], transactional_id=topic)
    assert read(docker_broker, topic, 1) == [b"1"]
