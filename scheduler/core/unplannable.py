"""A stored trigger that names no nominal here: its zone or its calendar is missing, or its text is no longer a rule."""

import json
from dataclasses import dataclass

from scheduler.core.protocol import Trigger


@dataclass(frozen=True, slots=True)
class Unplannable:
    """Implements `Trigger` by naming nothing, so that its schedule stands still and is broken; keeps what was stored.

    `wire` is the stored form. Where only the calendar is missing, `trigger` is the rule and `version` the version of
    the calendar it was planned by.
    """

    wire: bytes
    why: str
    trigger: Trigger | None = None
    version: int = 0

    def next_after(self, t: int) -> int | None:
        """See `Trigger.next_after`."""
        del t
        return None

    def prev_before(self, t: int) -> int | None:
        """See `Trigger.prev_before`."""
        del t
        return None

    def count_between(self, a: int, b: int) -> int:
        """See `Trigger.count_between`."""
        del a, b
        return 0

    def between(self, a: int, b: int, limit: int) -> list[int]:
        """See `Trigger.between`."""
        del a, b, limit
        return []

    def newest_before(self, t: int, k: int, after: int) -> list[int]:
        """See `Trigger.newest_before`."""
        del t, k, after
        return []

    def to_wire(self) -> dict[str, object]:
        """See `Trigger.to_wire`."""
        if self.trigger is not None:
            return self.trigger.to_wire()
        fields: dict[str, object] = json.loads(self.wire)
        return fields
