"""How much a shard is behind, for people who watch it: counted now and then, in bounded time, and never state."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from scheduler import wire
from scheduler.core.due import instant_of
from scheduler.core.identity import tenant_of
from scheduler.core.time import parse_instant
from scheduler.shard import keys

if TYPE_CHECKING:
    from scheduler.core.record import ShardRecord
    from scheduler.shard.outage import Budget
    from scheduler.state.store import Store

MOST_KEYS = 5_000  # looked at, of what is not decided: some 5 ms; more is said to be as many
MOST_RECORDS = 500  # read, of catch-up and backfills: some 10 ms; what lies behind is taken to be alike


class Overdue(NamedTuple):
    """`oldest`: the instant since which the oldest of it waits (ms), backfills left out; None if nothing does.

    `undecided`: schedules an outage left to be decided (at most `MOST_KEYS` are counted); `catch_up` and `backfill`:
    occurrences that wait for a budget; `drain_ms`: how long these take at the budgets there are.
    """

    oldest: int | None = None
    undecided: int = 0
    catch_up: int = 0
    backfill: int = 0
    drain_ms: int = 0


class Lagging(NamedTuple):
    """`number`: how many lag; `since`: by priority, up to which instant (ms) the queue furthest behind is served."""

    number: int
    since: dict[int, int]


def lagging(record: ShardRecord) -> Lagging:
    """The queues that wait for their turn."""
    number, since = 0, dict[int, int]()
    for queue, lag in record.lags.items():
        if lag.after is not None:
            number += 1
            at = instant_of(lag.after)
            since[queue[0]] = min(at, since.get(queue[0], at))
    return Lagging(number, since)


def look(store: Store, record: ShardRecord, budget: Budget) -> Overdue:
    """Count what waits behind the cursor."""
    undecided, first = _undecided(store, record)
    owed: dict[str, float] = {}
    catch_up, oldest = _catch_up(store, owed)
    backfill, slowest = _backfills(store, owed)
    drain = max((count / budget.rate(tenant) for tenant, count in owed.items()), default=0.0)
    return Overdue(
        oldest=min((instant for instant in (first, oldest) if instant is not None), default=None),
        undecided=undecided,
        catch_up=catch_up,
        backfill=backfill,
        drain_ms=round(1000 * max(drain, slowest)),
    )


def _undecided(store: Store, record: ShardRecord) -> tuple[int, int | None]:
    """Stretches of several priorities cover the same keys: each is counted once, where its own priority waits."""
    count, first = 0, None
    for after, until in {(backlog.after, backlog.until) for backlog in record.backlogs}:
        waiting = {b.priority for b in record.backlogs if (b.after, b.until) == (after, until)}
        found = store.keys(keys.DUE + after + b"\x00", keys.DUE + until + b"\x00")
        for key in islice(found, MOST_KEYS - count):
            if key[9] in waiting:
                count += 1
                instant = instant_of(key[1:])
                first = instant if first is None else min(first, instant)
    return count, first


def _catch_up(store: Store, owed: dict[str, float]) -> tuple[int, int | None]:
    """How many runs wait, and since when; added to what tenants are owed."""
    listed = list(store.keys(keys.CATCH_UP, keys.after_prefix(keys.CATCH_UP)))
    if not listed:
        return 0, None
    every = -(-len(listed) // MOST_RECORDS)  # a sample of all tenants and priorities when there are many
    total, oldest = 0, None
    for key in listed[::every]:
        owner, version = keys.split_catch_up(key)
        stored = store.get(keys.live(wire.live_key("catchup", owner, str(version))))
        runs = [] if stored is None else wire.live_from_bytes(stored).runs
        if not runs:
            continue
        waiting = sum(run.count for run in runs) * every
        total += waiting
        owed[tenant_of(owner)] = owed.get(tenant_of(owner), 0) + waiting
        since = parse_instant(runs[0].available_at)
        oldest = since if oldest is None else min(oldest, since)
    return total, oldest


def _backfills(store: Store, owed: dict[str, float]) -> tuple[int, float]:
    """How many runs remain, and the seconds the slowest takes at its own rate; added to what tenants are owed."""
    total, slowest = 0, 0.0
    for key in islice(store.keys(keys.BACKFILL, keys.after_prefix(keys.BACKFILL)), MOST_RECORDS):
        owner, name = keys.split_backfill(key)
        stored = store.get(keys.live(wire.live_key("backfill", owner, name)))
        record = None if stored is None else wire.live_from_bytes(stored)
        if record is None or record.counted:
            continue
        total += record.remaining
        owed[tenant_of(owner)] = owed.get(tenant_of(owner), 0) + record.remaining
        if record.per_s is not None:
            slowest = max(slowest, record.remaining / record.per_s)
    return total, slowest
