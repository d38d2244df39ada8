"""Zones: the pinned `tzdata` wheel, and nothing else, as integer tables of offset changes.

Source of truth for which names are zones and which offset holds when. The tables of the operating system are never
read: two nodes with the same wheel agree whatever host they run on. Inside, instants and offsets are whole seconds.

Compiled tables end (mostly in 2037); the footer's rule continues them. A zone is laid out to 2101 when first used, and
to 2600 when somebody asks beyond that. Later years repeat those, since the Gregorian calendar has a period of 400
years (146,097 days, whole weeks), so no table grows without bound.
"""

import zoneinfo
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from hashlib import blake2b
from importlib import resources
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import tzdata

from scheduler.core.problem import Problem
from scheduler.core.tzfile import BEGINNING, Change, YearRule, read_tzif

Passes = Literal["first", "last", "both"]
"""Which pass through a local time that occurs twice counts."""

CYCLE: Final = 146_097 * 86_400
"""Seconds in 400 Gregorian years."""
FAR: Final = 18_302_889_600
"""2550-01-01T00:00:00Z: from here on instants are looked up one or more cycles earlier (2150 to 2549)."""
_NEAR_YEAR: Final = 2101
_LAST_YEAR: Final = 2600
_NEVER: Final = 1 << 60
_TWO_DAYS: Final = 2 * 86_400
_ONE_YEAR: Final = 366 * 86_400
_RECENT: Final = 1_420_070_400  # 2015
_TEN_YEARS: Final = 10 * _ONE_YEAR
_FINGERPRINT_S: Final = 400 * 86_400

_GUESSES: Final = {
    "asia/beijing": ("Asia/Shanghai",),
    "asia/peking": ("Asia/Shanghai",),
    "asia/bangalore": ("Asia/Kolkata",),
    "asia/mumbai": ("Asia/Kolkata",),
    "america/san_francisco": ("America/Los_Angeles",),
    "america/washington": ("America/New_York",),
    "america/boston": ("America/New_York",),
    "us/pacific-new": ("America/Los_Angeles",),
    "bst": ("Europe/London", "Asia/Dhaka"),
    "cest": ("Europe/Berlin", "Europe/Paris"),
    "cst": ("America/Chicago", "Asia/Shanghai", "America/Havana"),
    "edt": ("America/New_York",),
    "cdt": ("America/Chicago",),
    "mdt": ("America/Denver",),
    "pdt": ("America/Los_Angeles",),
    "pst": ("America/Los_Angeles", "Asia/Manila"),
    "ist": ("Asia/Kolkata", "Europe/Dublin", "Asia/Jerusalem"),
    "jst": ("Asia/Tokyo",),
    "aest": ("Australia/Sydney", "Australia/Brisbane"),
    "z": ("UTC",),
    "localtime": ("UTC",),
}
_SURPRISES: Final = {
    "EST": "is a name of Panama's time, UTC-05:00 the year round; with summer time it is America/New_York",
    "MST": "is a name of Phoenix's time, UTC-07:00 the year round; with summer time it is America/Denver",
    "HST": "is a name of Honolulu's time, UTC-10:00 the year round; write Pacific/Honolulu",
    "EST5EDT": "is an old name; write America/New_York",
    "CST6CDT": "is an old name; write America/Chicago",
    "MST7MDT": "is an old name; write America/Denver",
    "PST8PDT": "is an old name; write America/Los_Angeles",
    "CET": "is an old name; write the place, for example Europe/Brussels",
    "MET": "is an old name; write the place, for example Europe/Brussels",
    "EET": "is an old name; write the place, for example Europe/Athens",
    "WET": "is an old name; write the place, for example Europe/Lisbon",
    "Factory": "is the tables' mark for an unset zone and means UTC; write UTC",
}


class View(NamedTuple):
    """A zone's stretches of constant offset, cut so that each local time belongs to the passes that count.

    Stretch i covers the UTC seconds `starts[i]` to `starts[i + 1]`; those of `begins[i]` to `ends[i]` count.
    """

    starts: list[int]
    begins: list[int]
    ends: list[int]
    offsets: list[int]
    limit: int
    """From this second on the view does not know: the zone's complete one does, of which this is a beginning."""


