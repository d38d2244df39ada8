"""The command client and the readers on a real broker, with a stand-in for the shards."""

from __future__ import annotations

import base64
import dataclasses
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from tests.support.responder import Responder
from topics.admin import apply, connect, observe, plan
from topics.catalog import Catalogue
from topics.client import CommandClient, NotDelivered
from topics.messages import Command
from topics.partition import partition_for
from topics.reading import Unreachable, follow, read_compacted

if TYPE_CHECKING:
    from tests.support.broker import BrokerUnderTest

pytestmark = pytest.mark.broker

SHARDS = 4


@pytest.fixture
def catalogue(broker: BrokerUnderTest, namespace: str) -> Catalogue:
    """A cluster's topics, as far as these tests need them."""
    made = Catalogue(namespace=namespace, shards=SHARDS)
    wanted = [spec for spec in made.specs() if spec.name in {made.commands, made.replies, made.schedules}]
    apply(connect({"bootstrap.servers": broker.bootstrap_servers}), plan(wanted, {}))
    return made


@pytest.fixture
def kafka(broker: BrokerUnderTest) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap_servers}


def test_a_command_gets_its_reply(broker: BrokerUnderTest, catalogue: Catalogue, kafka: dict[str, str]) -> None:
    """One call, one answer; an id is assigned, the record lies where Kafka's own partitioner puts its key."""
    with (
        Responder(broker.bootstrap_servers, catalogue) as shards,
        CommandClient(kafka, namespace=catalogue.namespace) as client,
    ):
        reply = client.send(Command(command="pause", schedule_id="acme/nightly"))
        given = client.send(Command(command="resume", schedule_id="acme/nightly", command_id="deploy-7"))
    assert (reply.status, reply.code, reply.schedule_id) == ("accepted", "paused", "acme/nightly")
    assert given.command_id == "deploy-7"
    (partition, command), _ = shards.seen
    assert partition == partition_for(b"acme/nightly", SHARDS)
    assert command["command_id"] == reply.command_id


def test_many_commands_are_answered_each_with_its_own(
    broker: BrokerUnderTest, catalogue: Catalogue, kafka: dict[str, str]
) -> None:
    """Pipelined through a window smaller than the load; mappings and structs alike; each command back as it was."""
    commands: list[Any] = [
        {"command": "create", "schedule_id": f"acme/job-{n}", "command_id": "same-for-all", "spec": {"payload": [n]}}
        for n in range(500)
    ]
    commands += [Command(command="pause", schedule_id=f"acme/job-{n}") for n in range(500)]
    with (
        Responder(broker.bootstrap_servers, catalogue) as shards,
        CommandClient(kafka, namespace=catalogue.namespace) as client,
    ):
        answered = list(client.send_many(commands, window=64))
    assert len(answered) == len(commands) == len(shards.seen)
    assert {id(command) for command, _ in answered} == {id(command) for command in commands}
    for command, reply in answered:
        wanted = command if isinstance(command, dict) else {"command": "pause", "schedule_id": command.schedule_id}
        assert (reply.schedule_id, reply.command) == (wanted["schedule_id"], wanted["command"])


def test_a_command_sent_twice_gets_two_replies(
    broker: BrokerUnderTest, catalogue: Catalogue, kafka: dict[str, str]
) -> None:
    """The same id may be under way twice; neither copy waits for ever."""
    twice = {"command": "trigger", "schedule_id": "acme/x", "command_id": "t-1"}
    with (
        Responder(broker.bootstrap_servers, catalogue),
        CommandClient(kafka, namespace=catalogue.namespace) as client,
    ):
        assert len(list(client.send_many([twice, twice]))) == 2


