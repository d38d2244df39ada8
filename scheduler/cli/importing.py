"""`scheduler import crontab`: a newcomer's own crontab as schedules, line by line, nothing silently lost."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from scheduler.cli.common import Cli, json_option, note, pass_cli, print_json, progress
from scheduler.cli.crontab import Crontab, parse_crontab
from scheduler.core.identity import schedule_id_fault
from scheduler.core.trigger import parse_trigger

if TYPE_CHECKING:
    from typing import BinaryIO

    from topics.messages import Command, Reply


@click.group("import", short_help="Turn what other schedulers have into schedules.")
def command() -> None:
    """Turn what other schedulers have into schedules."""


@command.command("crontab")
@click.argument("file", type=click.File("rb"), metavar="FILE")
@click.option("--tenant", required=True, help="Whose schedules they become: the part of the id before the slash.")
@click.option("--zone", help="The times' zone where no CRON_TZ says so. Default: this machine's, as cron has it.")
@click.option("--system", is_flag=True, help="/etc/crontab or /etc/cron.d: a user stands before each command.")
@click.option("--update", is_flag=True, help="Change schedules of an earlier import whose lines were edited.")
@click.option("--dry-run", is_flag=True, help="Print what would be sent; no broker is needed.")
@click.option("--timeout", "timeout_s", default=30.0, show_default=True, help="Seconds to wait for the next reply.")
@json_option
@pass_cli
def crontab(
    cli: Cli,
    *,
    file: BinaryIO,
    tenant: str,
    zone: str | None,
    system: bool,
    update: bool,
    dry_run: bool,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Create a schedule for every job in FILE (`-` is standard input); workers get the command line as payload.

    Takes five time fields, names, macros, comments, NAME=value lines, CRON_TZ and `%`. What it can't take is listed
    with its line and the reason: exit code 1, and the other lines are imported. A second import changes nothing.
    Variables of the file become part of the payloads: think of secrets in them.

    \b
    Examples:
      crontab -l | scheduler import crontab - --tenant ops
      scheduler import crontab /etc/cron.d/backup --system --tenant ops --zone Europe/Berlin --dry-run
    """
    if fault := schedule_id_fault(f"{tenant}/x"):
        raise click.BadParameter(fault, param_hint="--tenant")
    zone = zone or local_zone()
    if zone is None:
        raise click.UsageError("this machine's time zone has no name; give one with --zone, for example --zone UTC")
    if fault := "; ".join(_mistakes("0 0 * * *", zone)):
        raise click.BadParameter(fault, param_hint="--zone")
    name = getattr(file, "name", "<stdin>")
    text = file.read().decode("utf-8-sig", errors="surrogateescape")
    if "\0" in text:
        raise click.UsageError(f"{name}: is not a text file: it holds a zero byte")
    found = parse_crontab(text, tenant=tenant, zone=zone, system=system, check=_mistakes)
    _report(found, name, as_json=as_json)
    if dry_run:
        for job in found.jobs:
            print_json(msgspec.json.decode(msgspec.json.encode(job.command)))
        note(f"{len(found.jobs)} would be sent, {len(found.refused)} can't be taken; times without CRON_TZ in {zone}")
        sys.exit(1 if found.refused else 0)
    rejected = _send(cli, found, name, update=update, timeout_s=timeout_s, as_json=as_json)
    if not as_json:
        done = len(found.jobs) - rejected
        click.echo(f"{done} imported, {rejected} rejected, {len(found.refused)} can't be taken; times in {zone}")
    sys.exit(1 if rejected or found.refused else 0)


def _mistakes(expression: str, zone: str) -> list[str]:
    """What the time engine says against an expression."""
    trigger = {"cron": expression, "zone": zone}
    return [problem.message for problem in parse_trigger(trigger, schedule_id="import/check", effective_at=0).problems]


def local_zone(environment: str | None = None, link: Path = Path("/etc/localtime")) -> str | None:
    """The IANA name of this machine's zone, from TZ or where /etc/localtime points; None if it has none."""
    given = os.environ.get("TZ") if environment is None else environment
    if given:
        return given.removeprefix(":") or None
    try:
        target = str(link.resolve(strict=True))
    except OSError:
        return "UTC"  # what the C library does without the file
    name = re.search(r"/zoneinfo/(?:posix/|right/)?(.+)$", target)
    return name[1] if name else None


def _report(found: Crontab, name: str, *, as_json: bool) -> None:
    for kind, remarks in (("refused", found.refused), ("warning", found.warnings)):
        for remark in remarks:
            if as_json:
                print_json({kind: remark.text, "file": name, "line": remark.line, "why": remark.why})
            else:
                note(f"{name}:{remark.line}: {kind}: {remark.why}\n    {remark.text}")


def _send(cli: Cli, found: Crontab, name: str, *, update: bool, timeout_s: float, as_json: bool) -> int:
    """Sends the creates, and with `update` an update where the definition differs; the number rejected."""
    from scheduler.cli.kafka import command_client, settings_with_broker
    from scheduler.cli.replies import as_json as reply_json
    from scheduler.cli.replies import as_lines

    lines = {id(job.command): job.line for job in found.jobs}
    rejected = 0

    def show(line: int, reply: Reply) -> None:
        nonlocal rejected
        rejected += reply.status == "rejected"
        if as_json:
            print_json(reply_json(reply, file=name, line=line))
        else:
            for text in as_lines(reply):
                click.echo(f"{name}:{line}: {text}")

    edited: list[Command] = []
    with (
        command_client(settings_with_broker(cli), timeout_s=timeout_s) as client,
        progress(len(found.jobs), "importing", quiet=as_json) as step,
    ):
        for sent, reply in client.send_many([job.command for job in found.jobs]):
            step()
            if update and reply.code == "already_exists":
                edited.append(sent)
                continue
            show(lines[id(sent)], reply)
        again = [_as_update(sent) for sent in edited]
        lines |= {id(new): lines[id(old)] for new, old in zip(again, edited, strict=True)}
        for sent, reply in client.send_many(again):
            show(lines[id(sent)], reply)
    return rejected


def _as_update(create: Command) -> Command:
    fields: dict[str, Any] = {"command": "update", "command_id": f"u{create.command_id}"}
    return msgspec.structs.replace(create, **fields)
