"""One question about time as a JSON object, one answer as a JSON object: the contract of `scheduler next --batch`.

in:  `{"id", "dialect"?, "schedule_id"?, "expr" | "every_ms" (+ "anchor") | "at_local" | "at", "zone", "start",
     "count"?, "until"? (inclusive), "gap"?, "fold"?, "calendar"?, "roll"?}`;
     neither `count` nor `until` = 1; `until` alone = all.
out: `{"id", "fires": [...], "warnings"?}` or `{"id", "error": {"code", "field"?, "message"}}`.

Fires lie strictly after `start`. Beyond `MOST_FIRES` a case is refused with `too_many` before any fire is made.
"""

from functools import lru_cache
from json import dumps, loads
from typing import Any, Final

from scheduler.core.calendar import Calendar, parse_calendar
from scheduler.core.calendared import under_calendar
from scheduler.core.problem import Problem
from scheduler.core.time import MAX_MS, format_instant, parse_instant
from scheduler.core.trigger import Once, Trigger, parse_trigger
from scheduler.core.zones import find_zone, unknown_zone

MOST_FIRES: Final = 1_000_000
_KINDS: Final = ("expr", "every_ms", "at_local", "at")
_KNOWN: Final = frozenset(
    {
        *("id", "dialect", "schedule_id", "expr", "every_ms", "anchor", "at_local", "at", "zone", "start", "count"),
        *("until", "gap", "fold", "calendar", "roll"),
    }
)


def answer(case: object) -> dict[str, object]:
    """The answer to one decoded case. Never raises."""
    if not isinstance(case, dict):
        return refusal(None, (Problem("", "bad_field", "a case is a JSON object with id, expr, zone and start"),))
    identity = case.get("id")
    problems: list[Problem] = []
    start = _instant(case, "start", problems)
    until = _instant(case, "until", problems) if case.get("until") is not None else None
    count = case.get("count")
    if count is not None and (type(count) is not int or count < 1):
        problems.append(Problem("count", "bad_field", f"count: {count!r:.40} is not a whole number >= 1"))
    trigger, warnings = _trigger(case, start, problems)
    if problems or trigger is None:
        return refusal(identity, problems)
    strangers = () if case.keys() <= _KNOWN else tuple(sorted(str(name)[:40] for name in case.keys() - _KNOWN))
    limit = count if count is not None else 1 if until is None else MOST_FIRES
    last = MAX_MS if until is None else until
    if limit > MOST_FIRES or (count is None and until is not None and _exceeds(trigger, start, last)):
        message = f"more than {MOST_FIRES} fires; ask for fewer with count, or for a shorter time with until"
        return refusal(identity, (Problem("count" if count is not None else "until", "too_many", message),))
    if limit == 1:
        first = trigger.next_after(start)
        fires = [] if first is None or first > last else [first]
    else:
        fires = trigger.between(start, last, limit)
    result: dict[str, object] = {"id": identity, "fires": [format_instant(at) for at in fires]}
    if warnings or strangers:
        extra = tuple(Problem(name, "unknown_field", f"{name!r} is not a field of a case") for name in strangers)
        result["warnings"] = [_shown(warning) for warning in warnings + extra]
    return result


def refusal(identity: object, problems: "list[Problem] | tuple[Problem, ...]") -> dict[str, object]:
    """The answer that names what is wrong: the first mistake's code and field, every mistake's sentence."""
    first = problems[0]
    error = _shown(first._replace(message="; ".join(problem.message for problem in problems)))
    return {"id": identity, "error": error}


def _trigger(case: dict[str, Any], start: int, problems: list[Problem]) -> tuple[Trigger | None, tuple[Problem, ...]]:
    """The trigger of a case, under its calendar; what is wrong is added to `problems`."""
    given = [name for name in _KINDS if case.get(name) is not None]
    if len(given) != 1:
        message = f"one of {', '.join(_KINDS)} is needed, found {' and '.join(given) or 'none'}"
        problems.append(Problem("expr", "bad_field", message))
        return None, ()
    kind, zone = given[0], case.get("zone")
    spec: dict[str, Any]
    if kind == "expr":
        spec = {
            "cron": case["expr"],
            "zone": zone,
            "dialect": case.get("dialect"),
            "gap": case.get("gap"),
            "fold": case.get("fold"),
        }
    elif kind == "every_ms":
        spec = {"every_ms": case["every_ms"], "anchor": case.get("anchor")}
    elif kind == "at":
        spec = {"at": case["at"]}
    else:
        fold = case.get("fold")
        # Of the words an expression may say, two do not choose: an ambiguous time is then refused with `fold`.
        spec = {"at_local": case["at_local"], "zone": zone, "fold": None if fold in ("auto", "both") else fold}
    schedule_id = case.get("schedule_id")
    if schedule_id is not None and not isinstance(schedule_id, str):
        problems.append(Problem("schedule_id", "bad_field", f"schedule_id: {schedule_id!r:.40} is not text"))
        schedule_id = None
    parsed = parse_trigger(spec, schedule_id=schedule_id, effective_at=start)
    problems += [problem._replace(field="expr") if problem.field == "cron" else problem for problem in parsed.problems]
    if kind in {"every_ms", "at"} and zone is not None and (not isinstance(zone, str) or find_zone(zone) is None):
        problems.append(unknown_zone(zone))
    trigger = parsed.trigger
    if case.get("calendar") is not None:
        trigger = _on_calendar(case, trigger, start, problems)
    elif case.get("roll") not in (None, "skip"):
        problems.append(Problem("roll", "bad_field", "roll: there is no calendar to roll by"))
    return trigger, parsed.warnings


def _on_calendar(case: dict[str, Any], trigger: Trigger | None, start: int, problems: list[Problem]) -> Trigger | None:
    parsed = _calendar(dumps(case["calendar"], sort_keys=True))
    if not isinstance(parsed, Calendar):
        problems += parsed
        return None
    if trigger is None:
        return None
    zone, roll = case.get("zone", "UTC"), case.get("roll")
    if not isinstance(zone, str):
        zone = "UTC"
    result = under_calendar(trigger, parsed, "skip" if roll is None else roll, zone)
    if isinstance(result, Problem):
        problems.append(result)
        return None
    if not isinstance(trigger, Once) and result.next_after(start) is None and trigger.next_after(start) is not None:
        message = "calendar: under it nothing ever fires: no day the trigger names is a business day"
        problems.append(Problem("calendar", "never_fires", message))
    return result


@lru_cache(maxsize=256)
def _calendar(text: str) -> "Calendar | tuple[Problem, ...]":
    """The calendar of JSON text; cases share few, and a calendar keeps the months it has computed."""
    parsed = parse_calendar(loads(text))
    return parsed.calendar or parsed.problems


def _exceeds(trigger: Trigger, start: int, last: int) -> bool:
    # Fixed calendars of 10,000 years are cheap to count, but a second's worth of fires is not cheap to make.
    return last - start > MOST_FIRES * 1000 and trigger.count_between(start, last) > MOST_FIRES


def _instant(case: dict[str, Any], name: str, problems: list[Problem]) -> int:
    value = case.get(name)
    try:
        if isinstance(value, str):
            return parse_instant(value)
        message = f"{name}: {value!r:.40} is not text like 2026-03-08T07:30:00Z"
    except ValueError as error:
        message = f"{name}: {error}"
    problems.append(Problem(name, "bad_field", message))
    return 0


def _shown(problem: Problem) -> dict[str, object]:
    shown: dict[str, object] = {"code": problem.code}
    if problem.field:
        shown["field"] = problem.field
    shown["message"] = problem.message
    return shown
