"""`scheduler next`: when a rule fires, and why then; for people, for programs, and a file of questions at a time.

A thin shell: the answers are the core's, the same ones by which the scheduler fires.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import date
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from scheduler.cli.common import json_option, now_ms
from scheduler.core.batch import MOST_FIRES, answer, refusal
from scheduler.core.calendar import Calendar, parse_calendar
from scheduler.core.calendared import ROLLS, under_calendar
from scheduler.core.cron import FOLDS, GAPS
from scheduler.core.cron_fields import DIALECTS, WEEKDAYS
from scheduler.core.explain import Note, describe, events_between, local_text, notes_on, zone_of
from scheduler.core.jitter import available_at
from scheduler.core.problem import Problem
from scheduler.core.time import EPOCH_DAY, format_instant, parse_instant, stamp
from scheduler.core.trigger import Trigger, parse_trigger
from scheduler.core.zones import Zone, pin_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK: Final = 1 << 16
_MOST_NOTES: Final = 20
_MOST_A_DAY: Final = 3
_REFUSED: Final = 1


class Refused(click.ClickException):
    """What is wrong with the rule, one line a problem; exit code 1."""

    exit_code = _REFUSED

    def __init__(self, problems: tuple[Problem, ...] | list[Problem]) -> None:
        super().__init__("\n".join(f"{problem.code}: {problem.message}" for problem in problems))
        self.problems = problems


@click.command("next", short_help="Show when an expression fires, and why then.")
@click.argument("expr", required=False)
@click.option("--zone", default="UTC", show_default=True, help="IANA time zone.")
@click.option("--dialect", type=click.Choice(list(DIALECTS)), default="unix", show_default=True)
@click.option("--gap", type=click.Choice(GAPS), default="skip", show_default=True, help="A local time that is missing.")
@click.option("--fold", type=click.Choice(FOLDS), help="A local time that occurs twice. [auto]")
@click.option("--every-ms", type=int, help="Instead of EXPR: a fixed rate.")
@click.option("--anchor", metavar="INSTANT", help="Of --every-ms: a point of its grid. [--after]")
@click.option("--at-local", metavar="TIME", help="Instead of EXPR: once, at a local time of --zone.")
@click.option("--after", metavar="INSTANT", help="Strictly after this instant. [now]")
@click.option("--until", metavar="INSTANT", help="Not after this instant.")
@click.option("--count", type=click.IntRange(1, MOST_FIRES), default=5, show_default=True)
@click.option("--schedule-id", help="What `H` hashes, and --window spreads by.")
@click.option("--calendar", metavar="FILE|JSON", help="Business days: working_days, exclude_dates, holidays, ...")
@click.option("--roll", type=click.Choice(ROLLS), default="skip", show_default=True, help="Days that are not worked.")
@click.option("--window", "window_ms", type=click.IntRange(0), default=0, help="Jitter over this many ms.")
@click.option("--explain", is_flag=True, help="In words, with what each clock change and the calendar do.")
@click.option("--month", metavar="YYYY-MM", help="A month's calendar with what fires on each day.")
@click.option("--batch", is_flag=True, help="JSON lines in, one JSON line out for each, in order.")
@click.option("--reference", is_flag=True, help="Print the syntax reference.")
@json_option
def command(
    expr: str | None,
    *,
    count: int,
    after: str | None,
    until: str | None,
    window_ms: int,
    explain: bool,
    month: str | None,
    batch: bool,
    reference: bool,
    as_json: bool,
    **rule: Any,
) -> None:
    """Show when EXPR fires next, in the words of the clock on the wall.

    \b
    Examples:
      scheduler next '30 2 * * *' --zone America/New_York --after 2026-03-07T12:00:00Z --explain
      scheduler next '0 9 L * *' --calendar '{"working_days": ["MON","TUE","WED","THU","FRI"]}' --roll previous
      scheduler next '0 9 * * MON#1' --zone Europe/Paris --month 2026-06
      scheduler next --batch < cases.jsonl
    """
    pin_tables()
    if reference:
        from scheduler.core.reference import reference as text

        click.echo(text())
        return
    if batch:
        run_batch()
        return
    if rule["roll"] != "skip" and rule["calendar"] is None:
        raise click.UsageError(
            "--roll moves what falls on days that are not worked: say which they are with --calendar"
        )
    start = now_ms() if after is None else _instant("--after", after)
    stop = None if until is None else _instant("--until", until)
    try:
        trigger, warnings = _trigger(expr, rule, start)
    except Refused as refused:
        if as_json:
            click.echo(json.dumps(refusal(None, list(refused.problems))))
            sys.exit(_REFUSED)
        raise
    if month is not None:
        click.echo("\n".join(month_view(trigger, month, rule["zone"])))
        return
    told = _Answer(
        trigger=trigger,
        zone=zone_of(trigger, rule["zone"]),
        fires=list(islice(_fires(trigger, start, stop), count)),
        start=start,
        window_ms=window_ms,
        schedule_id=rule["schedule_id"] or "preview/schedule",
        warnings=warnings,
    )
    for line in (_as_json if as_json else _as_text)(told, explain=explain):
        click.echo(line)


def run_batch() -> None:
    """Answer each line of standard input on standard output; a chunk's answers leave before the next is awaited."""
    import gc

    # Nothing made here refers to itself in a circle, so looking for circles in all that is interned is pure cost.
    gc.disable()
    try:
        _answer_lines(sys.stdin.buffer, sys.stdout.buffer)
    finally:
        gc.enable()


