"""The world of a scenario: one real shard over a store in memory, and time that jumps from one event to the next.

    created at `from`  ──►  everything due before a step, then the step, ...  ──►  everything due up to `until`

At one instant what is due is decided before a command, and commands one after the other in the order of the scenario.
An outage throws the shard away as a kill does: nothing is decided, commands wait on the topic. At its end a new shard
opens on the store, applies the waiting commands, and only then decides what it missed. No Kafka and no clock: latency
is 0, and the same scenario gives the same steps.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from scheduler.core.calendars import NO_CALENDARS
from scheduler.core.due import instant_end, instant_of
from scheduler.core.model import State
from scheduler.core.policy import Rules
from scheduler.core.trigger import parse_trigger
from scheduler.shard import keys
from scheduler.shard.commands import Input
from scheduler.shard.shard import Shard, ShardSettings
from scheduler.simulator.scenario import CalendarStep, ClockStep, CommandStep, OutageStep
from scheduler.state.store import MemoryStore
from scheduler.wire import ran_of, schedule_from_bytes
from topics.catalog import Catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.core.backfill import Ran
    from scheduler.core.model import Schedule
    from scheduler.shard.step import Step
    from scheduler.simulator.scenario import Scenario

LONGEST_HORIZON_MS = 30 * 86_400_000
SHORTEST_HORIZON_MS = 6_000
READ_AHEAD = 10_000  # occurrences


class Happened(NamedTuple):
    """One committed step of the shard, or a step of the wall clock; `command` is what it answers."""

    at: int
    step: Step | None = None
    command: CommandStep | None = None
    clock: ClockStep | None = None


class World:
    """Runs one scenario once: iterate over `run()`, then ask for `still_paused()`."""

    def __init__(self, scenario: Scenario) -> None:
        self.catalogue = Catalogue(shards=1, lanes=scenario.lanes)
        self._scenario = scenario
        self._settings = ShardSettings(
            horizon_ms=_horizon_ms(scenario),
            catch_up_overrides=dict(scenario.catch_up_per_s),
            rules=Rules(grace_max_ms=scenario.grace_ms),
        )
        self._store = _Memory()
        self._shard: Shard | None = None
        self._offset = 0
        self._waiting: deque[CommandStep] = deque()  # sent during an outage
        self._gone_until = 0
        self._calendars = NO_CALENDARS
        self._keeps = any(isinstance(s, CommandStep) and b"backfill" in s.value for s in scenario.steps)
        self._ran: dict[str, list[Ran]] = {}  # what a backfill would find on the dispatch topics

    def run(self) -> Iterator[Happened]:
        """Everything that happens, in order."""
        scenario = self._scenario
        yield from self._open(scenario.start)
        for step in scenario.steps:
            if self._shard is None and step.at >= self._gone_until:
                yield from self._open(self._gone_until)
            if isinstance(step, ClockStep):
                yield from self._until(step.at - 1)
                yield Happened(step.at, clock=step)
            elif isinstance(step, OutageStep):
                yield from self._until(step.at - 1)
                self._shard, self._gone_until = None, step.until
            elif isinstance(step, CalendarStep):
                yield from self._until(step.at)
                yield from self._take_up(step)
            elif self._shard is None:
                self._waiting.append(step)
            else:
                yield from self._until(step.at)
                yield from self._settle(step.at)  # also what waits for no instant, such as forgetting
                yield from self._apply(step.at, step)
        if self._shard is None and self._gone_until <= scenario.until:
            yield from self._open(self._gone_until)
        yield from self._until(scenario.until)

    def still_paused(self) -> Iterator[Schedule]:
        """The schedules that are paused at the end, by id; none if nobody was there to ask."""
        if self._shard is None:
            return
        for _, value in self._store.items(keys.SCHEDULE, keys.after_prefix(keys.SCHEDULE)):
            schedule = schedule_from_bytes(value)
            if schedule.state is State.PAUSED:
                yield schedule

    def _take_up(self, step: CalendarStep) -> Iterator[Happened]:
        """The next version of a calendar; a node that is away finds it when it comes back."""
        version = self._calendars.newest(step.name) + 1
        calendar = None if step.calendar is None else replace(step.calendar, version=version)
        self._calendars = self._calendars.put(step.name, version, calendar)
        if self._shard is not None:
            self._shard.use(self._calendars)
            yield from self._settle(step.at)

    # --- time

    def _open(self, now: int) -> Iterator[Happened]:
        self._shard = Shard(0, self.catalogue, self._store, self._settings)
        self._shard.use(self._calendars)
        self._shard.open(now, self._offset + len(self._waiting))
        while self._waiting:
            yield from self._apply(now, self._waiting.popleft(), alone=True)
        yield from self._settle(now)

    def _until(self, end: int) -> Iterator[Happened]:
        """Let time pass up to and including `end`, stopping wherever there is something to do."""
        if self._shard is None:
            return
        now = self._next(self._shard)
        while now is not None and now <= end:
            yield from self._settle(now)
            following = self._next(self._shard)
            now = None if following is None else max(following, now + 1)

    def _next(self, shard: Shard) -> int | None:
        """The next instant with something to do; beyond the horizon the due index knows it."""
        change = shard.next_instant(shard.record.seen_until)
        if change is not None and change <= instant_of(shard.horizon.end):
            return change
        key = self._store.first(keys.DUE + shard.horizon.end + b"\x00", keys.after_prefix(keys.DUE))
        ahead = None if key is None else instant_of(key[1:])
        return change if ahead is None or (change is not None and change < ahead) else ahead

    def _settle(self, now: int) -> Iterator[Happened]:
        """Everything there is to do at this instant."""
        shard = self._shard
        if shard is None:
            return
        shard.idle_until(now)
        quiet = 0
        while quiet < 2:  # one look in vain may have been what the next one needs
            for question in shard.questions():
                shard.answer(question, self._ran.get(question.schedule_id, ()))
            while shard.housekeep(now):
                pass
            step = shard.plan(now)
            quiet = quiet + 1 if step is None else 0
            if step is not None:
                yield Happened(now, step)
                self._commit(shard, step)
                while shard.housekeep(now):
                    pass
            change = shard.next_instant(now)
            if (change is None or change > now) and shard.horizon.end >= instant_end(now):
                return

    def _apply(self, now: int, command: CommandStep, *, alone: bool = False) -> Iterator[Happened]:
        """One command in a step of its own, then what follows from it at once (unless it is `alone`)."""
        shard = self._shard
        if shard is None:
            return
        shard.idle_until(now)
        step = shard.plan(now, [Input(0, self._offset, command.at, command.key, command.value)])
        self._offset += 1
        if step is not None:
            yield Happened(now, step, command)
            self._commit(shard, step)
        if not alone:
            yield from self._settle(now)

    def _commit(self, shard: Shard, step: Step) -> None:
        if self._keeps:
            topics = self.catalogue.dispatch_topics()
            values = [item.value for item in step.items]
            values += [record.value for record in step.records if record.topic in topics and record.value is not None]
            for found in filter(None, map(ran_of, values)):
                self._ran.setdefault(found[0], []).append(found[1])
        shard.committed(step)


def _horizon_ms(scenario: Scenario) -> int:
    """How far ahead to read: far, because that is cheap, but not more occurrences than fit well into memory."""
    longest = min(LONGEST_HORIZON_MS, scenario.until - scenario.start)
    to_come = 0
    for step in scenario.steps:
        if isinstance(step, CommandStep) and step.trigger is not None:
            parsed = parse_trigger(step.trigger, schedule_id=str(step.schedule_id), effective_at=step.at)
            if parsed.trigger is not None:
                to_come += parsed.trigger.count_between(step.at, step.at + longest)
    return max(SHORTEST_HORIZON_MS, longest * READ_AHEAD // max(to_come, READ_AHEAD))


class _Memory(MemoryStore):
    """A store that can be asked for the first key of a range without listing the range."""

    def first(self, start: bytes, end: bytes) -> bytes | None:
        """The least key in [start, end)."""
        return next(iter(self._map.irange(start, end, inclusive=(True, False))), None)
