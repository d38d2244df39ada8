"""Firing: which of what is due a step takes, and what it leaves behind for the next.

As long as everything that is due fits into a step, it goes out in the order of the due index and the cursor moves to
now. When more is due, or much at once, queues take turns (`core/turns.py`); the cursor moves to now all the same, and
each queue that did not get all of its own lags from then on: it has a cursor of its own until it has caught up.

The first step of a rush in which tenants share a priority is a short one (ADR 0030). The shards of a process send one
after the other; if each sent all it has, the small tenants of the last one would wait for the large ones of all others.

What fell due in an absence, a takeover's say, goes out in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.core.due import Due, Lag, instant_end, instant_of, undecided_absence
from scheduler.core.model import Gone, Nominal
from scheduler.core.turns import Turns
from scheduler.shard.waiting import LATE_CHECK_MS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.core.turns import Waiting
    from scheduler.shard.ground import Ground
    from scheduler.shard.held import Item
    from scheduler.shard.horizon import Horizon
    from scheduler.shard.outage import Outage
    from scheduler.shard.step import Step

PLAIN = 500  # items that go out in the order of their keys: too few for the order to matter to anybody
MAX_DISPATCH_PARTITIONS = 16  # of a transaction of at most 24: each costs a marker; our own topics take the rest
LEAST_RUN = 500  # items for which that bound never ends a step: fewer would cost more in steps than in markers
FIRST_STEP = 3_000  # items of the first step of a rush, which has more than twice as many
FEW_QUEUES = 200  # beyond, it would leave too many lagging, each with a record


class Firing:
    """One per shard; remembers only whose turn it is."""

    def __init__(self, ground: Ground, horizon: Horizon, outage: Outage, limit: int) -> None:
        self._reader = ground.reader
        self._catalogue = ground.catalogue
        self._settler = ground.settler
        self._horizon = horizon
        self._outage = outage
        self._limit = limit
        self._turns = Turns()

    def weigh(self, weights: Mapping[str, int]) -> None:
        """The weights of tenants from now on."""
        self._turns.weigh(weights)

    def fire(self, step: Step) -> None:
        """Take what is due and move the cursors."""
        horizon = self._horizon
        bound = min(instant_end(step.now), horizon.end)  # nothing later is due, wherever the cursor may be
        cursor = max(step.record.cursor, bound)
        plain = min(PLAIN, self._limit)
        is_behind = horizon.is_behind(cursor)
        taken = [] if is_behind else horizon.held.due(bound, plain + 1)
        oldest = step.now
        if is_behind or len(taken) > plain:
            oldest = self._take_turns(step, bound)
        elif taken:
            oldest = instant_of(taken[0].key)
            step.taken = taken
        if step.turns or is_behind or step.record.lags:
            self._leave_behind(step, cursor)
        step.record = step.record.moved(cursor=cursor)
        step.items = [item for item in step.taken if item.entry.alive]
        misfired: Mapping[str, Due] = {}
        if step.items and step.now - oldest >= LATE_CHECK_MS:
            misfired = self._decide_misfired(step)
            self._drop_too_late(step, oldest)
        if horizon.has_notes:
            self._note_passed(step, misfired)
        if step.record.absence is not None:
            step.record = step.record.moved(absence=undecided_absence(step.record))

    def _take_turns(self, step: Step, bound: bytes) -> int:
        """Returns since when the oldest has waited."""
        held = self._horizon.held
        held.line_up(bound)
        waiting = held.waiting()
        turns = self._turns.share(waiting, self._room(step, waiting), step.now)
        step.taken = self._fitting(held.take(turns))
        left = len(step.taken)
        for queue, number in turns:
            count = min(number, left)
            if count:
                step.turns[queue] = step.turns.get(queue, 0) + count
            left -= count
        return min((queue.since for queue in waiting), default=step.now)

    def _room(self, step: Step, waiting: Sequence[Waiting]) -> int:
        """How many items the step may take."""
        begins = all(lag.after is None for lag in step.record.lags.values())
        is_rush = sum(queue.number for queue in waiting) > 2 * FIRST_STEP and len(waiting) <= FEW_QUEUES
        if not begins or not is_rush:
            return self._limit
        reached = self._turns.first_round(waiting)
        return min(self._limit, FIRST_STEP) if reached is not None and reached <= FIRST_STEP else self._limit

    def _leave_behind(self, step: Step, cursor: bytes) -> None:
        """Queues that have more lag from now on, behind what was taken of them; all others have caught up."""
        record = step.record
        lags = {queue: lag._replace(after=None) for queue, lag in record.lags.items() if lag.closed}
        for queue in self._horizon.left_behind(step.turns, cursor):
            known = record.lags.get(queue, Lag())
            after = record.cursor if known.after is None else known.after
            if queue in step.turns:
                after = self._horizon.held.reached(queue, step.turns[queue]) or after
            lags[queue] = known._replace(after=after)
        step.record = record.moved(lags=lags)

    def _fitting(self, items: list[Item]) -> list[Item]:
        """The longest run of items that does not touch too many partitions: the rest waits for the next step."""
        if len(self._catalogue.lanes) * 4 * self._catalogue.dispatch_factor <= MAX_DISPATCH_PARTITIONS:
            return items
        seen: set[tuple[str, int]] = set()
        for index, item in enumerate(items):
            seen.add((item.entry.target.topic, item.entry.target.partition))
            if len(seen) > MAX_DISPATCH_PARTITIONS and index >= LEAST_RUN:
                return items[:index]
        return items

    def _decide_misfired(self, step: Step) -> Mapping[str, Due]:
        """What fell due in an absence may be a misfire, by how late it was when somebody looked again.

        Then its schedule's policy decides all that it owes. Returns these schedules, each with what it owed first.
        """
        absence = step.record.absence
        misfired: dict[str, Due] = {}
        if absence is None:
            return misfired
        for item in step.items:
            limit, at = item.entry.limit_ms, instant_of(item.key)
            if limit is not None and absence.holds(at) and absence.until - at > limit:
                misfired.setdefault(item.entry.schedule_id, Due(item.key, Nominal(item.scheduled_for, at)))
        if misfired:
            self._outage.decide_misfired(step, misfired)
            step.items = [item for item in step.items if not _is_decided(item, misfired)]
        return misfired

    def _drop_too_late(self, step: Step, oldest: int) -> None:
        """Late because of a burst or a throttle, never a misfire; but max_lateness bounds that, too.

        Nothing taken is older than `oldest`.
        """
        least = min((item.entry.limit_ms for item in step.items if item.entry.limit_ms is not None), default=None)
        if least is None or step.now - oldest <= least:
            return
        absence = step.record.absence
        late = [
            item
            for item in step.items
            if item.entry.limit_ms is not None
            and step.now - instant_of(item.key) > item.entry.limit_ms
            and not (absence is not None and absence.holds(instant_of(item.key)))  # waiting for its turn ages nothing
        ]
        if not late:
            return
        definitions = self._reader.schedules([item.entry.schedule_id for item in late])
        for item, definition in zip(late, definitions, strict=True):
            if definition is not None:
                gone = Gone("missed", "throttled", 1, item.scheduled_for, item.scheduled_for)
                self._settler.record(step, definition, gone)
        dropped = set(map(id, late))
        step.items = [item for item in step.items if id(item) not in dropped]

    def _note_passed(self, step: Step, misfired: Mapping[str, Due]) -> None:
        """What calendars and gaps took away before the nominals that fire now."""
        for item in step.taken:
            if not item.entry.alive or item.entry.notes is None or _is_decided(item, misfired):
                continue
            if item.scheduled_for in item.entry.notes:
                definition, notes = item.entry.notes[item.scheduled_for]
                for gone in notes:
                    self._settler.record(step, definition, gone)


def _is_decided(item: Item, misfired: Mapping[str, Due]) -> bool:
    """Whether the item is among what its schedule's policy has decided."""
    first = misfired.get(item.entry.schedule_id)
    return first is not None and item.key >= first.key