def _answer_lines(source: Any, sink: BinaryIO) -> None:
    """`source` has `read1`, as real and replaced standard input both have and the abstract type lacks."""
    import orjson

    rest = b""
    while True:
        chunk = source.read1(_CHUNK)
        *lines, rest = (rest + chunk).split(b"\n") if chunk else ([rest, b""] if rest else [b""])
        answers = []
        for line in lines:
            try:
                case = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                problem = Problem("", "bad_field", f"not JSON: {error}; each line is one object with id and expr")
                answers.append(orjson.dumps(refusal(None, (problem,))))
            else:
                answers.append(orjson.dumps(answer(case)))
        if answers:
            sink.write(b"\n".join(answers) + b"\n")
            sink.flush()
        if not chunk:
            return


def month_view(trigger: Trigger, month: str, zone_name: str) -> list[str]:
    """A month to look at: weeks as rows, Monday first, each day with its local times, `!` where a clock change acts."""
    try:
        first = date.fromisoformat(f"{month}-01")
    except ValueError:
        raise click.BadParameter(f"{month!r} is not a month such as 2026-03", param_hint="--month") from None
    zone = zone_of(trigger, zone_name)
    start_day = first.toordinal() - EPOCH_DAY
    length = (date(first.year + first.month // 12, first.month % 12 + 1, 1) - first).days
    cells: list[list[str]] = [["", "", "", "", ""] for _ in range(first.weekday())]
    for day in range(start_day, start_day + length):
        low, high = zone.first_from(day * 86_400), zone.first_from((day + 1) * 86_400)
        a, b = low * 1000 - 1, high * 1000 - 1
        total = trigger.count_between(a, b)
        times = [local_text(zone, at)[15:20] for at in trigger.between(a, b, _MOST_A_DAY)]
        if total > _MOST_A_DAY:
            times[-1] = f"+{total - _MOST_A_DAY + 1} more"
        odd = "!" if high - low != 86_400 or any(islice(events_between(trigger, a, b, 1), 1)) else ""
        cells.append([f"{day - start_day + 1:>2}{odd}", *times, *[""] * (_MOST_A_DAY - len(times)), ""])
    cells += [["", "", "", "", ""] for _ in range(-len(cells) % 7)]
    lines = [f"{first:%B %Y}, {zone.name}", "".join(f"{WEEKDAYS[(at + 1) % 7].capitalize():<10}" for at in range(7))]
    for week in range(0, len(cells), 7):
        lines += ["".join(f"{cell[row]:<10}" for cell in cells[week : week + 7]).rstrip() for row in range(5)]
    a = zone.first_from(start_day * 86_400) * 1000 - 1
    b = zone.first_from((start_day + length) * 86_400) * 1000 - 1
    lines += [f"! {note.text}" for note in events_between(trigger, a, b, _MOST_NOTES)]
    return [line for at, line in enumerate(lines) if line or lines[at - 1]]


def _trigger(expr: str | None, rule: dict[str, Any], start: int) -> tuple[Trigger, tuple[Problem, ...]]:
    given = [value for value in (expr, rule["every_ms"], rule["at_local"]) if value is not None]
    if len(given) != 1:
        raise click.UsageError("give one of EXPR, --every-ms or --at-local; for example: scheduler next '0 9 * * MON'")
    spec: dict[str, object]
    if expr is not None:
        spec = {"cron": expr, **{name: rule[name] for name in ("zone", "dialect", "gap", "fold")}}
    elif rule["every_ms"] is not None:
        spec = {"every_ms": rule["every_ms"], "anchor": rule["anchor"]}
    else:
        spec = {"at_local": rule["at_local"], "zone": rule["zone"], "fold": rule["fold"]}
    parsed = parse_trigger(spec, schedule_id=rule["schedule_id"], effective_at=start)
    if parsed.trigger is None:
        raise Refused(parsed.problems)
    if rule["calendar"] is None:
        return parsed.trigger, parsed.warnings
    governed = under_calendar(parsed.trigger, _calendar(rule["calendar"]), rule["roll"], rule["zone"])
    if isinstance(governed, Problem):
        raise Refused([governed])
    return governed, parsed.warnings


def _calendar(text: str) -> Calendar:
    try:
        source = text if text.lstrip().startswith("{") else Path(text).read_text("utf-8")
        parsed = parse_calendar(json.loads(source))
    except (OSError, ValueError) as error:
        message = f"{error}; give a JSON object or the path of a file that holds one"
        raise click.BadParameter(message, param_hint="--calendar") from None
    if parsed.calendar is None:
        raise Refused(parsed.problems)
    return parsed.calendar


def _fires(trigger: Trigger, start: int, stop: int | None) -> Iterator[int]:
    at = trigger.next_after(start)
    while at is not None and (stop is None or at <= stop):
        yield at
        at = trigger.next_after(at)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The fires after `start` (ms), and what is needed to tell them."""

    trigger: Trigger
    zone: Zone
    fires: list[int]
    start: int
    window_ms: int
    schedule_id: str
    warnings: tuple[Problem, ...]

    def jittered(self, at: int) -> int:
        """When the nominal `at` may start."""
        occurrence = f"{self.schedule_id}:1:{stamp(at)}"
        return available_at(occurrence, at, self.window_ms, self.trigger.next_after(at))

    def events(self) -> Iterator[Note]:
        """What did not fire up to the last of the fires."""
        return events_between(self.trigger, self.start, self.fires[-1], _MOST_NOTES)


def _as_json(told: _Answer, *, explain: bool) -> Iterator[str]:
    for at in told.fires:
        line: dict[str, object] = {"scheduled_for": format_instant(at), "local": local_text(told.zone, at)}
        if told.window_ms:
            line["available_at"] = format_instant(told.jittered(at))
        if explain:
            line["notes"] = [_note_json(note) for note in notes_on(told.trigger, at)]
        yield json.dumps(line, ensure_ascii=False)
    if explain:
        summary: dict[str, object] = {"rule": describe(told.trigger), "trigger": told.trigger.to_wire()}
        if told.fires:
            summary["events"] = [_note_json(note) for note in told.events()]
        yield json.dumps(summary, ensure_ascii=False)
    if told.warnings:
        yield json.dumps({"warnings": [warning._asdict() for warning in told.warnings]}, ensure_ascii=False)


def _note_json(note: Note) -> dict[str, object]:
    return note._asdict() | {"at": format_instant(note.at)}


def _as_text(told: _Answer, *, explain: bool) -> Iterator[str]:
    if explain:
        yield describe(told.trigger)
    yield from (f"warning: {warning.message}" for warning in told.warnings)
    rows = [(at, 1, f"{format_instant(at):<26}{local_text(told.zone, at)}") for at in told.fires]
    if told.window_ms:
        rows = [(at, order, f"{text}   starts {format_instant(told.jittered(at))}") for at, order, text in rows]
    if explain and told.fires:
        rows += [(at, 2, f"    {note.kind}: {note.text}") for at in told.fires for note in notes_on(told.trigger, at)]
        rows += [(note.at, 0, f"    {note.kind}: {note.text}") for note in told.events()]
    yield from (text for _at, _order, text in sorted(rows, key=lambda row: row[:2]))
    if not told.fires:
        yield "no fires in this time"


def _instant(option: str, text: str) -> int:
    try:
        return parse_instant(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None
