"""The shard record: where a shard stands. Rewritten by every step that changes anything, in the step's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from scheduler.core.due import instant_end

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.core.due import Absence, Backlog, Lag

FORMAT = 3  # of all records a shard writes to its changelogs; a newer one than ours is refused


class Move(NamedTuple):
    """A cluster's move to another namespace and number of shards, as one of its shards has it.

    `at`: this shard decided nothing after it (ms); of a new shard: no old one did. `filling`: a new shard that is not
    to be opened yet.
    """

    namespace: str
    shards: int
    at: int
    filling: bool = False


class ShardRecord(Struct, frozen=True, kw_only=True, gc=False):
    """The one source of truth for the cursor, the backlogs, the input positions and the highest version deleted.

    `seen_until`: the last instant at which the shard was alive and looked. `cursor`: see `core/due.py`. `calendars`:
    the version of each calendar its schedules are planned by. `zones_step`: the step that last wrote the zone record.
    `forwarded`: partition of the command topic -> the offset below which every copy from there is here and applied (a
    release that does not know it leaves it out again, which is harmless: a copy that comes twice is then known by its
    command id only, as it was before there were marks; so it needs no new `FORMAT`).
    `absence`: the last one, until what fell due in it is decided (a release that does not know it takes that for due
    while somebody looked: it runs, or is missed under another reason).
    `moved_to`: the shard is over, its schedules are in that namespace. `moved_from`: where a new one's come from.
    `lags`: the queues that lag or lagged (see `core/due.py`), by name; each is a record of its own on the topic.
    """

    shard: int
    step: int = 0
    positions: Mapping[str, int] = {}
    cursor: bytes = instant_end(0)
    seen_until: int = 0
    deleted_version: int = 0
    backlogs: tuple[Backlog, ...] = ()
    token: int = 0
    generation: int = 0
    tz_version: str = ""
    calendars: Mapping[str, int] = {}
    zones_step: int = 0
    forwarded: Mapping[int, int] = {}
    absence: Absence | None = None
    moved_to: Move | None = None
    moved_from: Move | None = None
    lags: Mapping[bytes, Lag] = {}

    @property
    def next_version(self) -> int:
        """Of a schedule that is created: later than any that was deleted, so that no occurrence id comes twice."""
        return self.deleted_version + 1

    def moved(self, **changes: object) -> ShardRecord:
        return replace(self, **changes)
