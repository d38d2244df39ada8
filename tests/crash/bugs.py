"""Bugs put into a process on purpose, to see which tests catch them: `TEST_BUG=<name>` in the environment of a test.

    python -m tests.crash.bugs ... run       the product with that bug

`test_deliberate_bugs.py` is the table of which test catches which.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from scheduler.cli import main
from scheduler.runtime import kafka
from scheduler.runtime.assignment import Assignment
from scheduler.runtime.clock import DueClock
from scheduler.runtime.restore import Restore
from scheduler.runtime.transaction import Transaction
from scheduler.shard.step import Record, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VARIABLE = "TEST_BUG"


def commit_order_swapped() -> None:
    """The store learns of a step before the transaction commits."""
    commit = Transaction.commit

    def swapped(self: Transaction, step: Step) -> float:
        step.store.write(step.batch)
        return commit(self, step)

    Transaction.commit = swapped  # type: ignore[method-assign]


def fencing_off() -> None:
    """Each producer has a transactional id of its own, so nobody is fenced and nothing of a dead one is aborted."""
    producer = kafka._producer

    def unfenced(settings: Any, more: Mapping[str, Any]) -> Any:
        if "transactional.id" in more:
            more = {**more, "transactional.id": f"{more['transactional.id']}-{os.urandom(4).hex()}"}
        return producer(settings, more)

    kafka._producer = unfenced  # type: ignore[assignment]


def outside_the_transaction() -> None:
    """Dispatches are sent by the plain producer: on the topic at once, whatever becomes of the step."""
    produce = Transaction._produce

    def split(self: Transaction, step: Step, applied: dict[str, int]) -> None:
        for item in step.items:
            target = item.entry.target
            self._plain.produce(target.topic, item.value, target.key, target.partition)
        items, step.items = step.items, []
        self._plain.flush(10)
        produce(self, step, applied)
        step.items = items

    Transaction._produce = split  # type: ignore[method-assign]


def floor_not_written() -> None:
    """What an outage decided of a schedule is known to memory alone."""

    def forgetful(self: Step, schedule_id: str, floor: int) -> None:
        self.floors[schedule_id] = floor

    Step.put_floor = forgetful  # type: ignore[method-assign]


def shard_record_not_written() -> None:
    """Positions and cursor stay in the store; the changelog does not hear of them, but for the first time."""
    seal = Step.seal

    def without(self: Step) -> None:
        seal(self)
        if self.record.step > 1:
            topic = self.catalogue.shard_records
            self.records[:] = [record for record in self.records if not _is(record, topic)]

    def _is(record: Record, topic: str) -> bool:
        return record.topic == topic and record.key.isdigit()

    Step.seal = without  # type: ignore[method-assign]


def positions_from_the_group() -> None:
    """Commands are read on from the offsets that are committed for lag tools."""

    def seek(self: Assignment, number: int, task: Any, offset: int) -> None:
        (found,) = self._consumer.committed([TopicPartition(self._topic, number)], timeout=10)
        at = found.offset if found.offset >= 0 else OFFSET_BEGINNING
        self._consumer.seek(TopicPartition(self._topic, number, at))
        task.sought(offset)
        task._next = max(0, found.offset)  # the task believes it, too
        self._consumer.resume([TopicPartition(self._topic, number)])
        self._paused.discard(number)

    Assignment._seek = seek  # type: ignore[method-assign]


def restore_skipped() -> None:
    """The store is believed as it is."""
    Restore._read = lambda *_: None  # type: ignore[method-assign]
    Restore._read_short = lambda *_: None  # type: ignore[method-assign]


def wall_clock() -> None:
    """What is due follows the machine's clock."""
    now = DueClock.now
    DueClock.now = lambda self: None if now(self) is None else time.time_ns() // 1_000_000  # type: ignore[method-assign]


BUGS: dict[str, Callable[[], None]] = {
    bug.__name__: bug
    for bug in (
        commit_order_swapped, fencing_off, outside_the_transaction, floor_not_written, shard_record_not_written,
        positions_from_the_group, restore_skipped, wall_clock,
    )
}  # fmt: skip


def infest() -> None:
    """Put in the bug that the environment names, if it names one."""
    name = os.environ.get(VARIABLE)
    if name:
        BUGS[name]()


def pytest_configure() -> None:
    """As a plugin (`-p tests.crash.bugs`) the bug is in the tests' own process."""
    infest()


if __name__ == "__main__":
    infest()
    main(prog_name="scheduler")
