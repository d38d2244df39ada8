"""Triggers: the time rule of a schedule as an immutable value, and the parser that makes one from its wire form.

One calculator serves preview, firing, catch-up, backfill and reconciliation, so all of it hangs on the six questions
of `Trigger`. A trigger knows nothing of `start`, `end`, jitter or policies.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from scheduler.core import walk
from scheduler.core.cron import Cron, compile_cron, parse_rate, seed_of
from scheduler.core.problem import Problem
from scheduler.core.protocol import Parsed, Trigger
from scheduler.core.time import MAX_MS, MIN_MS, format_instant, format_local, parse_instant, parse_local
from scheduler.core.zones import Zone, find_zone, unknown_zone, zone_warnings

__all__ = ("Every", "Once", "Parsed", "Trigger", "parse_trigger")

Spec = dict[str, Any]

_LEAST_EVERY_MS: Final = 1000
_TEXT_OR_NONE: Final = frozenset({str, type(None)}).__contains__
_TEXTS: Final = (("cron", "0 9 * * MON-FRI"), ("zone", "UTC"), ("dialect", "unix"), ("gap", "skip"), ("fold", "auto"))
_TWO_DAYS: Final = 2 * 86_400
_EXAMPLE: Final = '{"cron": "0 9 * * MON-FRI", "zone": "Europe/Paris"}'
_LOCAL_EXAMPLE: Final = "2026-03-08T09:30:00"


@dataclass(frozen=True, slots=True)
class Once:
    """One instant. Given as local time it keeps how it was written, so that newer zone tables can re-plan it."""

    at: int
    local: str | None = None
    zone: str | None = None
    fold: str | None = None

    def next_after(self, t: int) -> int | None:
        """See `Trigger.next_after`."""
        return self.at if self.at > t else None

    def prev_before(self, t: int) -> int | None:
        """See `Trigger.prev_before`."""
        return self.at if self.at < t else None

    def count_between(self, a: int, b: int) -> int:
        """See `Trigger.count_between`."""
        return int(a < self.at <= b)

    def between(self, a: int, b: int, limit: int) -> list[int]:
        """See `Trigger.between`."""
        return walk.forwards(self, a, b, limit)

    def newest_before(self, t: int, k: int, after: int) -> list[int]:
        """See `Trigger.newest_before`."""
        return walk.backwards(self, t, k, after)

    def to_wire(self) -> dict[str, object]:
        """See `Trigger.to_wire`."""
        if self.local is None:
            return {"at": format_instant(self.at)}
        wire: dict[str, object] = {"at_local": self.local, "zone": self.zone}
        return wire if self.fold is None else wire | {"fold": self.fold}


@dataclass(frozen=True, slots=True)
class Every:
    """Elapsed time on the grid `anchor + k * every_ms`, k >= 0: no drift, blind to clock changes."""

    every_ms: int
    anchor: int

    def next_after(self, t: int) -> int | None:
        """See `Trigger.next_after`."""
        if t < self.anchor:
            return self.anchor
        at = t - (t - self.anchor) % self.every_ms + self.every_ms
        return at if at <= MAX_MS else None

    def prev_before(self, t: int) -> int | None:
        """See `Trigger.prev_before`."""
        if t <= self.anchor:
            return None
        last = min(t - 1, MAX_MS)
        return last - (last - self.anchor) % self.every_ms

    def count_between(self, a: int, b: int) -> int:
        """See `Trigger.count_between`."""
        return max(0, self._up_to(b) - self._up_to(a))

    def _up_to(self, t: int) -> int:
        return 0 if t < self.anchor else (min(t, MAX_MS) - self.anchor) // self.every_ms + 1

    def between(self, a: int, b: int, limit: int) -> list[int]:
        """See `Trigger.between`."""
        return walk.forwards(self, a, b, limit)

    def newest_before(self, t: int, k: int, after: int) -> list[int]:
        """See `Trigger.newest_before`."""
        return walk.backwards(self, t, k, after)

    def to_wire(self) -> dict[str, object]:
        """See `Trigger.to_wire`."""
        return {"every_ms": self.every_ms, "anchor": format_instant(self.anchor)}


def parse_trigger(spec: object, *, schedule_id: str | None, effective_at: int) -> Parsed:
    """The trigger a decoded JSON object describes. Never raises; all problems at once.

    Forms: `{"at"}`, `{"at_local","zone","fold"?}`, `{"cron","zone","dialect"?,"gap"?,"fold"?}`,
    `{"every_ms","anchor"?}`. A rate without an anchor is anchored at `effective_at` (ms). An expression that names
    years is refused when none of its nominals is later than `effective_at`.
    """
    if not isinstance(spec, dict):
        return Parsed(None, (Problem("", "bad_field", f"a trigger is an object such as {_EXAMPLE}"),))
    form = "cron" if "cron" in spec else next((name for name in _FORMS if name in spec), None)
    if form is None:
        message = f"a trigger has one of {', '.join(_FORMS)}, for example {_EXAMPLE}"
        return Parsed(None, (Problem("", "bad_field", message),))
    parsed = _FORMS[form](spec, schedule_id, effective_at)
    return parsed if spec.keys() <= _FIELDS[form] else _with_strangers(spec, form, parsed)


def _with_strangers(spec: Spec, form: str, parsed: Parsed) -> Parsed:
    """The result for an object that holds fields its form does not have."""
    problems, warnings = parsed.problems, parsed.warnings
    for name in spec.keys() - _FIELDS[form]:
        if name in _FORMS:
            message = f"{name}: a trigger has only one of {', '.join(_FORMS)}, and this one has {form}"
            problems += (Problem(name, "bad_field", message),)
        else:
            shown = str(name)[:40]
            message = f"{shown!r} is not a field of a {form} trigger and is ignored"
            warnings += (Problem(shown, "unknown_field", message),)
    return Parsed(None if problems else parsed.trigger, problems, warnings)


def _at(spec: Spec, _schedule_id: str | None, _effective_at: int) -> Parsed:
    at = _instant("at", spec["at"])
    return Parsed(None, (at,)) if isinstance(at, Problem) else Parsed(Once(at))


def _every(spec: Spec, _schedule_id: str | None, effective_at: int) -> Parsed:
    every_ms, anchor = spec["every_ms"], spec.get("anchor")
    problems = []
    if not isinstance(every_ms, int) or isinstance(every_ms, bool) or not _LEAST_EVERY_MS <= every_ms <= MAX_MS:
        allowed = f"a whole number of milliseconds from {_LEAST_EVERY_MS} to {MAX_MS}, for example 600000"
        message = f"every_ms: {every_ms!r:.40} is not {allowed}"
        problems.append(Problem("every_ms", "bad_field", message))
    at = effective_at if anchor is None else _instant("anchor", anchor)
    if isinstance(at, Problem):
        problems.append(at)
    if problems or isinstance(at, Problem):
        return Parsed(None, tuple(problems))
    return Parsed(Every(every_ms, at))


def _cron(spec: Spec, schedule_id: str | None, effective_at: int) -> Parsed:
    get = spec.get
    asked = (spec["cron"], get("zone"), get("dialect"), get("gap"), get("fold"))
    expr, zone, dialect, gap, fold = asked
    if not all(map(_TEXT_OR_NONE, map(type, asked))) or expr is None or zone is None:
        return Parsed(None, _mistyped(asked))
    if dialect == "aws" and (rate := parse_rate(expr)) is not None:
        return Parsed(None, (rate,)) if isinstance(rate, Problem) else Parsed(Every(rate, effective_at))
    parsed = compile_cron(
        expr,
        zone,
        "unix" if dialect is None else dialect,
        "skip" if gap is None else gap,
        "auto" if fold is None else fold,
        seed_of(expr, schedule_id),
    )
    cron = cast("Cron | None", parsed.trigger)
    if cron is not None and cron.search.wall.bounded and cron.next_after(effective_at) is None:
        message = f"{expr!r} never fires after {format_instant(effective_at)}: its years are over"
        return Parsed(None, (Problem("year", "never_fires", message),), parsed.warnings)
    return parsed


def _mistyped(asked: tuple[object, ...]) -> tuple[Problem, ...]:
    problems = [
        Problem(name, "bad_field", f"{name}: {value!r:.40} is not text such as {example}")
        for (name, example), value in zip(_TEXTS, asked, strict=True)
        if name != "zone" and not isinstance(value, str) and (name == "cron" or value is not None)
    ]
    if not isinstance(asked[1], str):
        problems.append(unknown_zone(asked[1]))
    return tuple(problems)


def _at_local(spec: Spec, _schedule_id: str | None, _effective_at: int) -> Parsed:
    text, zone_name, fold = spec["at_local"], spec.get("zone"), spec.get("fold")
    problems = []
    zone = find_zone(zone_name) if isinstance(zone_name, str) else None
    if zone is None or not isinstance(zone_name, str):
        problems.append(unknown_zone(zone_name))
    if fold not in (None, "first", "last"):
        problems.append(Problem("fold", "bad_field", f"fold: {fold!r:.40} is not one of first, last"))
    try:
        local_ms = parse_local(text) if isinstance(text, str) else None
    except ValueError as error:
        problems.append(Problem("at_local", "bad_field", f"at_local: {error}"))
        local_ms = None
    if not isinstance(text, str):
        problems.append(Problem("at_local", "bad_field", f"at_local: {text!r:.40} is not text like {_LOCAL_EXAMPLE}"))
    if problems or zone is None or local_ms is None:
        return Parsed(None, tuple(problems))
    second, fraction = divmod(local_ms, 1000)
    instants = [at * 1000 + fraction for at in zone.instants_of(second)]
    if not instants:
        return Parsed(None, (_gap_problem(zone, second, text),))
    if len(instants) > 1 and fold is None:
        both = " and ".join(format_instant(at) for at in instants)
        message = f"fold: {text} comes twice in {zone.name}, at {both}; say which with fold: first or last"
        return Parsed(None, (Problem("fold", "fold", message),))
    at = instants[-1 if fold == "last" else 0]
    if not MIN_MS <= at <= MAX_MS:
        return Parsed(None, (Problem("at_local", "bad_field", f"at_local: {text} is outside the years 1 to 9999 UTC"),))
    return Parsed(Once(at, text, zone.name, fold), (), zone_warnings(zone.name))


def _gap_problem(zone: Zone, local: int, text: str) -> Problem:
    for start, before, after in zone.gaps(local - _TWO_DAYS, local + _TWO_DAYS):
        if start + before <= local < start + after:
            left, right = start + before, start + after
            message = (
                f"at_local: {text} does not exist in {zone.name}: the clock goes from {format_local(left)} to "
                f"{format_local(right)}; the nearest times that exist are {format_local(left - 1)} "
                f"({format_instant((start - 1) * 1000)}) and {format_local(right)} ({format_instant(start * 1000)})"
            )
            return Problem("at_local", "gap", message)
    raise AssertionError(f"{text} has no instant in {zone.name} and no gap holds it")


def _instant(field: str, value: object) -> int | Problem:
    try:
        if isinstance(value, str):
            return parse_instant(value)
    except ValueError as error:
        return Problem(field, "bad_field", f"{field}: {error}")
    return Problem(field, "bad_field", f"{field}: {value!r:.40} is not text like 2026-03-08T07:30:00Z")


_FORMS: Final[dict[str, Callable[[Spec, str | None, int], Parsed]]] = {
    "cron": _cron,
    "every_ms": _every,
    "at": _at,
    "at_local": _at_local,
}
_FIELDS: Final = {
    "cron": {"cron", "zone", "dialect", "gap", "fold"},
    "every_ms": {"every_ms", "anchor"},
    "at": {"at"},
    "at_local": {"at_local", "zone", "fold"},
}
