"""Why did a schedule run at an instant, or why not? A judgement over evidence; collecting it is somebody else's work.

The order of the questions is the order of certainty: a record that says what happened wins over everything calculated;
then the definition in force at the instant says whether it was named at all; then where the shard stands says whether
it is still to come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from scheduler.core.calendared import Calendared
from scheduler.core.calendars import NO_CALENDARS, Calendars, bound
from scheduler.core.due import due_key, instant_of, queue_of
from scheduler.core.explain import events_between
from scheduler.core.model import State
from scheduler.core.policy import nominal_at
from scheduler.core.time import format_instant, parse_instant
from scheduler.core.unplannable import Unplannable
from scheduler.wire import owed_instants, schedule_from_bytes
from topics import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler.core.model import Nominal, Schedule
    from scheduler.core.record import ShardRecord

_NEAR_MS: Final = 3_600_000  # how far around the instant a gap is worth telling
_PAST: Final = {"missed": "missed", "suppressed": "suppressed", "cancelled": "cancelled", "skipped_overlap": "skipped"}


class Place(NamedTuple):
    """Where a record stands."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All there is about one schedule around one instant. Pairs of a record and its place; instants in ms.

    `revisions`: oldest first. `dispatches`: of this schedule, `at` or later. `occurrences`: all that may cover `at`.
    `kept_since`: older records may be gone.
    """

    schedule_id: str
    at: int
    now: int
    kept_since: int
    revisions: tuple[tuple[m.Revision, Place], ...] = ()
    current: tuple[Schedule, Place] | None = None
    dispatches: tuple[tuple[m.Dispatch, Place], ...] = ()
    occurrences: tuple[tuple[m.Occurrence, Place], ...] = ()
    owed: tuple[tuple[m.Live, Place], ...] = ()
    shard: tuple[ShardRecord, Place] | None = None
    calendars: Calendars = NO_CALENDARS


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`answer` is one of ANSWERS, `text` the sentence; `previous` and `next` are the nominals around the instant."""

    answer: str
    text: str
    definition: m.Revision | None = None
    previous: int | None = None
    next: int | None = None
    evidence: tuple[tuple[str, Place, Any], ...] = ()


ANSWERS: Final = {
    "dispatched": "it ran: its record is on a dispatch topic",
    "missed": "nobody could look at it in time, and policy let it go",
    "suppressed": "it was deliberately not run",
    "cancelled": "it was cancelled before it ran",
    "skipped": "another run was active",
    "not_named": "no definition in force names this instant",
    "paused": "the schedule was paused then",
    "ended": "the schedule was cancelled, completed, deleted or broken by then",
    "to_come": "it has not come yet",
    "waiting": "it is owed and waits for its window or for a budget",
    "late": "its shard has not come to it yet",
    "unknown": "there is no such schedule",
    "too_old": "its records may be older than what is kept",
    "absent": "it should have a record and has none: a fault",
}


def judge(evidence: Evidence) -> Verdict:
    """The one answer that the evidence supports."""
    if not evidence.revisions and evidence.current is None and not evidence.dispatches and not evidence.occurrences:
        text = f"no schedule {evidence.schedule_id} is known, and its history holds nothing of one"
        return Verdict(answer="unknown", text=text)
    case = _Case(evidence)
    questions: tuple[Callable[[], Verdict | None], ...] = (
        case.dispatched,
        case.recorded,
        case.not_in_force,
        case.not_named,
        case.to_come,
        case.waiting,
        case.late,
    )
    for question in questions:
        found = question()
        if found is not None:
            return found
    return case.without_trace()