def test_what_cannot_be_addressed_is_answered_here(
    broker: BrokerUnderTest, catalogue: Catalogue, kafka: dict[str, str]
) -> None:
    """The shards answer by schedule and command id, so malformed ones would wait for ever; other lines go on."""
    commands: list[dict[str, Any]] = [
        {"command": "pause"},
        {"command": "pause", "schedule_id": "Acme Corp/x"},
        {"command": "pause", "schedule_id": "acme/x", "command_id": "no spaces"},
        {"command": "create", "schedule_id": "acme/y", "spec": {"payload": object()}},
        {"command": "create", "schedule_id": "acme/big", "spec": {"payload": "x" * 2_000_000}},
        {"command": "pause", "schedule_id": "acme/good"},
    ]
    with (
        Responder(broker.bootstrap_servers, catalogue) as shards,
        CommandClient(kafka, namespace=catalogue.namespace) as client,
    ):
        replies = [reply for _, reply in client.send_many(commands)]
    assert [reply.status for reply in replies] == ["rejected"] * 5 + ["accepted"]
    assert all(reply.message.startswith("not sent: ") for reply in replies[:5])
    assert [error.field for reply in replies[:3] for error in reply.errors] == [
        "schedule_id",
        "schedule_id",
        "command_id",
    ]
    assert [command["schedule_id"] for _, command in shards.seen] == ["acme/good"]


def test_a_reply_counts_only_once_committed(
    broker: BrokerUnderTest, catalogue: Catalogue, kafka: dict[str, str]
) -> None:
    """read_committed: an answer in an open transaction may still be taken back, so it is not shown."""
    open_transaction, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        open_transaction.set()
        assert go_on.wait(30)

    got: list[str] = []
    with (
        Responder(broker.bootstrap_servers, catalogue, before_commit=hold),
        CommandClient(kafka, namespace=catalogue.namespace, timeout_s=20) as client,
        CommandClient(kafka, namespace=catalogue.namespace, timeout_s=1) as other,
    ):

        def send() -> None:
            got.append(client.send(Command(command="pause", schedule_id="acme/x")).code)

        sender = threading.Thread(target=send)
        sender.start()
        assert open_transaction.wait(30)
        # The reply lies in the log now. Whoever waits a second on the same topic is not shown it.
        with pytest.raises(TimeoutError):
            other.send(Command(command="pause", schedule_id="acme/x", command_id="other"))
        assert got == []
        go_on.set()
        sender.join()
    assert got == ["paused"]


def test_silence_ends_in_a_timeout_that_says_what_to_check(catalogue: Catalogue, kafka: dict[str, str]) -> None:
    """No scheduler runs: the text names the topic, the command, and what to look at."""
    with (
        CommandClient(kafka, namespace=catalogue.namespace, timeout_s=0.5) as client,
        pytest.raises(TimeoutError, match=r"scheduler\.replies within 0\.5 s.*'c-1' for 'acme/x'.*scheduler doctor"),
    ):
        client.send(Command(command="pause", schedule_id="acme/x", command_id="c-1"))


