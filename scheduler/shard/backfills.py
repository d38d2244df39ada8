"""Backfills: accepted ranges of the past, dispatched a few at a time under their own rate and the tenant's budget.

    question ──► somebody reads the dispatch topics ──► answer ──► the record knows what ran ──► dispatches ──► over

What ran stands on the dispatch topics alone and no shard may wait for reading them. So an accepted backfill is first of
all a question; whoever drives the shard finds the answer beside it and hands it in between two steps. Until then
nothing of it runs. Nothing here is memory that matters: after a crash the record asks again, or goes on where it was.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from scheduler import wire
from scheduler.core.backfill import inform
from scheduler.core.command import Command
from scheduler.core.decision import Decision
from scheduler.core.identity import tenant_of
from scheduler.core.lifecycle import Act
from scheduler.core.model import State
from scheduler.errors import StateCorrupted
from scheduler.shard import keys
from scheduler.shard.outage import Budget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.core.backfill import Backfill, Ran
    from scheduler.core.model import Schedule
    from scheduler.shard.ground import Ground
    from scheduler.shard.step import Step
    from topics.catalog import Catalogue

_ALL = (keys.BACKFILL, keys.after_prefix(keys.BACKFILL))
_MOST_RECORDS = 100  # backfills that one step looks at: each look reads a record
_RUNS = frozenset({State.ACTIVE, State.COMPLETED})  # in other states a backfill is held


class Question(NamedTuple):
    """Which nominals of `schedule_id` ran? Its dispatches lie at or after the instant `since`."""

    key: bytes
    schedule_id: str
    since: int


class Backfills:
    """One per shard. Its only memory are budgets, questions that are out, and answers not yet taken."""

    def __init__(self, ground: Ground, budget: Budget) -> None:
        self._store = ground.store
        self._reader = ground.reader
        self._catalogue = ground.catalogue
        self._settler = ground.settler
        self._budget = budget
        self._rates: dict[str, float] = {}  # of single backfills
        self._pace = Budget(1.0, self._rates)
        self._asked: set[bytes] = set()
        self._answers: deque[tuple[Question, Sequence[Ran]]] = deque()
        self._unasked: deque[Question] = deque()
        self._from = keys.BACKFILL  # where the next look begins: each backfill has its turn
        self.exist = False
        self.next_at: int | None = None  # when the next look may find something to do; None: when something changes

    def look(self) -> None:
        """Something about backfills has changed: see which there are, and what they need to know."""
        self.exist = False
        found: set[bytes] = set()
        for key in self._store.keys(*_ALL):
            self.exist = True
            backfill = self._backfill(*keys.split_backfill(key))
            live_key = wire.backfill_key(backfill)
            found.add(live_key)
            if not backfill.informed and live_key not in self._asked:
                self._asked.add(live_key)
                self._unasked.append(Question(live_key, backfill.definition.schedule_id, backfill.first))
        self._asked &= found
        if not self.exist:
            self._answers.clear()  # to questions of what was cancelled
        self.wake()

    def wake(self) -> None:
        self.next_at = 0 if self.exist else None

    def questions(self) -> list[Question]:
        """What nobody has been asked yet; each is given out once."""
        found = list(self._unasked)
        self._unasked.clear()
        return found

    def answer(self, question: Question, ran: Sequence[Ran]) -> None:
        """All dispatches of the schedule since the question's instant. Taken by the next step."""
        if self.exist:
            self._answers.append((question, ran))
        self.wake()

    # --- in a step

    def proceed(self, step: Step, limit: int) -> None:
        """Take an answer, then dispatch at most `limit`, as far as rates and budgets go."""
        if self._answers:
            self._take(step, *self._answers.popleft())
        if self.next_at is None or self.next_at > step.now:
            return
        self.next_at = step.now if self._answers else None
        looked = 0
        for key in [*self._store.keys(self._from, _ALL[1]), *self._store.keys(_ALL[0], self._from)]:
            if limit <= 0 or looked == _MOST_RECORDS:
                self._from = key
                self._wait_until(step.now)
                return
            looked += 1
            owner, name = keys.split_backfill(key)
            if owner in step.debtors or owner in step.touched:
                self._wait_until(step.now)  # this step has already changed it; the next one sees it whole
                continue
            limit -= self._dispatch(step, owner, name, limit)
        self._from = keys.BACKFILL

    def next_change(self, now: int) -> int | None:
        """When there is something to do, from `now` on; None until somebody answers, resumes or asks."""
        if self._answers:
            return now
        return None if self.next_at is None else max(now, self.next_at)

    def _take(self, step: Step, question: Question, ran: Sequence[Ran]) -> None:
        stored = step.live(question.key)
        if stored is None:
            return  # cancelled meanwhile
        backfill = wire.backfill_of(wire.live_from_bytes(stored), self._reader.calendars)
        if backfill.informed:
            return
        forgotten = kept_since(self._catalogue, step)
        known = inform(backfill, ran)
        if backfill.only_missing and forgotten is not None and backfill.first < forgotten:
            self._end(step, backfill, "backfill_refused")  # it took so long that nobody knows what ran
        elif known.counted:
            self._reply(step, known)
            self._end(step, known, None)
        elif known.remaining:
            step.put_live(question.key, wire.backfill_record(known))
            self._wait_until(step.now)
        else:
            self._end(step, known, "backfilled")

    def _dispatch(self, step: Step, owner: str, name: str, limit: int) -> int:
        """What one backfill may run now; returns how many that is."""
        backfill = self._backfill(owner, name)
        schedule = self._reader.schedules([owner])[0]
        if not backfill.informed or schedule is None or schedule.state not in _RUNS:
            return 0
        sources = [(self._budget, tenant_of(owner))]
        if backfill.per_s is not None:
            self._rates[f"{owner} {name}"] = backfill.per_s
            sources.append((self._pace, f"{owner} {name}"))
        allowed = min(limit, *(budget.available(whose, step.now) for budget, whose in sources))
        runs, rest = backfill.take(max(0, allowed))
        if runs:
            self._settler.dispatch(step, backfill.definition, runs)
            for budget, whose in sources:
                budget.spend(whose, len(runs))
            if rest.remaining:
                step.put_live(wire.backfill_key(rest), wire.backfill_record(rest))
            else:
                self._end(step, rest, "backfilled")
        if rest.remaining:
            self._wait_until(max(budget.next_at(whose, step.now) for budget, whose in sources))
        return len(runs)

    def _wait_until(self, instant: int) -> None:
        self.next_at = instant if self.next_at is None else min(self.next_at, instant)

    def _end(self, step: Step, backfill: Backfill, change: str | None) -> None:
        """It is over; `change` is what the history says of it."""
        owner = backfill.definition.schedule_id
        drop(step, backfill)
        self._rates.pop(f"{owner} {backfill.name}", None)
        step.paid.append(owner)
        if change is not None:
            schedule = self._reader.schedules([owner])[0] or backfill.definition
            note(step, schedule, change, backfill)

    def _reply(self, step: Step, backfill: Backfill) -> None:
        """The answer to a dry run, which had to wait until it was known what ran."""
        owner = backfill.definition.schedule_id
        schedule = self._reader.schedules([owner])[0]
        counts = _counts(backfill) | {"remaining": backfill.remaining}
        decision = Decision(
            accepted=True,
            code=Act.BACKFILL.value,
            message=f"{backfill.remaining} of {backfill.total} nominals would run",
            before=schedule,
            after=schedule,
            effective_at=backfill.accepted_at,
            counts=tuple(counts.items()),
        )
        command = Command(verb="backfill", schedule_id=owner, command_id=backfill.command_id, dry_run=True)
        step.answer(command, decision.code, wire.reply_to_bytes(command, decision, step.now))

    def _backfill(self, owner: str, name: str) -> Backfill:
        stored = self._store.get(keys.live(wire.live_key("backfill", owner, name)))
        if stored is None:
            raise StateCorrupted(f"the store lists a backfill of {owner} that does not exist: delete the store")
        return wire.backfill_of(wire.live_from_bytes(stored), self._reader.calendars)


