"""What a read-committed reader saw, against what the definitions say: an arithmetic of its own, no scheduler code.

Expected are schedules of one kind only, a fixed rate on a known grid between two known instants, because their nominals
are a `range`. Each schedule's range is written here, not asked of the product.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from tests.support.node import Cluster

EXAMPLES = 5
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(ms: int) -> str:
    return (EPOCH + timedelta(milliseconds=ms)).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"


def stamped(ms: int) -> str:
    return (EPOCH + timedelta(milliseconds=ms)).strftime("%Y%m%dT%H%M%S.") + f"{ms % 1000:03d}Z"


def ms_of(text: str) -> int:
    return round((datetime.fromisoformat(text) - EPOCH) / timedelta(milliseconds=1))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Beat:
    """A schedule that fires every `every_ms` from `first` to before `end` (ms)."""

    schedule_id: str
    first: int
    end: int
    every_ms: int = 1000
    version: int = 1
    cron: str = ""  # an expression that names the same instants, with seconds if it has six fields; to be used instead

    @property
    def trigger(self) -> dict[str, Any]:
        if not self.cron:
            return {"every_ms": self.every_ms, "anchor": rfc3339(self.first)}
        return {"cron": self.cron, "zone": "UTC", "dialect": "seconds" if self.cron.count(" ") == 5 else "unix"}

    def create(self, **spec: Any) -> dict[str, Any]:
        """The command that makes it; nothing of it may be given up as too late."""
        return {
            "command": "create",
            "schedule_id": self.schedule_id,
            "spec": {
                "trigger": self.trigger,
                "start": rfc3339(self.first),
                "end": rfc3339(self.end),
                "misfire": {"catch_up": 1000},
                "max_lateness_ms": None,
                **spec,
            },
        }

    def expected(self) -> dict[str, int]:
        """Occurrence id -> nominal."""
        prefix = f"{self.schedule_id}:{self.version}:"
        return {prefix + stamped(at): at for at in range(self.first, self.end, self.every_ms)}


def beats(count: int, first: int, seconds: int, tenant: str = "acme", every_ms: int = 1000) -> list[Beat]:
    """Schedules spread over the second, and over the shards by their names."""
    step = every_ms // count
    return [
        Beat(f"{tenant}/beat-{n}", first + n * step, first + n * step + seconds * 1000, every_ms) for n in range(count)
    ]


class Seen(NamedTuple):
    """One committed record."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    append_ms: int
    headers: list[tuple[str, bytes]]

    @property
    def fields(self) -> dict[str, Any]:
        return dict(json.loads(self.value or b"{}"))


