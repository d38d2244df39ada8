"""`scheduler repair-cursor` against the brokers: fence a shard, restore it into a temporary store, set it back.

The repair holds the shard while it lasts (`hold.py`). A running node notices, owns the shard anew a moment later, finds
the same future and stops again; that fences the repair in turn, which then goes on where it was. Every step commits
alone and leaves a state that a shard either refuses as before or serves: see `shard/repair.py`.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler.runtime.hold import Hold, never
from scheduler.runtime.kafka import changelog_consumer, plain_producer
from scheduler.runtime.probe import brokers_time, refuse_wrong_clocks
from scheduler.runtime.restore import Restore
from scheduler.runtime.tables import read_calendars
from scheduler.shard.repair import Order, Outcome, Repair
from scheduler.state.rocks import RocksStore
from scheduler.state.store import MemoryStore

if TYPE_CHECKING:
    from scheduler.config import Settings
    from scheduler.core.calendars import Calendars
    from scheduler.runtime.kafka import Inquiry
    from scheduler.runtime.transaction import Transaction
    from scheduler.state.store import Store
    from topics.catalog import Catalogue


class Repairs:
    """Repairs shards of one cluster. `now` is the brokers' time at the beginning."""

    def __init__(self, settings: Settings, catalogue: Catalogue, inquiry: Inquiry) -> None:
        """Raises BrokerUnavailable, and SchedulerError when the clocks are still wrong."""
        self._settings = settings
        self._catalogue = catalogue
        self._inquiry = inquiry
        self._plain = plain_producer(settings)
        self.now = brokers_time(self._plain, catalogue.clock, "repair-cursor")
        refuse_wrong_clocks(self.now)

    def repair(self, shard: int, *, to: int, reason: str, actor: str | None, dry_run: bool) -> Outcome:
        """Set one shard back to `to`, or say what that would do. Raises Retriable when nodes keep interrupting it.

        A shard that is not stopped by its marks is left alone; its owner is not disturbed.
        """
        order = Order(to=to, now=self.now, reason=reason, actor=actor)
        look = MemoryStore()
        self._restore(shard).look(look)
        outcome = Repair(shard, self._catalogue, look, order).outcome
        if not outcome.needed:
            return outcome
        with tempfile.TemporaryDirectory(prefix="repair-") as folder:
            store = RocksStore(Path(folder) / str(shard))
            with closing(store):
                if dry_run:
                    self._restore(shard).run(store, self._calendars)
                    return self._planned(self._repair(shard, store, order))
                return self._persist(shard, store, order)

    def _repair(self, shard: int, store: Store, order: Order) -> Repair:
        return Repair(shard, self._catalogue, store, order, self._calendars)

    def _restore(self, shard: int) -> Restore:
        return Restore(changelog_consumer(self._settings), self._settings.namespace, shard, never)

    @staticmethod
    def _planned(repair: Repair) -> Outcome:
        for _ in repair.steps():
            pass  # nothing is committed: only the counts matter
        return repair.outcome

    def _persist(self, shard: int, store: RocksStore, order: Order) -> Outcome:
        """Again until it is done; what earlier attempts committed is counted once."""
        schedules = missed = 0

        def work(transaction: Transaction) -> Outcome:
            nonlocal schedules, missed
            self._restore(shard).run(store, self._calendars)
            repair = self._repair(shard, store, order)
            repair.count(schedules, missed)
            for step in repair.steps():
                transaction.commit(step)
                store.write(step.batch)
                schedules, missed = repair.outcome.schedules, repair.outcome.missed
            return repair.outcome

        return Hold(self._settings, self._plain, self._inquiry, shard).keep(work)

    @cached_property
    def _calendars(self) -> Calendars:
        return read_calendars(self._settings, self._catalogue)
