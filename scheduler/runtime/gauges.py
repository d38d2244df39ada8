"""What a shard is like at the moment, for people who watch it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from scheduler.core.due import instant_of
from scheduler.core.model import PRIORITY_NAMES
from scheduler.shard.overdue import lagging

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.runtime.telemetry import Telemetry
    from scheduler.shard.shard import Shard

SHOW_S = 2.0  # some of it takes some ms to count while much is due, and nobody looks more often
KINDS = ("undecided", "catch_up", "backfill")


class Gauges:
    """Sets the gauges of one shard."""

    def __init__(self, telemetry: Telemetry, number: int, monotonic: Callable[[], float]) -> None:
        self._telemetry = telemetry
        self._label = str(number)
        self._monotonic = monotonic
        self._again = 0.0

    def show(self, shard: Shard, now: int, inbox: int) -> None:
        """As the shard is now, if it is time; `inbox`: how many commands wait."""
        if self._monotonic() < self._again:
            return
        self._again = self._monotonic() + SHOW_S
        telemetry, label = self._telemetry, self._label
        telemetry.inbox.labels(label).set(inbox)
        telemetry.horizon_bytes.labels(label).set(shard.horizon.held.bytes)
        short = now + shard.horizon.reach_ms - instant_of(shard.horizon.end)
        telemetry.horizon_lag.labels(label).set(max(0, short) / 1000)
        telemetry.backlogs.labels(label).set(len(shard.record.backlogs))
        overdue = shard.overdue(now)
        telemetry.oldest_overdue.labels(label).set(0 if overdue.oldest is None else (now - overdue.oldest) / 1000)
        telemetry.drain.labels(label).set(overdue.drain_ms / 1000)
        for kind in KINDS:
            telemetry.overdue.labels(label, kind).set(getattr(overdue, kind))
        queues = lagging(shard.record)
        telemetry.queues_lagging.labels(label).set(queues.number)
        for priority, name in enumerate(PRIORITY_NAMES):
            behind_ms = max(0, now - queues.since.get(priority, now))
            telemetry.queue_lag.labels(label, name).set(behind_ms / 1000)

    def forget(self) -> None:
        """The shard is no longer here: what was shown would stand for ever."""
        telemetry = self._telemetry
        plain = (
            telemetry.inbox, telemetry.horizon_bytes, telemetry.horizon_lag, telemetry.backlogs,
            telemetry.oldest_overdue, telemetry.drain, telemetry.queues_lagging,
        )  # fmt: skip
        with suppress(KeyError):  # it was never shown
            for gauge in plain:
                gauge.remove(self._label)
            for kind in KINDS:
                telemetry.overdue.remove(self._label, kind)
            for name in PRIORITY_NAMES:
                telemetry.queue_lag.remove(self._label, name)
