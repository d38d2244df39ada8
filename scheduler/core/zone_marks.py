"""Zone marks: how a zone's clock runs by the tables in use, kept so that other tables can be compared with these.

A mark describes the 400 days from the instant it was taken. Its fingerprint tells whether other tables differ there,
its offsets let the old clock be read again, so that only schedules whose nominals really move are planned anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from scheduler.core.tzfile import Change
from scheduler.core.zones import Zone, find_zone, zone_fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping

SPAN_MS: Final = 400 * 86_400_000


class ZoneMark(NamedTuple):
    """One zone from `taken_at` (ms) on; `offsets`: from this instant (ms) on, local time minus UTC in seconds."""

    zone: str
    taken_at: int
    fingerprint: str
    offsets: tuple[tuple[int, int], ...]

    @property
    def until(self) -> int:
        """Where what it knows ends."""
        return self.taken_at + SPAN_MS


class ZoneRecord(Struct, frozen=True, kw_only=True, gc=False):
    """The marks of all zones a shard's schedules use, taken by the tables `tz_version`.

    `since`: other tables were met then, and schedules planned before may still be planned by `tz_version`.
    """

    tz_version: str = ""
    marks: Mapping[str, ZoneMark] = {}
    since: int | None = None


def take_mark(name: str, at: int) -> ZoneMark | None:
    """The mark of a zone by the tables in use, from the whole second of `at`; None for a name they lack."""
    zone = find_zone(name)
    at = at // 1000 * 1000
    fingerprint = zone_fingerprint(name, at)
    if zone is None or fingerprint is None:
        return None
    first, last = at // 1000, (at + SPAN_MS) // 1000
    changes = [(second * 1000, new) for second, _old, new in zone.jumps(first, last)]
    return ZoneMark(name, at, fingerprint, ((at, zone.offset_at(first)), *changes))


def differs(mark: ZoneMark) -> bool:
    """Whether the tables in use say anything else about the zone's 400 days; a zone they lack differs, too."""
    return zone_fingerprint(mark.zone, mark.taken_at) != mark.fingerprint


def zone_before(mark: ZoneMark, zone: Zone) -> Zone:
    """The zone as the mark has it in its 400 days, and as `zone` has it before and after."""
    start, end = mark.taken_at // 1000, mark.until // 1000
    earlier = [change for change in zone.changes if change.start < start]
    marked = [Change(instant // 1000, offset, "") for instant, offset in mark.offsets]
    later = [Change(end, zone.offset_at(end), ""), *(change for change in zone.changes if change.start > end)]
    return Zone(zone.name, [*earlier, *marked, *later], None)
