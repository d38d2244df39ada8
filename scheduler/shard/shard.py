"""A shard: the single owner of one partition, as a deterministic machine over a store.

    step = shard.plan(now, inputs)   what to commit, or None; nothing has changed yet
    ... one transaction ...
    shard.committed(step)            store and memory follow
    shard.housekeep(now)             advance what fired, read ahead; never commits

No Kafka and no clock here: the runtime, the simulator and the tests drive the same code. After a step that may not have
committed, throw the shard away and open a new one on the restored store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from scheduler import wire
from scheduler.core.due import Absence, instant_end, instant_of, queue_of, schedule_of
from scheduler.core.model import Schedule, State
from scheduler.core.policy import DEFAULT_RULES, Rules
from scheduler.core.record import ShardRecord
from scheduler.core.time import FIRST_BELIEVED, LAST_BELIEVED, format_instant
from scheduler.core.zones import tz_version
from scheduler.errors import StateCorrupted
from scheduler.shard import keys, overdue, refusals
from scheduler.shard.backfills import Backfills, Question
from scheduler.shard.commands import Commands, Input
from scheduler.shard.firing import Firing
from scheduler.shard.ground import Ground
from scheduler.shard.horizon import Horizon, Prepared
from scheduler.shard.opening import Opening
from scheduler.shard.outage import Budget, Outage, oldest_unseen, opened
from scheduler.shard.overdue import Overdue
from scheduler.shard.passed import Passed
from scheduler.shard.rebuild import FORGET_AFTER, stored_floors, stored_record
from scheduler.shard.refusals import AHEAD_MS
from scheduler.shard.replan import Replan
from scheduler.shard.settle import Settler
from scheduler.shard.step import Reader, Step, Touched, move, place_of, standing
from scheduler.shard.tidy import Tidy
from scheduler.shard.waiting import Waiting
from scheduler.shard.zones import Zones
from scheduler.state.store import Batch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.core.backfill import Ran
    from scheduler.core.calendars import Calendars
    from scheduler.core.due import Lag
    from scheduler.state.store import Store
    from topics.catalog import Catalogue

COMMANDS_INPUT = "scheduler.commands"
BUSY = 1_000  # items in a step beyond which everything that can wait waits
LATE_MS = 50  # as does an item that is late by so much: some steps
CHUNK = 500  # of schedules advanced at once; some 10 ms
CATCH_UP_CHUNK = 2_000
STARVED_CHUNKS = 4  # read at once of what is due already: a step of one chunk would be mostly commit
COMMANDS_MS = 200  # of planning commands in one step, when something falls due so soon:
SOON_MS = 2_000
FEW_COMMANDS = 100  # a step takes in any case: below, it is the transaction that costs


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
        self._settler = Settler(catalogue)
        self._passed = Passed(self._reader)
        ground = Ground(
            store=store,
            reader=self._reader,
            catalogue=catalogue,
            rules=settings.rules,
            settler=self._settler,
            passed=self._passed,
        )
        self._commands = Commands(ground)
        self._waiting = Waiting(ground, self._commands)
        self._budget = Budget(settings.catch_up_per_s, settings.catch_up_overrides)
        self._outage = Outage(ground, self._budget)
        self._tidy = Tidy(ground, self._floors)
        self._backfills = Backfills(ground, self._budget)
        self.zones = Zones(store)
        self._replans = Replan(ground, self._commands, self.zones)
        self._opened = False
        self.horizon = Horizon(
            store, self._plannable, self._prepare, span_ms=settings.horizon_ms, max_bytes=settings.horizon_bytes
        )
        self._firing = Firing(ground, self.horizon, self._outage, settings.max_records)
        self.record = ShardRecord(shard=number)
        self._lags: Mapping[bytes, Lag] = {}  # as they are on the topic
        self._last_look = 0
        self._consumed = 0  # commands in the last step planned
        self._portion = settings.max_commands
        self._opening = Opening()
        self._deletes = 0

    # --- opening

    def open(self, now: int, commands_end: int) -> None:
        """Take up the restored store at `now`.

        What fell due since the shard last looked becomes a backlog; if that is not long ago, the shard fires on from
        its cursor. Either waits for the commands before the offset `commands_end`.

        Raises StateCorrupted when the stored cursor lies in the future or is lost, or when the cluster has moved to
        another namespace, or not yet to this one.
        """
        stored = stored_record(self._store)
        if stored is not None:
            self.record = stored
            self._lags = stored.lags
        refusals.moved(self.record)
        self._floors.update(stored_floors(self._store))
        self._tidy.open()
        refusals.ahead(self.record, self._floors, now)
        if stored is None:
            refusals.lost(self.number, self._store, self._catalogue)
            self.record = self.record.moved(cursor=instant_end(now), seen_until=now, tz_version=tz_version())
        self.zones.load(now, known=stored is None or self.record.zones_step > 0)
        if self.record.tz_version != tz_version():
            self._place_anew()
        self.advance_passed()
        # A clock that went back a little is waited for: nothing is decided twice at instants already passed.
        self._last_look = max(now, self.record.seen_until, instant_of(self.record.cursor))
        self._opening = Opening(self._last_look, self.position(COMMANDS_INPUT), commands_end)
        self._look_for_debts()
        self._backfills.look()
        self._opened = True
        self._replans.begin(self.record)
        self.drop_horizon()
        if stored is not None:
            self._take_up(self._last_look)

    def close(self) -> None:
        """Let go of what was read ahead: it is much, and the collector would find it late."""
        self.horizon.reset(self.record.cursor)

    def use(self, calendars: Calendars) -> None:
        """From the next step on these are the calendars; before `open` the ones to open with.

        Schedules of a calendar that has changed are planned anew in the steps that follow.
        """
        self._reader.calendars = calendars
        if self._opened:
            self._replans.begin(self.record)

    def _take_up(self, now: int) -> None:
        """Nobody looked until now: fire on from the cursor, or decide what is overdue as after an outage.

        What has to be decided before the cursor passes it, or together with it, makes it an outage, however short.
        """
        waiting, opening = self._waiting, self._opening
        owes = self.record.backlogs or waiting.has_timers(opening.at) or waiting.has_changes(opening.at, None)
        unread = opening.unread(self.position(COMMANDS_INPUT))
        is_patient = unread == 0 or (unread <= self._settings.max_commands and not opening.holds)
        oldest = oldest_unseen(self.record, self._store)
        is_late = oldest is not None and oldest < now - self._settings.rules.grace_min_ms
        if owes or self._replans.is_busy or is_late or not is_patient:
            self._decide_outage(now, "downtime")  # nothing fired since what was passed was advanced
            return
        absence = None if oldest is None or oldest > now else Absence(oldest - 1, now)
        self.record = self.record.moved(absence=absence)
        opening.hold()

    def commands_read(self) -> None:
        """All commands sent before the shard opened are applied: a "pause all" among them wins over what is overdue.

        To be called when the topic has no more of them, should its last offsets hold none.
        """
        self._opening.is_read = True

    def questions(self) -> list[Question]:
        """What backfills must know before they can run, each given out once: hand `answer` what the topics say."""
        return self._backfills.questions()

    def answer(self, question: Question, ran: Sequence[Ran]) -> None:
        """All dispatches since the question's instant that were committed before it was asked, manual ones left out."""
        self._backfills.answer(question, ran)

    def overdue(self, now: int) -> Overdue:
        """How far the shard is behind: after an outage, under a budget, or because a burst or timers came late."""
        behind = Overdue()
        if self.record.backlogs or self._outage.catching_up or self._backfills.exist:
            behind = overdue.look(self._store, self.record, self._budget)
        late = (behind.oldest, self.horizon.next_instant(), self._waiting.next_timer)
        return behind._replace(oldest=min((i for i in late if i is not None and i <= now), default=None))

    def took(self, ms: float) -> None:
        """How long the last `plan` took: on a busy machine less of an outage, and fewer commands, are done at once."""
        self._outage.took(ms)
        if self._consumed >= FEW_COMMANDS:
            fitting = int(self._consumed * COMMANDS_MS / max(1.0, ms))
            self._portion = max(FEW_COMMANDS, min(self._settings.max_commands, fitting))

    def set_weights(self, weights: Mapping[str, int]) -> None:
        """From now on these weights of tenants that take turns; 1 for all others."""
        self._firing.weigh(weights)

    def set_catch_up(self, per_s: float, by_tenant: Mapping[str, float]) -> None:
        """From now on these budgets of this shard, in occurrences a second: the default, and those that differ."""
        self._budget.set_rates(per_s, dict(by_tenant))

    @property
    def max_inputs(self) -> int:
        """How many input records one step may be given: what falls due soon must not wait long for a step of them."""
        due = self.horizon.next_instant()
        is_soon = due is not None and due <= self._last_look + SOON_MS
        return self._portion if is_soon else self._settings.max_commands

    def position(self, topic: str) -> int:
        """The next offset to read of an input topic (its name without the namespace)."""
        return self.record.positions.get(topic, 0)

    def waits_ms(self, now: int) -> int:
        """How long nothing moves because the clock is behind what was decided; 0: not at all.

        Raises StateCorrupted when that is too long to wait for.
        """
        behind = max(0, self._last_look - now)
        if behind > AHEAD_MS:
            raise StateCorrupted(
                f"the brokers' clock went back by {behind // 1000} s, too long to wait for: shard {self.number} stops, "
                f"and is opened anew if nothing was committed since {format_instant(now)}. Check the clocks"
            )
        return behind

    def _look_for_debts(self) -> None:
        self._waiting.look()
        self._outage.look()

    @property
    def _is_owing(self) -> bool:
        first = (self._waiting.next_timer, self._waiting.next_change)
        return first != (None, None) or self._outage.catching_up or self._backfills.exist

    # --- planning

    def plan(
        self, now: int, inputs: Sequence[Input] = (), *, away: str = "downtime", chores: bool = True
    ) -> Step | None:
        """What to commit now: due work, then commands, then what can wait. None when there is nothing.

        `away` is the reason for which nobody looked, should the last look be long ago: `downtime` or `clock`. A change
        whose instant has passed since the last look gets a step of its own as of that instant. Without `chores`, what
        nobody waits for is left for another time.
        """
        self._consumed = 0
        if not FIRST_BELIEVED <= now <= LAST_BELIEVED or self.waits_ms(now):
            return None  # a clock not to be believed, or one to be caught up with: nothing moves
        if now - self._last_look > self._settings.rules.grace_min_ms:
            self._was_away(now, away)
        elif self._opening.has_ended(now):
            self._take_up(now)
        elif (change := self._waiting.next_change) is not None and self._last_look < change < now:
            now, inputs = change, ()
        record = self.record.moved(step=self.record.step + 1, seen_until=now)
        step = Step(now, record, self._catalogue, self._store, self._lags)
        overdue_until = self._opening.overdue_until
        if not self._opening.holds:
            self._firing.fire(step)
        if self._waiting.has_timers(now):
            self._waiting.fire_timers(step, overdue_until)
        if self._waiting.has_changes(now, overdue_until):
            self._waiting.apply_changes(step, overdue_until)
        if inputs:
            self._apply(step, inputs)
        if len(step.items) < BUSY:
            self._catch_up(step)
        if chores and len(step.items) < BUSY:
            self._tidy.proceed(step, is_owing=self._is_owing)
        self._last_look = now
        if step.is_empty:
            self.record = step.record.moved(step=self.record.step)  # not used up: nothing was committed
            self.horizon.fired(step.taken, step.turns)  # dead ones
            self._tidy.looked(step)
            if step.replans:
                self._replans.looked(step)
            return None
        self.zones.note(step)
        step.seal()
        return step

    def drop_horizon(self) -> None:
        """Read everything ahead again; what was fired must have been advanced."""
        lagging = {queue: lag.after for queue, lag in self.record.lags.items() if lag.after is not None}
        self.horizon.reset(self.record.cursor, lagging)

    def _was_away(self, now: int, reason: str) -> None:
        """Nobody looked for longer than any grace (a sleeping machine): judged like the time before a restart."""
        self.advance_passed()
        self._decide_outage(now, reason)

    def _decide_outage(self, now: int, reason: str) -> None:
        self.record = opened(self.record, now, reason)
        self.drop_horizon()
        self._opening.release(now)

    def _apply(self, step: Step, inputs: Sequence[Input]) -> None:
        room = self._settings.max_records - len(step.items)
        step.consumed = min(len(inputs), max(1, min(self._settings.max_commands, room // 4)))
        self._commands.apply(step, inputs[: step.consumed])
        self._consumed = step.consumed
        position = inputs[step.consumed - 1].offset + 1
        step.record = step.record.moved(positions={**step.record.positions, COMMANDS_INPUT: position})
        step.passed = True

    def _catch_up(self, step: Step) -> None:
        waiting, now = self._waiting, step.now
        if self._opening.is_read and not waiting.has_timers(now) and not waiting.has_changes(now, None):
            if self._replans.is_busy:
                step.replans = True
                self._replans.proceed(step)
            if step.record.backlogs and not self._replans.moves_zones:
                self._outage.decide_slice(step)
            if self._outage.catching_up:
                self._outage.dispatch_catch_up(step, CATCH_UP_CHUNK)
            if self._backfills.exist:
                self._backfills.proceed(step, CATCH_UP_CHUNK)

    # --- after the commit

    def committed(self, step: Step) -> None:
        """The step is on the topics: the store follows in one batch, then memory."""
        self._store.write(step.batch)
        self.record = step.record
        self._lags = step.record.lags
        self._opening.applied(self.position(COMMANDS_INPUT))
        self.zones.committed(step)
        if step.replans:
            self._replans.looked(step)
        self.horizon.fired(step.taken, step.turns)
        self._tidy.committed(step)
        for schedule_id, touched in step.touched.items():
            if touched.saved or touched.moved:
                self._rearm(schedule_id, touched)
        for schedule_id, floor in step.floors.items():
            if floor is None:
                self._floors.pop(schedule_id, None)
            else:
                self._floors[schedule_id] = floor
        if step.relisted - {keys.BACKFILL}:
            self._look_for_debts()
        if keys.BACKFILL in step.relisted:
            self._backfills.look()
        elif step.touched:
            self._backfills.wake()  # a held one may go on
        if self.horizon.overfull:
            while self.horizon.has_stale:
                self._advance()
            self.advance_passed()
            self.drop_horizon()

    def _rearm(self, schedule_id: str, touched: Touched) -> None:
        """The horizon follows a schedule that changed; what a backlog holds stays out of it until it is decided."""
        self.horizon.disarm(schedule_id)
        schedule, due = touched.schedule, touched.due
        if schedule is None or schedule.state is not State.ACTIVE:
            return
        if due is None:
            self._tidy.ends(schedule_id)
        elif due.key > self.record.cursor or self._lags_at(due.key):
            self.horizon.arm(schedule, due)

    def _lags_at(self, key: bytes) -> bool:
        """Whether what has this key waits behind its queue's own cursor."""
        lag = self.record.lags.get(queue_of(key))
        return lag is not None and lag.after is not None and key > lag.after

    def housekeep(self, now: int, *, chores: bool = True, ahead: bool = True) -> bool:
        """A slice of work that commits nothing: advance fired entries, read ahead. True if there may be more.

        Without `chores`, fired entries are left for another time. Without `ahead` only what falls due in the next
        seconds is read; while much is due, what was cut for want of room waits even then, until it is missed.
        """
        if chores and self.horizon.has_stale:
            self._advance()
            return True
        starves = self.horizon.starves(now)
        is_needed = starves or self.horizon.is_near(now)
        if not is_needed and (self.is_pressed(now) or not (ahead or self.horizon.is_cut_near(now))):
            return False
        return self.horizon.extend(now, STARVED_CHUNKS if starves else 1)

    @property
    def has_chores(self) -> bool:
        """Whether there is work that nobody waits for."""
        return self.horizon.has_stale or self._tidy.is_busy

    def is_pressed(self, now: int) -> bool:
        """Whether more is due than a step should share with other work, or it is late."""
        return self.horizon.held.holds_more(now, BUSY) or self.horizon.held.holds_more(now - LATE_MS, 0)

    def next_instant(self, now: int | None = None) -> int | None:
        """When there will be something to do if nobody sends anything, as far as the horizon reaches; None: not in it.

        At once is 0, or `now` if it is given: then what waits for a budget has its instant, too, for callers that move
        time by hand. A loop that sleeps looks at what is due and at its budget in vain now and then.
        """
        at_once = 0 if now is None else now
        if self._tidy.is_busy or (self._opening.is_read and (self.record.backlogs or self._replans.is_busy)):
            return at_once
        overdue_until = self._opening.overdue_until or 0
        timed = (self._waiting.next_timer, self._waiting.next_change)
        found = [self._opening.held(self.horizon.next_instant())]
        found += [instant for instant in timed if instant is not None and instant > overdue_until]
        if self._opening.is_read:
            found.append(self._backfills.next_change(at_once))
            if self._outage.catching_up:
                found.append(at_once if now is None else self._outage.next_catch_up(now))
        return min((instant for instant in found if instant is not None), default=None)

    def idle_until(self, now: int) -> None:
        """Looks up to `now` found nothing, says a caller that moves time by hand: skipped time is not an outage.

        Only for instants at which nothing is due, so not beyond `next_instant`.
        """
        self._last_look = max(self._last_look, now)

    def _advance(self) -> None:
        """Fire now, advance later: give fired entries their next place."""
        batch = Batch()
        for entry in self.horizon.take_stale(CHUNK):
            if entry.following is None:
                self._tidy.ends(entry.schedule_id)
            else:
                move(batch, entry.schedule_id, keys.DUE + entry.key, keys.DUE + entry.following.key)
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
        passed = [key for key in self._store.keys(keys.DUE, end) if not (self.record.lags and self._lags_at(key[1:]))]
        for start in range(0, len(passed), CHUNK):
            batch = Batch()
            chunk = passed[start : start + CHUNK]
            names = [schedule_of(key[1:]) for key in chunk]
            for key, name, schedule in zip(chunk, names, self._reader.schedules(names), strict=True):
                due = None if schedule is None else place_of(schedule, self.record)
                if due is None and schedule is not None and schedule.state is State.ACTIVE:
                    self._tidy.ends(name)
                move(batch, name, key, standing(schedule, due))
            self._store.write(batch)
        self.horizon.forget_stale()

    def _place_anew(self) -> None:
        """Other zone tables than those that computed the places: compute those of their zones again, at once.

        So nothing fires at an instant of the former tables; the schedules' versions follow in the first steps.
        """
        changed = self.zones.changed()
        needle = wire.needle((), changed)
        everything = not self.record.zones_step  # of a version that kept no zones
        found = self._store.items(keys.SCHEDULE, keys.after_prefix(keys.SCHEDULE)) if changed or everything else ()
        hits = (key[1:].decode() for key, value in found if everything or needle.search(value) is not None)
        while names := list(islice(hits, CHUNK)):
            batch = Batch()
            places = self._store.get_many([keys.place(name) for name in names])
            for name, place, schedule in zip(names, places, self._reader.schedules(names), strict=True):
                if schedule is not None:
                    move(batch, name, place, standing(schedule, place_of(schedule, self.record)))
            self._store.write(batch)
        self.record = self.record.moved(tz_version=tz_version())

    # --- what the horizon asks

    def _plannable(self, names: list[str]) -> list[Schedule | None]:
        found: list[Schedule | None] = []
        for name, schedule in zip(names, self._reader.schedules(names), strict=True):
            is_active = schedule is not None and schedule.state is State.ACTIVE
            if schedule is not None and is_active and self._settler.fault(schedule) is not None:
                self._tidy.ends(name)
                is_active = False
            found.append(schedule if is_active else None)
        return found

    def _prepare(self, schedule: Schedule) -> Prepared:
        encode = wire.DispatchTemplate(schedule, self.record).value
        return self._settler.target(schedule, self.number), encode, self._passed.watch(schedule)
