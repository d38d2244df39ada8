"""What the shell relies on in brokers and client, held against real ones and against those of the simulation.

The two are used through the same object, `Outside`, and every rule runs on both: a simulation whose brokers are kinder
than real ones would prove nothing.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from scheduler.config import Kafka, Settings
from scheduler.errors import Fenced
from scheduler.runtime.kafka import reaction_to
from scheduler.runtime.outside import Outside
from scheduler.runtime.transaction import Transaction
from tests.support.world.brokers import Brokers
from tests.support.world.fibers import SECOND, Process, World
from tests.support.world.machines import FakeOutside, Node
from topics.catalog import Catalogue

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.broker import BrokerUnderTest
    from tests.support.node import Cluster

TIMEOUT_MS = 6_000
PATIENCE_S = 30.0


class Port:
    """One kind of outside. `run` lets a test's body go on where it can wait. `broker`: the real one, if it is real."""

    def __init__(self, outside: Any, catalogue: Catalogue, broker: BrokerUnderTest | None = None) -> None:
        self.outside = outside
        self.catalogue = catalogue
        self._broker = broker

    def run(self, body: Callable[[], None]) -> None:
        body()

    def pass_time(self, seconds: float) -> None:
        time.sleep(seconds)  # the brokers' own time-outs cannot be waited for in another way

    def commit_too_slow(self, producer: Any) -> None:
        """A commit that its time does not suffice for, though the client's own threads had enough of it."""
        pids = [] if self._broker is None else self._broker.pids
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            producer.commit_transaction(1.0 if pids else 1e-6)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def producer(self) -> Any:
        made = self.outside.transactional_producer(0)
        made.init_transactions(PATIENCE_S)
        return made

    def watermarks(self) -> tuple[int, int]:
        consumer = self.outside.changelog_consumer()
        found: tuple[int, int] = consumer.get_watermark_offsets(TopicPartition(self.catalogue.live, 0), timeout=10)
        consumer.close()
        return found

    def await_end(self, end: int) -> None:
        """A commit returns before its markers are there: until committed readers get so far."""
        waited = 0.0
        while self.watermarks()[1] < end and waited < PATIENCE_S:
            self.pass_time(0.2)
            waited += 0.2

    def ends(self) -> int:
        (found,) = self.outside.ends([self.catalogue.live], 0, lambda: False).values()
        assert isinstance(found, int)
        return found

    def read(self, topic: str, start: int = 0) -> tuple[list[Any], int]:
        """Records from an offset on, and where the end was announced."""
        consumer = self.outside.changelog_consumer()
        consumer.assign([TopicPartition(topic, 0, start)])
        records: list[Any] = []
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, "neither a record nor an end"
            error = message.error()
            if error is None:
                records.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF
                consumer.close()
                return records, message.offset()


class FakePort(Port):
    """In a world with nothing else in it."""

    def __init__(self) -> None:
        self._world = World(1)
        catalogue = Catalogue(shards=2)
        brokers = Brokers(self._world, catalogue, 1_767_258_000_000, lambda _txn: None)
        node = Node(self._world, brokers, "n", 1, transaction_timeout_ms=TIMEOUT_MS)
        self._process = Process("test")
        super().__init__(FakeOutside(node, self._process, node.settings), catalogue)

    def run(self, body: Callable[[], None]) -> None:
        ended: list[BaseException | None] = []

        def fiber() -> None:
            try:
                body()
            except Exception as fault:  # noqa: BLE001 - raised again outside
                ended.append(fault)
            else:
                ended.append(None)

        self._world.spawn(self._process, fiber, "test")
        assert self._world.run(300 * SECOND, until=lambda: bool(ended)), "it never ends"
        self._world.kill(self._process)
        if ended[0] is not None:
            raise ended[0]

    def pass_time(self, seconds: float) -> None:
        self._world.sleep(round(seconds * SECOND))


@pytest.fixture(params=["fake", "real"])
def port(request: pytest.FixtureRequest) -> Port:
    if request.param == "fake":
        return FakePort()
    cluster: Cluster = request.getfixturevalue("cluster")
    settings = Settings(
        kafka=Kafka(bootstrap_servers=cluster.bootstrap_servers),
        namespace=cluster.namespace,
        shards=2,
        transaction_timeout_ms=TIMEOUT_MS,
        session_timeout_ms=2_500,
        heartbeat_interval_ms=400,
    )
    return Port(Outside(settings), cluster.catalogue, request.getfixturevalue("broker"))


def refused(call: Callable[[], object]) -> KafkaException:
    with pytest.raises(KafkaException) as caught:
        call()
    return caught.value


def writing(port: Port, key: bytes = b"k") -> Any:
    """A new producer in a transaction with one record."""
    producer = port.producer()
    producer.begin_transaction()
    producer.produce(port.catalogue.live, b"{}", key, 0)
    return producer


