"""Why a restored shard is not opened: going on would lose something, or do it twice. Each raises StateCorrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.core.due import instant_of
from scheduler.core.time import format_instant
from scheduler.errors import StateCorrupted
from scheduler.shard import keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.core.record import ShardRecord
    from scheduler.state.store import Store
    from topics.catalog import Catalogue

AHEAD_MS = 60_000  # a shard that is further ahead of now than this stops


def moved(record: ShardRecord) -> None:
    """Its schedules are in another namespace, or not all here yet."""
    to, origin = record.moved_to, record.moved_from
    if to is not None:
        raise StateCorrupted(
            f"shard {record.shard} moved to namespace {to.namespace!r} ({to.shards} shards) at "
            f"{format_instant(to.at)} and fires nothing here: stop the nodes with this namespace, start nodes with "
            "that one; `scheduler repartition` once more carries over commands that were sent here since"
        )
    if origin is not None and origin.filling:
        raise StateCorrupted(
            f"shard {record.shard} is being filled from namespace {origin.namespace!r} and is not whole: run the "
            "same `scheduler repartition` again to its end, then it is served"
        )


def ahead(record: ShardRecord, floors: Mapping[str, int], now: int) -> None:
    """What it has decided lies in the future."""
    floor = max(floors.values(), default=0)
    ms = max(instant_of(record.cursor), record.seen_until, floor) - now
    if ms > AHEAD_MS:
        raise StateCorrupted(
            f"shard {record.shard} has fired up to {ms // 1000} s after now: a clock was wrong when that was "
            "written. Check the clocks of brokers and nodes, then "
            f"`scheduler repair-cursor --shard {record.shard} --reason TEXT` sets it back"
        )


def lost(shard: int, store: Store, catalogue: Catalogue) -> None:
    """A shard without a record is a new one: with schedules, all that is due since it last looked would be lost."""
    found = next(iter(store.keys(keys.SCHEDULE, keys.after_prefix(keys.SCHEDULE))), None)
    if found is not None:
        raise StateCorrupted(
            f"shard {shard} has schedules, such as {found[1:].decode()}, but no record on "
            f"{catalogue.shard_records} of what of them has run: restore that topic from a backup or a "
            "mirror. Without it nobody can tell what is due: move the definitions to another namespace then"
        )
