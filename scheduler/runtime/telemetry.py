"""Every metric and every log event, declared once. Labels are bounded; a schedule id is never one."""

from __future__ import annotations

import json
import logging
import sys
import time
from bisect import bisect_left, bisect_right
from collections import Counter as Counted
from operator import itemgetter
from threading import Lock
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from scheduler.core.due import HEAD_SIZE, instant_of
from scheduler.core.model import PRIORITY_NAMES
from scheduler.runtime.quiet import Repeats
from scheduler.shard.lines import key_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.shard.held import Item
    from scheduler.shard.step import Step

LATENESS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 900.0)

log = logging.getLogger("scheduler")


class BatchHistogram(Collector):
    """A histogram that takes the same value many times at once: a burst has 100,000 samples and few instants."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...], registry: CollectorRegistry) -> None:
        self._name, self._text, self._labelnames = name, text, labels
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}
        self._lock = Lock()
        registry.register(self)

    def add(self, labels: tuple[str, ...], value: float, count: int = 1) -> None:
        with self._lock:
            counts = self._counts.setdefault(labels, [0] * (len(LATENESS_BUCKETS) + 1))
            counts[bisect_left(LATENESS_BUCKETS, value)] += count
            self._sums[labels] = self._sums.get(labels, 0.0) + value * count

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._text, labels=self._labelnames)
        with self._lock:
            for labels, counts in self._counts.items():
                running = 0
                buckets = []
                for bound, count in zip((*map(str, LATENESS_BUCKETS), "+Inf"), counts, strict=True):
                    running += count
                    buckets.append((bound, running))
                family.add_metric(labels, buckets, self._sums[labels])
        yield family


class Telemetry:
    """The metrics of one process. The one place where their names stand."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        by = ("priority", "origin")
        self.lag = BatchHistogram(
            "scheduler_schedule_lag_seconds", "From scheduled_for to the commit of the dispatch.", by, registry
        )
        self.lateness = BatchHistogram(
            "scheduler_lateness_seconds", "From available_at to the commit of the dispatch.", by, registry
        )
        self.dispatched = Counter("scheduler_dispatched", "Occurrences put on dispatch topics.", by, registry=registry)
        self.undone = Counter(
            "scheduler_undone", "Nominals that will not run, by state and reason.", ("state", "reason"),
            registry=registry,
        )  # fmt: skip
        self.commands = Counter("scheduler_commands", "Commands answered, by code.", ("code",), registry=registry)
        self.forwarded = Counter(
            "scheduler_commands_forwarded", "Commands sent to a wrong partition.", registry=registry
        )
        self.strays_waiting = Gauge(
            "scheduler_stray_commands_waiting",
            "Commands in partitions that belong to no shard, read and not yet on their way to their shards.",
            registry=registry,
        )
        self.aside = Gauge(
            "scheduler_aside", "1 while this process leaves all shards to others: its disk refuses.", registry=registry
        )
        self.transactions = Counter("scheduler_transactions", "Transactions committed.", registry=registry)
        self.transaction_seconds = Counter(
            "scheduler_transaction_seconds", "Time from begin to the commit's answer.", registry=registry
        )
        self.failures = Counter(
            "scheduler_shard_failures",
            "Times a shard was opened anew, by reason.",
            ("reason",),
            registry=registry,
        )
        self.restores = Counter("scheduler_restores", "Stores restored from the changelogs.", registry=registry)
        self.restored = Counter("scheduler_restored_records", "Changelog records applied to stores.", registry=registry)
        self.broken = Counter(
            "scheduler_schedules_broken", "Schedules that became broken, by what is missing: an alarm.", ("reason",),
            registry=registry,
        )  # fmt: skip
        self.calendars = Gauge("scheduler_calendars", "Calendars known to this process.", registry=registry)
        self.calendars_refused = Counter(
            "scheduler_calendars_refused", "Records of the calendar topic that are no calendar: an alarm.",
            registry=registry,
        )  # fmt: skip
        self.tenants_refused = Counter(
            "scheduler_tenants_refused", "Records of the tenant topic that are none: an alarm.", registry=registry
        )
        self.foreign = Counter(
            "scheduler_foreign_records", "Changelog records no shard of ours wrote: an alarm.", registry=registry
        )
        shard = ("shard",)
        self.standby_lag = Gauge(
            "scheduler_standby_lag_records",
            "Changelog records that this process's warm copy of another node's shard has not applied yet.",
            shard,
            registry=registry,
        )
        self.standby_behind = Gauge(
            "scheduler_standby_lag_seconds", "Since when a warm copy has not been up to date; 0: it is.", shard,
            registry=registry,
        )  # fmt: skip
        self.standby_failures = Counter(
            "scheduler_standby_failures", "Warm copies given up, to be begun again: an alarm.", registry=registry
        )
        self.zones_missing = Gauge(
            "scheduler_zones_missing",
            "Zones of this shard's schedules that the zone tables lack: an alarm.",
            shard,
            registry=registry,
        )
        self.ready = Gauge("scheduler_shard_ready", "1 while the shard serves.", shard, registry=registry)
        self.horizon_bytes = Gauge("scheduler_horizon_bytes", "Read ahead and encoded.", shard, registry=registry)
        self.horizon_lag = Gauge(
            "scheduler_horizon_lag_seconds",
            "How far the horizon is short of what it means to reach.",
            shard,
            registry=registry,
        )
        self.backlogs = Gauge(
            "scheduler_overdue_stretches", "Stretches of an outage not decided yet.", shard, registry=registry
        )
        self.queues_lagging = Gauge(
            "scheduler_queues_lagging",
            "Queues (one tenant's work of one priority) of which more is due than was dispatched so far.",
            shard,
            registry=registry,
        )
        self.queue_lag = Gauge(
            "scheduler_queue_lag_seconds",
            "How far the queue of this priority that is furthest behind is behind; 0: none lags.",
            ("shard", "priority"),
            registry=registry,
        )
        self.oldest_overdue = Gauge(
            "scheduler_oldest_overdue_seconds",
            "Since when the oldest late work waits: undecided after an outage, for a budget, or in a burst.",
            shard,
            registry=registry,
        )
        self.overdue = Gauge(
            "scheduler_overdue",
            "Late work that waits, by kind: undecided (schedules, at most 5,000 are counted), catch_up, backfill "
            "(occurrences).",
            ("shard", "kind"),
            registry=registry,
        )
        self.drain = Gauge(
            "scheduler_drain_seconds",
            "How long catch-up and backfills still take at the tenants' budgets.",
            shard,
            registry=registry,
        )
        self.inbox = Gauge("scheduler_commands_waiting", "Commands read, not answered yet.", shard, registry=registry)
        self.clock_offset = Gauge(
            "scheduler_clock_offset_seconds", "The wall clock ahead of the brokers' time.", registry=registry
        )
        self.clock_jumps = Gauge("scheduler_clock_jumps", "Jumps of the brokers' time believed.", registry=registry)
        self.clock_alarm = Gauge(
            "scheduler_clock_alarm", "1 while something is wrong with the time, by reason.", ("reason",),
            registry=registry,
        )  # fmt: skip
        self.clock_probe_age = Gauge(
            "scheduler_clock_probe_age_seconds", "Since the brokers last told their time.", registry=registry
        )

    def committed(self, step: Step, now: int, seconds: float) -> None:
        """Count one committed step."""
        self.transactions.inc()
        self.transaction_seconds.inc(seconds)
        items = step.items
        if len(step.turns) > 1:  # queues took turns: key order is made again, from runs of it
            items = sorted(items, key=key_of)
        for group in _by_head(items):
            head = group[0].key
            labels = (PRIORITY_NAMES[head[8]], "schedule")
            self.dispatched.labels(*labels).inc(len(group))
            self.lateness.add(labels, (now - instant_of(head)) / 1000, len(group))
            for scheduled_for, same in Counted(map(_scheduled_of, group)).items():
                self.lag.add(labels, (now - scheduled_for) / 1000, same)
        for origin, available_at in step.sent:
            labels = ("", str(origin))
            self.dispatched.labels(*labels).inc()
            self.lateness.add(labels, (now - available_at) / 1000)
        for code, count in Counted(step.answered).items():
            self.commands.labels(code).inc(count)
        for state, reason, count in step.gone:
            self.undone.labels(state, reason).inc(count)
        for reason in step.broke:
            self.broken.labels(reason).inc()
        if step.forwards:
            self.forwarded.inc(len(step.forwards))


