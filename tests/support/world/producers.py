"""The producers: transactional and plain, as the shell uses them.

Calls with a time-out go on in the background when it passes, and are resumed by the next one. After a fatal error or an
undelivered record every call says so again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from scheduler.runtime import transaction
from tests.support.world import messages
from tests.support.world.fibers import SECOND, Signal, us
from tests.support.world.log import Draft, Log
from tests.support.world.network import Expired
from tests.support.world.transactions import NotOpen, OldEpoch
from topics.partition import partition_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.world.log import Entry
    from tests.support.world.network import Link

EARLY = 0.05  # of the records before which what is waiting is sent, as the client does by itself after some ms
NOT_GIVEN: Any = object()
FULL = 0.0005  # of the records that find the client's queue full


class _Call:
    """A call that goes on in the background."""

    def __init__(self, ended: Signal) -> None:
        self.ended = ended
        self.done = False
        self.fault: KafkaException | None = None


class TransactionalProducer:
    """One transactional id's producer of one process."""

    def __init__(self, link: Link, name: str, timeout_ms: int) -> None:
        self._link, self._world, self._brokers = link, link.world, link.brokers
        self._name = name
        self._timeout = timeout_ms * 1000
        self._epoch: int | None = None
        self._is_open = False
        self._began = 0
        self._broken: KafkaException | None = None
        self._call: _Call | None = None
        self._unsent: list[tuple[Log, Draft, Any]] = []
        self._reports: list[tuple[Any, Log, Entry]] = []

    def init_transactions(self, timeout: float) -> None:
        self._resume(self._init, timeout)

    def begin_transaction(self) -> None:
        self._raise_if_broken()
        if self._epoch is None or self._is_open:
            raise messages.wrong_state("Operation not valid in this state")
        self._is_open = True
        self._began = self._world.now

    def produce(  # noqa: PLR0917 - as the client has them
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        callback: Any = NOT_GIVEN,
        on_delivery: Callable[[Any, Any], None] | None = None,
        timestamp: int | None = None,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> None:
        self._raise_if_broken()
        if not self._is_open:
            raise messages.wrong_state("Unable to produce message: not in transaction")
        if self._world.chance(FULL):
            raise BufferError("Local: Queue full")
        if self._unsent and self._world.chance(EARLY):
            self._send()
        draft = Draft(key, value, headers, timestamp)
        told = on_delivery if callback is NOT_GIVEN else callback
        self._unsent.append((self._brokers.log(topic, partition), draft, told))

    def commit_transaction(self, timeout: float) -> None:
        self._raise_if_broken()
        if not self._is_open:
            raise messages.wrong_state("Operation not valid in this state")
        self._resume(self._commit, timeout)

    def flush(self, _timeout: float) -> int:
        """Send what is waiting."""
        self._send()
        return 0

    def poll(self, timeout: float) -> int:
        """Full batches go out, whatever their partition; what does not fill one waits on, and so does whoever asks."""
        self._raise_if_broken()
        full = size = 0
        for number, (_, draft, _) in enumerate(self._unsent, 1):
            size += len(draft.value or b"")
            if size > transaction.BATCH_BYTES:
                full, size = number, 0
        if not full:
            self._world.sleep(us(timeout))
            return 0
        self._unsent, waiting = self._unsent[:full], self._unsent[full:]
        self._send()
        self._unsent = waiting
        return 1

    def __len__(self) -> int:
        return len(self._unsent)

    # --- in the background

    def _resume(self, work: Callable[[], None], timeout: float) -> None:
        if self._call is None:
            self._call = call = _Call(Signal(self._world))
            self._world.spawn(self._link.process, lambda: self._work(call, work), f"{self._name} {work.__name__}")
        call = self._call
        if not call.done:
            call.ended.wait(us(timeout))
        if not call.done:
            raise messages.timed_out()
        self._call = None
        for on_delivery, log, entry in self._reports:
            on_delivery(None, messages.record(log, entry))
        self._reports.clear()
        if call.fault is not None:
            raise call.fault

    def _work(self, call: _Call, work: Callable[[], None]) -> None:
        try:
            work()
        except KafkaException as fault:
            call.fault = fault
        call.done = True
        call.ended.send()

    def _init(self) -> None:
        coordinator = self._brokers.transactions
        self._epoch = self._link.request(lambda: coordinator.init(self._name, self._timeout))

    def _commit(self) -> None:
        self._send()
        self._raise_if_broken()
        coordinator, epoch = self._brokers.transactions, self._epoch
        assert epoch is not None
        try:
            self._link.request(lambda: coordinator.end(self._name, epoch, commit=True))
        except (OldEpoch, NotOpen):
            self._broken = messages.fenced()
            raise self._broken from None
        self._is_open = False

    def _send(self) -> None:
        """Send what is waiting, partition by partition; what cannot be delivered breaks the producer."""
        unsent, self._unsent = self._unsent, []
        by_log: dict[Log, list[tuple[Draft, Any]]] = {}
        for log, draft, on_delivery in unsent:
            by_log.setdefault(log, []).append((draft, on_delivery))
        logs = list(by_log)
        self._world.random.shuffle(logs)
        for log in logs:
            try:
                entries = self._append(log, [draft for draft, _ in by_log[log]])
            except OldEpoch:
                self._broken = messages.fenced()
                return
            except Expired:
                self._broken = messages.undelivered(len(unsent))
                return
            for entry, (_, on_delivery) in zip(entries, by_log[log], strict=True):
                if on_delivery is not None:
                    self._reports.append((on_delivery, log, entry))

    def _append(self, log: Log, drafts: list[Draft]) -> list[Entry]:
        coordinator, epoch = self._brokers.transactions, self._epoch
        assert epoch is not None
        appended: list[Entry] = []

        def apply() -> list[Entry]:
            if appended and coordinator.is_current(self._name, epoch):
                return appended  # sent twice: its sequence numbers give it away
            appended.extend(coordinator.append(self._name, epoch, log, drafts))
            return appended

        return self._link.request(apply, self._began + self._timeout)

    def _raise_if_broken(self) -> None:
        if self._broken is not None:
            raise self._broken


class PlainProducer:
    """The idempotent one outside of transactions. Reports are served by whoever polls."""

    def __init__(self, link: Link) -> None:
        self._link, self._world, self._brokers = link, link.world, link.brokers
        self._reports: deque[tuple[Callable[[Any, Any], None], KafkaError | None, Any]] = deque()
        self._news = Signal(self._world)
        self._unanswered = 0

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes,
        partition: int = -1,
        on_delivery: Callable[[Any, Any], None] | None = None,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> None:
        logs = self._brokers.topics[topic]
        log = logs[partition_for(key, len(logs)) if partition < 0 else partition]
        draft = Draft(key, value, headers)
        self._unanswered += 1
        self._world.spawn(self._link.process, lambda: self._send(log, draft, on_delivery), f"produce {topic}")

    def _send(self, log: Log, draft: Draft, on_delivery: Callable[[Any, Any], None] | None) -> None:
        appended: list[Entry] = []

        def apply() -> list[Entry]:
            if not appended:
                appended.extend(log.append([draft], self._brokers.wall_ms()))
            return appended

        (entry,) = self._link.request(apply)
        self._unanswered -= 1
        if on_delivery is not None:
            self._reports.append((on_delivery, None, messages.record(log, entry)))
        self._news.send()

    def poll(self, timeout: float) -> int:
        """Serve reports; those that come late are served, too."""
        if not self._reports:
            self._news.wait(us(timeout))
        served = 0
        while self._reports:
            on_delivery, error, message = self._reports.popleft()
            on_delivery(error, message)
            served += 1
        return served

    def flush(self, timeout: float) -> int:
        end = self._world.now + us(timeout)
        while self._unanswered and self._world.now < end:
            self.poll((end - self._world.now) / SECOND)
        return self._unanswered
