"""After an outage: what fell due while nobody looked is decided in slices, and caught up under a budget.

After one so short that no grace is over, the shard fires on from its cursor instead: in bulk, as if it had looked all
the time. Only schedules that asked for less than the least grace are decided by their policy even then.

After a longer one on-time work never waits for what is overdue. A slice takes the next schedules of a backlog, decides
everything each of them owes, moves it to its next future nominal, and moves the backlog's lower end past it, all in one
transaction. What a policy wants to run although it is late becomes a catch-up record and is dispatched as the tenant's
budget allows.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from scheduler import wire
from scheduler.core.due import (
    Backlog,
    instant_end,
    instant_of,
    look_at,
    position,
    schedule_of,
    undecided_absence,
    unseen_since,
)
from scheduler.core.identity import tenant_of
from scheduler.core.model import Priority, State
from scheduler.core.policy import settle
from scheduler.core.series import take
from scheduler.errors import StateCorrupted
from scheduler.shard import keys
from scheduler.shard.step import floored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.core.due import Due, Lag
    from scheduler.core.model import Schedule
    from scheduler.core.record import ShardRecord
    from scheduler.shard.ground import Ground
    from scheduler.shard.step import Step, Touched
    from scheduler.state.store import Store

SLICE = 200  # schedules decided in one step: some 20 ms on a machine with nothing else to do
LEAST_SLICE = 10
SLICE_MS = 30  # how long a step with a slice may take: on-time work waits for it
KEYS_A_SLICE = 20_000  # due keys looked at in one step, those of other priorities included
_ALL_CATCH_UPS = (keys.CATCH_UP, keys.after_prefix(keys.CATCH_UP))


def oldest_unseen(record: ShardRecord, store: Store) -> int | None:
    """The first instant at which something undecided may have fallen due while nobody looked; None: nothing ever will.

    A schedule that lags stands in the index where it lags: what it owes since then shows nowhere.
    """
    if record.lags:
        return unseen_since(record) + 1
    first = next(iter(store.keys(keys.DUE + record.cursor + b"\x00", keys.after_prefix(keys.DUE))), None)
    return None if first is None else instant_of(first[1:])


def opened(record: ShardRecord, now: int, reason: str) -> ShardRecord:
    """The shard was away until now: everything between its cursor and now is a backlog, most urgent first.

    What lagged goes with it, so that all that a schedule owes is decided together: its queue's lag is closed. So does
    what fell due in an absence and is not decided.
    """
    until, cursor = instant_end(now), record.cursor
    if until <= cursor:
        return record.moved(absence=undecided_absence(record))
    seen_until = unseen_since(record)
    firsts: dict[int, bytes] = {}
    lags = {}
    for queue, lag in record.lags.items():
        if lag.after is not None:
            firsts[queue[0]] = min(lag.after, firsts.get(queue[0], lag.after))
            lags[queue] = lag._replace(after=None, closed=(*lag.closed, (lag.after, cursor)))
    new = []
    for priority in Priority:
        first = firsts.get(priority)
        since = cursor if first is not None else b""
        new.append(Backlog(priority, first or cursor, until, reason, seen_until, since))
    backlogs = sorted([*record.backlogs, *new], key=lambda backlog: (backlog.priority, backlog.after))
    return record.moved(cursor=until, backlogs=tuple(backlogs), lags={**record.lags, **lags}, absence=None)


def _decided(record: ShardRecord, priority: int, reached: bytes) -> dict[bytes, Lag]:
    """The lags without what a priority's backlogs have passed."""
    left = {}
    for queue, lag in record.lags.items():
        closed = lag.closed
        if queue[0] == priority:
            closed = tuple(stretch for stretch in closed if stretch[1] > reached)
        if closed or lag.after is not None:
            left[queue] = lag if closed == lag.closed else lag._replace(closed=closed)
    return left