class Reader:
    """Reads topics as a careful consumer does: committed records only, from the beginning, in no group."""

    def __init__(self, cluster: Cluster, topics: Sequence[str]) -> None:
        self._consumer = Consumer(
            {
                **cluster.kafka,
                "group.id": f"{cluster.namespace}verifier",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.max.ms": 500,
            },
            logger=quiet(),
        )
        self.seen: list[Seen] = []
        self._ended: set[tuple[str, int]] = set()
        metadata = self._consumer.list_topics(timeout=30).topics
        self._partitions = {(topic, number) for topic in topics for number in metadata[topic].partitions}
        self._consumer.assign([TopicPartition(t, p, OFFSET_BEGINNING) for t, p in sorted(self._partitions)])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def read(self, seconds: float = 0.1) -> None:
        """Take in what has arrived."""
        first = self._consumer.poll(seconds)
        for message in [] if first is None else [first, *self._consumer.consume(5000, 0)]:
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    self._ended.add((message.topic() or "", message.partition() or 0))
                continue
            headers: Any = message.headers() or []
            self.seen.append(
                Seen(
                    message.topic() or "",
                    message.partition() or 0,
                    message.offset() or 0,
                    message.key(),
                    message.value(),
                    message.timestamp()[1],
                    headers,
                )
            )

    def read_until(self, condition: Callable[[], object], what: str | Callable[[], str], seconds: float = 60.0) -> None:
        """Read on until `condition` holds. Fails with `what` when it does not in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            self.read()
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds:.0f} s: {what() if callable(what) else what}")

    def read_to_end(self, seconds: float = 30.0) -> list[Seen]:
        """Everything there is when nobody writes any more."""
        # A place a little back has its end announced again, so an end seen earlier does not count.
        self._ended.clear()
        ends = {
            (t, p): self._consumer.get_watermark_offsets(TopicPartition(t, p), timeout=30)[1]
            for t, p in self._partitions
        }
        behind = {TopicPartition(t, p) for t, p in self._partitions if ends[t, p] > 0}

        def done() -> bool:
            at = self._consumer.position([TopicPartition(tp.topic, tp.partition) for tp in behind])
            return all(p.offset >= ends[p.topic, p.partition] or (p.topic, p.partition) in self._ended for p in at)

        self.read_until(done, "the end of the topics", seconds)
        return self.seen


@dataclass
class Verdict:
    """Differences between seen and expected; all empty means exactly once, none early."""

    expected: int
    seen: int
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.early or self.strange)

    def __str__(self) -> str:
        counts = {name: getattr(self, name) for name in ("lost", "doubled", "early", "strange")}
        text = ", ".join(f"{name} {len(what)}" for name, what in counts.items())
        examples = {name: what[:EXAMPLES] for name, what in counts.items() if what}
        return f"expected {self.expected}, seen {self.seen}, {text}" + (f"; such as {examples}" if examples else "")


def judge(seen: Iterable[Seen], expected: dict[str, int]) -> Verdict:
    """Compare dispatch records with what is expected, by occurrence id."""
    counts: Counter[str] = Counter()
    verdict = Verdict(expected=len(expected), seen=0)
    for record in seen:
        fields = record.fields
        name = fields["occurrence_id"]
        counts[name] += 1
        verdict.seen += 1
        if record.append_ms < ms_of(fields["available_at"]):
            verdict.early.append(name)
        if name not in expected:
            verdict.strange.append(name)
        elif ms_of(fields["scheduled_for"]) != expected[name]:
            verdict.strange.append(f"{name} says {fields['scheduled_for']}")
    verdict.doubled = sorted(name for name, count in counts.items() if count > 1)
    verdict.lost = sorted(expected.keys() - counts.keys())
    report(str(verdict))
    return verdict


_reported: list[str] = []


def report(counts: str) -> None:
    """What a verifier counted: shown at the end of the run beside the test's name."""
    _reported.append(counts)


def reported() -> list[str]:
    """What was reported since this was asked last."""
    found = _reported.copy()
    _reported.clear()
    return found


class Dispatches(Reader):
    """The dispatch topics of a cluster, read for the occurrences one expects."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, cluster.catalogue.dispatch_topics())
        self._ids: set[str] = set()
        self._looked_at = 0

    def ids(self) -> set[str]:
        """The occurrences seen so far."""
        self._ids.update(record.fields["occurrence_id"] for record in self.seen[self._looked_at :])
        self._looked_at = len(self.seen)
        return self._ids

    def await_all(self, expected: dict[str, int], seconds: float = 60.0, words: Callable[[], str] = str) -> None:
        """Read until each expected occurrence was seen."""

        def lost() -> list[str]:
            return sorted(expected.keys() - self.ids())

        self.read_until(lambda: not lost(), lambda: f"lost {len(lost())}: {lost()[:5]}\n{words()}", seconds)

    def await_count(self, count: int, seconds: float = 60.0, words: Callable[[], str] = str) -> None:
        """Read until so many more have come."""
        goal = len(self.seen) + count
        self.read_until(
            lambda: len(self.seen) >= goal, lambda: f"{goal} dispatches; saw {len(self.seen)}\n{words()}", seconds
        )


def quiet() -> Any:
    """A logger for clients whose brokers are killed on purpose."""
    log = logging.getLogger("tests.verifier")
    log.setLevel(logging.CRITICAL)
    return log
