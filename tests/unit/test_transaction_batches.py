"""A large step's full batches go out before its commit, which would keep a processor busy otherwise (ADR 0033)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from scheduler.runtime.kafka import BATCH_BYTES
from scheduler.runtime.transaction import PATIENCE_S, Transaction
from scheduler.shard.held import Entry, Item, Target
from scheduler.shard.lines import Line
from topics.catalog import Catalogue

if TYPE_CHECKING:
    from scheduler.shard.step import Step

ENTRY = Entry("acme/a", b"due", Line(b"q"), Target("dispatch", 0, b"acme/a"), None)


class Client:
    """Counts what waits. Each poll acknowledges so many records, or none when the brokers are gone."""

    def __init__(self, acknowledged: int) -> None:
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
        self.waiting -= self.acknowledged
        self.left.append(self.waiting)
        return 1  # of something: it need not be an acknowledgement

    def commit_transaction(self, _seconds: float) -> None:
        self.committed_with = self.waiting


def commit(client: Client, number: int, size: int) -> Client:
    items = [Item(b"key", b"x" * size, ENTRY, 0)] * number
    step = cast("Step", SimpleNamespace(items=items, records=[], forwards=[], now=0, batch=None))
    unused = cast("Any", None)
    Transaction(cast("Any", client), unused, unused, Catalogue(shards=1).commands, {}, lambda: False).commit(step)
    return client


def test_what_fills_batches_goes_out_first() -> None:
    """Until what is left may fit into one."""
    client = commit(Client(2_400), 20_000, 400)
    assert client.left == [17_600, 15_200, 12_800, 10_400, 8_000, 5_600, 3_200, 800]
    assert client.committed_with == 800


@pytest.mark.parametrize(("number", "size"), [(1, 400), (2_000, 400), (50, 16_000), (1, 900_000)])
def test_what_fits_into_one_batch_waits_for_nothing(number: int, size: int) -> None:
    """It would be waited for in vain: only the commit sends a batch that is not full."""
    assert number * size < BATCH_BYTES
    assert commit(Client(1), number, size).left == []


def test_records_larger_than_a_batch_are_waited_for() -> None:
    """Each is one of its own."""
    assert commit(Client(1), 3, BATCH_BYTES).committed_with == 0


def test_brokers_that_do_not_answer_are_left_to_the_commit() -> None:
    """It knows what to make of them, and when to give up."""
    client = commit(Client(0), 20_000, 400)
    assert client.left == [20_000]
    assert client.committed_with == 20_000