class Zone:
    """One zone of the tables; made by `find_zone`, which hands out one object a name."""

    __slots__ = ("_compiled", "_quiet", "_rule", "_views", "changes", "name")

    def __init__(self, name: str, compiled: list[Change], rule: YearRule | None) -> None:
        self.name = name
        self._compiled = compiled
        self._rule = rule
        self._views: dict[tuple[Passes, bool], View] = {}
        self._quiet: tuple[int, int, int | None] = (0, 0, None)
        self.changes = self._laid_out(_NEAR_YEAR)

    def view(self, passes: Passes, *, complete: bool = False) -> View:
        """The stretches to 2101, or to 2600 if asked for the complete ones."""
        found = self._views.get((passes, complete))
        if found is None:
            changes = self._laid_out(_LAST_YEAR) if complete else self.changes
            limit = FAR if complete or self._rule is None else changes[-1].start
            found = self._views[passes, complete] = _view(changes, passes, limit)
        return found

    def offset_at(self, second: int) -> int:
        """Local time minus UTC at a UTC second."""
        view, second = self._holding(second)
        return view.offsets[bisect_right(view.starts, second) - 1]

    def name_at(self, second: int) -> str:
        """What the tables call the local time of a UTC second: `EST`, `CEST`, `+03`."""
        if second >= self.changes[-1].start and self._rule is not None:
            summer = self.offset_at(second) == self._rule.summer[0]
            return (self._rule.summer if summer else self._rule.standard)[1]
        return self.changes[bisect_right(self.changes, second, key=lambda change: change.start) - 1].name

    def instants_of(self, local: int) -> list[int]:
        """The UTC seconds at which the wall clock reads `local`: one, none in a gap, two in a fold; ascending."""
        view, shifted = self._holding(local)
        found = []
        for at in range(bisect_right(view.starts, shifted - _TWO_DAYS) - 1, len(view.starts)):
            second = shifted - view.offsets[at]
            if view.starts[at] > shifted + _TWO_DAYS:
                break
            if view.starts[at] <= second < view.ends[at]:
                found.append(second + local - shifted)
        return found

    def first_from(self, local: int) -> int:
        """The first UTC second at which the wall clock reads `local`, or the first after the gap that holds it."""
        found = self.instants_of(local)
        if found:
            return found[0]
        jumps = self.gaps(local - _TWO_DAYS, local + _TWO_DAYS)
        return next(at for at, before, after in jumps if at + before <= local < at + after)

    def last_to(self, local: int) -> int:
        """The last UTC second at which the wall clock reads `local`, or the last before the gap that holds it."""
        found = self.instants_of(local)
        return found[-1] if found else self.first_from(local) - 1

    def stretches(self, first: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """(from, to, offset) of the stretches of constant offset that make up the UTC seconds [first, stop)."""
        offset = self.offset_at(first)
        for at, _before, after in self.jumps(first, stop - 1):
            yield first, at, offset
            first, offset = at, after
        yield first, stop, offset

    def gaps(self, after: int, until: int) -> Iterator[tuple[int, int, int]]:
        """(UTC second, offset before, offset after) of the changes in (after, until] that skip local time."""
        return ((at, old, new) for at, old, new in self.jumps(after, until) if new > old)

    @property
    def has_gaps(self) -> bool:
        """Whether the clock may skip local time in our days: False for UTC and all zones without summer time."""
        recent = bisect_right(self.changes, _RECENT, key=lambda change: change.start)
        return len(self.changes) > max(1, recent)

    def last_gap(self, second: int) -> int | None:
        """The start of the last gap that is not after a UTC second, of those since ten years before; None = none.

        Cheap to ask of neighbouring seconds again and again.
        """
        since, until, gap = self._quiet
        if not since <= second < until:
            back = second - _TEN_YEARS
            gap = max((at for at, _old, _new in self.gaps(back, second)), default=None)
            ahead = next((at for at, _old, _new in self.gaps(second, second + _ONE_YEAR)), second + _ONE_YEAR)
            # The same answer for every second from the gap (or from here, if there is none) to the next one.
            self._quiet = (second if gap is None else gap, ahead, gap)
        return gap

    def jumps(self, after: int, until: int) -> Iterator[tuple[int, int, int]]:
        """(UTC second, offset before, offset after) of every change of offset in (after, until]."""
        while after < until:
            view, shifted = self._holding(after + 1)
            lead = after + 1 - shifted
            at = max(1, bisect_right(view.starts, shifted - 1))
            while at < len(view.starts) and view.starts[at] + lead <= until and view.starts[at] < FAR:
                yield view.starts[at] + lead, view.offsets[at - 1], view.offsets[at]
                at += 1
            after = max(after, FAR + lead - 1) if self._rule else until

    def _holding(self, second: int) -> tuple[View, int]:
        """A view that knows the second (UTC or local), and the second to look up there."""
        if second >= FAR:
            second -= ((second - FAR) // CYCLE + 1) * CYCLE
        view = self.view("both")
        if second + _TWO_DAYS >= view.limit:
            view = self.view("both", complete=True)
        return view, second

    def _laid_out(self, last_year: int) -> list[Change]:
        changes = list(self._compiled)
        if self._rule is not None:
            # The compiled part may end anywhere in a year that the rule already governs.
            known = self._compiled[-1].start
            first_year = max(1970, 1970 + known // 31_556_952 - 1)
            for year in range(first_year, last_year + 1):
                changes += [change for change in self._rule.changes(year) if change.start > known]
        return changes

    def __repr__(self) -> str:
        return f"<zone {self.name}>"


def _view(changes: list[Change], passes: Passes, limit: int) -> View:
    # A new name alone (WEST becoming CET) is no change of the clock.
    kept = changes[:1] + [new for old, new in pairwise(changes) if new.offset != old.offset]
    starts = [change.start for change in kept]
    offsets = [change.offset for change in kept]
    begins, ends = starts, [*starts[1:], _NEVER]
    # Where the clock goes back from offset `old` to `new`, the repeated stretch is the first old - new seconds of the
    # later offset and the last old - new seconds of the earlier one. No zone has two changes so close that more than
    # two stretches share a local time (tested over all tables).
    if passes == "first":
        begins = [BEGINNING]
        begins += [start + max(0, old - new) for start, old, new in zip(starts[1:], offsets, offsets[1:], strict=False)]
    elif passes == "last":
        ends = [
            end - max(0, old - new) for end, old, new in zip(ends, offsets, [*offsets[1:], offsets[-1]], strict=True)
        ]
    return View(starts, begins, ends, offsets, limit)


def _wheel_names() -> frozenset[str]:
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("ascii").split())


def _wheel_bytes(name: str) -> bytes:
    return resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


@dataclass(slots=True)
class Tables:
    """Where zones come from. One a process; only tests put anything else there, and then forget what was cached."""

    version: str
    names: Callable[[], frozenset[str]]
    read: Callable[[str], bytes]


TABLES: Final = Tables(str(tzdata.IANA_VERSION), _wheel_names, _wheel_bytes)


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Every name in the tables, current and old; nothing else is a zone."""
    return TABLES.names()


def find_zone(name: str) -> Zone | None:
    """The zone of exactly this name, or None."""
    return _load(name) if name in zone_names() else None


@lru_cache(maxsize=1024)
def _load(name: str) -> Zone:
    return Zone(name, *read_tzif(TABLES.read(name)))


def tz_version() -> str:
    """The version of the tables, such as `2026f`: stamped on every occurrence."""
    return TABLES.version


def zone_fingerprint(name: str, from_ms: int) -> str | None:
    """A digest of the zone's offsets over the 400 days from `from_ms`; None for a name the tables lack.

    Compare digests of the *same* `from_ms`: stored ones are recomputed from the instant stored beside them, and only
    schedules of zones whose digest differs are planned anew.
    """
    zone = find_zone(name)
    if zone is None:
        return None
    first = from_ms // 1000
    parts = [str(zone.offset_at(first))]
    parts += [f"{at}:{new}" for at, _old, new in zone.jumps(first, first + _FINGERPRINT_S)]
    return blake2b(" ".join(parts).encode(), digest_size=8).hexdigest()


def pin_tables() -> str:
    """Make the wheel the only tables of this process, also for `zoneinfo`; the version. Run it at start.

    Raises RuntimeError when the wheel is unreadable, so that a node refuses to start rather than guess.
    """
    zoneinfo.reset_tzpath(to=())
    if find_zone("UTC") is None or find_zone("Europe/London") is None:
        raise RuntimeError("the tzdata package is incomplete; reinstall it: pip install --force-reinstall tzdata")
    return tz_version()


def keep_tables() -> None:
    """Read every table now: what is computed later does not change with what is installed meanwhile. Some 20 ms."""
    TABLES.read = {name: TABLES.read(name) for name in zone_names()}.__getitem__


def unknown_zone(name: object) -> Problem:
    """The problem of a zone name that is none, with the likeliest names that are."""
    if not isinstance(name, str):
        message = "a zone is needed: an IANA name such as Europe/Paris, America/New_York or UTC"
        return Problem("zone", "bad_field" if name is None else "unknown_zone", message)
    near = _near(name)
    hint = f"; did you mean {' or '.join(near)}? Names" if near else "; names"
    text = (
        f"{name[:60]!r} is not a zone of the tables {tz_version()}{hint} are IANA names in their exact spelling, "
        "such as Europe/Paris, America/New_York, Etc/GMT+5 or UTC"
    )
    return Problem("zone", "unknown_zone", text)


def zone_warnings(name: str) -> tuple[Problem, ...]:
    """What surprises people about a zone that is in the tables."""
    if name.startswith("Etc/GMT") and name[7:8] in {"+", "-"} and name[8:] != "0":
        side = "behind" if name[7] == "+" else "ahead of"
        text = f"has the POSIX sign: {name} is {name[8:]} h {side} UTC"
    elif name in _SURPRISES:
        text = _SURPRISES[name]
    else:
        return ()
    return (Problem("zone", "surprising", f"{name} {text}"),)


def _near(name: str) -> tuple[str, ...]:
    plain = name[:60].strip("/ \t\0").casefold().replace(" ", "_")
    by_folded = {known.casefold(): known for known in zone_names()}
    if plain in by_folded:
        return (by_folded[plain],)
    if plain in _GUESSES:
        return _GUESSES[plain]
    sign, hours = plain[3:4], plain[4:].removesuffix(":00").lstrip("0")
    if plain[:3] in {"utc", "gmt"} and sign in {"+", "-"} and hours.isascii() and hours.isdigit():
        opposite = f"Etc/GMT{'-' if sign == '+' else '+'}{hours}"
        return (opposite,) if opposite in zone_names() else ()
    close = get_close_matches(plain, by_folded, n=3, cutoff=0.75)
    close += [folded for folded in sorted(by_folded) if folded.rpartition("/")[2] == plain][: 3 - len(close)]
    return tuple(by_folded[folded] for folded in close)
