"""A definition's fields, read and checked: all mistakes at once, each with what was expected.

`FIELDS` is the one table of what a spec may say; the parser, the update rule and the reference are made from it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, cast

from msgspec import Struct
from msgspec.structs import replace

from scheduler.core.calendars import NO_CALENDARS, Calendars, bare, under_newest
from scheduler.core.fields import INSTANT, Check, text, whole
from scheduler.core.identity import is_lane
from scheduler.core.model import (
    DAY_MS,
    DEFAULT_MAX_LATENESS_MS,
    PRIORITY_BY_NAME,
    PRIORITY_NAMES,
    Misfire,
    MisfireKind,
    Spec,
)
from scheduler.core.problem import Problem
from scheduler.core.time import MAX_MS, parse_instant
from scheduler.core.trigger import Every, parse_trigger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_PAYLOAD_BYTES = 64 * 1024
MAX_CATCH_UP = 10_000
MAX_DURATION_MS = 366 * DAY_MS
MAX_LABELS = 32


class Refused(ValueError):
    """A value that a field can't take; the text says what was expected."""

    def __init__(self, message: str, code: str = "bad_field") -> None:
        super().__init__(message)
        self.code = code


class Template(Protocol):
    """Definitions may say by an attribute `template` that all with the same one differ in their payloads alone."""

    fields: dict[str, object]

    def __hash__(self) -> int:
        """It is a cache's key."""


class SpecContext(Struct, frozen=True, gc=False):
    """What a definition's meaning depends on besides its own text."""

    schedule_id: str | None
    effective_at: int
    previous: Spec | None = None
    calendars: Calendars = NO_CALENDARS


class ParsedSpec(Struct, frozen=True, gc=False):
    """`spec` is None exactly when there are problems."""

    spec: Spec | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def parse_spec(fields: Mapping[str, object], context: SpecContext) -> ParsedSpec:
    """A whole definition (no previous), or the previous one with the named fields replaced; null means the default."""
    template: Template | None = getattr(fields, "template", None)
    if template is not None and context.previous is None:
        shared = shared_by_all(template)
        if shared is not None and shared.spec is not None:
            try:
                payload = _payload(fields["payload"]) if "payload" in fields else None
            except Refused:
                return _read(fields, context)
            return shared if payload is None else replace(shared, spec=replace(shared.spec, payload=payload))
    return _read(fields, context)


@lru_cache(maxsize=4096)
def shared_by_all(template: Template) -> ParsedSpec | None:
    """The definition of a template if it is good and the same in every context; else None."""
    fields = {name: given for name, given in template.fields.items() if name != "payload"}
    # Without an id no expression that hashes one is good, and after all time none that names years.
    parsed = _read(fields, SpecContext(None, MAX_MS))
    spec = parsed.spec
    is_same = spec is not None and spec.calendar is None and not isinstance(spec.trigger, Every)
    return parsed if is_same else None


def _read(fields: Mapping[str, object], context: SpecContext) -> ParsedSpec:
    problems: list[Problem] = []
    warnings: list[Problem] = []
    values: dict[str, object] = {}
    for name, given in fields.items():
        read = FIELDS.get(name)
        if name == "trigger":
            _trigger(given, context, values, problems, warnings)
        elif read is None:
            warnings.append(Problem(f"spec.{name}", "unknown_field", f"no field of a spec is called {name!r}; ignored"))
        elif given is None and name != "max_lateness_ms":
            values[name] = _DEFAULTS[name]
        else:
            try:
                values[name] = read(given)
            except Refused as refused:
                problems.append(Problem(f"spec.{name}", refused.code, str(refused)))
    if "max_lateness_ms" in values:
        values["lateness_given"] = True
    if context.previous is None and "trigger" not in fields:
        problems.append(
            Problem("spec.trigger", "bad_field", 'missing; expected for example {"cron": "0 9 * * 1-5", "zone": "UTC"}')
        )
    if problems:
        return ParsedSpec(None, tuple(problems), tuple(warnings))
    spec = (
        Spec(**values)  # type: ignore[arg-type] # each reader of FIELDS returns its field's type
        if context.previous is None
        else replace(context.previous, **values)
    )
    if spec.lateness_given and spec.max_lateness_ms == DEFAULT_MAX_LATENESS_MS and spec.misfire.kind != "skip":
        spec = replace(spec, lateness_given=False)
    problems += _contradictions(spec)
    if spec.calendar is not None or (context.previous is not None and context.previous.calendar is not None):
        spec = _under_calendar(spec, context.calendars, problems)
    return ParsedSpec(None if problems else spec, tuple(problems), tuple(warnings))


