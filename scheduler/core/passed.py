"""What a schedule passes over without a nominal: days its calendar removed, local times that a gap swallowed.

Nothing falls due for them, so nobody would say what became of them. The schedule's next nominal does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.core.calendared import Calendared
from scheduler.core.cron import Cron
from scheduler.core.model import Gone

if TYPE_CHECKING:
    from scheduler.core.model import Schedule


def passed_over(schedule: Schedule, after: int, until: int) -> tuple[Gone, ...]:
    """What was passed over in (after, until], one record a reason; instants in ms.

    A local time in a gap has no instant: it stands at that of the gap.
    """
    spec = schedule.spec
    if spec.start is not None:
        after = max(after, spec.start - 1)
    if spec.end is not None:
        until = min(until, spec.end - 1)
    if until <= after:
        return ()
    trigger = spec.trigger
    found: list[Gone] = []
    cron = trigger if isinstance(trigger, Cron) else None
    if isinstance(trigger, Calendared):
        cron = trigger.cron
        removed = trigger.removed
        first = None if removed is None else removed.next_after(after)
        if removed is not None and first is not None and first <= until:
            last = removed.newest_before(until, 1, after)[-1]
            found.append(Gone("suppressed", "calendar", removed.count_between(after, until), first, last))
    if cron is not None and (count := cron.skipped_count(after, until)):
        zone = cron.search.zone
        gaps = [gap[0] * 1000 for gap in zone.gaps(after // 1000, until // 1000) if cron.search.lost_count(*gap)]
        found.append(Gone("suppressed", "gap", count, gaps[0], gaps[-1]))
    return tuple(found)
