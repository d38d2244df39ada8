"""Other zone tables than the installed ones, for as long as a test needs them."""

from __future__ import annotations

from contextlib import contextmanager
from struct import pack
from typing import TYPE_CHECKING

from scheduler.core import calendars, cron, zones
from scheduler.core.spec import shared_by_all
from scheduler.core.time import parse_instant
from scheduler.wire import schedules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class ZoneTables:
    """What `zone_tables` gives: `use` puts a version in place, of which some zones differ from the installed one."""

    def __init__(self) -> None:
        self._version = zones.TABLES.version
        self._names = zones.TABLES.names
        self._read = zones.TABLES.read

    def use(self, version: str, changed: Mapping[str, bytes | None]) -> None:
        """From now on `version`: zones by name, None for one that it lacks."""
        given = {name: data for name, data in changed.items() if data is not None}
        known = (self._names() | set(given)) - {name for name, data in changed.items() if data is None}

        def read(name: str) -> bytes:
            return given[name] if name in given else self._read(name)

        self._put(version, lambda: frozenset(known), read)

    def restore(self) -> None:
        self._put(self._version, self._names, self._read)

    @staticmethod
    def _put(version: str, names: Callable[[], frozenset[str]], read: Callable[[str], bytes]) -> None:
        zones.TABLES.version, zones.TABLES.names, zones.TABLES.read = version, names, read
        for cached in (
            zones.zone_names, zones._load, cron.compile_cron, schedules._trigger, schedules._shared_spec,
            calendars._under, shared_by_all,
        ):  # fmt: skip
            cached.cache_clear()


@contextmanager
def zone_tables() -> Iterator[ZoneTables]:
    """The installed tables come back at the end."""
    tables = ZoneTables()
    try:
        yield tables
    finally:
        tables.restore()


def tzif(footer: str, first: int, changes: Mapping[str, int] | None = None) -> bytes:
    """Compiled zone data: `first` hours from UTC, then from each instant on others, then the rule of the footer."""
    steps = [(parse_instant(at) // 1000, hours) for at, hours in (changes or {}).items()]
    kinds = [first, *(hours for _, hours in steps)]
    body = b"".join(pack(">q", start) for start, _ in steps) + bytes(range(1, len(kinds)))
    body += b"".join(pack(">lBB", hours * 3600, 0, 0) for hours in kinds) + b"LMT\0"
    empty = b"TZif2" + bytes(15) + pack(">6l", 0, 0, 0, 0, 0, 0)
    head = b"TZif2" + bytes(15) + pack(">6l", 0, 0, 0, len(steps), len(kinds), 4)
    return empty + head + body + b"\n" + footer.encode() + b"\n"
