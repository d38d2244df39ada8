"""A command's fields, read and checked: all mistakes at once, unknown fields as warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from scheduler.core.fields import FLAG, INSTANT, Check, text, whole
from scheduler.core.identity import is_command_id, schedule_id_fault
from scheduler.core.problem import Problem
from scheduler.core.spec import MAX_PAYLOAD_BYTES
from scheduler.core.time import parse_instant

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_PROBLEMS = 20
MAX_PREVIEW = 1000
VERBS = (
    "create", "update", "pause", "resume", "cancel", "delete", "trigger", "preview", "backfill", "cancel-backfill",
)  # fmt: skip
LATER_VERBS = ("replay", "submit-run", "cancel-run", "retry-run")


class Command(Struct, frozen=True, kw_only=True, gc=False):
    """What was asked. `spec` holds the definition's fields as given (payload as bytes); None when there was none."""

    verb: str
    schedule_id: str
    command_id: str
    expected_revision: int | None = None
    actor: str | None = None
    reason: str | None = None
    reply_to: str | None = None
    preview: int = 0
    dry_run: bool = False
    effective_from: int | None = None
    spec: Mapping[str, object] | None = None
    catch_up: bool = False
    supersede: bool = False
    payload: bytes | None = None
    since: int | None = None  # `from` on the wire
    until: int | None = None
    only_missing: bool = True
    per_s: int | None = None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


CHECKS: Mapping[str, Check] = {
    "command_id": Check(is_command_id, "1 to 64 of A-Z, a-z, 0-9 and '._-'"),
    "expected_revision": whole(1, 2**53),
    "actor": text(200),
    "reason": text(2000),
    "reply_to": text(249),
    "preview": whole(0, MAX_PREVIEW),
    "dry_run": FLAG,
    "catch_up": FLAG,
    "supersede": FLAG,
    "spec": Check(lambda given: isinstance(given, dict), "an object"),
    "payload": Check(
        lambda given: isinstance(given, bytes) and len(given) <= MAX_PAYLOAD_BYTES,
        f"at most {MAX_PAYLOAD_BYTES} bytes of JSON: put the data elsewhere and pass a reference",
    ),
    "only_missing": FLAG,
    "per_s": whole(1, 1_000_000),
}
_ADDRESS = frozenset({"command", "schedule_id"})  # without which it is no command
INSTANTS = frozenset({"effective_from", "from", "until"})


def parse_command(fields: Mapping[str, object], *, default_id: str) -> Command:
    """Read one command. `default_id` (`<partition>-<offset>`) names it if its producer did not.

    Never raises: what is wrong is in `problems`, and the other fields then hold what could be read.
    """
    values: dict[str, Any] = {"verb": "", "schedule_id": "", "command_id": default_id}
    problems: list[Problem] = []
    warnings: list[Problem] = []
    for name, given in fields.items():
        if name in _ADDRESS:
            continue
        check = CHECKS.get(name)
        if check is not None:
            if given is None:
                continue
            if check.holds(given):
                values[name] = given
            else:
                problems.append(Problem(name, "bad_field", f"expected {check.expected}"))
        elif name in INSTANTS:
            if given is not None:
                _take_instant(name, given, values, problems)
        else:
            shown = name[:80]
            warnings.append(Problem(shown, "unknown_field", f"no field of a command is called {shown!r}; ignored"))
    _take_verb(fields, values, problems)
    schedule_id = fields.get("schedule_id")
    if isinstance(schedule_id, str):
        values["schedule_id"] = schedule_id
    fault = schedule_id_fault(schedule_id)
    if fault is not None:
        problems.append(Problem("schedule_id", "bad_field", fault))
    if "from" in values:
        values["since"] = values.pop("from")
    if values["verb"] == "backfill":
        _check_range(fields, values, problems)
    if problems:
        values["problems"] = tuple(problems[:MAX_PROBLEMS])
    if warnings:
        values["warnings"] = tuple(warnings[:MAX_PROBLEMS])
    return Command(**values)


def _take_verb(fields: Mapping[str, object], values: dict[str, Any], problems: list[Problem]) -> None:
    verb = fields.get("command")
    if isinstance(verb, str) and verb in VERBS:
        values["verb"] = verb
        if verb in ("create", "update") and fields.get("spec") is None:
            problems.append(Problem("spec", "bad_field", f"missing; {verb} says in spec what to run and when"))
        return
    code = "not_supported" if verb in LATER_VERBS else "bad_field"
    shown = repr(verb[:40]) if isinstance(verb, str) else "nothing" if verb is None else "something that is no text"
    problems.append(Problem("command", code, f"expected one of {', '.join(VERBS)}; got {shown}"))


def _check_range(fields: Mapping[str, object], values: Mapping[str, Any], problems: list[Problem]) -> None:
    problems += [
        Problem(name, "bad_field", "missing; a backfill runs the nominals in [from, until)")
        for name in ("from", "until")
        if fields.get(name) is None
    ]
    since, until = values.get("since"), values.get("until")
    if since is not None and until is not None and since >= until:
        problems.append(Problem("until", "bad_field", "must be later than from: it is the first that is left out"))


def _take_instant(name: str, given: object, values: dict[str, Any], problems: list[Problem]) -> None:
    if not isinstance(given, str):
        problems.append(Problem(name, "bad_field", f"expected {INSTANT}"))
        return
    try:
        values[name] = parse_instant(given)
    except ValueError as fault:
        problems.append(Problem(name, "bad_field", str(fault)))
