"""The order in which work falls due, and what of it is decided.

A due key is `(available_at, priority, schedule_id)` as bytes that sort in that order; the tenant leads the schedule id.
A shard fires in key order and its *cursor* is the key up to which it has fired. A *backlog* is a stretch of one
priority that the cursor has passed and that is not decided yet: after an outage, or of a queue that lags.

    a nominal n of schedule s is decided  <=>  n <= floor(s)
                                               or key(n, s) <= cursor and in no backlog of its priority

The next nominal of a schedule is its first undecided one; with the schedules, the live records and the shard record the
whole due index can therefore be derived again, and it is not logged itself.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from scheduler.core.policy import Look, nominal_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.core.model import Nominal, Schedule
    from scheduler.core.policy import Rules

_HEAD = Struct(">QB")
HEAD_SIZE = _HEAD.size  # of the instant and the priority
_LAST = b"\xff"  # sorts after every priority byte


def due_key(available_at: int, priority: int, schedule_id: str) -> bytes:
    return _HEAD.pack(available_at, priority) + schedule_id.encode()


def instant_end(instant: int) -> bytes:
    """After every key of this instant, before every later one."""
    return instant.to_bytes(8) + _LAST


def instant_of(key: bytes) -> int:
    return int.from_bytes(key[:8])


def priority_of(key: bytes) -> int | None:
    """None for a key that stands for a whole instant."""
    return None if len(key) < HEAD_SIZE or key[8:9] == _LAST else key[8]


def schedule_of(key: bytes) -> str:
    return key[HEAD_SIZE:].decode()


class Backlog(NamedTuple):
    """Keys of one priority in (after, until] that the cursor has passed and that are not decided yet."""

    priority: int
    after: bytes
    until: bytes
    reason: str = "downtime"
    seen_until: int = 0

    def holds(self, key: bytes) -> bool:
        return self.after < key <= self.until and key[8] == self.priority


def look_at(key: bytes, backlogs: Sequence[Backlog], now: int, rules: Rules) -> Look:
    """How the nominal with this key is to be judged: as missed in the outage whose backlog holds it, or as just due.

    An outage that begins before the last one's backlog is decided extends it: what nobody has decided is one set.
    """
    priority = priority_of(key)
    held = [backlog for backlog in backlogs if backlog.priority == priority]
    for backlog in held:
        if backlog.holds(key):
            looked_at = max(instant_of(b.until) for b in held)
            return Look(now, backlog.seen_until, rules, backlog.reason, looked_at)
    return Look(now, now, rules)


class Due(NamedTuple):
    """A schedule's place in the due index."""

    key: bytes
    nominal: Nominal


def position(schedule: Schedule, cursor: bytes, backlogs: Sequence[Backlog]) -> Due | None:
    """The first undecided nominal of an active schedule. Cost: a handful of trigger evaluations, whatever the gap."""
    priority = schedule.spec.priority
    stretches = [(b.after, b.until) for b in backlogs if b.priority == priority]
    for after, until in [*stretches, (cursor, None)]:
        # A nominal n starts before n + window, so whatever lies a window before the stretch is before it.
        nominal = schedule.next_after(instant_of(after) - schedule.spec.window_ms - 1)
        while nominal is not None:
            at = nominal_at(schedule, nominal)
            key = due_key(at.available_at, priority, schedule.schedule_id)
            if until is not None and key > until:
                break
            if key > after:
                return Due(key, at)
            nominal = schedule.next_after(nominal)
    return None


def due_after(schedule: Schedule, scheduled_for: int) -> Due | None:
    """The place of the nominal that follows `scheduled_for`."""
    nominal = schedule.next_after(scheduled_for)
    if nominal is None:
        return None
    at = nominal_at(schedule, nominal)
    return Due(due_key(at.available_at, schedule.spec.priority, schedule.schedule_id), at)
