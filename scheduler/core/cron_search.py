"""The search: from a second to the next, the one before, how many, by bit sets and integers over a zone's stretches.

The zone cuts the UTC line into stretches of constant offset. Inside a stretch local time runs like an ordinary clock,
so finding a match is finding bits: day, hour, minute, second. Everything difficult happens where two stretches meet:

* the clock goes **back**: the stretches overlap in local time; the zone's view has already cut away the pass that does
  not count, so a match inside `begins` to `ends` counts and any other does not;
* the clock goes **forward**: local times are missing. `skip` drops matches among them, `forward` puts them all on the
  first instant after, `shift` moves each by the length of the gap. A nominal reached twice is one nominal.

All seconds here are whole; instants are UTC seconds since the epoch, "local" ones are UTC + offset.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Final, Literal

from scheduler.core.cron_clock import WallClock
from scheduler.core.time import MAX_MS, MIN_MS
from scheduler.core.zones import CYCLE, FAR, Passes, View, Zone

Gap = Literal["skip", "forward", "shift"]

_DAY: Final = 86_400
_FIRST_SECOND: Final = MIN_MS // 1000 + 2 * _DAY
_LAST_SECOND: Final = MAX_MS // 1000
_WORTH_A_TABLE: Final = 64


class Search:
    """A compiled expression in a zone. Holds no more than bits and references; every method is a pure function."""

    __slots__ = ("_answer", "_first", "_moves", "_view", "gap", "passes", "wall", "zone")

    def __init__(self, wall: WallClock, zone: Zone, passes: Passes, gap: Gap) -> None:
        self.wall = wall
        self.zone = zone
        self.passes = passes
        self.gap = gap
        self._view = zone.view(passes)
        self._moves = gap != "skip"
        self._first: tuple[int | None, int | None] = (None, None)
        self._answer = (1, 0)

    def at_or_after(self, second: int) -> int | None:
        """The least nominal second that is not before `second`; None = none within 41 years or up to the year 9999."""
        # Schedules that share an expression ask about the same time, and between two nominals the answer is the same.
        asked, found = self._answer
        if asked <= second <= found:
            return found
        answer = self._search(second)
        if answer is not None:
            self._answer = second, answer
        return answer

    def _search(self, second: int) -> int | None:
        view = self._view
        starts, begins, ends, offsets, limit = view
        if second >= limit:
            if second >= FAR:
                return self._beyond(second, self.at_or_after)
            starts, begins, ends, offsets, limit = view = self._complete()
        elif second < _FIRST_SECOND:
            second = _FIRST_SECOND
        at = bisect_right(starts, second) - 1
        offset = offsets[at]
        moved = self._moved_from(view, at, second) if self._moves and at else None
        begin = begins[at]
        low = (begin if begin > second else second) + offset  # noqa: FURB136 - a call costs more than the comparison
        local = self.wall.at_or_after(low)
        while local is not None:
            if local - offset < ends[at]:
                return local - offset if moved is None else min(local - offset, moved)
            if moved is not None:
                return moved
            at += 1
            if starts[at] >= limit:
                starts, begins, ends, offsets, limit = view = self._complete()
            before, offset = offset, offsets[at]
            if offset > before and local < starts[at] + offset and self._moves:
                if self.gap == "forward":
                    return starts[at]
                moved = local - before
            begin = begins[at] + offset
            # A match already found stays the next one, unless it was in a gap or the clock went back behind it.
            if local < begin or begin < low:
                low = begin
                local = self.wall.at_or_after(begin)
        return moved

    def is_first_after_gap(self, second: int) -> bool:
        """Whether this nominal second is the first one after a gap of the zone; for next to nothing, asked in order."""
        gap = self.zone.last_gap(second)
        known, first = self._first
        if gap != known and gap is not None:
            first = self.at_or_after(gap)
            self._first = gap, first
        return gap is not None and first == second

    def at_or_before(self, second: int) -> int | None:
        """The greatest nominal second that is not after `second`; None = none within 41 years or back to year 1."""
        if second >= FAR:
            if self.wall.bounded:
                return self.at_or_before(FAR - 1)
            return self._beyond(min(second, _LAST_SECOND), self.at_or_before)
        if second < _FIRST_SECOND:
            return None
        view = self._known(second)
        starts, begins, ends, offsets, _limit = view
        at = bisect_right(starts, second) - 1
        offset = offsets[at]
        high = min(second, ends[at] - 1) + offset
        local = self.wall.at_or_before(high)
        while True:
            moved = self._moved_to(view, at, second) if self._moves and at else None
            if local is not None and local - offset >= begins[at]:
                return local - offset if moved is None else max(local - offset, moved)
            if moved is not None or at == 0:
                return moved
            at -= 1
            offset = offsets[at]
            end = ends[at] - 1 + offset
            if local is None and end <= high:
                return None
            if local is None or local > end or end > high:
                high = end
                local = self.wall.at_or_before(end)

    def count(self, first: int, stop: int) -> int:
        """How many nominal seconds there are in [first, stop)."""
        first, stop = max(first, _FIRST_SECOND), min(stop, _LAST_SECOND + 1)
        if stop <= first:
            return 0
        if stop > FAR:
            if first < FAR:
                return self.count(first, FAR) + self.count(FAR, stop)
            if self.wall.bounded:
                return 0
            cycles, rest = divmod(stop - first, CYCLE)
            whole = cycles * self.count(FAR - CYCLE, FAR) if cycles else 0
            back = ((first - FAR) // CYCLE + 1) * CYCLE
            return whole + self.count(first - back, first - back + rest)
        view = self._known(stop)
        starts, begins, ends, offsets, _limit = view
        total = 0
        at = bisect_right(starts, first) - 1
        while at < len(starts) and starts[at] < stop:
            offset = offsets[at]
            total += self.wall.count(max(first, begins[at]) + offset, min(stop, ends[at]) + offset)
            if at and offset > offsets[at - 1] and self._moves:
                total += self._moved_count(view, at, first, stop)
            at += 1
        return total

    def between(self, first: int, last: int, limit: int) -> list[int]:
        """The first `limit` nominal seconds in [first, last], ascending."""
        found: list[int] = []
        times: list[int] | None = None
        while len(found) < limit:
            second = self.at_or_after(first)
            if second is None or second > last:
                break
            found.append(second)
            if limit - len(found) >= _WORTH_A_TABLE and second < FAR:
                if times is None:
                    times = self.wall.times_of_day()
                found += self._rest_of_day(second, last, times)[: limit - len(found)]
            first = found[-1] + 1
        return found

    def lost_in(self, start: int, before: int, after: int) -> Iterator[int]:
        """The local seconds the expression names among those skipped at the UTC second `start`."""
        local = self.wall.at_or_after(start + before)
        while local is not None and local < start + after:
            yield local
            local = self.wall.at_or_after(local + 1)

    def lost_count(self, start: int, before: int, after: int) -> int:
        """How many local seconds the expression names among those skipped at the UTC second `start`."""
        return self.wall.count(start + before, start + after)

    def _beyond(self, second: int, ask: Callable[[int], int | None]) -> int | None:
        """The answer for a second past `FAR`: asked some cycles earlier, where everything repeats."""
        if self.wall.bounded or second > _LAST_SECOND:
            return None
        back = ((second - FAR) // CYCLE + 1) * CYCLE
        found = ask(second - back)
        return None if found is None or found + back > _LAST_SECOND else found + back

    def _known(self, second: int) -> View:
        """A view that knows the stretch of `second` and its end."""
        view = self._view
        return view if second < view.limit else self._complete()

    def _complete(self) -> View:
        return self.zone.view(self.passes, complete=True)

    # Gaps. `_moved_from` and `_moved_to` answer for the stretch that begins with a gap.

    def _moved_from(self, view: View, at: int, second: int) -> int | None:
        """The least nominal from `second` on that was moved out of the gap before stretch `at`."""
        start, before, offset = view.starts[at], view.offsets[at - 1], view.offsets[at]
        end = start + offset
        low = second + before
        if low >= end or (self.gap == "forward" and second > start):
            return None
        local = self.wall.at_or_after(low)
        if local is None or local >= end:
            return None
        return start if self.gap == "forward" else local - before

    def _moved_to(self, view: View, at: int, second: int) -> int | None:
        """The greatest nominal up to `second` that was moved out of the gap before stretch `at`."""
        start, before, offset = view.starts[at], view.offsets[at - 1], view.offsets[at]
        if offset <= before:
            return None
        end = start + offset - 1
        local = self.wall.at_or_before(end if self.gap == "forward" else min(end, second + before))
        if local is None or local < start + before:
            return None
        return start if self.gap == "forward" else local - before

    def _moved_count(self, view: View, at: int, first: int, stop: int) -> int:
        """How many nominals in [first, stop) exist only because the gap before stretch `at` moved them."""
        start, before, offset = view.starts[at], view.offsets[at - 1], view.offsets[at]
        if self.gap == "forward":
            named = first <= start and self.wall.count(start + before, start + offset) > 0
            return int(named and not self.wall.count(start + offset, start + offset + 1))
        low, high = max(first, start), min(stop, start + offset - before)
        if high <= low:
            return 0
        moved, usual = self.wall.bits(low + before, high + before), self.wall.bits(low + offset, high + offset)
        return (moved & ~usual).bit_count()

    def _rest_of_day(self, second: int, last: int, times: list[int]) -> list[int]:
        """The nominals after `second` on its local day, as far as its stretch goes; perhaps none."""
        view = self._known(second)
        at = bisect_right(view.starts, second) - 1
        offset = view.offsets[at]
        if self.gap == "shift" and at and second < view.starts[at] + offset - view.offsets[at - 1]:
            return []
        local = second + offset
        midnight = local - local % _DAY
        if not self.wall.has_day(midnight // _DAY):
            return []
        base = midnight - offset
        rest = times[bisect_right(times, second - base) : bisect_left(times, min(view.ends[at], last + 1) - base)]
        return [base + time for time in rest]
