"""The horizon: the occurrences of the next seconds, read from the store and encoded ahead of their time.

At the instant only produce and commit remain. The horizon is a cache of the store in pages: each page covers the due
keys up to `end`, every nominal of a schedule inside it is an item, and a change of a schedule kills its items exactly.
It is bounded in bytes; when it is full a page simply ends earlier. Nothing in it is state: it can be dropped and read
again at any time, after what was fired has been advanced in the store (`take_stale`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, islice
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from sortedcontainers import SortedKeyList

from scheduler.core.due import Due, due_after, due_key, instant_end, instant_of, schedule_of
from scheduler.core.model import Nominal
from scheduler.core.policy import late_limit, nominal_at
from scheduler.shard import keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scheduler.core.model import Schedule
    from scheduler.shard.passed import Notes
    from scheduler.state.store import Store

ITEM_OVERHEAD = 400  # bytes of Python objects around an item's value (measured: tuple, key, entry, dict slots)
CHUNK = 500  # candidates read at once
SPENT_CHUNK = 5_000  # fired items looked through at once for entries to be advanced


class Target(NamedTuple):
    """Where the occurrences of a schedule go."""

    topic: str
    partition: int
    key: bytes


Prepared = tuple[Target, "Callable[[int, int], bytes]", "Callable[[int], Notes] | None"]


class Entry:
    """One schedule in one page. `key` is its due key in the store; `following` its first nominal after the page."""

    __slots__ = ("alive", "following", "key", "limit_ms", "notes", "pending", "schedule_id", "target")

    def __init__(self, schedule_id: str, key: bytes, target: Target, limit_ms: int | None) -> None:
        self.schedule_id = schedule_id
        self.key = key
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
    """A page while it is read: candidates in key order, items so far."""

    end: bytes
    candidates: deque[tuple[bytes, str]]
    items: list[Item]
    skip: set[str]
    last: bytes


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

    def reset(self, end: bytes) -> None:
        """Forget everything read ahead; the next page begins after `end`."""
        self.end = end
        self.bytes = 0
        self._main: list[Item] = []
        self._side: SortedKeyList[Item, bytes] = SortedKeyList(key=_key_of)
        self._entries: dict[str, list[Entry]] = {}
        self._following: list[tuple[bytes, int, Entry]] = []
        self._page: _Page | None = None
        self.has_notes = False

    # --- reading ahead

    def extend(self, now: int) -> bool:
        """Read one chunk ahead if the horizon is short of its span; False when there is nothing to read."""
        page = self._page
        if page is None:
            wanted = now + self._span_ms
            if instant_of(self.end) > wanted - self._page_ms or self.bytes >= self._max_bytes:
                return False
            # One page at a time, never further than a page beyond now when catching up, so that firing is not kept.
            end = instant_end(min(wanted, max(instant_of(self.end), now) + self._page_ms))
            page = self._page = _Page(end, deque(self._candidates(end)), [], set(), self.end)
        self._read_chunk(page)
        full = self.bytes >= self._max_bytes
        if full and page.candidates:
            self._cut(page)
        if not page.candidates:
            page.items.sort(key=_key_of)
            self._main.extend(page.items)
            self.end = page.end
            self._page = None
        return True

    def _candidates(self, end: bytes) -> Iterator[tuple[bytes, str]]:
        """Every schedule with a nominal in (self.end, end]: from the store, and those not advanced there yet."""
        found = [
            (key[1:], schedule_of(key[1:]))
            for key in self._store.keys(keys.DUE + self.end + b"\x00", keys.DUE + end + b"\x00")
        ]
        seen = {schedule_id for _, schedule_id in found}
        while self._following and self._following[0][0] <= end:
            key, _, entry = heappop(self._following)
            current = entry.alive and entry.following is not None and entry.following.key == key
            if current and entry.schedule_id not in seen:
                found.append((key, entry.schedule_id))
        found.sort()
        for key, schedule_id in found:
            if not any(e.key == key for e in self._entries.get(schedule_id, ())):
                yield key, schedule_id

    def _read_chunk(self, page: _Page) -> None:
        chunk = [page.candidates.popleft() for _ in range(min(CHUNK, len(page.candidates)))]
        if chunk:
            page.last = chunk[-1][0]
        chunk = [(key, schedule_id) for key, schedule_id in chunk if schedule_id not in page.skip]
        schedules = self._load([schedule_id for _, schedule_id in chunk])
        for (key, _), schedule in zip(chunk, schedules, strict=True):
            if schedule is not None:
                page.items.extend(self._expand(schedule, key, page.end))

    def _expand(self, schedule: Schedule, key: bytes, end: bytes) -> list[Item]:
        """All nominals from the one at `key` up to `end`, encoded."""
        due = _due_at(schedule, key)
        target, encode, passed = self._prepare(schedule)
        entry = Entry(schedule.schedule_id, key, target, late_limit(schedule))
        items: list[Item] = []
        while due is not None and due.key <= end:
            value = encode(due.nominal.scheduled_for, due.nominal.available_at)
            items.append(Item(due.key, value, entry, due.nominal.scheduled_for))
            self.bytes += len(value) + ITEM_OVERHEAD
            if passed is not None and (notes := passed(due.nominal.scheduled_for)):
                entry.notes = {**(entry.notes or {}), due.nominal.scheduled_for: (schedule, notes)}
                self.has_notes = True
            due = due_after(schedule, due.nominal.scheduled_for)
        entry.following = due
        entry.pending = len(items)
        if items:
            self._entries.setdefault(entry.schedule_id, []).append(entry)
            if due is not None:
                self._follow(entry)
        return items

    def _follow(self, entry: Entry) -> None:
        """Remember that the schedule goes on behind what was read."""
        if entry.following is not None:
            heappush(self._following, (entry.following.key, next(self._order), entry))

    def _cut(self, page: _Page) -> None:
        """The horizon is full: end the page at the last candidate read and give back what lies behind it."""
        for key, schedule_id in page.candidates:
            for entry in self._entries.get(schedule_id, ()):
                if entry.following is not None and entry.following.key == key:
                    self._follow(entry)
        page.candidates.clear()
        page.end = page.last
        beyond = [item for item in page.items if item.key > page.end]
        page.items = [item for item in page.items if item.key <= page.end]
        if self._side and self._side[-1].key > page.end:
            side = list(self._side.irange_key(page.end, None, inclusive=(False, True)))
            del self._side[len(self._side) - len(side) :]
            beyond += side
        self._give_back(beyond)

    def _give_back(self, items: list[Item]) -> None:
        """Items that will be read again: their schedules go on at the first of them."""
        shortened: dict[int, Entry] = {}
        for item in sorted(items, key=_key_of, reverse=True):
            entry = item.entry
            entry.pending -= 1
            entry.following = Due(item.key, Nominal(item.scheduled_for, instant_of(item.key)))
            self.bytes -= len(item.value) + ITEM_OVERHEAD
            shortened[id(entry)] = entry
        for entry in shortened.values():
            if not entry.alive:
                continue
            if entry.following is not None and entry.following.key == entry.key:
                self.advanced(entry)  # nothing of it is left here, and the store has it at this very place
                continue
            self._follow(entry)
            if entry.pending == 0:
                self._stale.append(entry)

    # --- changes

    def arm(self, schedule: Schedule, due: Due) -> None:
        """A schedule has a new place: if it lies in what was already read, its items join at once."""
        end = self.end
        if self._page is not None:
            self._page.skip.add(schedule.schedule_id)
            end = self._page.end
        if due.key <= end:
            self._side.update(self._expand(schedule, due.key, end))

    def disarm(self, schedule_id: str) -> None:
        """Kill a schedule's items: it changed, paused or went."""
        for entry in self._entries.pop(schedule_id, ()):
            entry.alive = False
        if self._page is not None:
            self._page.skip.add(schedule_id)

    @property
    def overfull(self) -> bool:
        """Twice the bound: a storm of near creates; the shard then drops the horizon and reads it again."""
        return self.bytes > 2 * self._max_bytes

    # --- firing

    def due(self, now: int, limit: int) -> list[Item]:
        """The first items that may start now, in key order; dead ones are among them. Nothing is removed."""
        bound = min(instant_end(now), self.end)
        main = self._main
        taken = main[: bisect_right(main, bound, 0, min(limit, len(main)), key=_key_of)]
        if self._side and self._side[0].key <= bound:
            side = list(islice(self._side.irange_key(None, bound), limit))
            taken = sorted(taken + side, key=_key_of)[:limit]
        return taken

    def holds_more(self, now: int, count: int) -> bool:
        """Whether more than `count` of the items read at their time may start now."""
        return len(self._main) > count and self._main[count].key <= instant_end(now)

    def fired(self, items: Sequence[Item]) -> None:
        """These first items are committed: remove them. What follows from it, `take_stale` finds out."""
        if not items:
            return
        main, count = self._main, len(items)
        if len(main) >= count and main[count - 1] is items[-1]:
            del main[:count]  # so all of them are its first ones
        else:
            ahead = set(map(id, main[:count]))
            side = [item for item in items if id(item) not in ahead]
            del main[: count - len(side)]
            if self._side[0] is side[0] and self._side[len(side) - 1] is side[-1]:
                del self._side[: len(side)]
            else:
                for item in side:
                    self._side.remove(item)
        self.bytes -= sum(map(len, map(_VALUE, items))) + count * ITEM_OVERHEAD
        self._spent.extend(map(_ENTRY, items))

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
        """When the next item falls due, as far as the horizon reaches."""
        first = [source[0].key for source in (self._main, self._side) if source]
        return instant_of(min(first)) if first else None


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
