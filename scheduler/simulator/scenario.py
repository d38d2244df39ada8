"""A scenario: what happens to one node, and when. Read from decoded JSON with all mistakes at once.

    {"from": INSTANT, "until": INSTANT,                    the clock starts at `from`; `until` is inclusive
     "title"?: TEXT, "description"?: TEXT,                 for people
     "settings"?: {"grace_ms"?: MS},                       the upper bound of the grace [60000]
     "tenants"?: {TENANT: {"catch_up_per_s"?: NUMBER}},    undeclared tenants get the defaults
     "steps": [{"at": INSTANT, "command": {...}}           a command, as on `scheduler.commands`; command_id optional
               {"at": INSTANT, "calendar": {"name": NAME}} a calendar's next version, as `scheduler calendar apply`
                                                           reads one; with "deleted": true it is deleted
               {"at": INSTANT, "outage_until": INSTANT}    nobody is there in [at, outage_until)
               {"at": INSTANT, "clock_step_ms": MS}]}      the node's wall clock is moved; the due clock does not follow

Steps are taken in the order of `at`; of equal ones the order of the list counts. A step may carry a `note`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.core.calendar import CALENDAR_FIELDS, CALENDAR_NAME, Calendar, parse_calendar
from scheduler.core.identity import is_lane
from scheduler.core.policy import DEFAULT_RULES
from scheduler.core.problem import Problem
from scheduler.core.time import FIRST_BELIEVED, LAST_BELIEVED, format_instant, parse_instant
from topics.catalog import MAX_LANES
from topics.messages import TENANT_PATTERN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_GRACE_MS: Final = 86_400_000
MAX_CATCH_UP_PER_S: Final = 100_000
_TOP: Final = ("from", "until", "title", "description", "settings", "tenants", "steps")
_KINDS: Final = ("command", "calendar", "outage_until", "clock_step_ms")
_TENANT: Final = re.compile(TENANT_PATTERN)


class ScenarioInvalid(ValueError):
    """The scenario can't be run. `problems` holds every mistake, in the order of the scenario."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        title = "the scenario has a mistake" if count == 1 else f"the scenario has {count} mistakes"
        lines = [f"  {p.field or 'scenario'}: {_marked(p)}" for p in self.problems]
        super().__init__("\n".join([f"{title}:", *lines]))

    def __reduce__(self) -> tuple[type[ScenarioInvalid], tuple[tuple[Problem, ...]]]:
        """Crosses a process boundary whole."""
        return (ScenarioInvalid, (self.problems,))


def _marked(problem: Problem) -> str:
    return problem.message if problem.code == "bad_field" else f"{problem.code}: {problem.message}"


@dataclass(frozen=True, slots=True)
class CommandStep:
    """A command appended to the topic at `at`: its bytes there; schedule id and trigger as they were given."""

    at: int
    value: bytes
    key: bytes | None
    schedule_id: Any
    trigger: Any = None


@dataclass(frozen=True, slots=True)
class CalendarStep:
    """The next version of a calendar is applied; None deletes it."""

    at: int
    name: str
    calendar: Calendar | None


@dataclass(frozen=True, slots=True)
class OutageStep:
    """The node is gone in [at, until)."""

    at: int
    until: int


@dataclass(frozen=True, slots=True)
class ClockStep:
    """The node's wall clock jumps by `step_ms`."""

    at: int
    step_ms: int


