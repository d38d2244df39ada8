"""A large step's full batches go out before its commit, which would keep a processor busy otherwise (ADR 0033)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from scheduler.errors import Fenced
from scheduler.runtime.transaction import PATIENCE_S, Transaction
from scheduler.shard.held import Entry, Item, Target
from scheduler.shard.lines import Line
from scheduler.shard.step import Record
from topics.catalog import Catalogue

if TYPE_CHECKING:
    from scheduler.shard.step import Step


class Client:
    """Counts what waits. Each poll acknowledges so many records, or none when the brokers are gone."""

    def __init__(self, acknowledged: int, fault: KafkaException | None = None) -> None:
        self.fault = fault
        self.waiting = 0
        self.acknowledged = acknowledged
        self.left: list[int] = []
        self.committed_with = -1

    def __len__(self) -> int:
        return self.waiting

    def begin_transaction(self) -> None:
        self.waiting = 0

    def produce(self, *_args: Any) -> None:
        self.waiting += 1

    def flush(self, _seconds: float) -> int:
        return self.waiting

    def poll(self, seconds: float) -> int:
        assert seconds == PATIENCE_S
        if self.fault is not None:
            raise self.fault
        self.waiting -= self.acknowledged
        self.left.append(self.waiting)
        return 1  # of something: it need not be an acknowledgement

    def commit_transaction(self, _seconds: float) -> None:
        self.committed_with = self.waiting


def item(size: int, partition: int = 0) -> Item:
    entry = Entry("acme/a", b"due", Line(b"q"), Target("dispatch", partition, b"acme/a"), None)
    return Item(b"key", b"x" * size, entry, 0)


def commit(client: Client, items: list[Item], records: int = 1, *, stopped: bool = False) -> Client:
    """A step of these and so many records of the shard's own."""
    own = [Record("replies", b"acme/a", b"x" * 100, 0, None)] * records
    step = cast("Step", SimpleNamespace(items=items, records=own, forwards=[], now=0, batch=None))
    retired: list[Any] = []
    plain = cast("Any", None)
    Transaction(cast("Any", client), retired.append, plain, Catalogue(shards=1).commands, {}, lambda: stopped).commit(
        step
    )
    return client


def test_what_fills_batches_goes_out_first() -> None:
    """Until what is left may fill none."""
    client = commit(Client(2_400), [item(400)] * 20_000)
    assert client.left == [17_601, 15_201, 12_801, 10_401, 8_001, 5_601, 3_201, 801]
    assert client.committed_with == 801


@pytest.mark.parametrize(
    ("items", "records"),
    [
        ([item(400)], 9_000),  # commands beside what is due
        ([item(400)] * 2_000, 1),
        ([item(16_000)] * 60, 1),
        ([item(65_536)] * 15, 1),
        ([*([item(400)] * 2_000), item(65_536)], 1),
        ([item(400, number * 16 // 20_000) for number in range(20_000)], 1),
    ],
    ids=["commands", "small", "large", "largest", "mixed", "many partitions"],
)
def test_what_may_fill_no_batch_waits_for_nothing(items: list[Item], records: int) -> None:
    """It would be waited for in vain: only the commit sends a batch that is not full."""
    assert commit(Client(1), items, records).left == []


def test_brokers_that_do_not_answer_are_left_to_the_commit() -> None:
    """It knows what to make of them, and when to give up."""
    client = commit(Client(0), [item(400)] * 20_000)
    assert client.left == [20_001]
    assert client.committed_with == 20_001


def test_a_shard_that_closes_does_not_wait() -> None:
    """Its commit is given up at once, too."""
    assert commit(Client(2_400), [item(400)] * 20_000, stopped=True).left == []


def test_another_owner_is_heard_of_while_waiting() -> None:
    """What the client says there means what it means in a commit."""
    client = Client(2_400, KafkaException(KafkaError(KafkaError._FENCED, "another owner", fatal=True)))
    with pytest.raises(Fenced):
        commit(client, [item(400)] * 20_000)
    assert client.committed_with == -1