def _trigger(
    given: object,
    context: SpecContext,
    values: dict[str, object],
    problems: list[Problem],
    warnings: list[Problem],
) -> None:
    parsed = parse_trigger(given, schedule_id=context.schedule_id, effective_at=context.effective_at)
    problems.extend(parsed.problems)
    warnings.extend(parsed.warnings)
    trigger = parsed.trigger
    if isinstance(trigger, Every) and isinstance(given, dict) and given.get("anchor") is None:
        # No anchor given: the same period applied again is the same rule and keeps its grid.
        before = bare(context.previous.trigger) if context.previous else None
        if isinstance(before, Every) and before.every_ms == trigger.every_ms:
            trigger = before
    values["trigger"] = trigger


def _under_calendar(spec: Spec, calendars: Calendars, problems: list[Problem]) -> Spec:
    """The definition by the newest version of its calendar, or by none if it names none any more."""
    if spec.calendar is None:
        return replace(spec, trigger=bare(spec.trigger))
    trigger = under_newest(spec.trigger, spec.calendar, spec.roll, calendars)
    if isinstance(trigger, Problem):
        problems.append(trigger)
        return spec
    return replace(spec, trigger=trigger)


def _contradictions(spec: Spec) -> list[Problem]:
    found = []
    if spec.start is not None and spec.end is not None and spec.end <= spec.start:
        found.append(Problem("spec.end", "bad_field", "must be later than start (start is inclusive, end exclusive)"))
    if spec.roll != "skip" and spec.calendar is None:
        found.append(Problem("spec.roll", "bad_field", "needs a calendar: roll says where its free days move a run to"))
    if spec.retry is not None and spec.tracking != "lease":
        found.append(Problem("spec.retry", "not_supported", "retries need tracking: lease; leave retry out"))
    return found


def _instant(given: object) -> int:
    if not isinstance(given, str):
        raise Refused(f"expected {INSTANT}, got {_kind(given)}")
    try:
        return parse_instant(given)
    except ValueError as fault:
        raise Refused(str(fault)) from None


def _choice(*choices: str) -> Callable[[object], str]:
    def read(given: object) -> str:
        if given not in choices or not isinstance(given, str):
            raise Refused(f"expected {' | '.join(choices)}, got {_shown(given)}")
        return given

    return read


def _only(choice: str, *later: str) -> Callable[[object], str]:
    """A field of which only one choice works so far; the others are known and refused by name."""

    def read(given: object) -> str:
        if given in later:
            raise Refused(f"{given!r} is not supported by this version; use {choice!r}", "not_supported")
        return _choice(choice, *later)(given)

    return read


def _whole(least: int, most: int) -> Callable[[object], int]:
    check = whole(least, most)

    def read(given: object) -> int:
        return cast("int", _checked(check, given))

    return read


def _text(most: int) -> Callable[[object], object]:
    check = text(most)
    return lambda given: _checked(check, given)


def _checked(check: Check, given: object) -> object:
    if not check.holds(given):
        raise Refused(f"expected {check.expected}, got {_shown(given)}")
    return given


def _priority(given: object) -> object:
    if not isinstance(given, str) or given not in PRIORITY_BY_NAME:
        raise Refused(f"expected {' | '.join(PRIORITY_NAMES)}, got {_shown(given)}")
    return PRIORITY_BY_NAME[given]


