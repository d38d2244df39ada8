"""One shard held by an offline tool: through its transactional id, against nodes that may take it back at any time.

Holding fences the owner. A node that runs notices, owns the shard anew a moment later and fences the holder in turn; so
whatever the holder has to commit is built from the record it finds, as often as it takes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from scheduler.errors import Fenced, Retriable
from scheduler.runtime.clock import Deadline
from scheduler.runtime.kafka import changelog_consumer, transactional_producer
from scheduler.runtime.restore import Restore
from scheduler.runtime.telemetry import event
from scheduler.runtime.transaction import Transaction
from scheduler.shard.rebuild import ORDER, stored_record
from scheduler.state.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Producer

    from scheduler.config import Settings
    from scheduler.core.record import ShardRecord
    from scheduler.shard.step import Step

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

    def __init__(self, settings: Settings, plain: Producer, shard: int) -> None:
        self.shard = shard
        self._settings = settings
        self._plain = plain
        self._transaction: Transaction | None = None
        self._record: ShardRecord | None = None

    def commit(self, build: Callable[[ShardRecord | None], Step | None]) -> ShardRecord | None:
        """Commit what `build` makes of the shard record, if it makes anything; the record as it is then.

        `build` may be asked several times, and of what an earlier try committed after all. Raises Retriable when nodes
        take the shard back again and again.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._commit(build)
            except (Fenced, Retriable) as fault:
                self._transaction = None
                event("hold_interrupted", shard=self.shard, attempt=attempt, text=str(fault))
        raise Retriable(
            f"shard {self.shard} of namespace {self._settings.namespace!r} was taken back by a running node {ATTEMPTS} "
            "times: stop the nodes and repeat the command, which goes on where it was"
        )

    def _commit(self, build: Callable[[ShardRecord | None], Step | None]) -> ShardRecord | None:
        if self._transaction is None:
            changelogs = {self._settings.namespace + base: base for base in ORDER}
            commands = self._settings.catalogue().commands
            transaction = Transaction(self._producer, self._plain, commands, changelogs, never)
            transaction.init()
            self._record = look(self._settings, self.shard)
            self._transaction = transaction
        step = build(self._record)
        if step is not None:
            self._transaction.commit(step)
            self._record = step.record
        return self._record

    def _producer(self) -> Producer:
        return transactional_producer(self._settings, self.shard)
