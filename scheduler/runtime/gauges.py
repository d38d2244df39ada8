"""What a shard is like at the moment, for people who watch it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.core.due import instant_of
from scheduler.core.model import PRIORITY_NAMES
from scheduler.shard.overdue import lagging

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.runtime.telemetry import Telemetry
    from scheduler.shard.shard import Shard

COUNT_S = 2.0  # between looks at what is overdue or lags, which take some ms while much is


class Gauges:
    """Sets the gauges of one shard."""

    def __init__(self, telemetry: Telemetry, horizon_ms: int, monotonic: Callable[[], float]) -> None:
        self._telemetry = telemetry
        self._horizon_ms = horizon_ms
        self._monotonic = monotonic
        self._count_again = 0.0

    def show(self, shard: Shard, now: int, inbox: int) -> None:
        """As the shard is now; `inbox`: how many commands wait. What is dear to count is counted now and then."""
        telemetry, label = self._telemetry, str(shard.number)
        telemetry.horizon_bytes.labels(label).set(shard.horizon.held.bytes)
        short = now + self._horizon_ms - instant_of(shard.horizon.end)
        telemetry.horizon_lag.labels(label).set(max(0, short) / 1000)
        telemetry.backlogs.labels(label).set(len(shard.record.backlogs))
        telemetry.inbox.labels(label).set(inbox)
        if self._monotonic() >= self._count_again:
            self._count_again = self._monotonic() + COUNT_S
            self._count(shard, now)

    def _count(self, shard: Shard, now: int) -> None:
        telemetry, label = self._telemetry, str(shard.number)
        overdue = shard.overdue(now)
        telemetry.oldest_overdue.labels(label).set(0 if overdue.oldest is None else (now - overdue.oldest) / 1000)
        telemetry.drain.labels(label).set(overdue.drain_ms / 1000)
        queues = lagging(shard.record)
        telemetry.queues_lagging.labels(label).set(queues.number)
        for priority, name in enumerate(PRIORITY_NAMES):
            behind_ms = max(0, now - queues.since.get(priority, now))
            telemetry.queue_lag.labels(label, name).set(behind_ms / 1000)
        for kind in ("undecided", "catch_up", "backfill"):
            telemetry.overdue.labels(label, kind).set(getattr(overdue, kind))
