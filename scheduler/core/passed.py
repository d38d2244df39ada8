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
    rules: list[object] = [trigger]
    if isinstance(trigger, Calendared):
        removed = trigger.removed
        rules = [trigger.cron, removed]  # a day may be closed and its local time missing: that is the gap's
        first = None if removed is None else removed.next_after(after)
        if removed is not None and first is not None and first <= until:
            last = removed.newest_before(until, 1, after)[-1]
            found.append(Gone("suppressed", "calendar", removed.count_between(after, until), first, last))
    crons = [rule for rule in rules if isinstance(rule, Cron)]
    count = sum(cron.skipped_count(after, until) for cron in crons)
    if count:
        gaps = [skipped.at for cron in crons for skipped in cron.skipped_between(after, until)]
        found.append(Gone("suppressed", "gap", count, min(gaps), max(gaps)))
    return tuple(found)