def test_a_missing_topic_and_a_missing_broker_are_told_apart(kafka: dict[str, str], namespace: str) -> None:
    """Each error says what is missing and what to do next."""
    with pytest.raises(Unreachable, match=r"scheduler\.replies: .*check the namespace, or create it with"):
        CommandClient(kafka, namespace=namespace, timeout_s=5).__enter__()
    nobody = {"bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(Unreachable, match=r"no broker answered within 0\.5 s"):
        CommandClient(nobody, timeout_s=0.5).__enter__()
    with pytest.raises(Unreachable, match="no broker answered"):
        next(read_compacted(nobody, "scheduler.schedules", timeout_s=0.5))
    with pytest.raises(Unreachable, match="no broker answered"):
        next(follow(nobody, ["dispatch.default.normal"], timeout_s=0.5))


def test_a_command_the_broker_does_not_take_is_an_error(catalogue: Catalogue, kafka: dict[str, str]) -> None:
    """Delivery is refused by the broker later than the send; the caller still hears of it."""
    (spec,) = [spec for spec in catalogue.specs() if spec.name == catalogue.commands]
    small = dataclasses.replace(
        spec, config={"max.message.bytes": "20000"}, why={"max.message.bytes": "so that a record is refused"}
    )
    admin = connect(kafka)
    apply(admin, plan([small], observe(admin, [small])))
    payload = base64.b64encode(random.Random(7).randbytes(50_000)).decode()  # compression can't make it fit
    command = Command(command="create", schedule_id="acme/big", spec={"payload": payload})
    with (
        CommandClient(kafka, namespace=catalogue.namespace, timeout_s=20) as client,
        pytest.raises(NotDelivered, match=r"scheduler\.commands: Broker: Message size too large"),
    ):
        client.send(command)


def _write(broker: BrokerUnderTest, topic: str, *, abort: bool, records: list[tuple[bytes, bytes | None]]) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": f"{topic}-writer",
            "partitioner": "murmur2_random",
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for key, value in records:
        producer.produce(topic, value, key)
    producer.flush(30)
    if abort:
        producer.abort_transaction(30)
    else:
        producer.commit_transaction(30)


def test_reading_a_compacted_topic_ends_at_its_end_and_skips_what_was_aborted(
    broker: BrokerUnderTest, catalogue: Catalogue, kafka: dict[str, str]
) -> None:
    """Tombstones come as None, empty partitions and trailing transaction markers do not keep it waiting."""
    topic = catalogue.schedules
    assert list(read_compacted(kafka, topic)) == []
    _write(broker, topic, abort=False, records=[(b"a/1", b"{}"), (b"a/2", b"{}"), (b"a/1", b'{"v":2}'), (b"a/2", None)])
    _write(broker, topic, abort=True, records=[(b"a/1", b'{"v":3}'), (b"a/3", b"{}")])
    latest = {key: value for key, value, _, _ in read_compacted(kafka, topic)}
    assert latest == {b"a/1": b'{"v":2}', b"a/2": None}
    mine = partition_for(b"a/1", SHARDS)
    only = list(read_compacted(kafka, topic, key=b"a/1"))
    assert {partition for *_, partition, _ in only} == {mine}
    assert [value for key, value, _, _ in only if key == b"a/1"] == [b"{}", b'{"v":2}']


def test_partitions_are_read_one_by_one_when_asked(
    broker: BrokerUnderTest, catalogue: Catalogue, kafka: dict[str, str]
) -> None:
    """Each to its end before the next begins, with the same records as all at once."""
    topic = catalogue.schedules
    keys = [b"a/%d" % number for number in range(40)]
    for half in (keys[:20], keys[20:]):
        _write(broker, topic, abort=False, records=[(key, b"{}") for key in half])
    _write(broker, topic, abort=True, records=[(b"a/0", b"aborted")])
    read = list(read_compacted(kafka, topic, one_by_one=True))
    numbers = [number for _, _, number, _ in read]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == SHARDS
    assert sorted(read) == sorted(read_compacted(kafka, topic))
    assert {key for key, _, _, _ in read} == set(keys)


def test_following_shows_what_is_committed_from_now_on(
    broker: BrokerUnderTest, catalogue: Catalogue, kafka: dict[str, str]
) -> None:
    """Old records only on demand; aborted ones never; the append time comes with each."""
    topic = catalogue.schedules
    _write(broker, topic, abort=False, records=[(b"a/old", b"{}")])
    _write(broker, topic, abort=True, records=[(b"a/aborted", b"{}")])
    whole = follow(kafka, [topic], from_beginning=True)
    assert next(whole).key == b"a/old"
    whole.close()

    started = threading.Event()

    def asked() -> bool:
        started.set()
        return False

    got: list[bytes | None] = []
    stop = threading.Event()

    def watch() -> None:
        for record in follow(kafka, [topic], stop=lambda: asked() or stop.is_set()):
            assert record.append_ms > 1_700_000_000_000
            got.append(record.key)
            stop.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert started.wait(30)  # the end is known by now
    _write(broker, topic, abort=True, records=[(b"a/aborted", b"{}")])
    _write(broker, topic, abort=False, records=[(b"a/new", b"{}")])
    watcher.join(60)
    assert got == [b"a/new"]
