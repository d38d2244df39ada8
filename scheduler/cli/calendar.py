"""`scheduler calendar`: business calendars from files to the calendar topic, each change a new version."""

from __future__ import annotations

import difflib
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from scheduler.cli.common import Cli, Shown, json_option, pass_cli, print_json, print_table, stop_at
from scheduler.cli.documents import Mistake, read_named
from scheduler.cli.kafka import kafka_errors, settings_with_broker
from scheduler.cli.looking import calendar_versions
from scheduler.core.calendar import CALENDAR_FIELDS, CALENDAR_NAME, parse_calendar
from scheduler.core.time import format_instant
from scheduler.wire import calendar_fields, versioned_key
from topics.codec import encode
from topics.messages import Calendar
from topics.tables import write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import TextIO

    from scheduler.config import Settings

KEPT = 20  # versions of a calendar that stay on the topic: schedules not re-planned yet still follow an older one
FIELDS = (*(name for name in CALENDAR_FIELDS if name != "version"), "description")


class Asked(NamedTuple):
    """One calendar of a file."""

    file: str
    line: int
    name: str
    fields: dict[str, Any]


@click.group("calendar", short_help="Keep the business calendars that schedules name.")
def command() -> None:
    """Keep the business calendars that schedules name (`calendar:` in their spec).

    Each change is a new version. The scheduler takes it up within a second and plans the schedules that name the
    calendar anew, from that moment on.

    \b
    Examples:
      scheduler calendar apply calendars.yaml
      scheduler calendar list
      scheduler calendar show munich-office
      scheduler schedule create acme/report --cron '0 9 * * *' --zone Europe/Berlin --calendar munich-office
    """


@command.command("apply", short_help="Make the calendars in files what they say.")
@click.argument("files", nargs=-1, required=True, type=click.File("r", encoding="utf-8"), metavar="FILE...")
@json_option
@click.option("--dry-run", is_flag=True, help="Say what would change; nothing does.")
@click.option("--actor", help="Who makes the change; stands in the record.")
@pass_cli
def apply(cli: Cli, files: Sequence[TextIO], *, as_json: bool, dry_run: bool, actor: str | None) -> None:
    """Make the calendars in FILE... (`-` is standard input) what they say; YAML documents or JSON, one or several.

    \b
      name: munich-office
      working_days: [MON, TUE, WED, THU, FRI]      # all, if left out
      holidays: [{country: DE, subdivision: BY}]
      exclude_dates: [2026-12-24]
      exclude_ranges: [{from: 2026-12-27, to: 2026-12-31}]
      include_dates: [2026-12-19]                  # worked whatever else says
      description: when somebody is in the office

    One that says the same as before is unchanged; a different one becomes the next version. If anything is wrong
    nothing is written: exit code 2 and every mistake as file:line.
    """
    asked, mistakes = _read(files)
    if mistakes:
        stop_at(mistakes, "nothing was written", as_json=as_json)
    settings = settings_with_broker(cli)
    with kafka_errors():
        there = calendar_versions(settings)
        rows: list[tuple[bytes, bytes | None]] = []
        for one in asked:
            versions = there.get(one.name, {})
            newest = max(versions, default=0)
            before = versions.get(newest)
            what, version = _what(before, one.fields), newest
            if what != "unchanged":
                version = newest + 1
                rows += _rows(one.name, version, versions, one.fields, actor)
            _say(one.name, version, what, as_json=as_json, dry_run=dry_run)
        if not dry_run:
            write_rows(settings.client_config(), settings.catalogue().calendars, rows)


@command.command("list", short_help="List the calendars there are.")
@json_option
@pass_cli
def list_(cli: Cli, *, as_json: bool) -> None:
    """List the calendars there are, the newest version of each."""
    with kafka_errors():
        found = [one for one in _newest(settings_with_broker(cli)).values() if not one.deleted]
    if as_json:
        for one in found:
            print_json(one)
        return
    rows = [
        (one.name, one.version, _days(one), len(one.holidays), _closed(one), len(one.include_dates), one.description)
        for one in found
    ]
    print_table(["name", "version", "working days", "holidays", "closed", "opened", "description"], rows)


@command.command("show", short_help="Show one calendar.")
@click.argument("name")
@click.option("--version", "version", type=int, help="This version instead of the newest.")
@json_option
@pass_cli
def show(cli: Cli, name: str, *, version: int | None, as_json: bool) -> None:
    """Show the calendar NAME, in the form in which `apply` reads it."""
    with kafka_errors():
        there = calendar_versions(settings_with_broker(cli))
    versions = there.get(name, {})
    one = versions.get(max(versions, default=0) if version is None else version)
    if one is None or one.deleted:
        raise _unknown(name if version is None or not versions else f"{name}@{version}", there)
    if as_json:
        print_json(one)
        return
    import yaml

    click.echo(f"# version {one.version}" + (f", {one.at}" if one.at else "") + (f", {one.actor}" if one.actor else ""))
    shown = {k: v for k, v in _fields(one).items() if v not in (None, [])}
    click.echo(yaml.safe_dump({"name": one.name, **shown}, sort_keys=False, allow_unicode=True), nl=False)


