"""Reading what the scheduler publishes about schedules: the compacted topic as values, the history as revisions.

Only reads, read-committed and without a group; works while no scheduler runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.core.policy import nominal_at
from scheduler.core.time import format_instant
from scheduler.errors import StateCorrupted
from scheduler.wire import schedule_from_bytes
from topics.codec import Undecodable, decode
from topics.messages import Revision, Schedule
from topics.reading import read_compacted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.config import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One schedule as the topic has it."""

    schedule: Schedule
    value: bytes

    def upcoming(self, now: int, count: int) -> list[dict[str, str]]:
        """The next `count` occurrences after `now` (ms) if it is active and the rule is readable here."""
        if self.schedule.state != "active":
            return []
        try:
            known = schedule_from_bytes(self.value)
        except (StateCorrupted, ValueError):  # a zone or field this version does not know
            return []
        found: list[dict[str, str]] = []
        nominal = known.next_after(now)
        while nominal is not None and len(found) < count:
            planned = nominal_at(known, nominal)
            found.append(
                {
                    "scheduled_for": format_instant(planned.scheduled_for),
                    "available_at": format_instant(planned.available_at),
                }
            )
            nominal = known.next_after(nominal)
        return found

    def as_json(self) -> dict[str, Any]:
        """As it stands on the topic."""
        value: dict[str, Any] = msgspec.json.decode(self.value)
        return value


def schedules(
    settings: Settings, *, schedule_id: str | None = None, tenant: str | None = None, timeout_s: float = 30.0
) -> list[Seen]:
    """The schedules there are, by id: all, one tenant's, or at most the one asked for. Holds them in memory."""
    key = schedule_id.encode() if schedule_id is not None else None
    prefix = f"{tenant}/".encode() if tenant is not None else b""
    newest: dict[bytes, bytes] = {}
    topic = settings.catalogue().schedules
    for found, value, _, _ in read_compacted(settings.client_config(), topic, key=key, timeout_s=timeout_s):
        if found is None or (key is not None and found != key) or not found.startswith(prefix):
            continue
        if value is None:
            newest.pop(found, None)
        else:
            newest[found] = value
    return [Seen(schedule=decode(Schedule, value), value=value) for _, value in sorted(newest.items())]


def revisions(settings: Settings, schedule_id: str, *, timeout_s: float = 30.0) -> Iterator[Revision]:
    """What the history still has of one schedule, oldest first."""
    key = schedule_id.encode()
    topic = settings.catalogue().schedule_history
    for found, value, _, _ in read_compacted(settings.client_config(), topic, key=key, timeout_s=timeout_s):
        if found == key and value is not None:
            try:
                yield decode(Revision, value)
            except Undecodable:
                continue


def trigger_text(schedule: Schedule) -> str:
    """The trigger on one line: `0 9 * * * Europe/Berlin`, `every 10m`, `at 2027-01-15T08:00:00Z`."""
    from scheduler.cli.values import format_duration_ms

    trigger = msgspec.json.decode(schedule.spec.trigger)
    match trigger:
        case {"cron": str(cron), "zone": str(zone)}:
            return f"{cron}  {zone}"
        case {"every_ms": int(every_ms)}:
            return f"every {format_duration_ms(every_ms)}"
        case {"at": str(at)}:
            return f"at {at}"
        case {"at_local": str(at), "zone": str(zone)}:
            return f"at {at} {zone}"
        case _:
            return msgspec.json.encode(trigger).decode()