def test_open_and_aborted_records_are_not_seen(port: Port) -> None:
    """The end for committed readers is the first open record; an abort moves it, and shows nothing."""

    def body() -> None:
        old = writing(port)
        old.flush(10)
        assert port.watermarks() == (0, 0)
        assert port.ends() == 1  # for a reader of everything
        port.producer()  # aborts it
        assert port.watermarks() == (0, 2)  # the record and the marker behind it
        assert port.ends() == 2
        assert port.read(port.catalogue.live) == ([], 2)

    port.run(body)


def test_whoever_initialises_fences_the_one_before(port: Port) -> None:
    """The old one's commit fails for good, as does every call after it: `Fenced`, with nothing of it to be seen."""

    def body() -> None:
        old = writing(port, b"old")
        old.flush(10)
        new = port.producer()
        for call in (lambda: old.commit_transaction(10), old.begin_transaction):
            fault = refused(call)
            assert isinstance(reaction_to(fault, "x"), Fenced)
            assert fault.args[0].fatal()
        new.begin_transaction()
        new.produce(port.catalogue.live, b"{}", b"new", 0)
        new.commit_transaction(10)
        port.await_end(4)
        records, _ = port.read(port.catalogue.live)
        assert [record.key() for record in records] == [b"new"]

    port.run(body)


def test_an_owner_that_was_refused_at_first_stays_the_owner(port: Port) -> None:
    """What the one before left open is aborted first; nothing that asked meanwhile asks once more and fences us."""
    topic = port.catalogue.live

    def body() -> None:
        for _ in range(3):
            before = port.producer()
            before.begin_transaction()
            before.produce(topic, b"open", b"k", 0)
            before.flush(PATIENCE_S)
            producer = port.outside.transactional_producer(0)
            changelogs: dict[str, str] = {}
            owner = Transaction(
                producer, port.outside.retire, port.outside.plain, "commands", changelogs, lambda: False
            )
            owner.init()
            port.pass_time(1.0)
            producer.begin_transaction()
            producer.produce(topic, b"ours", b"k", 0)
            producer.commit_transaction(PATIENCE_S)
        port.await_end(12)

    port.run(body)
    records, _ = port.read(topic)
    assert [record.value() for record in records] == [b"ours"] * 3


def test_a_fenced_producer_that_had_nothing_open_is_told_when_it_writes(port: Port) -> None:
    """It learns of its fate by the first record, not earlier."""

    def body() -> None:
        old = port.producer()
        port.producer()
        old.begin_transaction()
        old.produce(port.catalogue.live, b"{}", b"k", 0)
        assert isinstance(reaction_to(refused(lambda: old.commit_transaction(10)), "x"), Fenced)

    port.run(body)


def test_committed_records_keep_order_stamps_and_offsets(port: Port) -> None:
    """Reports tell offsets by the time the commit returns; the end is behind the marker; reading resumes anywhere."""

    def body() -> None:
        offsets: list[int] = []

        def told(_error: object, message: Any) -> None:
            offsets.append(message.offset())

        producer = port.producer()
        for _ in range(2):
            producer.begin_transaction()
            for n in range(3):  # by places, as `Transaction` does
                producer.produce(
                    port.catalogue.live, b"%d" % n, b"k", 0, told, None, 1_767_258_000_000 + n, [("step", b"1")]
                )
            producer.commit_transaction(10)
        assert offsets == [0, 1, 2, 4, 5, 6]
        port.await_end(8)
        records, end = port.read(port.catalogue.live)
        assert end == 8
        assert [record.offset() for record in records] == offsets
        assert [record.value() for record in records] == [b"0", b"1", b"2"] * 2
        assert records[1].timestamp()[1] == 1_767_258_000_001
        assert records[0].headers() == [("step", b"1")]
        assert [record.offset() for record in port.read(port.catalogue.live, 3)[0]] == [4, 5, 6]
        assert port.watermarks() == (0, 8)

    port.run(body)


def test_a_transaction_left_open_is_aborted_after_its_time_out(port: Port) -> None:
    """Its producer is fenced by that, and readers go on."""

    def body() -> None:
        producer = writing(port)
        producer.flush(10)
        port.await_end(2)
        assert port.read(port.catalogue.live) == ([], 2)
        assert isinstance(reaction_to(refused(lambda: producer.commit_transaction(10)), "x"), Fenced)

    port.run(body)


def test_a_call_that_takes_too_long_may_be_resumed(port: Port) -> None:
    """The error says so; the call made again finishes it, and there is one transaction."""

    def body() -> None:
        producer = writing(port)
        fault = refused(lambda: port.commit_too_slow(producer))
        assert fault.args[0].code() == KafkaError._TIMED_OUT
        assert fault.args[0].retriable()
        producer.commit_transaction(10)
        port.await_end(2)
        assert len(port.read(port.catalogue.live)[0]) == 1
        producer.begin_transaction()
        assert refused(producer.begin_transaction).args[0].code() == KafkaError._STATE

    port.run(body)