Step = CommandStep | CalendarStep | OutageStep | ClockStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A checked scenario; instants in ms, steps in the order they are taken."""

    start: int
    until: int
    title: str = ""
    description: str = ""
    grace_ms: int = DEFAULT_RULES.grace_max_ms
    catch_up_per_s: Mapping[str, float] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    lanes: tuple[str, ...] = ("default",)

    @property
    def outages(self) -> tuple[OutageStep, ...]:
        """When nobody was there, in order."""
        return tuple(step for step in self.steps if isinstance(step, OutageStep))


def parse_scenario(given: object) -> Scenario:
    """The scenario of a decoded JSON object. Raises ScenarioInvalid with every mistake."""
    if not isinstance(given, dict):
        raise ScenarioInvalid([Problem("", "bad_field", "expected an object with from, until and steps")])
    reading = _Reading()
    reading.strangers("", given, _TOP)
    start = reading.instant("from", given.get("from"))
    until = reading.instant("until", given.get("until"))
    if start is not None and until is not None and until < start:
        reading.wrong("until", "lies before from")
        until = None  # a mistake in it says nothing about the steps
    texts = {name: reading.text(name, given.get(name)) for name in ("title", "description")}
    grace_ms = reading.settings(given.get("settings", {}))
    catch_up = reading.tenants(given.get("tenants", {}))
    steps = reading.steps(given.get("steps"), start, until)
    if reading.problems or start is None or until is None:
        raise ScenarioInvalid(reading.problems)
    return Scenario(
        start=start,
        until=until,
        **texts,
        grace_ms=grace_ms,
        catch_up_per_s=catch_up,
        steps=tuple(steps),
        lanes=_lanes(given["steps"]),
    )


def _lanes(steps: list[dict[str, Any]]) -> tuple[str, ...]:
    """A scenario has every lane its commands name, as far as one cluster can."""
    found = {"default": None}
    for step in steps:
        command = step.get("command") or {}
        spec = command.get("spec")
        lane = spec.get("lane") if isinstance(spec, dict) else None
        if is_lane(lane) and len(found) < MAX_LANES:
            found[str(lane)] = None
    return tuple(found)


class _Reading:
    """Collects what is wrong while reading."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def wrong(self, where: str, message: str, code: str = "bad_field") -> None:
        self.problems.append(Problem(where, code, message))

    def strangers(self, where: str, given: dict[str, Any], known: Sequence[str]) -> None:
        for name in given:
            path = f"{where}.{name}" if where else str(name)
            if name == "workers":
                self.wrong(path, "there are no leases yet, so nothing a worker could do matters", "not_supported")
            elif name not in known:
                self.wrong(str(path)[:120], f"unknown; the fields here are {', '.join(known)}")

    def text(self, where: str, given: object) -> str:
        if given is None:
            return ""
        if not isinstance(given, str) or not given.isprintable():
            self.wrong(where, "expected text on one line")
            return ""
        return given

    def instant(self, where: str, given: object) -> int | None:
        if not isinstance(given, str):
            missing = "missing; " if given is None else ""
            self.wrong(where, f"{missing}expected an instant such as '2026-01-01T09:00:00Z'")
            return None
        try:
            found = parse_instant(given)
        except ValueError as fault:
            self.wrong(where, str(fault))
            return None
        if not FIRST_BELIEVED <= found <= LAST_BELIEVED:
            self.wrong(where, f"{given} lies outside the years 2020 to 2100, of which no clock is believed")
            return None
        return found

    def settings(self, given: object) -> int:
        default = DEFAULT_RULES.grace_max_ms
        if not isinstance(given, dict):
            self.wrong("settings", 'expected an object such as {"grace_ms": 60000}')
            return default
        self.strangers("settings", given, ("grace_ms",))
        grace = given.get("grace_ms", default)
        if type(grace) is not int or not 0 <= grace <= MAX_GRACE_MS:
            self.wrong("settings.grace_ms", f"expected a whole number from 0 to {MAX_GRACE_MS}")
            return default
        return grace

    def tenants(self, given: object) -> dict[str, float]:
        found: dict[str, float] = {}
        if not isinstance(given, dict):
            self.wrong("tenants", 'expected an object such as {"acme": {"catch_up_per_s": 5}}')
            return found
        for name, fields in given.items():
            where = f"tenants.{str(name)[:60]}"
            if not isinstance(name, str) or not _TENANT.fullmatch(name):
                self.wrong(where, "a tenant is 1 to 40 of a-z, 0-9 and '-', not beginning with '-'")
            if not isinstance(fields, dict):
                self.wrong(where, 'expected an object such as {"catch_up_per_s": 5}')
                continue
            self.strangers(where, fields, ("catch_up_per_s",))
            if "catch_up_per_s" not in fields:
                continue
            rate: Any = fields["catch_up_per_s"]
            if type(rate) not in (int, float) or not 0 < rate <= MAX_CATCH_UP_PER_S:
                self.wrong(f"{where}.catch_up_per_s", f"expected a number above 0, at most {MAX_CATCH_UP_PER_S}")
                continue
            found[name] = rate
        return found

    # --- steps

    def steps(self, given: object, start: int | None, until: int | None) -> list[Step]:
        if not isinstance(given, list):
            self.wrong("steps", ("missing; " if given is None else "") + "expected a list of steps")
            return []
        found = []
        for index, fields in enumerate(given):
            where = f"steps[{index}]"
            step = self.step(where, fields)
            if step is None:
                continue
            if start is not None and step.at < start:
                self.wrong(f"{where}.at", f"lies before from ({format_instant(start)})")
            if until is not None and step.at > until:
                self.wrong(f"{where}.at", f"lies after until ({format_instant(until)})")
            found.append((index, step))
        found.sort(key=lambda item: item[1].at)
        self._overlaps(found)
        return [step for _, step in found]

    def step(self, where: str, given: object) -> Step | None:
        if not isinstance(given, dict):
            self.wrong(where, f"expected an object with at and one of {', '.join(_KINDS)}")
            return None
        self.strangers(where, given, ("at", *_KINDS, "note"))
        at = self.instant(f"{where}.at", given.get("at"))
        self.text(f"{where}.note", given.get("note"))
        kinds = [kind for kind in _KINDS if kind in given]
        if len(kinds) != 1:
            self.wrong(where, f"expected one of {', '.join(_KINDS)}, found {' and '.join(kinds) or 'none'}")
        before = len(self.problems)
        read = {
            "command": self._command,
            "calendar": self._calendar,
            "outage_until": self._outage,
            "clock_step_ms": self._clock,
        }
        made = [read[kind](f"{where}.{kind}", at, given[kind]) for kind in kinds]
        return None if at is None or len(made) != 1 or len(self.problems) > before else made[0]

    def _command(self, where: str, at: int | None, given: object) -> Step | None:
        if not isinstance(given, dict):
            self.wrong(where, 'expected a command such as {"command": "pause", "schedule_id": "acme/report"}')
            return None
        try:
            value = msgspec.json.encode(given)
        except (TypeError, ValueError, RecursionError) as fault:
            self.wrong(where, f"can't be written as JSON: {fault}")
            return None
        name, spec = given.get("schedule_id"), given.get("spec")
        trigger = spec.get("trigger") if isinstance(spec, dict) else None
        return CommandStep(at or 0, value, name.encode() if isinstance(name, str) else None, name, trigger)

    def _calendar(self, where: str, at: int | None, given: object) -> Step | None:
        name = given.get("name") if isinstance(given, dict) else None
        if not isinstance(given, dict) or not isinstance(name, str) or not CALENDAR_NAME.fullmatch(name):
            self.wrong(where, 'expected a calendar such as {"name": "office", "working_days": ["MON", "TUE"]}')
            return None
        if given.get("deleted") is True:
            self.strangers(where, given, ("name", "deleted"))
            return CalendarStep(at or 0, name, None)
        known = tuple(field for field in CALENDAR_FIELDS if field != "version")
        self.strangers(where, given, (*known, "description"))
        parsed = parse_calendar({field: value for field, value in given.items() if field in known})
        for problem in parsed.problems:
            self.wrong(f"{where}.{problem.field.removeprefix('calendar.')}", problem.message)
        return None if parsed.calendar is None else CalendarStep(at or 0, name, parsed.calendar)

    def _outage(self, where: str, at: int | None, given: object) -> Step | None:
        until = self.instant(where, given)
        if until is None or at is None:
            return None
        if until <= at:
            self.wrong(where, "must be later than at")
        return OutageStep(at, until)

    def _clock(self, where: str, at: int | None, given: object) -> Step | None:
        if type(given) is not int or given == 0:
            self.wrong(where, "expected a whole number of milliseconds that is not 0, such as -5000")
            return None
        return ClockStep(at or 0, given)

    def _overlaps(self, steps: Sequence[tuple[int, Step]]) -> None:
        gone_until, by = 0, 0
        for index, step in steps:
            if isinstance(step, OutageStep):
                if step.at < gone_until:
                    self.wrong(f"steps[{index}].at", f"the outage of steps[{by}] is not over yet")
                gone_until, by = max(gone_until, step.until), index
