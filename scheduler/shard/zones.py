"""The zones a shard's schedules use, as the tables had them when those were planned: the record `<shard>/zones`.

On opening with other tables it tells whose schedules must be planned anew. It is rewritten when a zone is used for the
first time, and when the tables changed; a zone stays in it when the last schedule of it has gone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scheduler import wire
from scheduler.core.calendars import zone_name
from scheduler.core.zone_marks import ZoneMark, ZoneRecord, differs, take_mark
from scheduler.core.zones import tz_version
from scheduler.shard import keys

if TYPE_CHECKING:
    from scheduler.shard.step import Step
    from scheduler.state.store import Store

REFRESH_MS = 30 * 86_400_000  # marks describe 400 days: taken anew long before these are over
_ZONE = re.compile(rb'"zone":"([^"]*)"')


class Zones:
    """The zone record of one shard; `record` mirrors the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.record = ZoneRecord(tz_version=tz_version())
        self.renewed: ZoneRecord | None = None  # to be written by the next step that commits anything

    def load(self, now: int, *, known: bool) -> None:
        """Take up the stored record; `known`: there is one. Without one the schedules are looked through."""
        if known:
            value = self._store.get(keys.ZONES)
            if value is not None:
                self.record = wire.zones_from_bytes(value)
        else:
            self._collect(now)
        if self.is_current and any(now - mark.taken_at > REFRESH_MS for mark in self.record.marks.values()):
            self.renewed = self.taken(now)

    @property
    def is_current(self) -> bool:
        """Whether everything is planned by the tables in use."""
        return self.record.since is None and self.record.tz_version == tz_version()

    def changed(self) -> dict[str, ZoneMark]:
        """The zones of which the tables in use say something else, or nothing."""
        if self.is_current:
            return {}
        return {name: mark for name, mark in self.record.marks.items() if differs(mark)}

    def missing(self) -> int:
        """How many zones the tables in use lack."""
        return sum(take_mark(name, mark.taken_at) is None for name, mark in self.record.marks.items())

    def taken(self, now: int) -> ZoneRecord:
        """The record by the tables in use. A zone they lack keeps its old mark: it is missed until it is back."""
        marks = {name: take_mark(name, now) or mark for name, mark in self.record.marks.items()}
        return ZoneRecord(tz_version=tz_version(), marks=marks)

    def note(self, step: Step) -> None:
        """Add the zones of the schedules a step saves; to be called when the step is complete otherwise."""
        record = step.zones or self.renewed or self.record
        new: dict[str, ZoneMark] = {}
        for touched in step.touched.values():
            if touched.saved and touched.schedule is not None:
                name = zone_name(touched.schedule.spec.trigger)
                if name is not None and name not in record.marks and name not in new:
                    mark = take_mark(name, step.now)
                    if mark is not None:
                        new[name] = mark
        if new:
            record = replace(record, marks={**record.marks, **new})
        if record is not self.record:
            step.zones = record

    def committed(self, step: Step) -> None:
        """The step is on the topics."""
        if step.zones is not None:
            self.record = step.zones
            self.renewed = None

    def _collect(self, now: int) -> None:
        """A shard of an earlier version: its schedules are planned by the tables in use from here on."""
        names: set[str] = set()
        found = False
        for _, value in self._store.items(keys.SCHEDULE, keys.after_prefix(keys.SCHEDULE)):
            found = True
            names.update(name.decode() for name in _ZONE.findall(value))
        marks = {name: mark for name in sorted(names) if (mark := take_mark(name, now)) is not None}
        if found:
            self.renewed = ZoneRecord(tz_version=tz_version(), marks=marks)
