"""One partition: records with offsets, open transactions, and what readers see of them."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.world.fibers import Signal
    from tests.support.world.transactions import Txn

Headers = list[tuple[str, bytes]]


class Draft(NamedTuple):
    """A record on its way to a partition."""

    key: bytes | None
    value: bytes | None
    headers: Headers | None = None
    timestamp: int | None = None


class Entry(NamedTuple):
    """What stands at an offset. A marker ends a transaction: it takes an offset and is no record."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None
    timestamp: int
    txn: Txn | None
    is_marker: bool = False


class Log:
    """Offsets only grow; what lies before the first open transaction is stable (`lso`)."""

    def __init__(self, topic: str, number: int, *, append_time: bool) -> None:
        self.topic, self.number = topic, number
        self.append_time = append_time
        self.end = 0
        self.readers: list[Signal] = []  # who wants to know that there is more
        self._entries: list[Entry] = []
        self._offsets: list[int] = []
        self._open: dict[Txn, int] = {}

    @property
    def lso(self) -> int:
        """Committed readers see nothing from here on."""
        return min(self._open.values(), default=self.end)

    def append(self, drafts: Sequence[Draft], now: int, txn: Txn | None = None) -> list[Entry]:
        entries = []
        for draft in drafts:
            stamp = now if self.append_time or draft.timestamp is None else draft.timestamp
            entries.append(Entry(self.end + len(entries), draft.key, draft.value, draft.headers, stamp, txn))
        if txn is not None and entries:
            self._open.setdefault(txn, entries[0].offset)
        self._add(entries)
        return entries

    def mark(self, txn: Txn, now: int) -> None:
        """The transaction is decided here: readers may pass."""
        self._open.pop(txn, None)
        self._add([Entry(self.end, None, None, None, now, txn, is_marker=True)])

    def _add(self, entries: list[Entry]) -> None:
        self._entries += entries
        self._offsets += [entry.offset for entry in entries]
        self.end += len(entries)
        for reader in self.readers:
            reader.send()

    def read(self, start: int, limit: int) -> tuple[list[Entry], int]:
        """Committed records from `start` on, and the offset to go on from, behind markers and aborted records."""
        found: list[Entry] = []
        lso = self.lso
        for index in range(bisect_left(self._offsets, start), len(self._entries)):
            entry = self._entries[index]
            if entry.offset >= lso:
                break
            if not entry.is_marker and (entry.txn is None or entry.txn.committed):
                if len(found) == limit:
                    return found, entry.offset
                found.append(entry)
        return found, max(start, lso)

    def committed(self) -> list[Entry]:
        """Everything a committed reader sees."""
        return self.read(0, len(self._entries))[0]

    def compact(self, keep_from: int) -> int:
        """Of the stable records before `keep_from` only each key's newest stays; returns how many went."""
        newest: dict[bytes | None, int] = {}
        limit = min(keep_from, self.lso)
        for entry in self._entries:
            if entry.offset < limit and _is_visible(entry):
                newest[entry.key] = entry.offset
        kept = [
            entry
            for entry in self._entries
            if entry.offset >= limit or (_is_visible(entry) and newest[entry.key] == entry.offset)
        ]
        gone = len(self._entries) - len(kept)
        self._entries = kept
        self._offsets = [entry.offset for entry in kept]
        return gone


def _is_visible(entry: Entry) -> bool:
    return not entry.is_marker and (entry.txn is None or entry.txn.committed)
