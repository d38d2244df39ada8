"""Queues as the horizon holds them, and the due index read past those that it holds no more of.

A *line* is one queue (priority, tenant) as far as it is in memory. It is *cut* when memory did not suffice for all of
it: then it ends at a key of its own, and the index behind that key is read when there is room again. Reading the index
for all others steps over the keys of cut lines by seeking, so that one tenant's million does not keep anyone.
"""

from __future__ import annotations

from bisect import insort
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING

from scheduler.core.due import instant_of, queue_of
from scheduler.shard import keys

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from scheduler.shard.held import Entry, Item
    from scheduler.state.store import Store

SEEK_AFTER = 8  # keys passed over one by one before a seek, which costs as much as some ten of them
LOOKS = 5_000  # keys and seeks in one look: some 10 ms

key_of = itemgetter(0)  # of an item


class Line:
    """`items[start:]` are due and wait for their turn, in key order; others are held with those of all queues."""

    __slots__ = ("after", "bytes", "following", "head", "items", "name", "number", "start")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.head = name + b"/"  # with which each of its due keys goes on after the instant
        self.number = 0  # of all its items in memory
        self.bytes = 0  # of them
        self.items: list[Item] = []
        self.start = 0
        self.after: bytes | None = None  # cut: nothing behind this key is in memory
        self.following: list[tuple[bytes, int, Entry]] = []  # heap: schedules that go on behind `after`

    @property
    def waiting(self) -> int:
        return len(self.items) - self.start

    @property
    def since(self) -> int:
        """The instant of the first that waits."""
        return instant_of(self.items[self.start].key)

    def before(self, key: bytes) -> bytes:
        """Before everything that the line has at the instant of this key."""
        return key[:8] + self.name

    def behind(self, key: bytes) -> bytes:
        """Behind everything that the line has at the instant of this key."""
        return _behind(key, self.name)

    def is_cut_before(self, bound: bytes) -> bool:
        """Whether something up to the bound may be missing in memory."""
        return self.after is not None and self.after < bound

    def join(self, items: list[Item]) -> None:
        """These, in key order, wait for their turn: nearly always as the last. The list is the line's from now on."""
        if not self.items:
            self.items = items
            return
        if self.items[-1].key < items[0].key:
            self.items += items
            return
        for item in items:
            insort(self.items, item, lo=self.start, key=key_of)

    def go(self, count: int) -> None:
        """The first ones have gone."""
        self.start += count
        if self.start * 2 >= len(self.items):
            del self.items[: self.start]
            self.start = 0


def _behind(key: bytes, queue: bytes) -> bytes:
    """Behind every key of a queue at the instant of this key."""
    return key[:8] + queue + b"0"  # '0' follows '/'


def scan(store: Store, after: bytes, until: bytes, most: int, cut: Container[bytes]) -> tuple[list[bytes], bytes]:
    """The first due keys in (after, until] but those of cut lines, and the key up to which that is all."""
    if not cut:
        found = [key[1:] for key in islice(store.keys(*_between(after, until)), most)]
        return found, found[-1] if len(found) == most else until
    return _select(
        store, after, until, most, lambda key: queue_of(key) not in cut, lambda key: _behind(key, queue_of(key))
    )


def scan_line(store: Store, line: Line, until: bytes, most: int) -> tuple[list[bytes], bytes]:
    """The first due keys of a cut line up to `until`, and the key up to which that is all."""

    def next_of_line(key: bytes) -> bytes:
        here = key[:8] + line.head
        return here if here > key else (instant_of(key) + 1).to_bytes(8) + line.head

    return _select(store, line.after or b"", until, most, lambda key: key.startswith(line.head, 8), next_of_line)


def _select(
    store: Store,
    after: bytes,
    until: bytes,
    most: int,
    is_wanted: Callable[[bytes], bool],
    following: Callable[[bytes], bytes],
) -> tuple[list[bytes], bytes]:
    """The wanted keys in (after, until], others stepped over; `following`: from an unwanted key, where to seek."""
    found: list[bytes] = []
    start, end = _between(after, until)
    looks = 0
    while True:
        passed = 0
        for stored in store.keys(start, end):
            key = stored[1:]
            looks += 1
            if is_wanted(key):
                found.append(key)
                passed = 0
            else:
                passed += 1
            if len(found) == most or looks >= LOOKS:
                return found, key
            if passed == SEEK_AFTER:
                start = keys.DUE + following(key)
                break
        else:
            return found, until


def _between(after: bytes, until: bytes) -> tuple[bytes, bytes]:
    """(after, until] as a range of the store's keys."""
    return keys.DUE + after + b"\x00", keys.DUE + until + b"\x00"
