"""Long restores of a process go one by one, so that the first shard serves soon."""

from __future__ import annotations

from contextlib import suppress
from threading import Condition, Event, Thread
from typing import TYPE_CHECKING, Any, cast

import pytest

from scheduler.errors import Retriable
from scheduler.runtime.restore import LONG, Gate, Restore
from scheduler.state.store import MemoryStore
from topics import catalog

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition

PATIENCE_S = 30


def test_one_is_inside_at_a_time_and_the_next_follows_whatever_happened_to_it() -> None:
    gate, inside, go_on, second = Gate(Condition()), Event(), Event(), Event()
    waits = Event()

    def first() -> None:
        with suppress(ValueError), gate.passed(lambda: False):
            inside.set()
            go_on.wait(PATIENCE_S)
            raise ValueError("a bad record")

    def told_to_stop() -> bool:
        waits.set()  # asked while it waits
        return False

    def next_one() -> None:
        with gate.passed(told_to_stop):
            second.set()

    threads = [Thread(target=first), Thread(target=next_one)]
    threads[0].start()
    assert inside.wait(PATIENCE_S)
    threads[1].start()
    assert waits.wait(PATIENCE_S)
    assert not second.is_set()
    go_on.set()
    assert second.wait(PATIENCE_S)
    for thread in threads:
        thread.join(PATIENCE_S)


def test_who_is_told_to_stop_waits_no_longer_and_is_in_nobodys_way() -> None:
    gate, stopped = Gate(Condition()), Event()
    with gate.passed(lambda: False):
        stopped.set()
        with pytest.raises(Retriable, match="stopped"), gate.passed(stopped.is_set):
            pytest.fail("nobody may be inside twice")
    with gate.passed(lambda: False):
        pass


class Brokers:
    """Topics of so many records each, none of which ever comes; asked to read them, it says so."""

    def __init__(self, shards: int, schedules: int) -> None:
        self.high = {catalog.SHARDS: shards, catalog.LIVE: 0, catalog.SCHEDULES: schedules}

    def get_watermark_offsets(self, partition: TopicPartition, **_: object) -> tuple[int, int]:
        return 0, self.high.get(partition.topic, 0)

    def assign(self, partitions: list[TopicPartition]) -> None:
        raise Reading(partitions[0].topic)

    def close(self) -> None: ...


class Reading(Exception):
    """A restore began to read."""


@pytest.mark.parametrize(
    ("shards", "schedules", "waits"),
    [(10, 10, False), (10, LONG // 2, False), (50 * LONG, LONG // 2, False), (10, LONG + 1, True)],
    ids=["short", "some", "many of which the newest counts", "long"],
)
def test_only_what_takes_long_waits(shards: int, schedules: int, *, waits: bool) -> None:
    """A warm shard is open in some ms, whoever restores beside it."""
    gate, stopped = Gate(Condition()), Event()
    restore = Restore(cast("Any", Brokers(shards, schedules)), "", 0, stopped.is_set, gate=gate)
    with gate.passed(lambda: False):
        if waits:
            stopped.set()
        with pytest.raises(Retriable if waits else Reading):
            restore.run(MemoryStore())
