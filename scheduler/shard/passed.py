"""What schedules pass over, as records: written by whatever decides the nominal that follows, in the same step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.core.calendared import Calendared
from scheduler.core.calendars import bare
from scheduler.core.cron import Cron
from scheduler.core.model import State
from scheduler.core.passed import passed_over
from scheduler.core.trigger import Once

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.core.model import Gone, Schedule
    from scheduler.shard.step import Reader

Notes = tuple["Gone", ...]


class Passed:
    """Finds what was passed over since the nominal before; one per shard."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def watch(self, schedule: Schedule) -> Callable[[int], Notes] | None:
        """What to ask of each nominal of a schedule that is about to fire; None for nearly all schedules."""
        trigger = schedule.spec.trigger
        if isinstance(trigger, Calendared):
            return lambda nominal: self._before(schedule, nominal)
        if isinstance(trigger, Cron) and trigger.gap == "skip" and trigger.search.zone.has_gaps:
            is_first = trigger.search.is_first_after_gap
            return lambda nominal: self._before(schedule, nominal) if is_first(nominal // 1000) else ()
        return None

    def through(self, schedule: Schedule, position: int | None, until: int) -> Notes:
        """What was passed over up to `until`, by a schedule whose first undecided nominal is `position`."""
        trigger = schedule.spec.trigger
        if isinstance(trigger, Cron):
            gap = trigger.search.zone.last_gap(until // 1000) if trigger.gap == "skip" else None
            if gap is None or gap * 1000 <= schedule.effective_at:
                return ()
        elif not isinstance(trigger, Calendared):
            return ()
        after = self._reader.own_floor(schedule)
        if schedule.state is State.ACTIVE:
            ahead = until + 1 if position is None else min(position, until + 1)
            after = max(after, trigger.prev_before(ahead) or after)
        return passed_over(schedule, after, until)

    def rest(self, schedule: Schedule) -> Notes:
        """What lies behind the last nominal of a schedule that is over: up to its end, or its one instant."""
        trigger = schedule.spec.trigger
        rule, end = bare(trigger), schedule.spec.end
        until = rule.at if isinstance(rule, Once) else None if end is None else end - 1
        if until is None or not isinstance(trigger, Cron | Calendared):
            return ()
        after = self._reader.own_floor(schedule)
        return passed_over(schedule, max(after, trigger.prev_before(until + 1) or after), until)

    def _before(self, schedule: Schedule, nominal: int) -> Notes:
        previous = schedule.spec.trigger.prev_before(nominal)
        floor = self._reader.own_floor(schedule)
        return passed_over(schedule, floor if previous is None else max(floor, previous), nominal)
