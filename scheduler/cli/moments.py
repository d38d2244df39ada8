"""Instants as people name them at a prompt, some of them by the clock of a zone; what can't be read is wrong usage."""

from __future__ import annotations

from scheduler.cli.common import MISUSED, Shown
from scheduler.cli.values import parse_moment
from scheduler.core.time import parse_local
from scheduler.core.zones import Zone, find_zone, unknown_zone


def zone_named(name: str) -> Zone:
    """The zone of this name. Raises `Shown` with the nearest names."""
    zone = find_zone(name)
    if zone is None:
        raise Shown(unknown_zone(name).message, MISUSED)
    return zone


def moment(option: str, text: str, now: int, zone: Zone) -> int:
    """`now`, `+2h`, RFC 3339, or a local time of the zone (in a gap: its end), in ms. Raises `Shown`."""
    try:
        local = parse_local(text)
    except ValueError:
        try:
            return parse_moment(text, now)
        except ValueError as fault:
            raise Shown(f"{option}: {fault}", MISUSED) from None
    return zone.first_from(local // 1000) * 1000 + local % 1000
