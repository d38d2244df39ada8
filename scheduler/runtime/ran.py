"""What ran: the dispatch topics read for one schedule, beside the shard, which never waits for it.

A question is asked after the step that accepted the backfill is committed, so everything the shard had dispatched by
then lies before the end of its partitions as the reader finds it. Unanswered questions die with the owner; the next one
asks again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from scheduler import wire
from scheduler.runtime.telemetry import event
from topics.reading import Unreachable
from topics.since import read_since

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scheduler.config import Settings
    from scheduler.core.backfill import Ran
    from scheduler.shard.backfills import Question
    from topics.catalog import Catalogue

CLOCKS_DIFFER_MS = 60_000  # a dispatch may carry a timestamp this much before its nominal, never more
RETRY_S = 2.0


class Scanner:
    """Answers the questions of one shard one after the other, in a thread that lives while there are any."""

    def __init__(self, settings: Settings, catalogue: Catalogue, shard: int, wake: Callable[[], None]) -> None:
        self._settings = settings
        self._catalogue = catalogue
        self._shard = shard
        self._wake = wake
        self._lock = threading.Lock()
        self._open: deque[Question] = deque()
        self._answers: deque[tuple[Question, list[Ran]]] = deque()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def ask(self, questions: list[Question]) -> None:
        """Answers come one by one through `answers`; `wake` is called when one is there."""
        if not questions:
            return
        with self._lock:
            self._open.extend(questions)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"ran-{self._shard}", daemon=True)
                self._thread.start()

    def answers(self) -> list[tuple[Question, list[Ran]]]:
        """What has been found out since the last call."""
        found = []
        while self._answers:
            found.append(self._answers.popleft())
        return found

    def stop(self) -> None:
        """Whatever is still read is of no use any more."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._lock:
                if not self._open:
                    self._thread = None
                    return
                question = self._open[0]
            try:
                ran = list(self._ran(question))
            except (Unreachable, TimeoutError, KafkaException) as fault:
                event("backfill_scan_failed", logging.WARNING, shard=self._shard, text=str(fault))
                self._stop.wait(RETRY_S)
                continue
            with self._lock:
                self._open.popleft()
            event("backfill_scanned", shard=self._shard, found=len(ran))
            self._answers.append((question, ran))
            self._wake()

    def _ran(self, question: Question) -> Iterator[Ran]:
        """Every dispatch of the schedule since the question's instant, whatever topic its definition then named."""
        owner = question.schedule_id.encode()
        kafka = self._settings.client_config()
        since = max(0, question.since - CLOCKS_DIFFER_MS)
        for topic in self._catalogue.dispatch_topics():
            for part in range(self._catalogue.dispatch_factor):
                partition = self._shard + part * self._catalogue.shards
                for record in read_since(kafka, topic, partition=partition, since_ms=since):
                    if self._stop.is_set():
                        return
                    if record.key != owner or record.value is None:
                        continue
                    found = wire.ran_of(record.value)
                    if found is not None:
                        yield found[1]
