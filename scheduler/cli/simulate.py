"""`scheduler simulate`: what would happen, by the code that would do it, without a broker.

A thin shell over `scheduler.simulator`: a scenario in, events as JSON lines, a timeline, or a picture out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click
import msgspec

from scheduler.cli.common import MISUSED, Shown, json_option
from scheduler.core.zones import pin_tables
from scheduler.simulator import ScenarioInvalid, parse_scenario, play
from scheduler.simulator.picture import Picture
from scheduler.simulator.timeline import timeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.simulator import Event

_LINES: Final = 500  # written at once


@click.command("simulate", short_help="Play a scenario in virtual time: what would happen?")
@click.argument("scenario", metavar="SCENARIO.json", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Draw a picture, too.")
@click.option(
    "--max-events",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="Stop after so many events, with exit code 1.",
)
@json_option
def command(scenario: Path, *, svg: Path | None, max_events: int, as_json: bool) -> None:
    """Play SCENARIO.json (`-` for standard input) through the real scheduler in virtual time.

    A scenario says when commands are sent, when nobody is there, and from when until when to look; `ops/policies.md`
    shows each policy as a scenario with its timeline. Nothing is sent anywhere. A scenario with mistakes ends with
    exit code 2, all of them on standard error.

    \b
    {"from": "2026-01-01T09:00:00Z", "until": "2026-01-01T14:00:00Z", "steps": [
      {"at": "2026-01-01T09:00:00Z", "command": {"command": "create", "schedule_id": "acme/report",
        "spec": {"trigger": {"cron": "*/5 * * * *", "zone": "UTC"}, "misfire": {"catch_up": 3}}}},
      {"at": "2026-01-01T12:01:00Z", "outage_until": "2026-01-01T13:02:00Z"}]}

    \b
    Examples:
      scheduler simulate outage.json
      scheduler simulate outage.json --json | jq 'select(.event == "missed")'
      scheduler simulate outage.json --svg outage.svg
    """
    pin_tables()
    try:
        checked = parse_scenario(_read(scenario))
    except ScenarioInvalid as fault:
        raise Shown(str(fault), MISUSED) from None
    picture = None
    if svg is not None:
        _check_writable(svg)
        picture = Picture(checked)
    events = _bounded(play(checked), max_events)
    if picture is not None:
        events = _drawn(events, picture)
    lines = (msgspec.json.encode(e).decode() for e in events) if as_json else timeline(checked, events)
    _write(lines)
    if svg is not None and picture is not None:
        svg.write_text(picture.svg(), encoding="utf-8")


def _read(path: Path) -> Any:
    try:
        text = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as fault:
        raise Shown(f"{path} cannot be read: {fault.strerror}", MISUSED) from None
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise Shown(f"{path} is no JSON that can be read: nested too deep", MISUSED) from None
    except ValueError as fault:
        raise Shown(f"{path} is not JSON: {fault}", MISUSED) from None


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _check_writable(svg: Path) -> None:
    """Before anything is printed."""
    try:
        svg.touch()
    except OSError as fault:
        raise Shown(f"{svg} cannot be written: {fault.strerror}", MISUSED) from None


def _bounded(events: Iterator[Event], most: int) -> Iterator[Event]:
    """At most so many; what they come to is shown before the error that says where it stopped."""
    for count, event in enumerate(events):
        if count == most:
            raise Shown(f"stopped at {event['at']} after {most} events: look at less, or raise --max-events")
        yield event


def _drawn(events: Iterator[Event], picture: Picture) -> Iterator[Event]:
    for event in events:
        picture.add(event)
        yield event


def _write(lines: Iterator[str]) -> None:
    """Many lines at once: a year of events is written in seconds."""
    chunk: list[str] = []
    try:
        for line in lines:
            chunk.append(line)
            if len(chunk) == _LINES:
                sys.stdout.write("\n".join(chunk) + "\n")
                chunk.clear()
    finally:
        sys.stdout.write("".join(f"{line}\n" for line in chunk))
        sys.stdout.flush()
