"""What waits for its instant: nominals owed until their window's instant comes, and changes put off."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from msgspec import Raw

from scheduler import wire
from scheduler.core.due import due_key, look_at
from scheduler.core.policy import settle_one
from scheduler.errors import StateCorrupted
from scheduler.shard import keys
from scheduler.shard.held import Target

if TYPE_CHECKING:
    from scheduler.shard.commands import Commands
    from scheduler.shard.ground import Ground
    from scheduler.shard.step import Step
    from topics.messages import Live

LATE_CHECK_MS = 1_000  # the least max_lateness: younger items need no look at theirs
CHUNK = 500  # of each kind in a step; some 10 ms


class Waiting:
    """One per shard; all it remembers are the first instants. `held_until`: what waits for an instant up to this one
    lets the commands of the outage go first; None once they are applied.
    """

    def __init__(self, ground: Ground, commands: Commands) -> None:
        self._store = ground.store
        self._reader = ground.reader
        self._catalogue = ground.catalogue
        self._rules = ground.rules
        self._settler = ground.settler
        self._commands = commands
        self.next_timer: int | None = None
        self.next_change: int | None = None

    def look(self) -> None:
        """Something that waits has changed: see what comes first."""
        timer = next(iter(self._store.keys(keys.TIMER, keys.after_prefix(keys.TIMER))), None)
        self.next_timer = None if timer is None else keys.split_timer(timer)[0]
        change = next(iter(self._store.keys(keys.CHANGE, keys.after_prefix(keys.CHANGE))), None)
        self.next_change = None if change is None else keys.split_change(change)[0]

    def has_timers(self, now: int) -> bool:
        return self.next_timer is not None and self.next_timer <= now

    def has_changes(self, now: int, held_until: int | None) -> bool:
        """Whether a change waits to be decided now."""
        if self.next_change is None or self.next_change > now:
            return False
        return held_until is None or self.next_change > held_until

    def fire_timers(self, step: Step, held_until: int | None) -> None:
        """Live records whose instant has come."""
        start, end = keys.timers_until(step.now)
        if held_until is not None:
            start = keys.timers_until(held_until)[1]
        for key, _ in zip(self._store.keys(start, end), range(CHUNK), strict=False):
            instant, live_key = keys.split_timer(key)
            stored = self._store.get(keys.live(live_key))
            if stored is None:
                raise StateCorrupted(f"the store lists a timer for {live_key!r} that does not exist: delete the store")
            live = wire.live_from_bytes(stored)
            step.drop_live(live_key)
            step.paid.append(live.owner)
            if step.now - instant >= LATE_CHECK_MS or live.topic not in self._catalogue.dispatch_topics():
                self._decide_late(step, live)
            elif isinstance(live.dispatch, Raw):
                self._send_owed(step, live, instant)

    def apply_changes(self, step: Step, held_until: int | None) -> None:
        """Changes whose instant has come, in the order of their instants and of their acceptance."""
        start, end = keys.changes_until(step.now)
        if held_until is not None:
            start = keys.changes_until(held_until)[1]
        due = []
        for key, _ in zip(self._store.keys(start, end), range(CHUNK), strict=False):
            instant, live_key = keys.split_change(key)
            stored = self._store.get(keys.live(live_key))
            if stored is None:
                raise StateCorrupted(f"the store lists a change {live_key!r} that does not exist: delete the store")
            change = wire.live_from_bytes(stored)
            due.append((instant, wire.accepted_at(change), live_key, change))
        for _, _, _, change in sorted(due, key=itemgetter(0, 1, 2)):
            self._commands.apply_change(step, change)

    def _send_owed(self, step: Step, live: Live, available_at: int) -> None:
        owner = live.owner.encode()
        partition = self._catalogue.dispatch_partition(owner, step.record.shard)
        if live.topic is not None and isinstance(live.dispatch, Raw):
            step.send(Target(live.topic, partition, owner), bytes(live.dispatch), "schedule", available_at)

    def _decide_late(self, step: Step, live: Live) -> None:
        """A nominal that waited in its window and is late: judged as any other is."""
        self._reader.touch(step, [live.owner])
        frozen = live.definition
        definition = (
            self._reader.definition(bytes(frozen)) if isinstance(frozen, Raw) else step.touched[live.owner].schedule
        )
        nominal = wire.owed_nominal(live)
        if definition is None:
            return
        key = due_key(nominal.available_at, definition.spec.priority, live.owner)
        look = look_at(key, step.record, step.now, self._rules)
        settlement = settle_one(definition, nominal, look)
        if settlement.runs and self._settler.fault(definition) is None:
            self._send_owed(step, live, nominal.available_at)
        else:
            self._settler.settle(step, definition, settlement)
