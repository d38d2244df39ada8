"""What the horizon holds: occurrences ready to be sent, in key order, and those that are due by queue.

    main    read at their time: a list that grows at its end and is fired from its beginning
    side    those that joined later than others of their time: new and changed schedules, queues read on
    lines   how much each queue has in memory; its items that wait for their turn have left `main` and `side` for it

Nothing is removed before its step is committed, so a step that is thrown away leaves no trace here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from sortedcontainers import SortedKeyList

from scheduler.core.due import instant_end, instant_of
from scheduler.core.turns import Turn, Waiting
from scheduler.shard.lines import Line, key_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.core.due import Due
    from scheduler.core.model import Schedule
    from scheduler.shard.passed import Notes

ITEM_OVERHEAD = 400  # bytes of Python objects around an item's value (measured: tuple, key, entry, dict slots)
RUN = 16  # items of a queue in a row from which on their end is searched for

_value_of = itemgetter(1)  # of an item


class Target(NamedTuple):
    """Where the occurrences of a schedule go."""

    topic: str
    partition: int
    key: bytes


class Entry:
    """One schedule in one page. `key` is its due key in the store; `following` its first nominal after the page."""

    __slots__ = ("alive", "following", "key", "limit_ms", "line", "notes", "pending", "schedule_id", "target")

    def __init__(self, schedule_id: str, key: bytes, line: Line, target: Target, limit_ms: int | None) -> None:
        self.schedule_id = schedule_id
        self.key = key
        self.line = line
        self.target = target
        self.limit_ms = limit_ms
        self.following: Due | None = None
        self.notes: dict[int, tuple[Schedule, Notes]] | None = None  # by nominal: what was passed over before it
        self.alive = True
        self.pending = 0


class Item(NamedTuple):
    """One occurrence ready to be sent."""

    key: bytes
    value: bytes
    entry: Entry
    scheduled_for: int

    @property
    def is_cut_off(self) -> bool:
        """Whether it lies behind the end of its line."""
        return self.entry.line.is_cut_before(self.key)


class Held:
    """See the module's docstring. `bytes` counts all of it, also what is being read and has not joined yet."""

    def __init__(self) -> None:
        self.bytes = 0
        self._lines: dict[bytes, Line] = {}
        self._main: list[Item] = []
        self._side: SortedKeyList[Item, bytes] = SortedKeyList(key=key_of)
        self._ready: dict[bytes, Line] = {}  # those with items that wait for a turn

    def line(self, queue: bytes) -> Line:
        """The line of a queue; new if nothing is held of it."""
        line = self._lines.get(queue)
        if line is None:
            line = self._lines[queue] = Line(queue)
        return line

    # --- joining

    def count(self, line: Line, number: int, size: int) -> None:
        """So many more items of a line are held, of so many bytes; fewer if negative."""
        self.bytes += size
        line.bytes += size
        line.number += number

    def forget(self, line: Line) -> None:
        """A queue of which nothing is here need not be known."""
        if not line.number and line.after is None:
            self._lines.pop(line.name, None)

    def append(self, items: list[Item]) -> None:
        """Items in key order, behind all that is in `main`."""
        self._main += items

    def add(self, items: list[Item]) -> None:
        """Items of which others of their time may be here already."""
        self._side.update(items)

    def add_read(self, items: list[Item], end: bytes) -> None:
        """Items in key order, read later than others of their time; `end`: what comes later is appended behind it."""
        if items and items[-1].key <= end and (not self._main or self._main[-1].key < items[0].key):
            self._main += items
        else:
            self._side.update(items)

    def remove_cut_off(self, behind: bytes) -> list[Item]:
        """Of what joined out of order behind a key: take out what lies behind the ends of lines."""
        found = [item for item in self._side.irange_key(behind, inclusive=(False, True)) if item.is_cut_off]
        for item in found:
            self._side.remove(item)
        return found

    # --- looking

    @property
    def first(self) -> int | None:
        """The instant of the first item; None if there is none."""
        found = [source[0].key for source in (self._main, self._side) if source]
        return min([*map(instant_of, found), *(line.since for line in self._ready.values())], default=None)

    @property
    def is_waiting(self) -> bool:
        """Whether anything waits for its turn."""
        return bool(self._ready)

    def holds_more(self, now: int, count: int) -> bool:
        """Whether more than `count` of the items read at their time may start now."""
        count -= sum(line.waiting for line in self._ready.values())
        return count < 0 or (len(self._main) > count and self._main[count].key <= instant_end(now))

    def due(self, bound: bytes, limit: int) -> list[Item]:
        """The first items up to `bound`, in key order; dead ones are among them."""
        main = self._main
        taken = main[: bisect_right(main, bound, 0, min(limit, len(main)), key=key_of)]
        if self._side and self._side[0].key <= bound:
            side = list(islice(self._side.irange_key(None, bound), limit))
            taken = sorted(taken + side, key=key_of)[:limit]
        return taken

    # --- turns

    def line_up(self, bound: bytes) -> None:
        """Everything up to `bound` waits for its turn from now on, each queue for itself."""
        main = self._main
        end = bisect_right(main, bound, key=key_of)
        due, self._main = (main, []) if end == len(main) else (main[:end], main[end:])
        if self._side and self._side[0].key <= bound:
            side = list(self._side.irange_key(None, bound))
            del self._side[: len(side)]
            due = sorted(due + side, key=key_of)
        at, end = 0, len(due)
        while at < end:
            first = due[at]
            line = first.entry.line
            last = due[min(at + RUN, end) - 1]
            behind = at + 1
            if last.entry.line is line and last.key[:8] == first.key[:8]:
                # What is due of one queue at one instant lies together: a tenant's burst is moved as a whole.
                behind = bisect_right(due, line.behind(first.key), at, end, key=key_of)
            line.join(due if behind - at == end else due[at:behind])
            self._ready[line.name] = line
            at = behind

    def waiting(self) -> list[Waiting]:
        """What waits for a turn."""
        return [Waiting(line.name, line.waiting, line.since) for line in self._ready.values()]

    def take(self, turns: Sequence[Turn]) -> list[Item]:
        """The items whose turn it is, in the order of the turns."""
        at: dict[bytes, int] = {}
        taken: list[Item] = []
        if len(turns) == 1:
            line = self._ready[turns[0].queue]
            return line.items[line.start : line.start + turns[0].number]
        for queue, number in turns:
            line = self._ready[queue]
            start = at.get(queue, line.start)
            at[queue] = start + number
            taken += line.items[start : start + number]
        return taken

    def reached(self, queue: bytes, number: int) -> bytes | None:
        """The key up to which a queue is decided once so many of it are taken; None if no further than before.

        Where a dead item goes and a living one of the same key stays, that key is not decided.
        """
        line = self._ready[queue]
        items, end = line.items, line.start + number
        last = items[end - 1].key
        if not any(item.entry.alive for item in items[end : bisect_right(items, last, end, key=key_of)]):
            return last
        first = bisect_left(items, last, line.start, end, key=key_of)
        return items[first - 1].key if first > line.start else None

    def left(self, taken: Mapping[bytes, int]) -> list[bytes]:
        """The queues of which more waits for a turn than is taken."""
        return [name for name, line in self._ready.items() if line.waiting > taken.get(name, 0)]

    # --- leaving

    def fired(self, items: Sequence[Item], taken: Mapping[bytes, int]) -> None:
        """These items are committed: the first of all in key order, or so many of each queue if `taken` says so."""
        if not taken:
            self._leave(items)
        for queue, number in taken.items():
            line = self._ready[queue]
            gone = items if len(taken) == 1 else line.items[line.start : line.start + number]
            self.count(line, -number, -size_of(gone))
            line.go(number)
            if not line.waiting:
                del self._ready[queue]
            self.forget(line)

    def _leave(self, items: Sequence[Item]) -> None:
        main, number = self._main, len(items)
        if len(main) >= number and main[number - 1] is items[-1]:
            del main[:number]  # so all of them are its first ones
        else:
            ahead = set(map(id, main[:number]))
            side = [item for item in items if id(item) not in ahead]
            del main[: number - len(side)]
            if self._side[0] is side[0] and self._side[len(side) - 1] is side[-1]:
                del self._side[: len(side)]
            else:
                for item in side:
                    self._side.remove(item)
        for item in items:
            line = item.entry.line
            self.count(line, -1, -len(item.value) - ITEM_OVERHEAD)
            self.forget(line)


def size_of(items: Sequence[Item]) -> int:
    """What items take in memory, in bytes."""
    return sum(map(len, map(_value_of, items))) + len(items) * ITEM_OVERHEAD
