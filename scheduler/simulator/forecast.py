"""Load before it happens: how many occurrences the schedules as they are will start, by bucket of time.

Pure: schedules and a range in, numbers out. An occurrence counts in the bucket in which it may start (its nominal plus
its jitter). What only the future knows (changes, outages, catch-up, manual runs) is not in it. Cost: for each schedule
as many evaluations as it has nominals in the range or as there are buckets, whichever is less.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, Final, NamedTuple

from scheduler.core.model import State
from scheduler.core.policy import nominal_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scheduler.core.model import Nominal, Schedule
    from scheduler.core.zones import Zone

MOST_BUCKETS: Final = 50_000
BUCKET_MS: Final = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
PEAKS: Final = 3
NAMED: Final = 10  # schedules behind a peak


class Peak(NamedTuple):
    """A bucket with the most load. `schedules` are those with most of it, by count; `others` is how many more."""

    start: int
    end: int
    load: int
    schedules: tuple[tuple[str, int], ...]
    others: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """`edges` has one more element than `counts`: bucket i is [edges[i], edges[i+1]). `left_out`: by state."""

    edges: tuple[int, ...]
    counts: tuple[int, ...]
    peaks: tuple[Peak, ...]
    left_out: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.counts)


class Falls(NamedTuple):
    """One occurrence that is to come."""

    nominal: Nominal
    schedule: Schedule


def bucket_edges(start: int, end: int, by: str, zone: Zone) -> tuple[int, ...]:
    """The edges of the buckets of [start, end): round times of the zone's clock between start and end.

    Raises ValueError when there would be more than MOST_BUCKETS.
    """
    size = BUCKET_MS[by]
    if end <= start:
        raise ValueError("the range is empty: `to` must be later than `from`")
    if (end - start) // size > MOST_BUCKETS:
        raise ValueError(f"more than {MOST_BUCKETS:,} buckets; ask for a shorter range or larger buckets")
    edges = [start]
    at = start
    while True:
        local = at + zone.offset_at(at // 1000) * 1000
        following = local - local % size + size
        at = max(zone.first_from(following // 1000) * 1000, at + 1)
        if at >= end:
            return (*edges, end)
        edges.append(at)


def forecast(schedules: Sequence[Schedule], edges: tuple[int, ...]) -> Forecast:
    """The load of the active ones among the schedules in every bucket, with its peaks explained."""
    counts = [0] * (len(edges) - 1)
    left_out: Counter[str] = Counter()
    active = []
    for schedule in schedules:
        if schedule.state is State.ACTIVE:
            active.append(schedule)
            _add(schedule, edges, counts)
        else:
            left_out[schedule.state.value] += 1
    highest = sorted(range(len(counts)), key=lambda i: (-counts[i], i))[:PEAKS]
    peaks = tuple(_peak(active, edges[i], edges[i + 1], counts[i]) for i in highest if counts[i])
    return Forecast(edges, tuple(counts), peaks, dict(left_out))


def falls_between(schedules: Iterable[Schedule], start: int, end: int) -> Iterator[Falls]:
    """What may start in [start, end), in order, found as it is asked for."""
    heap = []
    for index, schedule in enumerate(schedules):
        if schedule.state is State.ACTIVE:
            upcoming = _nominals(schedule, start, end)
            first = next(upcoming, None)
            if first is not None:
                heap.append((first.available_at, index, first, upcoming, schedule))
    heapify(heap)
    while heap:
        _, index, nominal, upcoming, schedule = heap[0]
        yield Falls(nominal, schedule)
        following = next(upcoming, None)
        if following is None:
            heappop(heap)
        else:
            heapreplace(heap, (following.available_at, index, following, upcoming, schedule))


def _add(schedule: Schedule, edges: tuple[int, ...], counts: list[int]) -> None:
    if _count(schedule, edges[0], edges[-1]) <= len(counts):
        for nominal in _nominals(schedule, edges[0], edges[-1]):
            counts[bisect_right(edges, nominal.available_at) - 1] += 1
        return
    # Dense: a window is never longer than the distance to the next nominal, so counting nominals is as good.
    for index in range(len(counts)):
        counts[index] += _count(schedule, edges[index], edges[index + 1])


def _peak(active: Sequence[Schedule], start: int, end: int, count: int) -> Peak:
    behind = [(schedule.schedule_id, _in_bucket(schedule, start, end)) for schedule in active]
    behind = sorted(((name, n) for name, n in behind if n), key=lambda item: (-item[1], item[0]))
    return Peak(start, end, count, tuple(behind[:NAMED]), max(0, len(behind) - NAMED))


def _in_bucket(schedule: Schedule, start: int, end: int) -> int:
    if not schedule.spec.window_ms:
        return _count(schedule, start, end)
    return sum(1 for _ in _nominals(schedule, start, end))


def _count(schedule: Schedule, start: int, end: int) -> int:
    """How many nominals lie in [start, end), whenever they start."""
    spec = schedule.spec
    after = max(start - 1, schedule.floor, *([] if spec.start is None else [spec.start - 1]))
    last = end - 1 if spec.end is None else min(end, spec.end) - 1
    return spec.trigger.count_between(after, last) if last > after else 0


def _nominals(schedule: Schedule, start: int, end: int) -> Iterator[Nominal]:
    """Those that may start in [start, end), also if named before it."""
    nominal = schedule.next_after(start - schedule.spec.window_ms - 1)
    while nominal is not None and nominal < end:
        at = nominal_at(schedule, nominal)
        if start <= at.available_at < end:
            yield at
        nominal = schedule.next_after(nominal)
