"""Listing the nominals of a trigger that can step either way."""

from typing import Protocol


class Steps(Protocol):
    """The two steps of a trigger; instants in ms."""

    def next_after(self, t: int) -> int | None:
        """The least nominal later than `t`."""

    def prev_before(self, t: int) -> int | None:
        """The greatest nominal earlier than `t`."""


def forwards(trigger: Steps, a: int, b: int, limit: int) -> list[int]:
    """The first `limit` nominals in (a, b], ascending."""
    found: list[int] = []
    at = trigger.next_after(a)
    while at is not None and at <= b and len(found) < limit:
        found.append(at)
        at = trigger.next_after(at)
    return found


def backwards(trigger: Steps, t: int, k: int, after: int) -> list[int]:
    """The newest `k` nominals in (after, t], ascending; found from `t` back, whatever the distance to `after`."""
    found: list[int] = []
    at = trigger.prev_before(t + 1)
    while at is not None and at > after and len(found) < k:
        found.append(at)
        at = trigger.prev_before(at)
    found.reverse()
    return found
