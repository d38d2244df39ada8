"""Setting back a shard that a wrong clock drove into the future: what `scheduler repair-cursor` commits, in what order.

What the cursor has passed is decided, at whatever instant it lies. So before the cursor goes back, each schedule with
decided nominals beyond the new one takes them under its own floor; everything else is undecided again and fires in its
time. Schedules created later know nothing of all this.

    first    some steps, each of many schedules: their floors, with a line in the history of each
             what was to be caught up and lies in the future is missed (`clock`), since nothing starts before its time
    last     one step: cursor, `seen_until` and backlogs set back, and the record of who did it and why

Until the last step is committed the shard record still names the future, so a shard that opens meanwhile refuses as
before, and a repair begun anew goes on where this one stopped: floors never run backwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scheduler import wire
from scheduler.core.calendars import NO_CALENDARS
from scheduler.core.due import Absence, instant_end, instant_of, position
from scheduler.core.model import Schedule, State
from scheduler.core.record import ShardRecord
from scheduler.core.series import in_series, spread
from scheduler.core.settlements import stretches
from scheduler.core.time import format_instant
from scheduler.core.unplannable import Unplannable
from scheduler.shard import keys
from scheduler.shard.rebuild import stored_floors, stored_record
from scheduler.shard.refusals import AHEAD_MS
from scheduler.shard.settle import Settler
from scheduler.shard.step import Reader, Step, floored
from topics import messages as m
from topics.codec import encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scheduler.core.calendars import Calendars
    from scheduler.core.due import Lag
    from scheduler.state.store import Store
    from topics.catalog import Catalogue

CHUNK = 1_000  # schedules a step: at most three records each
ENOUGH = 5_000  # records, of steps whose work comes in portions of up to 10,000
EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the operator asks for. `to`: the instant to set the cursor back to; `now`: by the brokers' time."""

    to: int
    now: int
    reason: str
    actor: str | None = None


@dataclass(slots=True)
class Outcome:
    """What a repair found and did. `silent`: some schedules with the instant after which each goes on."""

    shard: int
    ahead_to: int  # the furthest instant the shard says it has reached
    needed: bool
    schedules: int = 0
    missed: int = 0
    silent: list[tuple[str, int]] = field(default_factory=list)