class Outage:
    """Decides backlogs and dispatches catch-up. One per shard; its only memory is each tenant's budget."""

    def __init__(self, ground: Ground, budget: Budget) -> None:
        self._store = ground.store
        self._reader = ground.reader
        self._rules = ground.rules
        self._settler = ground.settler
        self._passed = ground.passed
        self._budget = budget
        self.catching_up = False  # whether catch-up is owed
        self._slice = SLICE
        self._is_fresh = False  # whether the last step decided a slice

    # --- backlogs

    def decide_slice(self, step: Step) -> None:
        """Decide the next schedules, most urgent first; backlogs in which nothing is left are closed on the way."""
        names: list[str] = []
        seen = 0
        self._is_fresh = True
        while step.record.backlogs and len(names) < self._slice and seen < KEYS_A_SLICE:
            backlog, *rest = step.record.backlogs
            lags = step.record.lags
            due, reached, looked = self._next(backlog, lags, self._slice - len(names), KEYS_A_SLICE - seen)
            seen += looked
            new = [schedule_of(key) for key in due]
            self._reader.touch(step, new)
            for name in new:
                self._decide(step, name, backlog)
            names += new
            if reached < backlog.until:
                rest = [backlog._replace(after=reached), *rest]
            step.record = step.record.moved(backlogs=tuple(rest))
            if backlog.after < backlog.since <= reached:
                step.record = step.record.moved(lags=_decided(step.record, backlog.priority, reached))
        step.passed = True
        for name in names:
            self._replace(step, name)

    def took(self, ms: float) -> None:
        """The last step took so long to plan: the next slice is as large as fits into `SLICE_MS`."""
        if not self._is_fresh:
            return
        self._is_fresh = False
        grown = self._slice * 2 if ms <= SLICE_MS / 2 else self._slice if ms <= SLICE_MS else self._slice // 2
        self._slice = max(LEAST_SLICE, min(SLICE, grown))

    def _next(
        self, backlog: Backlog, lags: Mapping[bytes, Lag], most: int, looks: int
    ) -> tuple[list[bytes], bytes, int]:
        """The next due keys of the backlog, how far it is decided once they are, and how many keys that took."""
        found: list[bytes] = []
        start, end = keys.DUE + backlog.after + b"\x00", keys.DUE + backlog.until + b"\x00"
        seen = 0
        for seen, stored in enumerate(self._store.keys(start, end), start=1):
            key = stored[1:]
            if backlog.holds(key, lags):
                found.append(key)
            if len(found) == most or seen == looks:
                return found, key, seen
        return found, backlog.until, seen

    def _decide(self, step: Step, name: str, backlog: Backlog) -> None:
        touched = step.touched[name]
        schedule = touched.schedule
        if schedule is None or schedule.state is not State.ACTIVE or self._settler.fault(schedule) is not None:
            return
        due = position(schedule, step.record)
        if due is not None and backlog.holds(due.key, step.record.lags):  # or a command of this very step settled it
            self._settle(step, touched, schedule, due)

    def decide_misfired(self, step: Step, firsts: Mapping[str, Due]) -> None:
        """Decide by their policies all that schedules owe up to now, each from its first undecided nominal on."""
        self._reader.touch(step, firsts)
        for name, due in firsts.items():
            schedule = step.touched[name].schedule
            if schedule is not None:
                self._settle(step, step.touched[name], schedule, due)
        for name in firsts:
            self._replace(step, name)

    def _settle(self, step: Step, touched: Touched, schedule: Schedule, due: Due) -> None:
        look = look_at(due.key, step.record, step.now, self._rules)
        settlement = settle(schedule, due.nominal.scheduled_for, look)
        newest = schedule.spec.trigger.newest_before(step.now, 1, due.nominal.scheduled_for - 1)
        for gone in self._passed.through(schedule, due.nominal.scheduled_for, newest[-1]) if newest else ():
            self._settler.record(step, schedule, gone)
        self._settler.settle(step, schedule, settlement)
        following = schedule.next_after(due.nominal.scheduled_for)
        if settlement.waiting or (following is not None and following <= step.now):
            touched.schedule = floored(schedule, step.now)
            if not touched.saved:
                step.put_floor(schedule.schedule_id, step.now)

    def _replace(self, step: Step, name: str) -> None:
        """The schedule's new place, now that the backlog has moved and its floor is raised."""
        touched = step.touched[name]
        schedule = touched.schedule
        if schedule is not None and schedule.state is State.ACTIVE and not touched.saved:
            touched.due = position(schedule, step.record)
            touched.moved = True

    # --- catch-up

    def look(self) -> None:
        """Catch-up records came or went: see whether there are any."""
        self.catching_up = next(iter(self._store.keys(*_ALL_CATCH_UPS)), None) is not None

    def dispatch_catch_up(self, step: Step, limit: int) -> None:
        """Dispatch what is to be caught up, most urgent first, as far as the tenants' budgets go."""
        for priority in Priority:
            start = keys.catch_ups(priority)
            end = keys.after_prefix(start)
            while limit > 0:
                key = next(iter(self._store.keys(start, end)), None)
                if key is None:
                    break
                tenant = tenant_of(keys.split_catch_up(key)[0])
                after_tenant = start[:2] + tenant.encode() + b"0"  # '0' follows '/'
                limit -= self._catch_up_tenant(step, key, after_tenant, tenant, limit)
                start = after_tenant

    def next_catch_up(self, now: int) -> int | None:
        """When the next catch-up may be dispatched; `now` if at once, None if none is owed."""
        tenants = {tenant_of(keys.split_catch_up(key)[0]) for key in self._store.keys(*_ALL_CATCH_UPS)}
        return min((self._budget.next_at(tenant, now) for tenant in tenants), default=None)

    def _catch_up_tenant(self, step: Step, start: bytes, end: bytes, tenant: str, limit: int) -> int:
        allowed = min(limit, self._budget.available(tenant, step.now))
        done = 0
        if allowed <= 0:
            return 0
        for key in self._store.keys(start, end):
            if done >= allowed:
                break
            done += self._catch_up_schedule(step, key, allowed - done)
        self._budget.spend(tenant, done)
        return done

    def _catch_up_schedule(self, step: Step, key: bytes, allowed: int) -> int:
        owner, version = keys.split_catch_up(key)
        live_key = wire.live_key("catchup", owner, str(version))
        stored = self._store.get(keys.live(live_key))
        if owner in step.debtors or owner in step.touched:
            return 0  # this step has already changed what it owes; the next one sees it whole
        if stored is None:
            raise StateCorrupted(f"the store lists a catch-up of {owner} that does not exist: delete the store")
        record = wire.live_from_bytes(stored)
        definition = self._reader.owing(record)
        owed = wire.catch_up_series(record)
        if definition is None:
            step.drop_live(live_key)
            step.paid.append(owner)
            return 0
        runs, rest = take(owed, allowed, definition, step.now)
        self._settler.dispatch(step, definition, runs)
        if rest:
            step.put_live(live_key, wire.catch_up_rest(record, rest))
        else:
            step.drop_live(live_key)
            step.paid.append(owner)
        return len(runs)


