"""The horizon: the occurrences of the next seconds, read from the store and encoded ahead of their time.

At the instant only produce and commit remain. The horizon is a cache of the store in pages: each page covers the due
keys up to `end`, every nominal of a schedule inside it is an item, and a change of a schedule kills its items exactly.
It is bounded in bytes. A queue gets a part of what the others leave free, so that there is always some room for who
comes later; when there is no more for it, it is *cut* (see `lines.py`) and read on when there is, the one that is
needed first before others. Nothing in the horizon is state: it can be dropped and read again at any time, after what
was fired has been advanced in the store (`take_stale`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING

from scheduler.core.due import Due, due_after, due_key, instant_end, instant_of, queue_of, schedule_of
from scheduler.core.model import Nominal
from scheduler.core.policy import late_limit, nominal_at
from scheduler.shard.held import ITEM_OVERHEAD, Entry, Held, Item, Target
from scheduler.shard.lines import Line, key_of, scan, scan_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from scheduler.core.model import Schedule
    from scheduler.shard.passed import Notes
    from scheduler.state.store import Store

CHUNK = 500  # candidates read at once
CHUNK_BYTES = 512 * 1024  # fewer when they are large or have many nominals each: some 10 ms, while others may be due
SPENT_CHUNK = 5_000  # fired items freed, or looked through for entries to be advanced, at once
SHARE = 7  # a queue may hold so many times what is left free: seven eighths if it is alone, and so on
STEADY_PART = 0.75  # of the bound: what reading ahead may fill
LEAST_PAGES = 2  # to be read ahead however little room there is
KEPT_PART = 16  # of the bound: kept free for the cut queue that is needed first
DEAD_KEPT = 1_000  # entries that lead nowhere any more, from which on it is worth while to look for them

Prepared = tuple[Target, "Callable[[int, int], bytes]", "Callable[[int], Notes] | None"]
_entry_of = itemgetter(2)  # of an item


@dataclass(slots=True)
class _Page:
    """A page while it is read, up to its `end`: everything up to `at` is in `items` or was cut."""

    end: bytes
    at: bytes
    items: list[Item]


class Horizon:
    """Owned by one shard, used by its thread alone.

    `prepare(schedule)` gives where occurrences go, a function that encodes one, and one that tells what a schedule
    passed over before a nominal (None: nothing ever); `load` reads schedules by id. `held`: what was read and not
    fired.
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
        self._fired: deque[Sequence[Item]] = (
            deque()
        )  # items of each step, still whole in memory: freed before more is read
        self._spent: deque[Entry] = deque()  # of all others: one for each item fired
        self._stale: deque[Entry] = deque()
        self._order = count()  # breaks ties in the heap
        self.reset(instant_end(0))

    def reset(self, end: bytes, lagging: Mapping[bytes, bytes] | None = None) -> None:
        """Forget everything read ahead; the next page begins after `end`, queues that lag after a key of their own."""
        self.end = end
        self.held = Held()
        self._entries: dict[str, list[Entry]] = {}
        self._following: list[tuple[bytes, int, Entry]] = []  # heap: schedules that go on behind what was read
        self._dead = 0  # of the entries in it and in those of cut lines
        self._page: _Page | None = None
        self._cut: dict[bytes, Line] = {}
        self._taken = 1  # bytes that the last candidate took
        self._is_pages_turn = False
        self._now = 0
        self.has_notes = False
        for queue, after in (lagging or {}).items():
            self._cut_at(self.held.line(queue), after)

    # --- reading ahead

    def extend(self, now: int, chunks: int = 1) -> bool:
        """Read so many chunks ahead, of a page or of what was cut; False when there is nothing to read, or no room.

        One page at a time, never further than a page beyond now when catching up, so that firing is not kept.
        """
        self._now = now
        self._let_go()
        read = 0
        while read < chunks and self._read_on(now):
            read += 1
        return read > 0

    def is_short(self, now: int) -> bool:
        """Whether a page is to be read, for those who have the time."""
        return self._page is not None or instant_of(self.end) <= now + self.reach_ms - self._page_ms

    def _read_on(self, now: int) -> bool:
        is_short = self.is_short(now)
        self._is_pages_turn = not self._is_pages_turn
        if not (is_short and self._is_pages_turn) and self._resume_some():
            return True
        if not is_short:
            return False
        if self._page is None:
            end = instant_end(min(now + self.reach_ms, max(instant_of(self.end), now) + self._page_ms))
            self._page = _Page(end, self.end, [])
        self._read_page(self._page)
        return True

    def _read_page(self, page: _Page) -> None:
        found, reached = scan(self._store, page.at, page.end, self._chunk, self._cut)
        found, reached = self._with_following(found, reached, self._following)
        line = Line(b"")
        for key, name, schedule in self._candidates(found):
            if not key.startswith(line.head, 8):
                line = self.held.line(queue_of(key))
            if line.after is None and not self._has_room(line, is_first=not self._cut):
                self._cut_at(line, max(page.at, line.before(key)))
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
            self._give_back(self.held.remove_cut_off(self.end) + [item for item in page.items if item.is_cut_off])
            page.items = [item for item in page.items if not item.is_cut_off]
        page.items.sort(key=key_of)
        self.held.append(page.items)
        self.end = page.end
        self._page = None

    @property
    def reach_ms(self) -> int:
        """How far to read ahead: the less the fuller memory is, and no further than would fill three quarters of it.

        So a steady load leaves room for its next page; lines that are cut are costly to read on (ADR 0024).
        """
        unfilled = max(0.0, 1 - self.held.bytes / (STEADY_PART * self._max_bytes))
        return min(self._span_ms, max(LEAST_PAGES * self._page_ms, int(self._span_ms * unfilled)))

    @property
    def _chunk(self) -> int:
        return min(CHUNK, max(1, CHUNK_BYTES // self._taken))

    def _with_following(
        self, found: list[bytes], reached: bytes, following: list[tuple[bytes, int, Entry]]
    ) -> tuple[list[bytes], bytes]:
        """The keys up to `reached` with those of schedules not advanced there yet, and up to where that is all.

        Of the latter no more than a chunk: a page of recurring ones consists of them.
        """
        known: set[bytes] = set()
        last, left = b"", self._chunk
        while following and following[0][0] <= reached:
            if left <= 0 and following[0][0] > last:
                reached = last
                found = found[: bisect_right(found, reached)]
                break
            last, _, entry = heappop(following)
            left -= 1
            self._dead -= not entry.alive
            if entry.alive and entry.following is not None and entry.following.key == last:
                known.add(last)
        return (sorted(known.union(found)) if known else found), reached

    def _candidates(self, found: list[bytes]) -> Iterator[tuple[bytes, str, Schedule | None]]:
        """Every schedule with a nominal at one of these keys that is not here yet."""
        named = [(key, schedule_of(key)) for key in found]
        new = [(key, name) for key, name in named if not any(e.key == key for e in self._entries.get(name, ()))]
        for (key, name), schedule in zip(new, self._load([name for _, name in new]), strict=True):
            yield key, name, schedule

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
        entry.following = due
        entry.pending = len(items)
        if items:
            self.held.count(line, len(items), size)
            self._taken = size
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

    def _has_room(self, line: Line, more: int = 0, *, is_first: bool) -> bool:
        """Whether a line may hold so many bytes more, or one item. `is_first`: no cut one is needed before it."""
        kept = 0 if is_first else self._max_bytes // KEPT_PART
        return line.bytes + more < SHARE * (self._max_bytes - kept - self.held.bytes - more)

    @property
    def _portion(self) -> int:
        """The room for which a cut line is read on: what is read without room is thrown away, and read again."""
        return min(self._chunk * self._taken, self._max_bytes // KEPT_PART)

    def _cut_at(self, line: Line, after: bytes) -> None:
        line.after = after
        self._cut[line.name] = line

    def _need(self, line: Line) -> tuple[int, int, int]:
        """Sorts cut lines: what is due first, of the highest priority, of whom least is here."""
        return max(instant_of(line.after or self.end), self._now), line.name[0], line.bytes

    def _resume_some(self) -> bool:
        """Read about a chunk of cut lines, the one that is needed first before others; False if there is no room."""
        looked = 0
        for place, line in enumerate(sorted(self._cut.values(), key=self._need)):
            is_first = place == 0
            # What is due and needed first is read even if there is no room at all: one schedule, until it has fired.
            is_starving = is_first and not line.number and line.is_cut_before(instant_end(self._now))
            if is_starving or self._has_room(line, self._portion, is_first=is_first):
                looked += self._resume(line, is_first=is_first, is_starving=is_starving)
                if looked >= CHUNK or line.after is not None:
                    break
        return looked > 0

    def _resume(self, line: Line, *, is_first: bool, is_starving: bool) -> int:
        """Read a chunk of a cut line; it is whole again when it reaches what is read of all others.

        Returns how much work that was, in candidates.
        """
        until = self.end if self._page is None else self._page.at
        found, reached = self._with_following(*scan_line(self._store, line, until, self._chunk), line.following)
        at = line.after or reached
        items: list[Item] = []
        full = False
        for key, name, schedule in self._candidates(found):
            if not full and not self._has_room(line, is_first=is_first) and (items or not is_starving):
                full, reached = True, max(at, line.before(key))
            if full:
                self._follow_again(name, key)
            elif schedule is not None:
                items += self._expand(schedule, key, reached, line)
            at = key
        line.after = reached
        self.held.add_read(sorted((item for item in items if item.key <= reached), key=key_of), self.end)
        self._give_back([item for item in items if item.key > reached])
        if reached >= until:
            line.after = None
            del self._cut[line.name]
            for follower in line.following:
                heappush(self._following, follower)
            line.following = []
            self.held.forget(line)
        return len(found) + 1

    def _give_back(self, items: list[Item]) -> None:
        """Items that will be read again: their schedules go on at the first of them."""
        shortened: dict[int, Entry] = {}
        for item in sorted(items, key=key_of, reverse=True):
            entry = item.entry
            entry.pending -= 1
            entry.following = Due(item.key, Nominal(item.scheduled_for, instant_of(item.key)))
            self.held.count(entry.line, -1, -len(item.value) - ITEM_OVERHEAD)
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
        self._let_go()
        line = self.held.line(queue_of(due.key))
        end = line.after
        if end is None:
            end = self.end if self._page is None else self._page.end
        if due.key <= end:
            self.held.add(self._expand(schedule, due.key, end, line))

    def disarm(self, schedule_id: str) -> None:
        """Kill a schedule's items: it changed, paused or went."""
        for entry in self._entries.pop(schedule_id, ()):
            self._kill(entry)

    def _kill(self, entry: Entry) -> None:
        """It counts no more. Heaps would keep it until the schedule's next nominal, which may be a year away."""
        self._dead += entry.alive and entry.following is not None
        entry.alive = False
        if self._dead > max(DEAD_KEPT, len(self._following) // 2):
            for heap in (self._following, *(line.following for line in self._cut.values())):
                heap[:] = [one for one in heap if one[2].alive]
                heapify(heap)
            self._dead = 0

    @property
    def overfull(self) -> bool:
        """Twice the bound: a storm of near creates; the shard then drops the horizon and reads it again."""
        return self.held.bytes > 2 * self._max_bytes

    # --- firing

    def is_behind(self, bound: bytes) -> bool:
        """Whether anything up to `bound` waits for a turn already, or could not be read in time."""
        return self.held.is_waiting or self._is_cut_before(bound)

    def _is_cut_before(self, bound: bytes) -> bool:
        return any(line.is_cut_before(bound) for line in self._cut.values())

    def left_behind(self, taken: Mapping[bytes, int], bound: bytes) -> list[bytes]:
        """The queues that have more up to `bound` than was taken of them, or may have."""
        unread = [name for name, line in self._cut.items() if line.is_cut_before(bound)]
        return list(dict.fromkeys(self.held.left(taken) + unread))

    def is_near(self, now: int) -> bool:
        """Whether what falls due in half a page may not all be read."""
        return instant_of(self.end) <= now + self._page_ms // 2

    def is_cut_near(self, now: int) -> bool:
        """Whether a queue was cut before that."""
        return self._is_cut_before(instant_end(now + self._page_ms // 2))

    def starves(self, now: int) -> bool:
        """Whether nothing is held of a queue of which something may be due."""
        bound = instant_end(now)
        return any(not line.number and line.is_cut_before(bound) for line in self._cut.values())

    def next_instant(self) -> int | None:
        """When the next item falls due, as far as the horizon reaches; long ago while something waits for a turn."""
        found = [instant_of(line.after) for line in self._cut.values() if line.after is not None and not line.number]
        if (first := self.held.first) is not None:
            found.append(first)
        return min(found, default=None)

    def fired(self, items: Sequence[Item], taken: Mapping[bytes, int]) -> None:
        """These items are committed and leave `held`; `take_stale` finds the entries of which nothing is left."""
        if items:
            self._fired.append(items)
            self.held.fired(items, taken)

    def _let_go(self) -> None:
        """Free the items of a fired step, or of some small ones: while more is due there is no time for it."""
        freed = 0
        while self._fired and freed < SPENT_CHUNK:
            items = self._fired.popleft()
            self._spent.extend(map(_entry_of, items))
            freed += len(items)

    @property
    def has_stale(self) -> bool:
        """Whether there may be entries to be advanced."""
        return bool(self._fired or self._spent or self._stale)

    def take_stale(self, limit: int) -> list[Entry]:
        """Entries with nothing left to fire, to be given their next place in the store; at most `limit`."""
        self._let_go()
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
        self._fired.clear()
        self._spent.clear()
        self._stale.clear()

    def advanced(self, entry: Entry) -> None:
        """The store now has this entry at its following place: from here on a change finds it there."""
        self._kill(entry)
        entries = self._entries.get(entry.schedule_id)
        if entries is not None and entry in entries:
            entries.remove(entry)
            if not entries:
                del self._entries[entry.schedule_id]


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
