"""The horizon: the occurrences of the next seconds, read from the store and encoded ahead of their time.

At the instant only produce and commit remain. The horizon is a cache of the store in pages: each page covers the due
keys up to `end`, every nominal of a schedule inside it is an item, and a change of a schedule kills its items exactly.
It is bounded in bytes. When it is full, the queue that is next gets none of it but what others hold too much of: those
of lower priorities, and any that holds twice as much, give back the later half of theirs. A queue that is not held as
far as `end` is *cut* (see `lines.py`) and read on when there is room. Nothing in the horizon is state: it can be
dropped and read again at any time, after what was fired has been advanced in the store (`take_stale`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain, count, islice
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from sortedcontainers import SortedKeyList

from scheduler.core.due import Due, due_after, due_key, instant_end, instant_of, queue_of, schedule_of
from scheduler.core.model import Nominal, Priority
from scheduler.core.policy import late_limit, nominal_at
from scheduler.core.turns import Turn, Waiting
from scheduler.shard.lines import Line, scan, scan_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scheduler.core.model import Schedule
    from scheduler.shard.passed import Notes
    from scheduler.state.store import Store

ITEM_OVERHEAD = 400  # bytes of Python objects around an item's value (measured: tuple, key, entry, dict slots)
CHUNK = 500  # candidates read at once
CHUNK_BYTES = 4 * 1024 * 1024  # fewer when they are large
SPENT_CHUNK = 5_000  # fired items looked through at once for entries to be advanced
LITTLE_PART = 64  # of the bound: what a line keeps, whoever is before it
RUN = 16  # items of a queue in a row from which on their end is searched for


class Target(NamedTuple):
    """Where the occurrences of a schedule go."""

    topic: str
    partition: int
    key: bytes


Prepared = tuple[Target, "Callable[[int, int], bytes]", "Callable[[int], Notes] | None"]


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


@dataclass(slots=True)
class _Page:
    """A page while it is read, up to its `end`: everything up to `at` is in `items` or was cut."""

    end: bytes
    at: bytes
    items: list[Item]


class _Demand(NamedTuple):
    """What a line is to give back: of its last items from an instant on (ms) so many bytes, or half of them."""

    line: Line
    since: int
    much: int | None


class Horizon:
    """Owned by one shard, used by its thread alone.

    `prepare(schedule)` gives where occurrences go, a function that encodes one, and one that tells what a schedule
    passed over before a nominal (None: nothing ever); `load` reads schedules by id.
    """

    def __init__(
        self,
        store: Store,
        load: Callable[[list[str]], list[Schedule | None]],
        prepare: Callable[[Schedule], Prepared],
        *,
        span_ms: int,
        max_bytes: int,
    ) -> None:
        self._store = store
        self._load = load
        self._prepare = prepare
        self._span_ms = span_ms
        self._page_ms = max(1000, span_ms // 6)
        self._max_bytes = max_bytes
        self._spent: deque[Entry] = deque()  # one for each item fired
        self._stale: deque[Entry] = deque()
        self._order = count()  # breaks ties in the heap
        self.reset(instant_end(0))

    def reset(self, end: bytes, lagging: Mapping[bytes, bytes] | None = None) -> None:
        """Forget everything read ahead; the next page begins after `end`, queues that lag after a key of their own."""
        self.end = end
        self.bytes = 0
        self._main: list[Item] = []
        self._side: SortedKeyList[Item, bytes] = SortedKeyList(key=_key_of)
        self._entries: dict[str, list[Entry]] = {}
        self._following: list[tuple[bytes, int, Entry]] = []
        self._page: _Page | None = None
        self._lines: dict[bytes, Line] = {}
        self._cut: dict[bytes, Line] = {}
        self._ready: dict[bytes, Line] = {}  # those with items that wait for a turn
        self._largest = 1  # bytes of an item in the last chunk
        self._is_pages_turn = False
        self._now = 0
        self.has_notes = False
        for queue, after in (lagging or {}).items():
            self._cut_at(self._line(queue), after)

    def _line(self, queue: bytes) -> Line:
        line = self._lines.get(queue)
        if line is None:
            line = self._lines[queue] = Line(queue)
        return line

    # --- reading ahead

    def extend(self, now: int) -> bool:
        """Read one chunk ahead, of a page or of a line that was cut; False when there is nothing to read, or no room.

        One page at a time, never further than a page beyond now when catching up, so that firing is not kept.
        """
        self._now = now
        wanted = now + self._span_ms
        is_short = self._page is not None or instant_of(self.end) <= wanted - self._page_ms
        self._is_pages_turn = not self._is_pages_turn
        line = None if is_short and self._is_pages_turn else self._resumable()
        if line is not None and self._resume(line):
            return True
        if not is_short:
            return False
        if self._page is None:
            end = instant_end(min(wanted, max(instant_of(self.end), now) + self._page_ms))
            self._page = _Page(end, self.end, [])
        self._read_page(self._page)
        return True

    def _read_page(self, page: _Page) -> None:
        found, reached = scan(self._store, page.at, page.end, self._chunk, self._cut)
        candidates = self._candidates(found, reached, self._following)
        for (key, name), schedule in zip(candidates, self._load([name for _, name in candidates]), strict=True):
            line = self._line(queue_of(key))
            if line.after is None and not self._has_room(line, key):
                self._cut_at(line, max(page.at, key[:8] + line.name))
            if line.after is not None:
                self._follow_again(name, key)
            elif schedule is not None:
                page.items += self._expand(schedule, key, page.end, line)
            page.at = key
        page.at = reached
        if reached == page.end:
            self._finish(page)

    def _finish(self, page: _Page) -> None:
        """The page joins the others, without what lies behind the ends of lines cut meanwhile."""
        if self._cut:
            beyond = [item for item in self._side.irange_key(self.end, inclusive=(False, True)) if _is_beyond(item)]
            for item in beyond:
                self._side.remove(item)
            beyond += [item for item in page.items if _is_beyond(item)]
            page.items = [item for item in page.items if not _is_beyond(item)]
            self._give_back(beyond)
        page.items.sort(key=_key_of)
        self._main += page.items
        self.end = page.end
        self._page = None

    @property
    def _chunk(self) -> int:
        return min(CHUNK, max(1, CHUNK_BYTES // self._largest))

    def _candidates(
        self, found: list[bytes], reached: bytes, following: list[tuple[bytes, int, Entry]]
    ) -> list[tuple[bytes, str]]:
        """Every schedule with a nominal at one of these keys of the store, and those not advanced there yet."""
        known = set(found)
        while following and following[0][0] <= reached:
            key, _, entry = heappop(following)
            if entry.alive and entry.following is not None and entry.following.key == key:
                known.add(key)
        if len(known) > len(found):
            found = sorted(known)
        named = [(key, schedule_of(key)) for key in found]
        return [(key, name) for key, name in named if not any(e.key == key for e in self._entries.get(name, ()))]

    def _expand(self, schedule: Schedule, key: bytes, end: bytes, line: Line) -> list[Item]:
        """All nominals from the one at `key` up to `end`, encoded."""
        due = _due_at(schedule, key)
        target, encode, passed = self._prepare(schedule)
        entry = Entry(schedule.schedule_id, key, line, target, late_limit(schedule))
        items: list[Item] = []
        size = 0
        while due is not None and due.key <= end:
            value = encode(due.nominal.scheduled_for, due.nominal.available_at)
            items.append(Item(due.key, value, entry, due.nominal.scheduled_for))
            size += len(value) + ITEM_OVERHEAD
            if passed is not None and (notes := passed(due.nominal.scheduled_for)):
                entry.notes = {**(entry.notes or {}), due.nominal.scheduled_for: (schedule, notes)}
                self.has_notes = True
            due = due_after(schedule, due.nominal.scheduled_for)
        self.bytes += size
        line.bytes += size
        line.number += len(items)
        entry.following = due
        entry.pending = len(items)
        if items:
            self._largest = size // len(items)
            self._entries.setdefault(entry.schedule_id, []).append(entry)
            if due is not None:
                self._follow(entry)
        return items

    def _follow(self, entry: Entry) -> None:
        """Remember that the schedule goes on behind what was read."""
        if entry.following is not None:
            line = self._cut.get(entry.line.name)
            heap = self._following if line is None else line.following
            heappush(heap, (entry.following.key, next(self._order), entry))

    def _follow_again(self, name: str, key: bytes) -> None:
        """A candidate that was not read after all: whoever goes on there is remembered as before."""
        for entry in self._entries.get(name, ()):
            if entry.following is not None and entry.following.key == key:
                self._follow(entry)

    # --- lines that memory does not suffice for

    def _has_room(self, line: Line, key: bytes) -> bool:
        """Whether the line may hold what is due at `key`, after others gave back what can wait better."""
        while self.bytes >= self._max_bytes:
            demand = self._demand(line, key)
            if demand is None or not self._collect(demand):
                return False
        return True

    def _demand(self, line: Line, key: bytes) -> _Demand | None:
        """Who gives way to what is due at `key`: what is due last, if that is later; else whoever holds too much.

        A lower priority keeps a little, and gets it from a higher one if it has nothing: it may have aged. No two
        lines can take from each other in turns: what was taken leaves the taker with less than it may be asked for.
        """
        at = max(instant_of(key), self._now)
        last = max((items[-1] for items in (self._main, self._side) if items), key=_key_of, default=None)
        if last is not None and instant_of(last.key) > at and last.entry.line is not line:
            return _Demand(last.entry.line, at + 1, None)
        little, own = self._max_bytes // LITTLE_PART, line.name[0]
        bounds = [2 * little] * len(Priority)
        if 2 * line.bytes >= little:
            bounds[:own] = [2 * self._max_bytes] * own
        bounds[own] = 2 * line.bytes + 2 * self._largest
        givers = (o for o in self._lines.values() if o.number > 1 and o.bytes > bounds[o.name[0]] and o is not line)
        found = max(givers, key=_wealth, default=None)
        if found is None:
            return None
        much = (found.bytes - line.bytes) // 2 if found.name[0] >= own else little
        return _Demand(found, at if at > self._now else 0, much)

    def _collect(self, demand: _Demand) -> bool:
        """Give back the last items of a line from an instant on: of so many bytes, or half of them. False if none."""
        page, line = self._page, demand.line
        items = chain(self._main, self._side, page.items if page else (), line.items[line.start :])
        mine = sorted((item for item in items if item.entry.line is line), key=_key_of)
        first = demand.since.to_bytes(8)
        pool = mine[bisect_left(mine, first, key=_key_of) :]
        keep, much = len(pool) // 2, demand.much
        if much is not None:
            keep = len(pool)
            while keep and much > 0:
                keep -= 1
                much -= len(pool[keep].value) + ITEM_OVERHEAD
        before = mine[: len(mine) - len(pool) + keep]
        # The first key that is given back, if nothing of the line is left: just before all of that instant.
        after = before[-1].key if before else mine[0].key[:8] + line.name if mine else b""
        if page is not None:
            after = min(after, page.at)
        beyond = [item for item in mine if item.key > after]
        if not beyond:
            return False
        gone = set(map(id, beyond))
        self._main = [item for item in self._main if id(item) not in gone]
        if page is not None:
            page.items = [item for item in page.items if id(item) not in gone]
        for item in [item for item in self._side if id(item) in gone]:
            self._side.remove(item)
        del line.items[bisect_right(line.items, after, line.start, key=_key_of) :]
        if not line.waiting:
            self._ready.pop(line.name, None)
        self._cut_at(line, after)
        self._give_back(beyond)
        return True

    def _cut_at(self, line: Line, after: bytes) -> None:
        line.after = after
        self._cut[line.name] = line

    def _resumable(self) -> Line | None:
        """The cut line to be read on: due first, of the highest priority, and holding least; if there is room."""
        if not self._cut:
            return None
        first = min(self._cut.values(), key=self._rank)
        if self.bytes <= self._max_bytes - self._max_bytes // 8:
            return first
        poorest = min(self._cut.values(), key=lambda line: (line.bytes, *self._rank(line)))
        return next((line for line in (first, poorest) if self._demand(line, line.after or self.end) is not None), None)

    def _rank(self, line: Line) -> tuple[int, int, int]:
        return max(instant_of(line.after or self.end), self._now), line.name[0], line.bytes

    def _resume(self, line: Line) -> bool:
        """Read a chunk of a cut line; it is whole again when it reaches what is read of all others.

        False if there was no room for any of it.
        """
        page = self._page
        until = self.end if page is None else page.at
        begin = after = until if line.after is None else line.after
        found, reached = scan_line(self._store, line.name, after, until, self._chunk)
        candidates = self._candidates(found, reached, line.following)
        items: list[Item] = []
        for index, ((key, _), schedule) in enumerate(
            zip(candidates, self._load([name for _, name in candidates]), strict=True)
        ):
            if not self._has_room(line, key):
                reached = max(after, key[:8] + line.name)
                for left, other in candidates[index:]:
                    self._follow_again(other, left)
                break
            if schedule is not None:
                items += self._expand(schedule, key, reached, line)
            after = key
        line.after = reached
        self._join(sorted((item for item in items if item.key <= reached), key=_key_of))
        self._give_back([item for item in items if item.key > reached])
        if reached >= until:
            line.after = None
            del self._cut[line.name]
            for follower in line.following:
                heappush(self._following, follower)
            line.following = []
        return reached > begin

    def _join(self, items: list[Item]) -> None:
        """Items read later than others of their time."""
        if items and items[-1].key <= self.end and (not self._main or self._main[-1].key < items[0].key):
            self._main += items
        else:
            self._side.update(items)

    def _give_back(self, items: list[Item]) -> None:
        """Items that will be read again: their schedules go on at the first of them."""
        shortened: dict[int, Entry] = {}
        for item in sorted(items, key=_key_of, reverse=True):
            entry = item.entry
            entry.pending -= 1
            entry.following = Due(item.key, Nominal(item.scheduled_for, instant_of(item.key)))
            size = len(item.value) + ITEM_OVERHEAD
            self.bytes -= size
            entry.line.bytes -= size
            entry.line.number -= 1
            shortened[id(entry)] = entry
        for entry in shortened.values():
            if not entry.alive:
                continue
            if entry.following is not None and entry.following.key == entry.key:
                # Nothing of it is left here. The store has it at this very place, or will when what goes before fired.
                self.advanced(entry)
                self._follow_again(entry.schedule_id, entry.key)
                continue
            self._follow(entry)
            if entry.pending == 0:
                self._stale.append(entry)

    # --- changes

    def arm(self, schedule: Schedule, due: Due) -> None:
        """A schedule has a new place: if it lies in what was already read, its items join at once."""
        line = self._line(queue_of(due.key))
        end = line.after
        if end is None:
            end = self.end if self._page is None else self._page.end
        if due.key <= end:
            self._side.update(self._expand(schedule, due.key, end, line))

    def disarm(self, schedule_id: str) -> None:
        """Kill a schedule's items: it changed, paused or went."""
        for entry in self._entries.pop(schedule_id, ()):
            entry.alive = False

    @property
    def overfull(self) -> bool:
        """Twice the bound: a storm of near creates; the shard then drops the horizon and reads it again."""
        return self.bytes > 2 * self._max_bytes

    # --- firing

    def is_behind(self, bound: bytes) -> bool:
        """Whether anything up to `bound` waits for a turn already, or could not be read in time."""
        return bool(self._ready) or any(line.after < bound for line in self._cut.values() if line.after is not None)

    def starves(self, now: int) -> bool:
        """Whether nothing is held of a queue of which something may be due."""
        bound = instant_end(now)
        return any(not line.number and line.after < bound for line in self._cut.values() if line.after is not None)

    def due(self, bound: bytes, limit: int) -> list[Item]:
        """The first items up to `bound`, in key order; dead ones are among them. Nothing is removed."""
        main = self._main
        taken = main[: bisect_right(main, bound, 0, min(limit, len(main)), key=_key_of)]
        if self._side and self._side[0].key <= bound:
            side = list(islice(self._side.irange_key(None, bound), limit))
            taken = sorted(taken + side, key=_key_of)[:limit]
        return taken

    def holds_more(self, now: int, count: int) -> bool:
        """Whether more than `count` of the items read at their time may start now."""
        bound = instant_end(now)
        count -= sum(line.waiting for line in self._ready.values())
        return count < 0 or (len(self._main) > count and self._main[count].key <= bound)

    def line_up(self, bound: bytes) -> None:
        """Everything up to `bound` waits for its turn from now on, each queue for itself."""
        main = self._main
        end = bisect_right(main, bound, key=_key_of)
        due, self._main = main[:end], main[end:]
        if self._side and self._side[0].key <= bound:
            side = list(self._side.irange_key(None, bound))
            del self._side[: len(side)]
            due = sorted(due + side, key=_key_of)
        at, end = 0, len(due)
        while at < end:
            first = due[at]
            line = first.entry.line
            self._ready[line.name] = line
            last = due[min(at + RUN, end) - 1]
            if last.entry.line is line and last.key[:9] == first.key[:9]:
                # What is due of one queue at one instant lies together: a tenant's burst is moved as a whole.
                behind = bisect_right(due, first.key[:8] + line.name + b"0", at, end, key=_key_of)
                line.join(due[at:behind])
                at = behind
            else:
                line.join([first])
                at += 1

    def waiting(self) -> list[Waiting]:
        """What waits for a turn."""
        return [
            Waiting(line.name, line.waiting, instant_of(line.items[line.start].key)) for line in self._ready.values()
        ]

    def take(self, turns: Sequence[Turn]) -> list[Item]:
        """The items whose turn it is, in the order of the turns. Nothing is removed."""
        at: dict[bytes, int] = {}
        taken: list[Item] = []
        for queue, number in turns:
            line = self._ready[queue]
            start = at.get(queue, line.start)
            at[queue] = start + number
            taken += line.items[start : start + number]
        return taken

    def reached(self, queue: bytes, number: int) -> bytes:
        """The key up to which a queue is fired once so many of it are taken."""
        line = self._ready[queue]
        return line.items[line.start + number - 1].key

    def left_behind(self, taken: Mapping[bytes, int], bound: bytes) -> list[bytes]:
        """The queues that have more up to `bound` than was taken of them."""
        waiting = [name for name, line in self._ready.items() if line.waiting > taken.get(name, 0)]
        unread = [name for name, line in self._cut.items() if line.after is not None and line.after < bound]
        return list(dict.fromkeys(waiting + unread))

    def fired(self, items: Sequence[Item], taken: Mapping[bytes, int]) -> None:
        """These items are committed: remove them. What follows from it, `take_stale` finds out.

        They are the first of all in key order, or so many of each queue if `taken` says so.
        """
        if not items:
            return
        self._spent.extend(map(_ENTRY, items))
        if taken:
            for queue, number in taken.items():
                self._leave(self._ready[queue], number)
            return
        self.bytes -= sum(map(len, map(_VALUE, items))) + len(items) * ITEM_OVERHEAD
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
            line.bytes -= len(item.value) + ITEM_OVERHEAD
            line.number -= 1
            self._forget(line)

    def _leave(self, line: Line, number: int) -> None:
        gone = line.items[line.start : line.start + number]
        size = sum(map(len, map(_VALUE, gone))) + number * ITEM_OVERHEAD
        self.bytes -= size
        line.bytes -= size
        line.number -= number
        line.go(number)
        if not line.waiting:
            del self._ready[line.name]
        self._forget(line)

    def _forget(self, line: Line) -> None:
        """A queue of which nothing is here need not be known."""
        if not line.number and line.after is None:
            self._lines.pop(line.name, None)

    @property
    def has_stale(self) -> bool:
        """Whether there may be entries to be advanced."""
        return bool(self._spent or self._stale)

    def take_stale(self, limit: int) -> list[Entry]:
        """Entries with nothing left to fire, to be given their next place in the store; at most `limit`."""
        taken: list[Entry] = []
        spent, stale = self._spent, self._stale
        while stale and len(taken) < limit:
            taken.append(stale.popleft())
        for _ in range(min(len(spent), SPENT_CHUNK)):
            if len(taken) == limit:
                break
            entry = spent.popleft()
            entry.pending -= 1
            if entry.pending == 0:
                taken.append(entry)
        return [entry for entry in taken if entry.alive]

    def forget_stale(self) -> None:
        """The store has given every fired entry its next place by other means."""
        self._spent.clear()
        self._stale.clear()

    def advanced(self, entry: Entry) -> None:
        """The store now has this entry at its following place: from here on a change finds it there."""
        entry.alive = False
        entries = self._entries.get(entry.schedule_id)
        if entries is not None and entry in entries:
            entries.remove(entry)
            if not entries:
                del self._entries[entry.schedule_id]

    def next_instant(self) -> int | None:
        """When the next item falls due, as far as the horizon reaches; long ago while something waits for a turn."""
        first = [source[0].key for source in (self._main, self._side) if source]
        first += [line.items[line.start].key for line in self._ready.values()]
        first += [line.after for line in self._cut.values() if line.after is not None and not line.number]
        return instant_of(min(first)) if first else None


def _is_beyond(item: Item) -> bool:
    after = item.entry.line.after
    return after is not None and item.key > after


def _wealth(line: Line) -> tuple[int, int]:
    return line.name[0], line.bytes


_key_of = itemgetter(0)  # attributes of items, read 20,000 at a time
_VALUE = itemgetter(1)
_ENTRY = itemgetter(2)


def _due_at(schedule: Schedule, key: bytes) -> Due | None:
    """The nominal whose due key this is: at or shortly before the key's instant; None if there is none."""
    if not schedule.spec.window_ms:
        return Due(key, Nominal(instant_of(key), instant_of(key)))
    nominal = schedule.next_after(instant_of(key) - schedule.spec.window_ms - 1)
    while nominal is not None:
        at = nominal_at(schedule, nominal)
        found = due_key(at.available_at, schedule.spec.priority, schedule.schedule_id)
        if found >= key:
            return Due(found, at) if found == key else None
        nominal = schedule.next_after(nominal)
    return None