def _by_head(items: list[Item]) -> Iterator[list[Item]]:
    """Items in key order, those of one instant and priority together: a burst is told in one look."""
    start = 0
    while start < len(items):
        end = bisect_right(items, items[start].key[:HEAD_SIZE], start, key=_head_of)
        yield items[start:end]
        start = end


def _head_of(item: Item) -> bytes:
    return item.key[:HEAD_SIZE]


_scheduled_of = itemgetter(3)  # of an item


def event(name: str, level: int = logging.INFO, **fields: object) -> None:
    """One log line: a stable event name and fields, no sentence to parse."""
    log.log(level, name, extra={"fields": fields})


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        line = {"at": _utc(record.created), "level": record.levelname.lower(), "event": record.getMessage()}
        if record.name != "scheduler":
            line["logger"] = record.name
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps({**line, **fields}, default=str)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{k}={v}" for k, v in getattr(record, "fields", {}).items())
        text = f"{_utc(record.created)} {record.levelname.lower():7} {record.getMessage()} {fields}".rstrip()
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds * 1000) % 1000:03d}Z"


def set_up_logging(level: str, form: str) -> None:
    """All logs of this process, the Kafka client's included, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if form == "json" else _TextFormatter())
    handler.addFilter(Repeats())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def page() -> str:
    """`ops/metrics.md`: every metric by name, as `/metrics` of each process shows it."""
    lines = [
        "# Metrics",
        "",
        "Generated from `scheduler/runtime/telemetry.py`: `python -m scheduler.runtime.telemetry > ops/metrics.md`.",
        "Each process serves them at `/metrics`; a label never holds a schedule id.",
        "",
        "| metric | type | labels | meaning |",
        "|---|---|---|---|",
    ]
    for name, kind, labels, text in metrics():
        lines.append(f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {text} |")
    return "\n".join(lines) + "\n"


def metrics() -> list[tuple[str, str, tuple[str, ...], str]]:
    """(name as queried, type, labels, help) of every metric there is, by name."""
    found = []
    for metric in vars(Telemetry()).values():
        if not isinstance(metric, CollectorRegistry):
            family = next(iter(metric.collect()))
            name = family.name + ("_total" if family.type == "counter" else "")
            found.append((name, family.type, tuple(metric._labelnames), family.documentation))  # noqa: SLF001 - only here
    return sorted(found)


if __name__ == "__main__":
    sys.stdout.write(page())