@command.command("delete", short_help="Delete a calendar.")
@click.argument("name")
@json_option
@click.option("--actor", help="Who deletes it; stands in the record.")
@pass_cli
def delete(cli: Cli, name: str, *, as_json: bool, actor: str | None) -> None:
    """Delete the calendar NAME: schedules that name it are broken until it is applied again or they are updated."""
    settings = settings_with_broker(cli)
    with kafka_errors():
        there = calendar_versions(settings)
        versions = there.get(name, {})
        newest = max(versions, default=0)
        if newest == 0 or versions[newest].deleted:
            raise _unknown(name, there)
        rows = _rows(name, newest + 1, versions, {"deleted": True}, actor)
        write_rows(settings.client_config(), settings.catalogue().calendars, rows)
    _say(name, newest + 1, "deleted", as_json=as_json)


def _read(files: Sequence[TextIO]) -> tuple[list[Asked], list[Mistake]]:
    """The calendars of all files, or everything that is wrong with them."""
    found, mistakes = read_named(files, "name", _wrong)
    return [Asked(file, line, str(fields["name"]), fields) for file, line, fields in found], mistakes


def _wrong(fields: Mapping[str, Any]) -> Iterator[str]:
    name = fields.get("name")
    if not isinstance(name, str) or not CALENDAR_NAME.fullmatch(name):
        yield f"name: {name!r:.60} is no name: 1 to 100 of a-z, 0-9, '.', '_', '-', a letter or digit first"
    if "version" in fields:
        yield "version: versions are given out here; leave it out"
    for unknown in fields.keys() - set(FIELDS) - {"version"}:
        close = difflib.get_close_matches(str(unknown), FIELDS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(FIELDS)}"
        yield f"{str(unknown)[:40]}: not a field of a calendar; {hint}"
    description = fields.get("description")
    if description is not None and not (isinstance(description, str) and len(description) <= 4000):
        yield "description: expected text of at most 4000 characters"
    known = {key: value for key, value in fields.items() if key in CALENDAR_FIELDS and key not in ("name", "version")}
    for problem in parse_calendar(known).problems:
        yield problem.message.removeprefix("calendar: ")


def _what(before: Calendar | None, fields: Mapping[str, Any]) -> str:
    """What applying these fields comes to."""
    if before is None or before.deleted:
        return "created"
    given = msgspec.convert({**fields, "name": before.name, "version": before.version}, Calendar)
    return "unchanged" if _fields(given) == _fields(before) else "updated"


def _fields(one: Calendar) -> dict[str, Any]:
    """What it says, without name, version and who made it."""
    said = {**calendar_fields(one), "description": one.description}
    return {name: said.get(name) or None for name in FIELDS if name != "name"}


def _rows(
    name: str, version: int, versions: Mapping[int, Calendar], fields: Mapping[str, Any], actor: str | None
) -> list[tuple[bytes, bytes | None]]:
    """The next version, and the end of those nobody can need any more."""
    at = format_instant(time.time_ns() // 1_000_000)
    made = msgspec.convert({**fields, "name": name, "version": version, "at": at, "actor": actor}, Calendar)
    old: list[tuple[bytes, bytes | None]] = [(versioned_key(name, v), None) for v in versions if v <= version - KEPT]
    return [(versioned_key(name, version), encode(made)), *old]


def _newest(settings: Settings) -> dict[str, Calendar]:
    return {name: versions[max(versions)] for name, versions in sorted(calendar_versions(settings).items())}


def _unknown(name: str, there: Mapping[str, Mapping[int, Calendar]]) -> Shown:
    known = sorted(known for known, versions in there.items() if not versions[max(versions)].deleted)
    return Shown(f"no calendar is called {name!r}; there are {', '.join(known) or 'none'}")


def _say(name: str, version: int, what: str, *, as_json: bool, dry_run: bool = False) -> None:
    if as_json:
        print_json({"name": name, "version": version, "result": what, "dry_run": dry_run})
    else:
        click.echo(f"{name}@{version} {'would be ' if dry_run else ''}{what}")


def _days(one: Calendar) -> str:
    return "all" if one.working_days is None else " ".join(one.working_days)


def _closed(one: Calendar) -> int:
    return len(one.exclude_dates) + len(one.exclude_ranges)