def _lane(given: object) -> str:
    if not is_lane(given):
        raise Refused(f"expected 1 to 40 of a-z, 0-9 and '-', got {_shown(given)}")
    return str(given)


def _misfire(given: object) -> Misfire:
    if given == "fire_once":
        return Misfire()
    if given == "skip":
        return Misfire(MisfireKind.SKIP)
    if isinstance(given, dict) and set(given) == {"catch_up"}:
        newest = given["catch_up"]
        if type(newest) is int and 1 <= newest <= MAX_CATCH_UP:
            return Misfire(MisfireKind.CATCH_UP, newest)
    raise Refused(f'expected "fire_once", "skip" or {{"catch_up": 1 to {MAX_CATCH_UP}}}, got {_shown(given)}')


def _max_lateness(given: object) -> int | None:
    return None if given is None else _whole(1000, 100 * MAX_DURATION_MS)(given)


def _retry(given: object) -> tuple[int, int, int]:
    bounds = {"max_attempts": (5, 1, 100), "base_ms": (1000, 1, DAY_MS), "cap_ms": (300_000, 1, 7 * DAY_MS)}
    if not isinstance(given, dict) or set(given) - set(bounds):
        raise Refused(f"expected an object of {', '.join(bounds)}, got {_shown(given)}")
    attempts, base, cap = (_whole(low, high)(given.get(name, usual)) for name, (usual, low, high) in bounds.items())
    return attempts, base, cap


def _payload(given: object) -> bytes | None:
    if given == b"null":  # the producer's bytes of a JSON null: no payload
        return None
    if not isinstance(given, bytes):
        raise Refused("expected the payload's JSON bytes")
    if len(given) > MAX_PAYLOAD_BYTES:
        raise Refused(f"{len(given)} bytes; at most {MAX_PAYLOAD_BYTES}: put the data elsewhere and pass a reference")
    return given


def _labels(given: object) -> tuple[tuple[str, str], ...]:
    if (
        not isinstance(given, dict)
        or len(given) > MAX_LABELS
        or not all(isinstance(v, str) and 1 <= len(k) <= 63 and len(v) <= 256 for k, v in given.items())
    ):
        raise Refused(f"expected an object of at most {MAX_LABELS} texts (names 1 to 63, values to 256 characters)")
    return tuple(sorted(given.items()))


def _kind(given: object) -> str:
    return {str: "text", bool: "true or false", dict: "an object", list: "a list", type(None): "null"}.get(
        type(given), "a number"
    )


def _shown(given: object) -> str:
    return (
        repr(given[:60]) if isinstance(given, str) else _kind(given) if isinstance(given, dict | list) else str(given)
    )


FIELDS: Mapping[str, Callable[[object], object]] = {
    "trigger": lambda given: given,  # read by _trigger, which needs the context
    "start": _instant,
    "end": _instant,
    "calendar": _text(100),
    "roll": _choice("skip", "next", "previous"),
    "priority": _priority,
    "lane": _lane,
    "window_ms": _whole(0, MAX_DURATION_MS),
    "misfire": _misfire,
    "max_lateness_ms": _max_lateness,
    "overlap": _only("allow", "skip_if_running", "queue_one"),
    "tracking": _only("none", "lease"),
    "retry": _retry,
    "timeout_ms": _whole(1, MAX_DURATION_MS),
    "deadline_ms": _whole(1, MAX_DURATION_MS),
    "handler": _text(200),
    "payload": _payload,
    "labels": _labels,
    "owner": _text(200),
    "description": _text(4000),
    "impact": _text(4000),
    "runbook": _text(2000),
}

_USUAL = Spec(trigger=Every(1000, 0))
_DEFAULTS: Mapping[str, object] = {name: getattr(_USUAL, name) for name in FIELDS if name != "trigger"}


def changed_fields(before: Spec, after: Spec) -> tuple[str, ...]:
    """The names of the fields in which two definitions differ."""
    return tuple(name for name in FIELDS if getattr(before, name) != getattr(after, name))
