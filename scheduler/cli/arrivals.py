"""Occurrences as they arrive on dispatch topics: one line each, and what many of them add up to. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scheduler.core.time import format_instant, parse_instant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topics.messages import Dispatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One dispatch record: what it says, where it stands, and when the broker appended it (all instants in ms)."""

    occurrence_id: str
    schedule_id: str
    priority: str
    origin: str
    attempt: int
    scheduled_for: int
    available_at: int
    enqueued_at: int
    topic: str
    partition: int
    offset: int

    @classmethod
    def of(cls, dispatch: Dispatch, *, enqueued_at: int, topic: str, partition: int, offset: int) -> Arrival:
        """From a decoded record and its place. Raises ValueError if its instants are none."""
        return cls(
            occurrence_id=dispatch.occurrence_id,
            schedule_id=dispatch.schedule_id,
            priority=dispatch.priority,
            origin=dispatch.origin,
            attempt=dispatch.attempt,
            scheduled_for=parse_instant(dispatch.scheduled_for),
            available_at=parse_instant(dispatch.available_at),
            enqueued_at=enqueued_at,
            topic=topic,
            partition=partition,
            offset=offset,
        )

    @property
    def lateness_ms(self) -> int:
        """`enqueued_at - available_at`; below zero it was early, which must never be."""
        return self.enqueued_at - self.available_at

    def as_json(self) -> dict[str, Any]:
        """For programs: the fields, instants as RFC 3339, and the lateness."""
        return {
            "occurrence_id": self.occurrence_id,
            "schedule_id": self.schedule_id,
            "priority": self.priority,
            "origin": self.origin,
            "attempt": self.attempt,
            "scheduled_for": format_instant(self.scheduled_for),
            "available_at": format_instant(self.available_at),
            "enqueued_at": format_instant(self.enqueued_at),
            "lateness_ms": self.lateness_ms,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
        }

    def as_line(self) -> str:
        """For a person: scheduled time, lateness, priority, partition, id; columns of steady width."""
        clock = format_instant(self.scheduled_for)[11:19]
        origin = "" if self.origin == "schedule" else f"  ({self.origin})"
        place = f"{self.partition}@{self.offset}"
        return f"{clock}Z {self.lateness_ms:>+7,} ms  {self.priority:<10} {place:>9}  {self.occurrence_id}{origin}"


HEADING = f"{'scheduled':<9} {'late by':>10}  {'priority':<10} {'part@off':>9}  occurrence"


@dataclass(slots=True)
class Tally:
    """What arrived so far. Keeps one lateness and one id an occurrence: for a demo or a tail, not for millions."""

    lateness: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    origins: Counter[str] = field(default_factory=Counter)
    duplicates: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    _seen: set[tuple[str, int]] = field(default_factory=set)

    def add(self, arrival: Arrival) -> None:
        """Counts one arrival; the same attempt of the same occurrence twice is a duplicate."""
        key = (arrival.occurrence_id, arrival.attempt)
        if key in self._seen:
            self.duplicates.append(arrival.occurrence_id)
            return
        self._seen.add(key)
        self.origins[arrival.origin] += 1
        if arrival.lateness_ms < 0:
            self.early.append(arrival.occurrence_id)
        self.lateness[arrival.priority].append(arrival.lateness_ms)

    @property
    def count(self) -> int:
        """Different attempts seen."""
        return len(self._seen)

    def rows(self, priorities: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
        """(priority, count, p50, p99, max lateness in ms) for each that had any, then `all`."""
        rows = [(name, *_spread(self.lateness[name])) for name in priorities if self.lateness.get(name)]
        everything = [value for values in self.lateness.values() for value in values]
        return [*rows, ("all", *_spread(everything))] if everything else []


def _spread(values: list[int]) -> tuple[int, int, int, int]:
    ordered = sorted(values)
    return len(ordered), percentile(ordered, 50), percentile(ordered, 99), ordered[-1]


def percentile(ordered: Sequence[int], percent: int) -> int:
    """The least value that at least `percent` % of the values do not exceed. `ordered` ascends and is not empty."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
