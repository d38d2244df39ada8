"""A broker that was killed comes back without the ghost of its former self."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from scheduler.local import Broker
from tests.support.node import wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.broker

WRITERS = 8


def quiet(broker: Broker, **more: str | int) -> dict[str, str | int]:
    return {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, **more}


def write_until_it_breaks(broker: Broker, partition: int, under_way: threading.Barrier) -> None:
    """Commit one record after another; tell when the first three are in, end with the first error."""
    producer = Producer(quiet(broker, **{"transactional.id": f"w{partition}", "transaction.timeout.ms": 2000}))
    with suppress(KafkaException):
        producer.init_transactions(30)
        for count in range(1_000_000):
            producer.begin_transaction()
            producer.produce("records", b"1", partition=partition)
            producer.commit_transaction(2)
            if count == 3:
                under_way.wait(60)


def ends(broker: Broker, level: IsolationLevel) -> list[int]:
    """The end of each partition as a reader of that isolation level sees it; waits for the leaders."""
    deadline = time.monotonic() + 30
    admin = AdminClient(quiet(broker))  # must outlive its answers
    partitions = [TopicPartition("records", number) for number in range(WRITERS)]
    while True:
        answers = admin.list_offsets({one: OffsetSpec.latest() for one in partitions}, isolation_level=level)
        try:
            return [answers[one].result(30).offset for one in partitions]
        except KafkaException:
            if time.monotonic() > deadline:
                raise


def kill_under_load(broker: Broker) -> None:
    """Kill and restart the broker while every writer commits."""
    under_way = threading.Barrier(WRITERS + 1)
    writers = [
        threading.Thread(target=write_until_it_breaks, args=(broker, number, under_way)) for number in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    under_way.wait(60)
    broker.kill()
    for writer in writers:
        writer.join()
    broker.restart()


def assert_nothing_hangs(broker: Broker) -> None:
    """Every transaction ends within seconds (their timeout is two): readers of committed records see the end."""
    deadline = time.monotonic() + 30
    while ends(broker, IsolationLevel.READ_COMMITTED) != ends(broker, IsolationLevel.READ_UNCOMMITTED):
        assert time.monotonic() < deadline, "a transaction never ends"


def create_topic(broker: Broker) -> None:
    admin = AdminClient(quiet(broker))
    admin.create_topics([NewTopic("records", WRITERS, 1)])["records"].result(30)


def led_epochs(log: str) -> list[int]:
    """The leader epochs in which the transaction coordinator took up its partitions, in order."""
    return [int(epoch) for epoch in re.findall(r"Elected as the txn coordinator for partition \d+ at epoch (\d+)", log)]


def test_a_killed_broker_leads_nothing_in_the_name_of_its_old_self(private_broker: Broker) -> None:
    """After a kill no transaction log is led in an epoch of before: those belong to the broker that died."""
    config = quiet(private_broker, **{"transactional.id": "one"})
    Producer(config).init_transactions(60)
    (log,) = private_broker.logs
    before = log.stat().st_size
    private_broker.kill()
    private_broker.restart()
    Producer(config).init_transactions(60)  # the coordinator is there, so its log says since when
    text = log.read_bytes()
    assert min(led_epochs(text[before:].decode())) > max(led_epochs(text[:before].decode()))


def test_no_transaction_hangs_after_a_kill(private_broker: Broker) -> None:
    """Commits that were acknowledged or under way at the kill end; no partition stays shut for its readers."""
    create_topic(private_broker)
    kill_under_load(private_broker)
    assert_nothing_hangs(private_broker)


@pytest.mark.soak
def test_no_transaction_hangs_after_many_kills(private_broker: Broker) -> None:
    """The same twenty times on one cluster, whose past then holds many crashes."""
    create_topic(private_broker)
    for _ in range(20):
        kill_under_load(private_broker)
        assert_nothing_hangs(private_broker)


def test_an_interrupted_first_start_is_no_obstacle(tmp_path: Path) -> None:
    """A broker that was killed before its first registration has no former self to wait for."""
    command = [sys.executable, "-m", "scheduler", "broker", "start", "--data-dir", str(tmp_path)]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: any(tmp_path.glob("node-1/data/__cluster_metadata-0/*.log")), "the broker's first record")
    first.send_signal(signal.SIGINT)
    first.wait(60)
    with Broker.start(tmp_path) as broker:
        assert broker.pids