def put(step: Step, backfill: Backfill) -> None:
    """A new one, accepted in this step."""
    step.put_live(wire.backfill_key(backfill), wire.backfill_record(backfill))


def drop(step: Step, backfill: Backfill) -> None:
    """It ends in this step."""
    step.drop_live(wire.backfill_key(backfill))


def note(step: Step, schedule: Schedule, change: str, backfill: Backfill, command: Command | None = None) -> None:
    """A line of the schedule's history about a backfill, with the counts it has come to."""
    actor, reason = (None, None) if command is None else (command.actor, command.reason)
    value = wire.revision_to_bytes(
        replace(schedule, actor=actor, reason=reason), change, backfill.command_id, step.now, counts=_counts(backfill)
    )
    step.emit(step.catalogue.schedule_history, schedule.schedule_id.encode(), value)


def _counts(backfill: Backfill) -> dict[str, int]:
    counts = {"nominals": backfill.total}
    if backfill.informed:
        counts |= {"dispatched": backfill.dispatched, "left_out": backfill.left_out}
    return counts


def kept_since(catalogue: Catalogue, step: Step, margin_ms: int = 0) -> int | None:
    """Dispatches before this instant are not on our topics, or may leave them within the margin; None if all stay."""
    kept = [
        step.now - spec.retention_ms + margin_ms
        for spec in catalogue.specs()
        if spec.base.startswith("dispatch.") and spec.retention_ms is not None and spec.retention_ms >= 0
    ]
    if step.record.moved_from is not None:
        kept.append(step.record.moved_from.at)
    return max(0, *kept) if kept else None