class Repair:
    """The repair of one shard over its restored store; `outcome` grows with the steps."""

    def __init__(
        self, number: int, catalogue: Catalogue, store: Store, order: Order, calendars: Calendars = NO_CALENDARS
    ) -> None:
        self._catalogue = catalogue
        self._store = store
        self._order = order
        self._record = stored_record(store) or ShardRecord(shard=number)
        self._lags = self._record.lags
        self._floors = stored_floors(store)
        self._reader = Reader(store, self._floors)
        self._reader.calendars = calendars
        self._settler = Settler(catalogue)
        self._old = self._record.cursor
        self._new = min(self._old, instant_end(order.to))
        ahead_to = max(instant_of(self._old), self._record.seen_until, *self._floors.values())
        self.outcome = Outcome(number, ahead_to, needed=ahead_to - order.now > AHEAD_MS)

    def count(self, schedules: int, missed: int) -> None:
        """An interrupted repair of the same shard has already done so many."""
        self.outcome.schedules, self.outcome.missed = schedules, missed

    def steps(self) -> Iterator[Step]:
        """The steps to commit, in order; each must be committed and in the store before the next is asked for."""
        if not self.outcome.needed:
            return
        schedules = self._store.keys(keys.SCHEDULE, keys.after_prefix(keys.SCHEDULE))
        names = [key[1:].decode() for key in schedules]
        for start in range(0, len(names), CHUNK):
            step = self._step()
            chunk = names[start : start + CHUNK]
            self._reader.touch(step, chunk)
            for name in chunk:
                self._protect(step, name)
            if step.records:
                yield self._sealed(step)
        step = self._step()
        for key in list(self._store.keys(keys.CATCH_UP, keys.after_prefix(keys.CATCH_UP))):
            self._give_up_future(step, key)
            if len(step.records) > ENOUGH:
                yield self._sealed(step)
                step = self._step()
        if step.records:
            yield self._sealed(step)
        yield self._last()

    def _step(self) -> Step:
        record = self._record.moved(step=self._record.step + 1)
        return Step(self._order.now, record, self._catalogue, self._store, self._lags)

    def _sealed(self, step: Step) -> Step:
        step.seal()
        self._record, self._lags = step.record, step.record.lags
        return step

    def _last(self) -> Step:
        step = self._step()
        order, was = self._order, step.record
        step.record = was.moved(
            cursor=self._new,
            seen_until=min(was.seen_until, order.to),
            backlogs=tuple(
                backlog._replace(
                    until=min(backlog.until, self._new),
                    seen_until=min(backlog.seen_until, order.to),
                    since=min(backlog.since, self._new),
                )
                for backlog in was.backlogs
                if backlog.after < self._new
            ),
            lags=_until(was.lags, self._new),
            absence=None if was.absence is None else Absence(*(min(instant, order.to) for instant in was.absence)),
        )
        value = m.Repair(
            shard=was.shard,
            step=step.record.step,
            at=format_instant(order.now),
            was=m.Cursor(available_at=format_instant(instant_of(self._old))),
            now=m.Cursor(available_at=format_instant(instant_of(self._new))),
            reason=order.reason,
            actor=order.actor,
            schedules=self.outcome.schedules,
            missed=self.outcome.missed,
        )
        step.emit(self._catalogue.shard_records, b"%d/repair" % was.shard, encode(value), step.headers)
        return self._sealed(step)

    # --- schedules

    def _protect(self, step: Step, name: str) -> None:
        schedule = step.touched[name].schedule
        if schedule is None:
            return
        floor = self._decided_until(schedule) if schedule.state in (State.ACTIVE, State.BROKEN) else None
        beside = self._reader.floor(name)
        if floor is None and (beside is None or beside <= self._order.now):
            return
        after = schedule if floor is None else floored(schedule, floor)
        step.save(after)
        if beside is not None:
            step.drop_floor(name)
        told = replace(after, actor=self._order.actor, reason=self._order.reason)
        value = wire.revision_to_bytes(told, "cursor_repaired", None, step.now, deleted=False)
        step.emit(self._catalogue.schedule_history, name.encode(), value)
        self.outcome.schedules += 1
        if len(self.outcome.silent) < EXAMPLES:
            self.outcome.silent.append((name, after.floor))

    def _decided_until(self, schedule: Schedule) -> int | None:
        """The last instant up to which nominals beyond the new cursor are decided; None if none of them is.

        A schedule is decided up to its first open nominal: one that waits in a backlog holds back all that follow.
        """
        reached = instant_of(self._old)
        if isinstance(schedule.spec.trigger, Unplannable):
            return reached  # nobody here can say which: all of them, to be sure
        open_ = position(schedule, self._record)
        until = reached if open_ is None else min(reached, open_.nominal.scheduled_for - 1)
        beyond = position(schedule, self._record.moved(cursor=self._new, backlogs=(), lags={}))
        return until if beyond is not None and beyond.nominal.scheduled_for <= until else None

    # --- what was to be caught up

    def _give_up_future(self, step: Step, key: bytes) -> None:
        owner, version = keys.split_catch_up(key)
        live_key = wire.live_key("catchup", owner, str(version))
        stored = self._store.get(keys.live(live_key))
        if stored is None:
            return
        record = wire.live_from_bytes(stored)
        definition = self._reader.owing(record)
        if definition is None:
            return
        runs = spread(wire.catch_up_series(record), definition)
        early = [run.scheduled_for for run in runs if run.available_at > self._order.now]
        if not early:
            return
        rest = in_series(run for run in runs if run.available_at <= self._order.now)
        for gone in stretches(definition, early, "missed", "clock"):
            self._settler.record(step, definition, gone)
        self.outcome.missed += len(early)
        if rest:
            step.put_live(live_key, wire.catch_up_rest(record, rest))
        else:
            step.drop_live(live_key)


def _until(lags: Mapping[bytes, Lag], cursor: bytes) -> dict[bytes, Lag]:
    """What still lags behind an earlier cursor."""
    left = {}
    for queue, lag in lags.items():
        closed = tuple((after, min(until, cursor)) for after, until in lag.closed if after < cursor)
        after = lag.after if lag.after is not None and lag.after < cursor else None
        if closed or after is not None:
            left[queue] = lag._replace(after=after, closed=closed)
    return left
