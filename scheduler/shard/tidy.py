"""Transitions nobody waits for: schedules completed, broken, forgotten, and floors the cursor has passed."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scheduler import wire
from scheduler.core.due import instant_end, instant_of
from scheduler.core.model import Schedule, State
from scheduler.core.unplannable import Unplannable
from scheduler.shard import keys
from scheduler.shard.step import completed, place_of

if TYPE_CHECKING:
    from scheduler.shard.ground import Ground
    from scheduler.shard.step import Step

CHUNK = 500  # of each kind in a step; some 10 ms
EXPIRE_EVERY_MS = 60_000


class Tidy:
    """One per shard. Its memory is whom to look at, found again at each start; `floors` are the shard's, only read."""

    def __init__(self, ground: Ground, floors: dict[str, int]) -> None:
        self._store = ground.store
        self._reader = ground.reader
        self._catalogue = ground.catalogue
        self._settler = ground.settler
        self._passed = ground.passed
        self._floors = floors
        self._ended: dict[str, None] = {}  # active with nothing left to fire, or nothing that can
        self._floor_ends: list[tuple[int, str]] = []  # heap: when a floor may be passed
        self._next_expiry = 0

    def open(self) -> None:
        """The floors are restored."""
        self._floor_ends = [(floor, name) for name, floor in self._floors.items()]
        heapify(self._floor_ends)

    @property
    def is_busy(self) -> bool:
        """Whether schedules may have come to their end."""
        return bool(self._ended)

    def ends(self, schedule_id: str) -> None:
        """An active schedule may have nothing left to fire, or nothing that can be fired: look at it."""
        self._ended[schedule_id] = None

    def proceed(self, step: Step, *, is_owing: bool) -> None:
        """A slice of each kind. `is_owing`: whether the shard owes anything to anybody."""
        if self._ended:
            self._end(step, list(islice(self._ended, CHUNK)), is_owing=is_owing)
        if step.now >= self._next_expiry:
            self._forget_completed(step)
        if self._floor_ends and not step.record.backlogs:
            self._drop_floors(step)

    def looked(self, step: Step) -> None:
        """The step is done with, and was empty."""
        for name in step.ended:
            self._ended.pop(name, None)

    def committed(self, step: Step) -> None:
        """What the step did says whom to look at next."""
        self.looked(step)
        self._ended.update(dict.fromkeys(step.paid))
        for schedule_id, floor in step.floors.items():
            if floor is not None:
                heappush(self._floor_ends, (floor, schedule_id))

    def _end(self, step: Step, names: list[str], *, is_owing: bool) -> None:
        """Active schedules with nothing left to fire are completed, those that can't be fired are broken."""
        step.ended = names
        self._reader.touch(step, names)
        has_debts = is_owing or step.debtors
        for name in names:
            touched = step.touched[name]
            schedule = touched.schedule
            if schedule is None or touched.saved or schedule.state is not State.ACTIVE:
                continue
            fault = self._settler.fault(schedule)
            if fault is not None:
                self._break(step, schedule, fault)
            elif place_of(schedule, step.record) is None and not (has_debts and self._owes(step, name)):
                for gone in self._passed.rest(schedule):
                    self._settler.record(step, schedule, gone)
                step.save(completed(schedule, step.now))

    def _owes(self, step: Step, name: str) -> bool:
        if name in step.debtors:
            return True
        return any(not keys.is_floor(key) for key in self._store.keys(*keys.live_of(name)))

    def _break(self, step: Step, schedule: Schedule, why: str) -> None:
        broken = replace(
            schedule, state=State.BROKEN, revision=schedule.revision + 1, updated_at=step.now, broken_reason=why
        )
        step.save(broken)
        step.broke.append(_what_broke(schedule))
        value = wire.revision_to_bytes(broken, "broken", None, step.now, deleted=False)
        step.emit(self._catalogue.schedule_history, schedule.schedule_id.encode(), value)

    def _forget_completed(self, step: Step) -> None:
        """Completed schedules go a day after their last firing."""
        start, end = keys.EXPIRY, keys.EXPIRY + instant_end(step.now)
        found = [key for key, _ in zip(self._store.keys(start, end), range(CHUNK), strict=False)]
        if len(found) < CHUNK:
            self._next_expiry = step.now + EXPIRE_EVERY_MS
        if not found:
            return
        names = [keys.split_expiry(key)[1] for key in found]
        self._reader.touch(step, names)
        for name in names:
            touched = step.touched[name]
            schedule = touched.schedule
            if schedule is None or touched.saved or schedule.state is not State.COMPLETED:
                continue  # a command of this very step has changed it
            if self._owes(step, name):
                continue  # it goes when its backfill or its change has come to an end
            step.remove(name)
            if name in self._floors and name not in step.floors:
                step.drop_floor(name)
            value = wire.revision_to_bytes(schedule, "expired", None, step.now, deleted=True)
            step.emit(self._catalogue.schedule_history, name.encode(), value)

    def _drop_floors(self, step: Step) -> None:
        """Floors whose nominals the cursor has passed, those still in their window included."""
        passed: list[str] = []
        lagging = [lag.after for lag in step.record.lags.values() if lag.after is not None]
        reached = instant_of(min([step.record.cursor, *lagging]))
        while self._floor_ends and self._floor_ends[0][0] < reached and len(passed) < CHUNK:
            _, name = heappop(self._floor_ends)
            if name in self._floors and name not in step.floors:
                passed.append(name)
        for name, schedule in zip(passed, self._reader.schedules(passed), strict=True):
            ends = self._floors[name] + (schedule.spec.window_ms if schedule is not None else 0)
            if ends < reached:
                step.drop_floor(name)
            else:
                heappush(self._floor_ends, (ends, name))


def _what_broke(schedule: Schedule) -> str:
    """What is missing for a schedule that cannot be fired, in a word: for metrics."""
    trigger = schedule.spec.trigger
    if not isinstance(trigger, Unplannable):
        return "lane"
    return "trigger" if trigger.trigger is None else "calendar"
