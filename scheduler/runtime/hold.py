"""One shard held by an offline tool: through its transactional id, against nodes that may take it back at any time.

Holding fences the owner. A node that runs notices, owns the shard anew a moment later and fences the holder in turn; so
whatever the holder has to commit is built from what it finds, as often as it takes.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

from scheduler.errors import Fenced, Retriable
from scheduler.runtime.clock import Deadline
from scheduler.runtime.kafka import changelog_consumer, transactional_producer
from scheduler.runtime.restore import Restore
from scheduler.runtime.retired import RETIRED
from scheduler.runtime.telemetry import event
from scheduler.runtime.transaction import Transaction
from scheduler.shard.rebuild import ORDER, stored_record
from scheduler.state.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Producer

    from scheduler.config import Settings
    from scheduler.core.record import ShardRecord
    from scheduler.runtime.kafka import Inquiry
    from scheduler.shard.step import Step

T = TypeVar("T")

LOOK_S = 15.0
ATTEMPTS = 20  # a node that keeps owning the shard anew interrupts every few seconds


def never() -> bool:
    """An offline tool is not told to stop."""
    return False


def look(settings: Settings, shard: int) -> ShardRecord | None:
    """The shard record as it stands; None if there is none. Disturbs nobody. Raises Retriable, StateCorrupted."""
    deadline = Deadline(LOOK_S)
    while True:
        store = MemoryStore()
        try:
            Restore(changelog_consumer(settings), settings.namespace, shard, never).look(store)
        except Retriable:
            if not deadline.left():
                raise
            time.sleep(0.1)  # a topic just made has no leader yet
            continue
        return stored_record(store)


class Hold:
    """One shard of the cluster of these settings."""

    def __init__(self, settings: Settings, plain: Producer, inquiry: Inquiry, shard: int) -> None:
        self.shard = shard
        self._settings = settings
        self._plain = plain
        self._inquiry = inquiry
        self._transaction: Transaction | None = None
        self._record: ShardRecord | None = None
        self._record_of: Transaction | None = None  # under which it was read: a later one may find another

    def commit(self, build: Callable[[ShardRecord | None], Step | None]) -> ShardRecord | None:
        """Commit what `build` makes of the shard record, if it makes anything; the record as it is then.

        `build` may be asked several times, and of what an earlier try committed after all. Raises as `keep`.
        """

        def work(transaction: Transaction) -> ShardRecord | None:
            if self._record_of is not transaction:
                self._record = look(self._settings, self.shard)
                self._record_of = transaction
            step = build(self._record)
            if step is not None:
                transaction.commit(step)
                self._record = step.record
            return self._record

        return self.keep(work)

    def keep(self, work: Callable[[Transaction], T]) -> T:
        """Do something while the shard is held; whenever it is taken back, hold it again and begin `work` anew.

        Raises Retriable when nodes take the shard back again and again, Hanging, and what else `work` raises.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return work(self._held())
            except (Fenced, Retriable) as fault:
                self._transaction = None
                event("hold_interrupted", shard=self.shard, attempt=attempt, text=str(fault))
        raise Retriable(
            f"shard {self.shard} of namespace {self._settings.namespace!r} was taken back by a running node {ATTEMPTS} "
            "times: stop the nodes and repeat the command, which goes on where it was"
        )

    def _held(self) -> Transaction:
        if self._transaction is None:
            changelogs = {self._settings.namespace + base: base for base in ORDER}
            commands = self._settings.catalogue().commands
            transaction = Transaction(self._producer(), RETIRED.keep, self._plain, commands, changelogs, never)
            transaction.init()
            self._await_settled()
            self._transaction = transaction
        return self._transaction

    def _await_settled(self) -> None:
        settings = self._settings
        with closing(Restore(changelog_consumer(settings), settings.namespace, self.shard, never)) as restore:
            restore.await_settled(self._inquiry.ends, settings.transaction_timeout_ms, time.monotonic, time.sleep)

    def _producer(self) -> Producer:
        return transactional_producer(self._settings, self.shard)
