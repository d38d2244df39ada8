"""Runs that are owed, many as one: most of what an outage leaves lies at equal distances.

A list would grow with the outage, and every step that dispatches a part of it would read and write all the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from scheduler.core.policy import nominal_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scheduler.core.model import Run, Schedule


class Series(Struct, frozen=True, gc=False):
    """`count` runs whose nominals lie `every_ms` apart. When the others may start follows from their definition."""

    first: Run
    count: int = 1
    every_ms: int = 0

    @property
    def last(self) -> int:
        """The newest nominal."""
        return self.nominal(self.count - 1)

    def nominal(self, index: int) -> int:
        return self.first.scheduled_for + index * self.every_ms

    def nominals(self) -> Iterator[int]:
        return map(self.nominal, range(self.count))

    def goes_on_with(self, run: Run) -> bool:
        """Whether the run is the next of this series, or makes a series of a single run."""
        first = self.first
        if (run.origin, run.stands_for, run.attempt) != (first.origin, first.stands_for, first.attempt):
            return False
        return self.count == 1 or run.scheduled_for - self.last == self.every_ms


def in_series(runs: Iterable[Run]) -> list[Series]:
    """The runs, which ascend, as few series."""
    found: list[Series] = []
    for run in runs:
        if found and found[-1].goes_on_with(run):
            last = found[-1]
            found[-1] = Series(last.first, last.count + 1, run.scheduled_for - last.last)
        else:
            found.append(Series(run))
    return found


def take(owed: Sequence[Series], limit: int, definition: Schedule, now: int) -> tuple[list[Run], list[Series]]:
    """The first `limit` runs one by one, to be started `now`, and what is owed after them.

    All of them were to start before now. The last of a series may be found later than it was once: its jitter was
    bounded by a next nominal that a newer calendar has taken away.
    """
    definition = _as_before(definition, owed)
    runs: list[Run] = []
    for done, series in enumerate(owed):
        count = min(series.count, limit - len(runs))
        found = [_run(series, index, definition) for index in range(count)]
        runs += [run if run.available_at <= now else run._replace(available_at=now) for run in found]
        if count < series.count:
            rest = Series(_run(series, count, definition), series.count - count, series.every_ms)
            return runs, [rest, *owed[done + 1 :]]
    return runs, []


def spread(owed: Sequence[Series], definition: Schedule) -> list[Run]:
    """All runs, one by one."""
    definition = _as_before(definition, owed)
    return [_run(series, index, definition) for series in owed for index in range(series.count)]


def _as_before(definition: Schedule, owed: Sequence[Series]) -> Schedule:
    """Its floor has passed what is owed: with it the next nominals, which bound the jitter, would not be found."""
    oldest = owed[0].first.scheduled_for if owed else definition.floor
    return definition if definition.floor < oldest else replace(definition, floor=oldest - 1)


def _run(series: Series, index: int, definition: Schedule) -> Run:
    first, scheduled_for = series.first, series.nominal(index)
    if not index:
        return first
    if not definition.spec.window_ms:
        return first._replace(scheduled_for=scheduled_for, available_at=scheduled_for)
    next_one = series.nominal(index + 1) if index + 1 < series.count else None
    nominal = nominal_at(definition, scheduled_for, next_one)
    return first._replace(scheduled_for=scheduled_for, available_at=nominal.available_at)
