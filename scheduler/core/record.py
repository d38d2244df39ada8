"""The shard record: where a shard stands. Rewritten by every step that changes anything, in the step's transaction."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from scheduler.core.due import instant_end

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.core.due import Backlog

FORMAT = 1  # of all records a shard writes to its changelogs; a newer one than ours is refused


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRecord:
    """The one source of truth for the cursor, the backlogs, the input positions and the highest version deleted.

    `seen_until`: the last instant at which the shard was alive and looked. `cursor`: see `core/due.py`.
    """

    shard: int
    step: int = 0
    positions: Mapping[str, int] = field(default_factory=dict)
    cursor: bytes = instant_end(0)
    seen_until: int = 0
    deleted_version: int = 0
    backlogs: tuple[Backlog, ...] = ()
    token: int = 0
    generation: int = 0
    tz_version: str = ""

    def moved(self, **changes: object) -> ShardRecord:
        return replace(self, **changes)  # type: ignore[arg-type] # the names are this class's fields
