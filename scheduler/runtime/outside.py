"""What the shell takes from outside: time that passes, threads, Kafka clients, stores on disk.

Whatever waits, is told how much time has passed, or reaches a broker or a disk goes through one `Outside`. This is the
real one; the seeded simulation brings its own, in which one seed decides who goes on when and what is lost on the way.
Nothing here decides anything.
"""

from __future__ import annotations

import sys
import threading
import time
from functools import cached_property
from typing import TYPE_CHECKING

from scheduler.runtime import kafka, stores
from scheduler.runtime.retired import RETIRED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from confluent_kafka import Consumer, Producer

    from scheduler.config import Settings
    from scheduler.shard.rebuild import Identity
    from scheduler.state.rocks import RocksStore
    from scheduler.state.store import Store


class Outside:
    """The machine and the brokers of these settings, for one process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    # --- the machine

    def monotonic(self) -> float:
        """Seconds that pass; only differences mean anything."""
        return time.monotonic()

    def cpu(self) -> float:
        """Seconds of a processor that this thread has used."""
        return time.thread_time()

    def switch(self, seconds: float) -> None:
        """From now on another thread may have the interpreter after so long."""
        sys.setswitchinterval(seconds)

    def condition(self) -> threading.Condition:
        """A lock to wait on until somebody notifies."""
        return threading.Condition()

    def event(self) -> threading.Event:
        """A flag to wait for."""
        return threading.Event()

    def thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        """A thread, not started, that does not keep the process alive."""
        return threading.Thread(target=run, name=name, daemon=True)

    # --- the brokers

    @cached_property
    def plain(self) -> Producer:
        """The process's one producer outside of transactions: for probes and forwarded commands."""
        return kafka.plain_producer(self._settings)

    @cached_property
    def inquiry(self) -> kafka.Inquiry:
        """The process's clients for questions."""
        return kafka.Inquiry(self._settings)

    def transactional_producer(self, shard: int) -> Producer:
        """A new one of this shard, not initialised."""
        return kafka.transactional_producer(self._settings, shard)

    def retire(self, client: Producer) -> None:
        """Let a transactional client go that failed."""
        RETIRED.keep(client)

    def command_consumer(self, on_commit: Callable[..., None]) -> Consumer:
        """The process's member of the group whose partitions are the shards."""
        return kafka.command_consumer(self._settings, on_commit)

    def changelog_consumer(self) -> Consumer:
        """A new reader of whole topics."""
        return kafka.changelog_consumer(self._settings)

    def changelog_follower(self) -> Consumer:
        """A new reader of several shards' changelogs as they grow."""
        return kafka.changelog_follower(self._settings)

    def ends(self, topics: list[str], number: int, stopped: Callable[[], bool]) -> dict[str, int]:
        """Where one partition number of some topics ends for a reader of everything. Raises Retriable."""
        return self.inquiry.ends(topics, number, stopped)

    def has_company(self) -> bool:
        """Whether processes of other nodes are members of the group now; False if the brokers do not say soon."""
        return self.inquiry.has_company()

    # --- the disk

    def mark(self, folder: Path) -> stores.Mark:
        """While it is entered, this node has an owner of the shard whose store is in this folder."""
        return stores.Mark(folder)

    def open_store(
        self, folder: Path, identity: Identity, now: int, stopped: Callable[[], bool], *, wipe: bool = False
    ) -> Store:
        """See `stores.open_store`."""
        return stores.open_store(folder, identity, now, stopped, wipe=wipe)

    def open_standby(self, folder: Path, identity: Identity, now: int, *, wipe: bool = False) -> RocksStore:
        """See `stores.open_standby`."""
        return stores.open_standby(folder, identity, now, wipe=wipe)

    def refusal(self, folder: Path) -> str | None:
        """See `stores.refusal`."""
        return stores.refusal(folder)
