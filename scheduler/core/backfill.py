"""Backfill: nominals of the past, run now, at the speed that was asked for.

    asked ──► accepted: range and definition are fixed ──► what ran is known ──► dispatched, a few at a time ──► over

A backfill covers decided nominals only: those before the schedule's first undecided one, and whose window is closed.
What the schedule will still do by itself is none of its business, so it moves neither cursor nor floor. Before the
first dispatch it must be told which nominals ran (`inform`): the dispatch topics know, the shard does not remember.
From then on it is a value that shrinks; every new value of it says how far it has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from scheduler.core.model import Gone, Origin, Run, Schedule
from scheduler.core.policy import nominal_at

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_NOMINALS = 20_000  # of one backfill: what ran of them must fit into one record of the live topic


class Ran(NamedTuple):
    """A dispatch of the past, as its topic has it."""

    scheduled_for: int
    version: int
    attempt: int


class Stretch(NamedTuple):
    """Neighbouring nominals, `first` to `last`, that were dispatched; `attempt` is their last one under this version.

    0: under another version only.
    """

    first: int
    last: int
    attempt: int

    def holds(self, nominal: int) -> bool:
        return self.first <= nominal <= self.last


class Backfill(Struct, frozen=True, kw_only=True, gc=False):
    """Nominals of `definition` in [first, until), in ms. Up to `after` they are dealt with.

    `owed`: nominals that were owed in another way when it was asked for; they are left to that. `informed` is whether
    what ran is known; `ran` are its stretches that lie after `after`. `counted` only asks how many would run.
    """

    command_id: str
    definition: Schedule
    first: int
    until: int
    after: int
    accepted_at: int
    per_s: int | None = None
    only_missing: bool = True
    counted: bool = False
    informed: bool = False
    owed: tuple[int, ...] = ()
    ran: tuple[Stretch, ...] = ()
    dispatched: int = 0
    left_out: int = 0

    @property
    def name(self) -> str:
        """Unique among the schedule's: a dry run may have the command id of what it tries."""
        return f"~{self.command_id}" if self.counted else self.command_id

    @property
    def remaining(self) -> int:
        """How many are still to run; before it is informed, how many at most."""
        trigger = self.definition.spec.trigger
        left = trigger.count_between(self.after, self.until - 1)
        if self.only_missing:
            left -= sum(trigger.count_between(max(s.first - 1, self.after), s.last) for s in self.ran)
        return left - sum(1 for nominal in self.owed if nominal > self.after and not self._has_run(nominal))

    @property
    def total(self) -> int:
        """How many nominals the range names."""
        return self.definition.spec.trigger.count_between(self.first - 1, self.until - 1)

    def overlaps(self, first: int, until: int) -> bool:
        return first < self.until and self.first < until

    def _has_run(self, nominal: int) -> bool:
        return self.only_missing and any(stretch.holds(nominal) for stretch in self.ran)

    def left(self) -> Gone | None:
        """What will not run if it ends now; None if nothing is left."""
        count = self.remaining
        runs, _ = self.take(1)
        if not count or not runs:
            return None
        trigger = self.definition.spec.trigger
        last = trigger.prev_before(self.until)
        while last is not None and (last in self.owed or self._has_run(last)):
            last = trigger.prev_before(last)
        return Gone("cancelled", "backfill", count, runs[0].scheduled_for, last or self.until)

    def take(self, limit: int) -> tuple[list[Run], Backfill]:
        """The next runs, oldest first, and what the backfill is after them. `attempt` is above 1 for what ran before
        under this very id.
        """
        trigger = self.definition.spec.trigger
        plain = replace(self.definition, floor=min(self.definition.floor, self.first - 1))  # jitter looks ahead only
        ran = list(self.ran)
        runs: list[Run] = []
        after = self.after
        while len(runs) < limit:
            nominal = trigger.next_after(after)
            if nominal is None or nominal >= self.until:
                after = max(after, self.until - 1)
                break
            while ran and ran[0].last < nominal:
                ran.pop(0)
            stretch = ran[0] if ran and ran[0].holds(nominal) else None
            if stretch is not None and self.only_missing:
                after = min(stretch.last, self.until - 1)
                continue
            after = nominal
            if nominal not in self.owed:
                attempt = 1 if stretch is None else stretch.attempt + 1
                at = nominal_at(plain, nominal)
                runs.append(Run(at.scheduled_for, at.available_at, Origin.BACKFILL, attempt=attempt))
        rest = tuple(stretch for stretch in ran if stretch.last > after)
        return runs, replace(self, after=after, ran=rest, dispatched=self.dispatched + len(runs))


def bounds(schedule: Schedule, first: int, until: int, position: int | None, now: int) -> tuple[int, int]:
    """The part of [first, until) that a backfill may touch: within start and end, decided, its windows closed."""
    spec = schedule.spec
    if spec.start is not None:
        first = max(first, spec.start)
    until = min(until, now - spec.window_ms + 1)
    if spec.end is not None:
        until = min(until, spec.end)
    if position is not None:
        until = min(until, position)
    return first, max(first, until)


def inform(backfill: Backfill, ran: Iterable[Ran]) -> Backfill:
    """The same, now that all dispatches of the schedule since the range began are known."""
    attempts: dict[int, int] = {}
    for scheduled_for, version, attempt in ran:
        if backfill.first <= scheduled_for < backfill.until:
            own = attempt if version == backfill.definition.version else 0
            attempts[scheduled_for] = max(own, attempts.get(scheduled_for, 0))
    trigger = backfill.definition.spec.trigger
    stretches: list[Stretch] = []
    for nominal in sorted(attempts):
        if trigger.next_after(nominal - 1) != nominal:
            continue  # another version's, of which this definition knows nothing
        attempt = attempts[nominal]
        last = stretches[-1] if stretches else None
        joined = last is not None and (last.attempt == attempt or backfill.only_missing)
        if last is not None and joined and trigger.next_after(last.last) == nominal:
            stretches[-1] = last._replace(last=nominal)
        else:
            stretches.append(Stretch(nominal, nominal, attempt))
    known = replace(backfill, informed=True, ran=tuple(stretches))
    return replace(known, left_out=known.total - known.remaining)