def test_full_batches_go_out_before_the_commit(port: Port) -> None:
    """What is left fits into one batch, however long that one is filled; none of it is seen before the commit."""

    def body() -> None:
        producer = port.producer()
        producer.begin_transaction()
        for number in range(35):
            producer.produce(port.catalogue.live, b"x" * 100_000, b"%d" % number, 0)
        while len(producer) > 10 and producer.poll(PATIENCE_S):
            pass
        assert 0 < len(producer) <= 10
        assert port.ends() >= 25
        assert port.read(port.catalogue.live)[0] == []
        producer.commit_transaction(PATIENCE_S)
        assert len(producer) == 0
        port.await_end(port.ends())
        assert len(port.read(port.catalogue.live)[0]) == 35

    port.run(body)


def test_the_plain_producer_tells_the_brokers_time(port: Port) -> None:
    """On a topic with append time the report has the stamp a reader sees; nothing needs a partition."""

    def body() -> None:
        stamps: list[int] = []
        port.outside.plain.produce(
            port.catalogue.clock,
            b"{}",
            b"me",
            on_delivery=lambda _error, message: stamps.append(message.timestamp()[1]),
        )
        while not stamps:
            port.outside.plain.poll(1.0)
        records, _ = port.read(port.catalogue.clock)
        assert [record.timestamp()[1] for record in records] == stamps

    port.run(body)


class Member:
    """A member of the group, with what it was told."""

    def __init__(self, port: Port) -> None:
        self.answers: list[Any] = []
        self.owned: set[int] = set()
        self.revoked: set[int] = set()
        self._port = port
        self.consumer = port.outside.command_consumer(lambda error, _partitions: self.answers.append(error))
        self.consumer.subscribe(
            [port.catalogue.commands], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def _assigned(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign([TopicPartition(p.topic, p.partition, OFFSET_BEGINNING) for p in partitions])
        consumer.pause(partitions)
        self.owned |= {p.partition for p in partitions}

    def _revoked(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        consumer.incremental_unassign(partitions)
        self.owned -= {p.partition for p in partitions}
        self.revoked |= {p.partition for p in partitions}

    def commit(self, number: int, offset: int) -> None:
        partition = TopicPartition(self._port.catalogue.commands, number, offset)
        self.consumer.commit(offsets=[partition], asynchronous=True)


def poll_until(condition: Callable[[], object], *members: Member) -> None:
    for _ in range(2_000):
        if condition():
            return
        for member in members:
            member.consumer.poll(0.05)
    raise AssertionError([(member.owned, member.answers) for member in members])


def test_partitions_are_handed_over_one_by_one(port: Port) -> None:
    """A second member takes some; what the first keeps it never gives back. Who leaves is succeeded at once."""

    def body() -> None:
        first = Member(port)
        poll_until(lambda: first.owned == {0, 1}, first)
        second = Member(port)
        poll_until(lambda: len(second.owned) == 1, first, second)
        assert first.owned | second.owned == {0, 1}
        assert first.revoked == second.owned
        second.consumer.close()
        poll_until(lambda: first.owned == {0, 1}, first)
        first.consumer.close()

    port.run(body)


def test_only_a_member_may_commit_offsets(port: Port) -> None:
    """The coordinator's answer comes with a poll: taken from a member, refused to one that is none, beside others.

    While the group is about to go on, a member may be refused, too: whoever needs an answer asks again.
    """

    def body() -> None:
        member, other = Member(port), Member(port)
        poll_until(lambda: len(member.owned) == len(other.owned) == 1, member, other)
        (mine,) = member.owned
        while None not in member.answers:
            asked = len(member.answers)
            member.commit(mine, 5)
            poll_until(lambda asked=asked: len(member.answers) > asked, member, other)
        stranger = Member(port)
        stranger.commit(mine, 7)
        poll_until(lambda: stranger.answers, member, other, stranger)
        assert stranger.answers[0] is not None
        for one in (member, other, stranger):
            one.consumer.close()

    port.run(body)


def sought(member: Member, partition: TopicPartition) -> bool:
    """Whether the client has taken the seek; a fetcher not yet started is no reason to give up."""
    try:
        member.consumer.seek(partition)
    except KafkaException as fault:
        if fault.args[0].code() != KafkaError._STATE:
            raise
        return False
    return True


def test_a_paused_partition_is_read_from_where_it_is_sought(port: Port) -> None:
    """A seek may be refused at first; once taken, what is read begins there and goes to the end.

    It may all come once more, if the fetcher starts late and then where the assignment said: seen on real brokers.
    """

    def body() -> None:
        for _ in range(4):
            port.outside.plain.produce(port.catalogue.commands, b"{}", b"k", 0)
        port.outside.plain.flush(10)
        member = Member(port)
        poll_until(lambda: 0 in member.owned, member)
        partition = TopicPartition(port.catalogue.commands, 0, 2)
        poll_until(lambda: sought(member, partition), member)
        member.consumer.resume([partition])
        heard: list[tuple[int, bool]] = []
        while (4, True) not in heard:
            message = member.consumer.poll(1.0)
            if message is not None and message.partition() == 0:
                heard.append((message.offset(), message.error() is not None))
        new: list[int] = []
        for offset, is_end in heard:
            if not is_end and offset >= (new[-1] + 1 if new else 2):
                new.append(offset)
        assert new == [2, 3]
        member.consumer.close()

    port.run(body)
