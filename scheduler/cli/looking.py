"""Reading what the scheduler publishes about schedules: the compacted topic as values, the history as revisions.

Only reads, read-committed and without a group; works while no scheduler runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from scheduler.core.calendars import NO_CALENDARS, bound
from scheduler.core.policy import nominal_at
from scheduler.core.time import format_instant
from scheduler.errors import StateCorrupted
from scheduler.wire import calendar_from_bytes, schedule_from_bytes, split_versioned_key
from topics.codec import Undecodable, decode, encode
from topics.messages import Calendar, Revision, Schedule
from topics.reading import read_compacted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scheduler.config import Settings
    from scheduler.core.calendars import Calendars
    from scheduler.core.model import Schedule as Known

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One schedule as the topic has it."""

    schedule: Schedule
    value: bytes
    calendars: Calendars = NO_CALENDARS

    def known(self) -> Known:
        """The schedule as the core has it, by the calendar it is planned by. Raises StateCorrupted."""
        return bound(schedule_from_bytes(self.value), self.calendars)

    def upcoming(self, now: int, count: int) -> list[dict[str, str]]:
        """The next `count` occurrences after `now` (ms) if it is active and the rule is readable here."""
        if self.schedule.state != "active":
            return []
        try:
            known = self.known()
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
    for found, value, _, _ in read_compacted(
        settings.client_config(), topic, key=key, written_by_shards=True, timeout_s=timeout_s
    ):
        if found is None or (key is not None and found != key) or not found.startswith(prefix):
            continue
        if value is None:
            newest.pop(found, None)
        else:
            newest[found] = value
    found_all = [(decode(Schedule, value), value) for _, value in sorted(newest.items())]
    uses = any(schedule.spec.calendar is not None for schedule, _ in found_all)
    known = calendars(settings, timeout_s=timeout_s) if uses else NO_CALENDARS
    return [Seen(schedule=schedule, value=value, calendars=known) for schedule, value in found_all]


def table_versions(
    settings: Settings,
    topic: str,
    kind: type[_T],
    checked: Callable[[bytes, str, int], object],
    timeout_s: float = 30.0,
) -> dict[str, dict[int, _T]]:
    """Every version of every record of a `<name>@<version>` topic; what `checked` refuses (ValueError) is left out."""
    found: dict[str, dict[int, _T]] = {}
    for key, value, _, _ in read_compacted(settings.client_config(), topic, timeout_s=timeout_s):
        try:
            name, version = split_versioned_key(key)
            if value is None:
                found.get(name, {}).pop(version, None)
                continue
            checked(value, name, version)
            found.setdefault(name, {})[version] = decode(kind, value)
        except ValueError:
            continue
    return {name: versions for name, versions in found.items() if versions}


def calendar_versions(settings: Settings, *, timeout_s: float = 30.0) -> dict[str, dict[int, Calendar]]:
    """Every version of every calendar on the topic, by name and number; what is no calendar is left out."""
    return table_versions(settings, settings.catalogue().calendars, Calendar, calendar_from_bytes, timeout_s)


def calendars(settings: Settings, *, timeout_s: float = 30.0) -> Calendars:
    """The calendars as a shard has them."""
    found = NO_CALENDARS
    for name, versions in calendar_versions(settings, timeout_s=timeout_s).items():
        for version, one in versions.items():
            found = found.put(name, version, calendar_from_bytes(encode(one), name, version))
    return found


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
