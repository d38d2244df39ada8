"""Schedules move to newer calendars and to other zone tables, a few in each step.

What has to move is found by looking at every stored schedule once, in slices, for the names that changed. How far that
has come is not stored: each schedule says itself by what it is planned (the version of its calendar; for zones, whether
its version is older than the change), so that a start in the middle begins anew and moves only what has not moved yet.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scheduler import wire
from scheduler.core.calendars import Calendars, zone_name
from scheduler.core.due import instant_of, queue_name, stretches
from scheduler.core.replan import by_calendar, by_zone
from scheduler.shard import keys

if TYPE_CHECKING:
    from scheduler.core.decision import Decision, Situation
    from scheduler.core.model import Schedule
    from scheduler.core.record import ShardRecord
    from scheduler.core.zone_marks import ZoneMark
    from scheduler.shard.commands import Commands
    from scheduler.shard.ground import Ground
    from scheduler.shard.step import Step
    from scheduler.shard.zones import Zones

LOOKS = 5_000  # stored schedules looked at in a step: some 5 ms
SLICE = 200  # of them moved in a step: some 20 ms


class Replan:
    """One per shard. `is_busy` while there are schedules to be looked at."""

    def __init__(self, ground: Ground, commands: Commands, zones: Zones) -> None:
        self._store = ground.store
        self._reader = ground.reader
        self._commands = commands
        self._zones = zones
        self._calendars: set[str] = set()
        self._changed: dict[str, ZoneMark] = {}
        self._next: bytes | None = None
        self._needle = re.compile(rb"")
        self._finishing = False

    @property
    def is_busy(self) -> bool:
        return self._next is not None or self._finishing

    @property
    def moves_zones(self) -> bool:
        """Whether schedules may still be planned by former zone tables: their past is decided before that of others."""
        return self.is_busy and bool(self._changed)

    def begin(self, record: ShardRecord) -> None:
        """Look for what the calendars at hand and the tables in use have changed; from the start if under way."""
        calendars: Calendars = self._reader.calendars
        self._calendars = {name for name, version in record.calendars.items() if calendars.newest(name) != version}
        self._changed = self._zones.changed()
        self._finishing = bool(self._calendars) or not self._zones.is_current
        self._next = None
        if self._calendars or self._changed:
            self._next = keys.SCHEDULE
            self._needle = wire.needle(self._calendars, self._changed)

    def proceed(self, step: Step) -> None:
        """Move the next few; with the last of them the shard's own records follow."""
        if self._changed and self._zones.record.since is None:
            step.zones = replace(self._zones.record, since=step.now)
        since = step.zones.since if step.zones is not None else self._zones.record.since
        names: list[str] = []
        reached: bytes | None = None
        if self._next is not None:
            names, reached = self._look(self._next)
        self._reader.touch(step, names)
        for name in names:
            self._move(step, name, step.now if since is None else since)
        step.looked_to = reached
        if reached is None:
            newest = {name: self._reader.calendars.newest(name) for name in self._calendars}
            if newest:
                step.record = step.record.moved(calendars={**step.record.calendars, **newest})
            if not self._zones.is_current:
                step.zones = self._zones.taken(step.now)
            step.passed = True

    def looked(self, step: Step) -> None:
        """The step is done with, committed or empty."""
        self._next = step.looked_to
        if self._next is None:
            self._finishing = False

    def _look(self, start: bytes) -> tuple[list[str], bytes | None]:
        """The next schedules that name something changed, and where to look on; None at the end."""
        found: list[str] = []
        for looks, (key, value) in enumerate(self._store.items(start, keys.after_prefix(keys.SCHEDULE)), start=1):
            if self._needle.search(value) is not None:
                found.append(key[1:].decode())
            if looks == LOOKS or len(found) == SLICE:
                return found, key + b"\x00"
        return found, None

    def _move(self, step: Step, name: str, since: int) -> None:
        schedule = step.touched[name].schedule
        mark = None if schedule is None else self._changed.get(zone_name(schedule.spec.trigger) or "")
        if schedule is not None and mark is not None and min(schedule.effective_at, schedule.updated_at) < since:
            decided = self._decided_until(step, schedule)

            def zone(situation: Situation, mark: ZoneMark = mark) -> Decision | None:
                return by_zone(situation, mark, decided)

            self._commands.replan(step, name, zone)
        self._commands.replan(step, name, by_calendar)

    @staticmethod
    def _decided_until(step: Step, schedule: Schedule) -> int:
        """The instant up to which everything of a schedule's queue is decided."""
        queue = queue_name(schedule.spec.priority, schedule.schedule_id)
        return min(step.now, instant_of(stretches(queue, step.record)[0][0]))