class Budget:
    """Token buckets by tenant: `per_s` occurrences a second, a second's worth at once."""

    def __init__(self, per_s: float, overrides: dict[str, float] | None = None) -> None:
        self._per_s = per_s
        self._overrides = {} if overrides is None else overrides
        self._buckets: dict[str, tuple[float, int]] = {}  # tokens, as of

    def set_rates(self, per_s: float, overrides: dict[str, float]) -> None:
        """Other rates from now on; what was spent stays spent."""
        self._per_s, self._overrides = per_s, overrides

    def rate(self, tenant: str) -> float:
        return self._overrides.get(tenant, self._per_s)

    def available(self, tenant: str, now: int) -> int:
        """How many may be dispatched now."""
        rate = self.rate(tenant)
        most = max(1.0, rate)
        tokens, as_of = self._buckets.get(tenant, (most, now))
        tokens = min(most, tokens + max(0, now - as_of) * rate / 1000)
        self._buckets[tenant] = (tokens, max(now, as_of))
        return int(tokens + 1e-9)

    def next_at(self, tenant: str, now: int) -> int:
        """The first instant from `now` on at which one may be dispatched."""
        if self.available(tenant, now):
            return now
        tokens, _ = self._buckets[tenant]
        return now + ceil((1 - tokens) * 1000 / self.rate(tenant) - 1e-6)

    def spend(self, tenant: str, count: int) -> None:
        tokens, as_of = self._buckets[tenant]
        self._buckets[tenant] = (tokens - count, as_of)