class _Case:
    """The questions, each asked only when those before it had no answer."""

    def __init__(self, evidence: Evidence) -> None:
        self.e = evidence
        self.text_at = format_instant(evidence.at)
        before = [(r, p) for r, p in evidence.revisions if parse_instant(r.at) < evidence.at]
        self.in_force = before[-1] if before else None
        self.schedule = _definition([r for r, _ in before], evidence.calendars)

    # --- what records say

    def dispatched(self) -> Verdict | None:
        found = [
            (d, p) for d, p in self.e.dispatches if parse_instant(d.scheduled_for) == self.e.at and d.origin != "manual"
        ]
        if not found:
            return None
        dispatch, place = found[-1]
        how = {"schedule": "by its schedule", "catch_up": "caught up after an outage"}.get(dispatch.origin, "")
        text = f"dispatched {how or 'as ' + dispatch.origin}, version {dispatch.version}, to {_shown(place)}"
        if dispatch.stands_for > 1:
            text += f"; it stands for {dispatch.stands_for} nominals, itself included"
        told = tuple((f"dispatch {d.occurrence_id}", p, d) for d, p in found)
        return self._verdict("dispatched", text, told)

    def recorded(self) -> Verdict | None:
        for occurrence, place in reversed(self.e.occurrences):
            if not self._covers(occurrence):
                continue
            told: list[tuple[str, Place, Any]] = [(f"occurrence record: {occurrence.state}", place, occurrence)]
            text = f"{occurrence.state} ({occurrence.reason}), decided at {occurrence.at}, version {occurrence.version}"
            if occurrence.count > 1:
                text += f", with {occurrence.count - 1} others from {occurrence.first} to {occurrence.last}"
            stood_for = self._stood_for(occurrence)
            if stood_for is not None:
                text += f"; {stood_for[0].scheduled_for} ran for it"
                told.append((f"dispatch {stood_for[0].occurrence_id}", stood_for[1], stood_for[0]))
            return self._verdict(_PAST[occurrence.state], text, tuple(told))
        return None

    def _covers(self, occurrence: m.Occurrence) -> bool:
        first = occurrence.first or occurrence.scheduled_for or occurrence.at
        last = occurrence.last or occurrence.scheduled_for or occurrence.at
        if not parse_instant(first) <= self.e.at <= parse_instant(last):
            return False
        revisions = [r for r, _ in self.e.revisions if r.version == occurrence.version]
        schedule = _definition(revisions, self.e.calendars)
        if schedule is not None and occurrence.reason == "calendar" and isinstance(schedule.spec.trigger, Calendared):
            removed = schedule.spec.trigger.removed
            return removed is not None and removed.next_after(self.e.at - 1) == self.e.at
        return schedule is None or _names(schedule, self.e.at)

    def _stood_for(self, occurrence: m.Occurrence) -> tuple[m.Dispatch, Place] | None:
        last = parse_instant(occurrence.last or occurrence.scheduled_for or occurrence.at)
        for dispatch, place in self.e.dispatches:
            newer = parse_instant(dispatch.scheduled_for) > last
            if newer and dispatch.stands_for > 1 and dispatch.version == occurrence.version:
                return dispatch, place
        return None

    # --- what the definition says

    def not_in_force(self) -> Verdict | None:
        if self.in_force is None:
            return self._before_the_first()
        revision, _ = self.in_force
        who = "".join(f" {word} {text}" for word, text in (("by", revision.actor), ("for", revision.reason)) if text)
        since = f"{revision.change} at {revision.at}{who}"
        if revision.state == "deleted":
            return self._verdict("ended", f"the schedule did not exist then: {since}")
        if revision.state in (State.CANCELLED, State.BROKEN, State.COMPLETED):
            return self._verdict("ended", f"the schedule was {revision.state} then: {since}")
        if self.schedule is None or isinstance(self.schedule.spec.trigger, Unplannable):
            return self._verdict("ended", f"its rule then cannot be read by this version: {since}")
        if revision.state == State.PAUSED and _names(self.schedule, self.e.at):
            later = "the record of it is written when the pause ends" if self._is_newest() else "its record is gone"
            return self._verdict("paused", f"the schedule was paused then: {since}; {later}")
        return None

    def _before_the_first(self) -> Verdict:
        first = self.e.revisions[0][0] if self.e.revisions else None
        if first is None or first.change != "created":
            text = f"what is kept of the history begins later than {self.text_at}"
            return self._verdict("too_old", text)
        text = f"the schedule was created at {first.at}, and counts strictly after that"
        return self._verdict("not_named", text)

    def not_named(self) -> Verdict | None:
        if self.schedule is None or _names(self.schedule, self.e.at):
            return None
        return self._verdict("not_named", "; ".join(self._reasons(self.schedule)))

    def _reasons(self, schedule: Schedule) -> list[str]:
        spec, at = schedule.spec, self.e.at
        if at <= schedule.effective_at:
            return [f"version {schedule.version} counts strictly after {format_instant(schedule.effective_at)}"]
        if spec.start is not None and at < spec.start:
            return [f"its start is {format_instant(spec.start)}"]
        if spec.end is not None and at >= spec.end:
            return [f"its end is {format_instant(spec.end)}, which is no longer part of it"]
        reasons = [f"the rule of version {schedule.version} does not name {self.text_at}"]
        reasons += [n.text for n in events_between(spec.trigger, at - _NEAR_MS, at + _NEAR_MS, 3)]
        for revision, _ in self.e.revisions:
            other = _definition([revision], self.e.calendars)
            if other is None or revision.version == schedule.version or not _named_by_rule(other, at):
                continue
            if parse_instant(revision.at) >= at:
                reasons.append(f"version {revision.version} does, but came only at {revision.at}")
            else:
                reasons.append(f"version {revision.version} did, but was replaced before")
            break
        return reasons

    # --- where the shard stands

    def to_come(self) -> Verdict | None:
        nominal = self._nominal()
        if nominal is None or nominal.available_at <= self.e.now:
            return None
        if self.e.at > self.e.now:
            text = f"it is still to come, in {(self.e.at - self.e.now) / 1000:g} s"
        else:
            text = "it is inside its window"
        if nominal.available_at != nominal.scheduled_for:
            text += f"; its jitter lets it start at {format_instant(nominal.available_at)}"
        return self._verdict("to_come", text)

    def waiting(self) -> Verdict | None:
        for live, place in self.e.owed:
            if live.kind not in ("owed", "catchup") or self.e.at not in owed_instants(live):
                continue
            text = "it was missed and waits for the tenant's catch-up budget"
            if live.kind != "catchup":
                text = f"it waits for {live.available_at}, when its window lets it start"
            return self._verdict("waiting", text, ((f"live record: {live.kind}", place, live),))
        return None

    def late(self) -> Verdict | None:
        nominal = self._nominal()
        if nominal is None or self.schedule is None or self.e.shard is None:
            return None
        record, place = self.e.shard
        key = due_key(nominal.available_at, self.schedule.spec.priority, self.e.schedule_id)
        told = (("shard record", place, None),)
        reached = f"the shard has fired up to {format_instant(instant_of(record.cursor))} and wrote this down at "
        reached += format_instant(record.seen_until)
        if any(backlog.holds(key, record.lags) for backlog in record.backlogs):
            return self._verdict("late", f"it fell into an outage that is still being decided; {reached}", told)
        lag = record.lags.get(queue_of(key))
        if lag is not None and lag.after is not None and lag.after < key <= record.cursor:
            text = "it is due and waits for its turn: more is due for its tenant and priority than can be dispatched "
            text += f"at once, and this queue is served up to {format_instant(instant_of(lag.after))}"
            return self._verdict("late", text, told)
        if key > record.cursor:
            text = f"it is due and not dispatched: {reached}; is a scheduler running? (`scheduler doctor`)"
            return self._verdict("late", text, told)
        return None

    def without_trace(self) -> Verdict:
        if self.e.at < self.e.kept_since:
            text = f"it was named, but records before {format_instant(self.e.kept_since)} may be gone"
            return self._verdict("too_old", text)
        completed = self.e.current[0].completed_at if self.e.current else None
        if completed is not None and completed < self.e.at:
            return self._verdict("ended", f"the schedule was completed at {format_instant(completed)}")
        text = "it was named, its shard has passed it, and no record tells of it: this is a fault, please report it"
        told = () if self.e.shard is None else (("shard record", self.e.shard[1], None),)
        return self._verdict("absent", text, told)

    # --- shared

    def _nominal(self) -> Nominal | None:
        return None if self.schedule is None else nominal_at(self.schedule, self.e.at)

    def _is_newest(self) -> bool:
        return self.in_force is not None and self.in_force == self.e.revisions[-1]

    def _verdict(self, answer: str, text: str, told: Sequence[tuple[str, Place, Any]] = ()) -> Verdict:
        previous, following = None, None
        if self.schedule is not None:
            spec = self.schedule.spec
            newest = spec.trigger.newest_before(self.e.at - 1, 1, self.schedule.effective_at)
            following = self.schedule.next_after(self.e.at)
            previous = newest[-1] if newest and (spec.start is None or newest[-1] >= spec.start) else None
        evidence = list(told)
        if self.in_force is not None:
            revision, place = self.in_force
            evidence.append((f"definition in force: revision {revision.revision}", place, revision))
        if self.e.current is not None:
            evidence.append((f"the schedule now: {self.e.current[0].state.value}", self.e.current[1], None))
        return Verdict(
            answer=answer,
            text=text,
            definition=None if self.in_force is None else self.in_force[0],
            previous=previous,
            next=following,
            evidence=tuple(evidence),
        )


def _definition(revisions: Sequence[m.Revision], calendars: Calendars) -> Schedule | None:
    """The newest of the revisions as a schedule that counts from when its version does; None if none has a spec."""
    revision = next((r for r in reversed(revisions) if r.spec is not None), None)
    if revision is None or revision.spec is None:
        return None
    record = m.Schedule(
        schedule_id=revision.schedule_id,
        tenant=revision.tenant,
        state="active",
        version=revision.version,
        revision=revision.revision,
        created_at=revision.at,
        updated_at=revision.at,
        effective_at=revision.effective_at or revision.at,
        spec=revision.spec,
        calendar_version=revision.calendar_version,
    )
    return bound(schedule_from_bytes(msgspec.json.encode(record)), calendars)


def _names(schedule: Schedule, at: int) -> bool:
    return schedule.next_after(at - 1) == at


def _named_by_rule(schedule: Schedule, at: int) -> bool:
    return schedule.spec.trigger.next_after(at - 1) == at


def _shown(place: Place) -> str:
    return f"{place.topic}/{place.partition} at offset {place.offset}"
