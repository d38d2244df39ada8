"""The order in which work falls due, and what of it is decided.

A due key is `(available_at, priority, schedule_id)` as bytes that sort in that order; the tenant leads the schedule id.
A *queue* is what is due for one priority and tenant. A shard fires up to its *cursor*; when more is due than one step
takes, the queues that did not get all of theirs *lag*: each has a cursor of its own then, which counts instead. After
an outage a *backlog* is a stretch of one priority that the cursor has passed and that is not decided yet.

    a nominal n of schedule s is decided  <=>  n <= floor(s)
                                               or key(n, s) <= cursor and in no undecided stretch of its queue

    undecided stretches of a queue:  what of the backlogs of its priority is not decided
                                     what lies between its own cursor and the shard's, if it lags

An outage ends all lagging: what lagged when it began is decided with the backlog of its priority, which then begins
before the cursor of that time (`since`); up to there only what lagged belongs to it. An *absence* is one after
which nothing undecided is older than the least grace: the cursor goes on from where it was, without any backlog.

The next nominal of a schedule is its first undecided one; with the schedules, the live records and the shard's records
the whole due index can therefore be derived again, and it is not logged itself.
"""

from __future__ import annotations

import struct
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from scheduler.core.policy import Look, nominal_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.core.model import Nominal, Schedule
    from scheduler.core.policy import Rules
    from scheduler.core.record import ShardRecord

_HEAD = struct.Struct(">QB")
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


def queue_of(key: bytes) -> bytes:
    """The queue of a due key: a byte of priority and the tenant's name."""
    return key[8 : key.index(b"/", HEAD_SIZE)]


def queue_name(priority: int, schedule_id: str) -> bytes:
    """The queue of a schedule."""
    return bytes([priority]) + schedule_id[: schedule_id.index("/")].encode()


class Lag(NamedTuple):
    """What of one queue is undecided behind the shard's cursor.

    `step`: the one that last wrote this down. `after`: the queue's own cursor while it lags. `closed`: stretches
    (after, until] in which it lagged when an outage began; they go as the backlog of its priority is decided.
    """

    step: int = 0
    after: bytes | None = None
    closed: tuple[tuple[bytes, bytes], ...] = ()

    def is_closed_over(self, key: bytes) -> bool:
        return any(after < key <= until for after, until in self.closed)


class Backlog(NamedTuple):
    """Keys of one priority in (after, until] that the cursor has passed and that are not decided yet.

    Up to `since` only those of queues that lagged there.
    """

    priority: int
    after: bytes
    until: bytes
    reason: str = "downtime"
    seen_until: int = 0
    since: bytes = b""

    def holds(self, key: bytes, lags: Mapping[bytes, Lag]) -> bool:
        if not self.after < key <= self.until or key[8] != self.priority:
            return False
        if key > self.since:
            return True
        lag = lags.get(queue_of(key))
        return lag is not None and lag.is_closed_over(key)


class Absence(NamedTuple):
    """Nobody looked in (since, until] (ms), and what fell due then fires from the cursor as if somebody had."""

    since: int
    until: int

    def holds(self, instant: int) -> bool:
        return self.since < instant <= self.until


def undecided_absence(record: ShardRecord) -> Absence | None:
    """The shard's last absence, while something that fell due in it may be undecided."""
    absence = record.absence
    if absence is None:
        return None
    reached = [record.cursor, *(lag.after for lag in record.lags.values() if lag.after is not None)]
    return absence if instant_of(min(reached)) < absence.until else None


def unseen_since(record: ShardRecord) -> int:
    """Since when nobody looked, for whoever looks next: an absence that is not decided belongs to it (ms)."""
    absence = undecided_absence(record)
    return record.seen_until if absence is None else min(absence.since, record.seen_until)


def stretches(queue: bytes, record: ShardRecord) -> list[tuple[bytes, bytes | None]]:
    """What of a queue is undecided, as (after, until] in ascending order; the last has no end."""
    cursor = record.cursor
    if not record.backlogs and not record.lags:
        return [(cursor, None)]
    found: list[tuple[bytes, bytes | None]] = []
    lag = record.lags.get(queue)
    backlogs = [backlog for backlog in record.backlogs if backlog.priority == queue[0]]
    for after, until in () if lag is None else lag.closed:
        # A standby may know of this before it knows of the backlog: then it counts as a whole.
        begin = max([after, *(backlog.after for backlog in backlogs if backlog.since == until)])
        if begin < until:
            found.append((begin, until))
    for backlog in backlogs:
        begin = max(backlog.after, backlog.since)
        if begin < backlog.until:
            found.append((begin, backlog.until))
    if lag is not None and lag.after is not None:
        found.append((lag.after, cursor))
    found.append((cursor, None))
    found.sort(key=itemgetter(0))
    return found


def is_passed_over(key: bytes, record: ShardRecord) -> bool:
    """Whether the cursor has passed this key without deciding it."""
    return any(after < key <= until for after, until in stretches(queue_of(key), record) if until is not None)


def look_at(key: bytes, record: ShardRecord, now: int, rules: Rules) -> Look:
    """How the nominal with this key is to be judged: as missed while nobody looked, or as just due.

    An outage that begins before the last one's backlog is decided extends it: what nobody has decided is one set.
    """
    priority = priority_of(key)
    held = [backlog for backlog in record.backlogs if backlog.priority == priority]
    for backlog in held:
        if backlog.holds(key, record.lags):
            looked_at = max(instant_of(b.until) for b in held)
            return Look(now, backlog.seen_until, rules, backlog.reason, looked_at)
    absence = record.absence
    if absence is not None and instant_of(key) <= absence.until:  # what lagged before it is only late: `since` says so
        return Look(now, absence.since, rules, looked_at=absence.until)
    return Look(now, now, rules)


class Due(Struct, frozen=True, gc=False):
    """A schedule's place in the due index."""

    key: bytes
    nominal: Nominal


def position(schedule: Schedule, record: ShardRecord) -> Due | None:
    """The first undecided nominal of an active schedule. Cost: a handful of trigger evaluations, whatever the gap."""
    if not record.backlogs and not record.lags:  # as nearly always
        return _first_in(schedule, record.cursor, None)
    for after, until in stretches(queue_name(schedule.spec.priority, schedule.schedule_id), record):
        found = _first_in(schedule, after, until)
        if found is not None:
            return found
    return None


def _first_in(schedule: Schedule, after: bytes, until: bytes | None) -> Due | None:
    """The first nominal of a schedule whose key lies in (after, until]."""
    spec = schedule.spec
    # A nominal n starts before n + window, so whatever lies a window before the stretch is before it.
    nominal = schedule.next_after(instant_of(after) - spec.window_ms - 1)
    while nominal is not None:
        at = nominal_at(schedule, nominal)
        key = due_key(at.available_at, spec.priority, schedule.schedule_id)
        if until is not None and key > until:
            return None
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
