"""The store of one shard: ordered bytes to bytes, changed by atomic batches. Disposable: the changelogs are the truth.

Keys, by their first byte; a test restores an empty store from the topics and compares it key by key:

    key                          value              rebuilt from
    s <schedule_id>              schedule record    scheduler.schedules
    l <owner> 00 <kind>:<id>     live record        scheduler.live
    h                            shard record       scheduler.shards
    z                            zone record        scheduler.shards, key <shard>/zones
    q <priority> <tenant>        lag of a queue     scheduler.shards, keys <shard>/queue/<priority>/<tenant>
    d <due key>                  nothing            derived: the next nominal of each active schedule; instant 0 = none
    k <schedule_id>              a `d` or `x` key   derived: the one place where the schedule stands
    t <instant> <live key>       nothing            derived: live records that wait for an instant
    c <priority> <schedule_id> 00 <version>         derived: catch-up records, by priority and tenant (no value)
    b <priority> <owner> 00 <id> nothing            derived: backfills, by priority and tenant
    e <instant> <live key>       nothing            derived: changes that wait for their instant
    x <instant> <schedule_id>    nothing            derived: completed schedules, by the time they are forgotten
    m <name>                     text               local: identity of the store, changelog positions, when it was whole
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sortedcontainers import SortedDict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Batch:
    """Puts and deletes that reach the store together or not at all. The later one of a key wins."""

    __slots__ = ("ops",)

    def __init__(self) -> None:
        self.ops: dict[bytes, bytes | None] = {}

    def put(self, key: bytes, value: bytes) -> None:
        self.ops[key] = value

    def delete(self, key: bytes) -> None:
        self.ops[key] = None


class Store(Protocol):
    """What the shard needs of a store. Raises StateCorrupted-like errors of its own only from the real disk."""

    def get(self, key: bytes) -> bytes | None:
        """The value of one key."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of several keys, in their order."""

    def write(self, batch: Batch) -> None:
        """Apply a whole batch atomically."""

    def keys(self, start: bytes, end: bytes) -> Iterator[bytes]:
        """Keys in [start, end), ascending; the store must not change while it is walked."""

    def items(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values in [start, end), ascending."""

    def forget(self, start: bytes, end: bytes) -> None:
        """Delete a whole range of keys cheaply: [start, end)."""

    def close(self) -> None:
        """Let go of files; the store is not used afterwards."""


class MemoryStore:
    """The store without a disk, for the simulator and the tests; the conformance suite holds both to one behaviour."""

    def __init__(self) -> None:
        self._map: SortedDict[bytes, bytes] = SortedDict()

    def get(self, key: bytes) -> bytes | None:
        return self._map.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self._map.get(key) for key in keys]

    def write(self, batch: Batch) -> None:
        for key, value in batch.ops.items():
            if value is None:
                self._map.pop(key, None)
            else:
                self._map[key] = value

    def keys(self, start: bytes, end: bytes) -> Iterator[bytes]:
        yield from list(self._map.irange(start, end, inclusive=(True, False)))

    def items(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key in self.keys(start, end):
            yield key, self._map[key]

    def forget(self, start: bytes, end: bytes) -> None:
        for key in list(self._map.irange(start, end, inclusive=(True, False))):
            del self._map[key]

    def close(self) -> None:
        """Nothing to let go of."""
