"""Which index key a live record stands under: one rule for the steps that write records and for restores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler import wire
from scheduler.shard import keys

if TYPE_CHECKING:
    from scheduler.state.store import Batch


def index_key(key: bytes, value: bytes | None) -> bytes | None:
    """The one index key of what is owed under the topic's key; None for floors, which no index lists, and for nothing.

    Raises StateCorrupted for a record that cannot be read.
    """
    if value is None or key.startswith(b"floor:"):
        return None
    live = wire.live_from_bytes(value)
    if live.kind == "owed" and live.available_at is not None:
        return keys.timer(wire.available_at(live), key)
    if live.kind == "catchup":
        return keys.catch_up(live.priority, live.owner, wire.version_of(live))
    if live.kind == "backfill":
        return keys.backfill(live.priority, live.owner, wire.split_live_key(key)[2])
    if live.kind == "change" and live.available_at is not None:
        return keys.change(wire.available_at(live), key)
    return None


def write_live(batch: Batch, key: bytes, before: bytes | None, after: bytes | None) -> set[bytes]:
    """Put a live record in the place of `before`, its index key with it; None for none.

    Returns the prefixes of the indexes that list something else now.
    """
    if after is None:
        batch.delete(keys.live(key))
    else:
        batch.put(keys.live(key), after)
    old, new = index_key(key, before), index_key(key, after)
    if old == new:
        return set()
    if old is not None:
        batch.delete(old)
    if new is not None:
        batch.put(new, b"")
    return {listed[:1] for listed in (old, new) if listed is not None}
