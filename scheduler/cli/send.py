"""`scheduler send`: commands from files to the command topic, and what became of each."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from scheduler.cli.common import Cli, json_option, now_ms, pass_cli, print_json, progress, stop_at
from scheduler.cli.documents import Located, Mistake, read_commands, read_each
from scheduler.cli.kafka import command_client, settings_with_broker
from scheduler.cli.replies import as_json as reply_json
from scheduler.cli.replies import as_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TextIO

    from scheduler.config import Settings
    from topics.messages import Reply


@click.command("send", short_help="Send commands from YAML or JSON lines and wait for the replies.")
@click.argument("files", nargs=-1, required=True, type=click.File("r", encoding="utf-8"), metavar="FILE...")
@json_option
@click.option("--dry-run", is_flag=True, help="Ask the scheduler what would happen; nothing changes.")
@click.option("--actor", help="Who asks, for commands that don't say; stands in the history.")
@click.option("--timeout", "timeout_s", default=30.0, show_default=True, help="Seconds to wait for the next reply.")
@click.option("--window", default=5_000, show_default=True, help="Commands under way at a time.")
@pass_cli
def command(
    cli: Cli,
    files: Sequence[TextIO],
    *,
    as_json: bool,
    dry_run: bool,
    actor: str | None,
    timeout_s: float,
    window: int,
) -> None:
    """Send the commands in FILE... (`-` is standard input) and wait for every reply.

    A file holds YAML documents (one command each, or a list of them) or JSON lines. `trigger: {at: +90s}` counts from
    now. If any command can't be read nothing is sent: exit code 2 and every mistake as file:line. Rejected commands
    are listed the same way: exit code 1. Sending again with the same `command_id` has no second effect.

    \b
    Examples:
      scheduler send schedules.yaml
      generate | scheduler send - --json > replies.jsonl
      scheduler send --dry-run schedules.yaml
    """
    located, mistakes = _read(files)
    if mistakes:
        count = f"{len(mistakes)} of {len(mistakes) + len(located)}"
        stop_at(mistakes, f"{count} can't be read as commands; nothing was sent", as_json=as_json)
    for item in located:
        item.command.dry_run = item.command.dry_run or dry_run
        item.command.actor = item.command.actor or actor
    settings = settings_with_broker(cli)
    rejected = 0
    with progress(len(located), "sending", quiet=as_json) as step:
        for item, reply in exchange(settings, located, timeout_s=timeout_s, window=window):
            step()
            rejected += reply.status == "rejected"
            if as_json:
                print_json(reply_json(reply, file=item.file, line=item.line))
            elif reply.status == "rejected" or reply.warnings or len(located) <= 10:
                for line in as_lines(reply):
                    click.echo(f"{item.file}:{item.line}: {line}")
    if not as_json:
        click.echo(f"{len(located) - rejected} accepted, {rejected} rejected")
    sys.exit(1 if rejected else 0)


def _read(files: Iterable[TextIO]) -> tuple[list[Located], list[Mistake]]:
    now = now_ms()
    located: list[Located] = []
    mistakes: list[Mistake] = []
    for found in read_each(files, lambda text, file: read_commands(text, file, now)):
        if isinstance(found, Mistake):
            mistakes.append(found)
        else:
            located.append(found[1])
    return located, mistakes


def exchange(
    settings: Settings, items: Sequence[Located], *, timeout_s: float, window: int
) -> Iterator[tuple[Located, Reply]]:
    """Sends all, yields each with its reply as it comes. Raises `BrokerUnavailable` when replies stop coming."""
    places = {id(item.command): item for item in items}
    with command_client(settings, timeout_s=timeout_s) as client:
        for sent, reply in client.send_many((item.command for item in items), window=window):
            yield places[id(sent)], reply
