"""Writing down what becomes of a schedule's nominals: the one place where a settlement turns into records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler import wire
from scheduler.core.model import PRIORITY_NAMES, Gone, Nominal
from scheduler.core.policy import MAX_BACKLOG
from scheduler.core.series import in_series, spread
from scheduler.core.settlements import stretches
from scheduler.core.time import stamp
from scheduler.core.unplannable import Unplannable
from scheduler.shard.held import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.core.model import Run, Schedule
    from scheduler.core.policy import Settlement
    from scheduler.shard.step import Step
    from topics.catalog import Catalogue


@dataclass(frozen=True, slots=True)
class Settler:
    """Writes what became of a schedule's nominals: dispatches, debts, and a record for what will not run."""

    catalogue: Catalogue

    def settle(self, step: Step, definition: Schedule, settlement: Settlement) -> None:
        if settlement.runs:
            self.dispatch(step, definition, settlement.runs)
        for nominal in settlement.waiting:
            self._owe(step, definition, nominal.scheduled_for, nominal.available_at)
        if settlement.catch_up:
            self._owe_catch_up(step, definition, settlement.catch_up)
        for gone in settlement.gone:
            self.record(step, definition, gone)

    def record(self, step: Step, definition: Schedule, gone: Gone) -> None:
        """Nominals that will not run."""
        value = wire.occurrence_to_bytes(definition, gone, step.now)
        step.emit(self.catalogue.occurrences, wire.occurrence_key(definition, gone), value)
        step.gone.append((gone.state, gone.reason, gone.count))

    def dispatch(self, step: Step, definition: Schedule, runs: Sequence[Run]) -> None:
        fault = self.fault(definition)
        if fault is not None:
            first, last = runs[0].scheduled_for, runs[-1].scheduled_for
            self.record(step, definition, Gone("missed", "broken", len(runs), first, last))
            return
        target = self.target(definition, step.record.shard)
        template = wire.DispatchTemplate(definition, step.record)
        for run in runs:
            value = template.value(run.scheduled_for, run.available_at, run.origin, run.stands_for, attempt=run.attempt)
            step.send(target, value, run.origin, run.available_at)

    def fault(self, definition: Schedule) -> str | None:
        """Why this node cannot fire the schedule as its definition says, which makes it `broken`; None if it can."""
        trigger = definition.spec.trigger
        if isinstance(trigger, Unplannable):
            return trigger.why
        if definition.spec.lane not in self.catalogue.lanes:
            return f"lane {definition.spec.lane!r} is not configured; lanes are {', '.join(self.catalogue.lanes)}"
        return None

    def target(self, definition: Schedule, shard: int) -> Target:
        spec = definition.spec
        key = definition.schedule_id.encode()
        topic = self.catalogue.dispatch(spec.lane, PRIORITY_NAMES[spec.priority])
        return Target(topic, self.catalogue.dispatch_partition(key, shard), key)

    def _owe(self, step: Step, definition: Schedule, scheduled_for: int, available_at: int) -> None:
        """A nominal whose window is still open outlives its place in the due index."""
        template = wire.DispatchTemplate(definition, step.record)
        target = self.target(definition, step.record.shard)
        occurrence = f"{definition.version}:{stamp(scheduled_for)}"
        key = wire.live_key("owed", definition.schedule_id, occurrence)
        value = template.value(scheduled_for, available_at)
        frozen = self._is_replaced(step, definition)
        record = wire.owed_record(definition, Nominal(scheduled_for, available_at), target.topic, value, frozen=frozen)
        step.put_live(key, record)

    def _owe_catch_up(self, step: Step, definition: Schedule, runs: Sequence[Run]) -> None:
        """Runs for the budget, beside those of the version that still wait: each in its nominal's turn.

        A budget that never gets through must not let the record grow with every outage: the oldest beyond what one
        decision may run are missed.
        """
        key = wire.live_key("catchup", definition.schedule_id, str(definition.version))
        stored = step.live(key)
        waiting = [] if stored is None else spread(wire.catch_up_series(wire.live_from_bytes(stored)), definition)
        turns = sorted([*waiting, *runs], key=lambda run: run.scheduled_for)
        too_many = [run.scheduled_for for run in turns[:-MAX_BACKLOG]]
        for gone in stretches(definition, too_many, "missed", "throttled"):
            self.record(step, definition, gone)
        owed = in_series(turns[-MAX_BACKLOG:])
        frozen = self._is_replaced(step, definition)
        step.put_live(key, wire.catch_up_record(owed, definition, step.now, frozen=frozen))

    @staticmethod
    def _is_replaced(step: Step, definition: Schedule) -> bool:
        """Whether the schedule has another version by now, so that what is owed must keep this one beside it."""
        current = step.touched[definition.schedule_id].schedule
        return current is None or current.version != definition.version
