"""What a committed step means for the people who asked: one flat event for each thing that happened.

    at            when it happened
    schedule_id   to which schedule (as the command had it, if it named none that can be)
    event         accepted, rejected: the answer to a command
                  dispatched: one occurrence is on its dispatch topic
                  missed, suppressed, cancelled: nominals that will not run
                  completed, broken: the schedule has come to an end
    code          of an answer: created, paused, not_found, never_fires, ...
    reason        of a rejection: the sentence; of nominals that will not run: downtime, paused, deleted, ...
    scheduled_for, available_at, attempt, origin   of a dispatch
    stands_for    of a dispatch that policy decided: how many nominals it stands for, itself included
    version       of the schedule, wherever it has one
    count         of the answer to a backfill: how many nominals it is about; a dry run's: how many would run
                  of nominals that will not run: how many; `scheduled_for` is the newest of them, and of several
                  `first` and `last` are the range

A field that does not apply is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from scheduler.core.model import Origin
from scheduler.core.policy import reached_as
from scheduler.core.time import format_instant
from topics.messages import Occurrence, Rejected, Reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.core.model import Schedule
    from scheduler.simulator.scenario import CommandStep
    from scheduler.simulator.world import Happened
    from topics.catalog import Catalogue

Event = dict[str, Any]

_ENDS: Final = frozenset({"completed", "broken"})


class _Dispatch(Struct):
    """What an event says of a dispatch."""

    schedule_id: str
    version: int
    attempt: int
    scheduled_for: str
    available_at: str
    origin: str
    stands_for: int


class _Schedule(Struct):
    schedule_id: str
    state: str
    version: int


_dispatch = msgspec.json.Decoder(_Dispatch).decode
_schedule = msgspec.json.Decoder(_Schedule).decode
_reply = msgspec.json.Decoder(Reply).decode
_occurrence = msgspec.json.Decoder(Occurrence).decode
_rejected = msgspec.json.Decoder(Rejected).decode


class Events:
    """Turns steps into events. Remembers which schedules it has seen end, since their records are written again."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._dispatch_topics = frozenset(catalogue.dispatch_topics())
        self._ended: set[str] = set()

    def of(self, happened: Happened) -> Iterator[Event]:
        """The events of one step: dispatches on time first, then the answer, then what followed from it."""
        step = happened.step
        if step is None:
            return
        at = format_instant(happened.at)
        for item in step.items:
            yield _dispatched(at, item.value)
        for record in step.records:
            if record.value is not None and record.topic == self._catalogue.replies:
                yield _answered(at, record.value, happened.command)
            elif record.value is not None and record.topic == self._catalogue.rejected and happened.command is not None:
                yield _refused(at, record.value, happened.command)
        for record in step.records:
            if record.value is None:
                continue
            if record.topic in self._dispatch_topics:
                yield _dispatched(at, record.value)
            elif record.topic == self._catalogue.occurrences:
                yield _gone(at, record.value)
            elif record.topic == self._catalogue.schedules:
                yield from self._end(at, record.value)

    def _end(self, at: str, value: bytes) -> Iterator[Event]:
        schedule = _schedule(value)
        if schedule.state not in _ENDS:
            self._ended.discard(schedule.schedule_id)
        elif schedule.schedule_id not in self._ended:
            self._ended.add(schedule.schedule_id)
            yield {
                "at": at,
                "schedule_id": schedule.schedule_id,
                "event": schedule.state,
                "version": schedule.version,
            }


def _dispatched(at: str, value: bytes) -> Event:
    sent = _dispatch(value)
    event = {
        "at": at,
        "schedule_id": sent.schedule_id,
        "event": "dispatched",
        "scheduled_for": sent.scheduled_for,
        "available_at": sent.available_at,
        "version": sent.version,
        "attempt": sent.attempt,
        "origin": sent.origin,
    }
    if sent.stands_for > 1 or sent.origin == Origin.CATCH_UP:
        event["stands_for"] = sent.stands_for
    return event


def _answered(at: str, value: bytes, command: CommandStep | None) -> Event:
    """Without the command it is the answer to a dry run of a backfill, which comes a step later."""
    reply = _reply(value)
    given = None if command is None else command.schedule_id
    event = {"at": at, "schedule_id": reply.schedule_id or given, "event": reply.status}
    if reply.version is not None:
        event["version"] = reply.version
    event["code"] = reply.code
    if reply.status == "rejected":
        event["reason"] = reply.message
    if "nominals" in reply.counts:
        event["count"] = reply.counts.get("remaining", reply.counts["nominals"])
    return event


def _refused(at: str, value: bytes, command: CommandStep) -> Event:
    """A record that could not be answered: it named no schedule that can be."""
    fault = _rejected(value)
    return {
        "at": at, "schedule_id": command.schedule_id, "event": "rejected", "code": fault.code, "reason": fault.reason,
    }  # fmt: skip


def _gone(at: str, value: bytes) -> Event:
    gone = _occurrence(value)
    event = {
        "at": at,
        "schedule_id": gone.schedule_id,
        "event": gone.state,
        "scheduled_for": gone.scheduled_for or gone.last,
        "version": gone.version,
        "reason": gone.reason,
        "count": gone.count,
    }
    if gone.first is not None:
        event |= {"first": gone.first, "last": gone.last}
    return event


def suppressed_so_far(schedule: Schedule, now: int) -> Iterator[Event]:
    """What a pause has suppressed up to `now`; the shard itself writes it down when the pause ends."""
    for gone in reached_as("suppressed", "paused", schedule, schedule.next_after(schedule.floor), now):
        event = {
            "at": format_instant(now),
            "schedule_id": schedule.schedule_id,
            "event": gone.state,
            "scheduled_for": format_instant(gone.last),
            "version": schedule.version,
            "reason": gone.reason,
            "count": gone.count,
        }
        if gone.count > 1:
            event |= {"first": format_instant(gone.first), "last": format_instant(gone.last)}
        yield event
