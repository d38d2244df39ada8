"""A shard: the single owner of one partition, as a deterministic machine over a store.

    step = shard.plan(now, inputs)   what to commit, or None; nothing has changed yet
    ... one transaction ...
    shard.committed(step)            store and memory follow
    shard.housekeep(now)             advance what fired, read ahead; never commits

No Kafka and no clock here: the runtime, the simulator and the tests drive the same code. After a step that may not have
committed, throw the shard away and open a new one on the restored store.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from msgspec import Raw

from scheduler import wire
from scheduler.core.due import instant_end, instant_of, schedule_of
from scheduler.core.model import COMPLETED_RETENTION_MS, Gone, Schedule, State
from scheduler.core.policy import DEFAULT_RULES, Rules, Settlement
from scheduler.core.record import ShardRecord
from scheduler.core.time import parse_instant
from scheduler.core.zones import tz_version
from scheduler.errors import StateCorrupted
from scheduler.shard import keys
from scheduler.shard.commands import Commands, Input
from scheduler.shard.horizon import Horizon, Item, Target
from scheduler.shard.outage import Budget, Outage, opened
from scheduler.shard.settle import Settler
from scheduler.shard.step import Reader, Step, completed, move, place_of
from scheduler.state.store import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler.state.store import Store
    from topics.catalog import Catalogue

COMMANDS_INPUT = "scheduler.commands"
AWAY_MS = 15_000  # a look older than the least grace is an outage, also without a restart (a sleeping machine)
LATE_CHECK_MS = 1_000  # the least max_lateness: younger items need no look at theirs
MAX_DISPATCH_PARTITIONS = 16  # of a transaction of at most 24: each costs a marker; our own topics take the rest
FIRST_BELIEVED = 1_577_836_800_000  # 2020-01-01
LAST_BELIEVED = 4_102_444_800_000  # 2100-01-01
BUSY = 1_000  # items in a step beyond which everything that can wait waits
CHUNK = 500  # of schedules completed, forgotten or advanced at once; some 10 ms
CATCH_UP_CHUNK = 2_000
EXPIRE_EVERY_MS = 60_000
AHEAD_MS = 60_000  # a stored cursor further ahead of now than this stops the shard
FORGET_AFTER = 10_000  # deletes at the head of the due index before its range is dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSettings:
    """What a shard must know of the configuration. Units: ms, bytes, records, occurrences a second."""

    horizon_ms: int = 30_000
    horizon_bytes: int = 64 * 1024 * 1024
    max_records: int = 20_000
    max_commands: int = 3_000
    catch_up_per_s: float = 100.0
    catch_up_overrides: dict[str, float] = field(default_factory=dict)
    rules: Rules = DEFAULT_RULES


class Shard:
    """See the module's docstring. Source of truth: the store, a copy of the changelogs; `record` mirrors it."""

    def __init__(self, number: int, catalogue: Catalogue, store: Store, settings: ShardSettings) -> None:
        self.number = number
        self._catalogue = catalogue
        self._store = store
        self._settings = settings
        self._floors: dict[str, int] = {}
        self._reader = Reader(store, self._floors)
        self._settler = Settler(catalogue, store)
        self._commands = Commands(store, self._reader, catalogue, settings.rules)
        budget = Budget(settings.catch_up_per_s, settings.catch_up_overrides)
        self._outage = Outage(store, self._reader, catalogue, settings.rules, budget)
        self.horizon = Horizon(
            store, self._plannable, self._prepare, span_ms=settings.horizon_ms, max_bytes=settings.horizon_bytes
        )
        self.record = ShardRecord(shard=number)
        self._last_look = 0
        self._next_timer: int | None = None
        self._catching_up = False
        self._commands_read = False
        self._finished: deque[str] = deque()  # fired for the last time, to be completed
        self._broken: deque[tuple[str, str]] = deque()  # whose trigger today's tables refuse, and why
        self._next_expiry = 0
        self._deletes = 0

    # --- opening

    def open(self, now: int) -> None:
        """Take up the restored store at `now`: what fell due since the shard last looked becomes a backlog.

        Overdue work waits for `commands_read`. Raises StateCorrupted when the stored cursor lies in the future.
        """
        stored = self._store.get(keys.RECORD)
        if stored is not None:
            self.record = wire.record_from_bytes(stored)
            self._refuse_future(now)
        self._read_floors()
        self.advance_passed()
        if stored is None:
            self.record = self.record.moved(cursor=instant_end(now), seen_until=now)
        else:
            self.record = opened(self.record, now, "downtime")
        self.record = self.record.moved(tz_version=tz_version())
        self.horizon.reset(self.record.cursor)
        self._last_look = now
        self._look_for_debts()

    def commands_read(self) -> None:
        """All commands sent before the shard opened are applied: a "pause all" among them wins over the catch-up."""
        self._commands_read = True

    @property
    def max_inputs(self) -> int:
        """How many input records one step may be given."""
        return self._settings.max_commands

    def position(self, topic: str) -> int:
        """The next offset to read of an input topic (its name without the namespace)."""
        return self.record.positions.get(topic, 0)

    def _refuse_future(self, now: int) -> None:
        ahead = max(instant_of(self.record.cursor), self.record.seen_until) - now
        if ahead > AHEAD_MS:
            raise StateCorrupted(
                f"shard {self.number} has fired up to {ahead // 1000} s after now: a clock was wrong when that was "
                "written. Check the clocks of brokers and nodes, then `scheduler repair-cursor` sets it back"
            )

    def _read_floors(self) -> None:
        for _, value in self._store.items(keys.LIVE, keys.after_prefix(keys.LIVE)):
            live = wire.live_from_bytes(value)
            if live.kind == "floor" and live.floor is not None:
                self._floors[live.owner] = parse_instant(live.floor)

    def _look_for_debts(self) -> None:
        first = next(iter(self._store.keys(keys.TIMER, keys.after_prefix(keys.TIMER))), None)
        self._next_timer = None if first is None else keys.split_timer(first)[0]
        catch_up = next(iter(self._store.keys(keys.CATCH_UP, keys.after_prefix(keys.CATCH_UP))), None)
        self._catching_up = catch_up is not None

    # --- planning

    def plan(self, now: int, inputs: Sequence[Input] = ()) -> Step | None:
        """What to commit now: due work, then commands, then what can wait. None when there is nothing."""
        if not FIRST_BELIEVED <= now <= LAST_BELIEVED or now < self._last_look:
            return None  # a clock not to be believed, or one to be caught up with: nothing moves
        if now - self._last_look > AWAY_MS:
            self._was_away(now)
        step = Step(now, self.record.moved(step=self.record.step + 1, seen_until=now), self._catalogue)
        self._fire(step)
        if self._next_timer is not None and self._next_timer <= now:
            self._fire_timers(step)
        if inputs:
            self._apply(step, inputs)
        if len(step.items) < BUSY:
            self._catch_up(step)
            self._tidy(step)
        self._last_look = now
        if step.is_empty:
            self.record = self.record.moved(cursor=step.record.cursor, seen_until=now)
            self.horizon.fired(step.taken)  # dead ones
            return None
        step.seal()
        return step

    def _was_away(self, now: int) -> None:
        """Nobody looked for longer than any grace (a sleeping machine): judged like the time before a restart."""
        self.advance_passed()
        self.record = opened(self.record, now, "downtime")
        self.horizon.reset(self.record.cursor)

    def _fire(self, step: Step) -> None:
        """Take what is due from the horizon, in key order; the cursor moves to the last key taken, or to now."""
        limit = self._settings.max_records
        taken = self.horizon.due(step.now, limit)
        fitting = self._fitting(taken)
        if len(fitting) == limit or len(fitting) < len(taken):
            reached = fitting[-1].key
        else:
            reached = min(instant_end(step.now), self.horizon.end)
        step.taken = fitting
        step.items = [item for item in fitting if item.entry.alive]
        if fitting and step.now - instant_of(fitting[0].key) >= LATE_CHECK_MS:
            self._drop_too_late(step)
        step.record = step.record.moved(cursor=max(step.record.cursor, reached))

    def _fitting(self, items: list[Item]) -> list[Item]:
        """The longest run of items that does not touch too many partitions: the rest waits for the next step."""
        if len(self._catalogue.lanes) * 4 * self._catalogue.dispatch_factor <= MAX_DISPATCH_PARTITIONS:
            return items
        seen: set[tuple[str, int]] = set()
        for index, item in enumerate(items):
            seen.add((item.entry.target.topic, item.entry.target.partition))
            if len(seen) > MAX_DISPATCH_PARTITIONS:
                return items[:index]
        return items

    def _drop_too_late(self, step: Step) -> None:
        """Late because of a burst or a throttle, never a misfire; but max_lateness bounds that, too."""
        late = [
            item
            for item in step.items
            if item.entry.limit_ms is not None and step.now - instant_of(item.key) > item.entry.limit_ms
        ]
        if not late:
            return
        definitions = self._reader.schedules([item.entry.schedule_id for item in late])
        for item, definition in zip(late, definitions, strict=True):
            if definition is not None:
                gone = Gone("missed", "throttled", 1, item.scheduled_for, item.scheduled_for)
                self._settler.settle(step, definition, Settlement(gone=(gone,)))
        dropped = set(map(id, late))
        step.items = [item for item in step.items if id(item) not in dropped]

    def _fire_timers(self, step: Step) -> None:
        """Live records whose instant has come."""
        start, end = keys.timers_until(step.now)
        for key, _ in zip(self._store.keys(start, end), range(CHUNK), strict=False):
            instant, live_key = keys.split_timer(key)
            stored = self._store.get(keys.live(live_key))
            step.batch.delete(key)
            step.timers_changed = True
            if stored is None:
                continue
            live = wire.live_from_bytes(stored)
            owner = live.owner.encode()
            if live.topic is not None and isinstance(live.dispatch, Raw):
                partition = self._catalogue.dispatch_partition(owner, self.number)
                step.send(Target(live.topic, partition, owner), bytes(live.dispatch), "schedule", instant)
            step.drop_live(live_key)
            step.debtors.add(live.owner)

    def _apply(self, step: Step, inputs: Sequence[Input]) -> None:
        room = self._settings.max_records - len(step.items)
        step.consumed = min(len(inputs), max(1, min(self._settings.max_commands, room // 4)))
        self._commands.apply(step, inputs[: step.consumed])
        position = inputs[step.consumed - 1].offset + 1
        step.record = step.record.moved(positions={**step.record.positions, COMMANDS_INPUT: position})
        step.passed = True

    def _catch_up(self, step: Step) -> None:
        if step.record.backlogs and self._commands_read:
            self._outage.decide_slice(step)
        if self._catching_up:
            self._outage.dispatch_catch_up(step, CATCH_UP_CHUNK)

    def _tidy(self, step: Step) -> None:
        """Transitions nobody waits for: completed, broken, forgotten, and floors the cursor has passed."""
        step.finished = min(CHUNK, len(self._finished))
        if step.finished:
            self._complete(step, [self._finished[i] for i in range(step.finished)])
        step.broken = min(CHUNK, len(self._broken))
        for index in range(step.broken):
            self._mark_broken(step, *self._broken[index])
        if step.now >= self._next_expiry:
            self._forget_completed(step)
        if self._floors and not step.record.backlogs:
            passed = [i for i, floor in self._floors.items() if floor < instant_of(step.record.cursor)]
            for schedule_id in passed[:CHUNK]:
                if schedule_id not in step.floors:
                    step.drop_floor(schedule_id)

    def _complete(self, step: Step, names: list[str]) -> None:
        self._reader.touch(step, names)
        for name in names:
            touched = step.touched[name]
            schedule = touched.schedule
            done = schedule is not None and schedule.state is State.ACTIVE and not touched.saved
            if schedule is not None and done and place_of(schedule, step.record) is None:
                step.save(completed(schedule, step.now))

    def _mark_broken(self, step: Step, name: str, why: str) -> None:
        self._reader.touch(step, [name])
        touched = step.touched[name]
        if touched.schedule is None or touched.saved or touched.schedule.state is not State.ACTIVE:
            return
        broken = replace(
            touched.schedule,
            state=State.BROKEN,
            revision=touched.schedule.revision + 1,
            updated_at=step.now,
            broken_reason=why,
        )
        step.save(broken)
        value = wire.revision_to_bytes(broken, "broken", None, step.now, deleted=False)
        step.emit(self._catalogue.schedule_history, name.encode(), value)

    def _forget_completed(self, step: Step) -> None:
        """Completed schedules go a day after their last firing."""
        start, end = keys.EXPIRY, keys.EXPIRY + instant_end(step.now)
        found = [key for key, _ in zip(self._store.keys(start, end), range(CHUNK), strict=False)]
        if len(found) < CHUNK:
            self._next_expiry = step.now + EXPIRE_EVERY_MS
        names = [keys.split_expiry(key)[1] for key in found]
        self._reader.touch(step, names)
        for key, name in zip(found, names, strict=True):
            step.batch.delete(key)
            step.passed = True
            touched = step.touched[name]
            schedule = touched.schedule
            if schedule is None or touched.saved or schedule.state is not State.COMPLETED:
                continue
            if (schedule.completed_at or 0) + COMPLETED_RETENTION_MS <= step.now:
                step.remove(name)
                value = wire.revision_to_bytes(schedule, "expired", None, step.now, deleted=True)
                step.emit(self._catalogue.schedule_history, name.encode(), value)

    # --- after the commit

    def committed(self, step: Step) -> None:
        """The step is on the topics: the store follows in one batch, then memory."""
        self._store.write(step.batch)
        self.record = step.record
        self.horizon.fired(step.taken)
        for schedule_id, touched in step.touched.items():
            if touched.saved or touched.moved:
                self.horizon.disarm(schedule_id)
                if touched.due is not None and touched.schedule is not None:
                    self.horizon.arm(touched.schedule, touched.due)
        for schedule_id, floor in step.floors.items():
            if floor is None:
                self._floors.pop(schedule_id, None)
            else:
                self._floors[schedule_id] = floor
        for _ in range(step.finished):
            self._finished.popleft()
        for _ in range(step.broken):
            self._broken.popleft()
        if step.timers_changed or step.catch_up_changed:
            self._look_for_debts()
        if self.horizon.overfull:
            self.advance_passed()
            self.horizon.reset(self.record.cursor)

    def housekeep(self, now: int) -> bool:
        """A slice of work that commits nothing: advance fired entries, read ahead. True if there may be more."""
        if self.horizon.stale:
            self._advance()
            return True
        return self.horizon.extend(now)

    def next_instant(self) -> int | None:
        """When there will be something to do, as far as the horizon reaches; `now` or earlier means at once."""
        if (self.record.backlogs and self._commands_read) or self._catching_up or self._finished or self._broken:
            return 0
        instants = [i for i in (self.horizon.next_instant(), self._next_timer) if i is not None]
        return min(instants) if instants else None

    def next_change(self, now: int) -> int | None:
        """When there will be something to do if nobody sends anything, budgets included; None: not in the horizon.

        For callers that move time by hand, and for a loop that would rather sleep than look at an empty budget.
        """
        if (self.record.backlogs and self._commands_read) or self._finished or self._broken:
            return now
        budget = self._outage.next_catch_up(now) if self._catching_up else None
        instants = [i for i in (self.horizon.next_instant(), self._next_timer, budget) if i is not None]
        return min(instants) if instants else None

    def idle_until(self, now: int) -> None:
        """Looks up to `now` found nothing, says a caller that moves time by hand: skipped time is not an outage.

        Only for instants at which nothing is due, so not beyond `next_change`.
        """
        self._last_look = max(self._last_look, now)

    def _advance(self) -> None:
        """Fire now, advance later: give fired entries their next place."""
        batch = Batch()
        stale = self.horizon.stale
        for _ in range(min(CHUNK, len(stale))):
            entry = stale.popleft()
            if not entry.alive:
                continue
            if entry.following is None:
                self._finished.append(entry.schedule_id)
            else:
                move(batch, entry.schedule_id, entry.key, entry.following)
                self._deletes += 1
            self.horizon.advanced(entry)
        self._store.write(batch)
        if self._deletes > FORGET_AFTER:
            self._deletes = 0
            first = next(iter(self._store.keys(keys.DUE, keys.after_prefix(keys.DUE))), keys.DUE)
            self._store.forget(keys.DUE, first)

    def advance_passed(self) -> None:
        """Move every entry at or before the cursor that is decided to its next place: what a crash or reset left."""
        end = keys.DUE + self.record.cursor + b"\x00"
        passed = list(self._store.keys(keys.DUE, end))
        for start in range(0, len(passed), CHUNK):
            batch = Batch()
            chunk = passed[start : start + CHUNK]
            names = [schedule_of(key[1:]) for key in chunk]
            for key, name, schedule in zip(chunk, names, self._reader.schedules(names), strict=True):
                due = None if schedule is None else place_of(schedule, self.record)
                if due is not None and due.key == key[1:]:
                    continue
                if due is None and schedule is not None and schedule.state is State.ACTIVE:
                    self._finished.append(name)
                else:
                    move(batch, name, key[1:], due)
            self._store.write(batch)
        self.horizon.stale.clear()

    # --- what the horizon asks

    def _plannable(self, names: list[str]) -> list[Schedule | None]:
        found: list[Schedule | None] = []
        for name, schedule in zip(names, self._reader.schedules(names), strict=True):
            if schedule is not None and isinstance(schedule.spec.trigger, wire.Unplannable):
                self._broken.append((name, schedule.spec.trigger.why))
                found.append(None)
            else:
                found.append(schedule)
        return found

    def _prepare(self, schedule: Schedule) -> tuple[Target, Callable[[int, int], bytes]]:
        return self._settler.target(schedule, self.number), wire.DispatchTemplate(schedule, self.record).value
