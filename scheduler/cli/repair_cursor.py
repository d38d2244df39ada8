"""`scheduler repair-cursor`: set back shards that a wrong clock drove into the future."""

from __future__ import annotations

import getpass
import sys
from typing import TYPE_CHECKING

import click

from scheduler.cli.common import Cli, Shown, json_option, note, pass_cli, print_json, print_table
from scheduler.cli.kafka import kafka_errors, settings_with_broker
from scheduler.core.time import format_instant, parse_instant
from scheduler.core.zones import pin_tables

if TYPE_CHECKING:
    from scheduler.shard.repair import Outcome

_MISUSED = 2


@click.command("repair-cursor", short_help="Set back shards that a wrong clock drove into the future.")
@click.option("--shard", "shards", type=click.IntRange(0), multiple=True, metavar="N", help="This shard; repeatable.")
@click.option("--all", "everything", is_flag=True, help="Every shard that needs it.")
@click.option("--to", "to_text", metavar="INSTANT", help="Set back to this instant, RFC 3339; default: now.")
@click.option("--reason", required=True, help="Why; stands in the history.")
@click.option("--actor", default=getpass.getuser, show_default="your user name", help="Who; stands in the history.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; nothing changes.")
@json_option
@pass_cli
def command(
    cli: Cli,
    *,
    shards: tuple[int, ...],
    everything: bool,
    to_text: str | None,
    reason: str,
    actor: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Set back shards that stopped because they have fired up to an instant in the future.

    Put the clocks right first: this refuses while the brokers' clock and this machine's differ. What was fired or
    given up of the future stays so: such a schedule goes on after it, everything else fires in its time. A shard that
    needs no repair is left alone. Nodes may run; a stopped shard serves within seconds afterwards.

    \b
    Examples:
      scheduler repair-cursor --all --reason 'broker-2 was two hours ahead' --dry-run
      scheduler repair-cursor --shard 3 --reason 'broker-2 was two hours ahead'
      scheduler repair-cursor --all --to 2027-03-01T09:00:00Z --reason INC-4711 --json
    """
    problems = []
    if bool(shards) == everything:
        problems.append("say which shards: --shard N (as in the node's message), or --all")
    if not reason.strip():
        problems.append("--reason is empty: it is what the next person finds in the history")
    to: int | None = None
    if to_text is not None:
        try:
            to = parse_instant(to_text)
        except ValueError as fault:
            problems.append(f"--to: {fault}")
    settings = settings_with_broker(cli)
    beyond = sorted({shard for shard in shards if shard >= settings.shards})
    if beyond:
        problems.append(f"--shard: there is no shard {beyond[0]}; this cluster has 0 to {settings.shards - 1}")
    if problems:
        raise Shown("\n".join(problems), _MISUSED)
    from scheduler.runtime.kafka import Inquiry
    from scheduler.runtime.process import check_topics
    from scheduler.runtime.repair import Repairs

    pin_tables()
    catalogue = settings.catalogue()
    rows = []
    with kafka_errors():
        inquiry = Inquiry(settings)
        check_topics(settings, catalogue, inquiry)
        repairs = Repairs(settings, catalogue, inquiry)
        if to is not None and to > repairs.now:
            raise Shown(f"--to {to_text} lies in the future; it is {format_instant(repairs.now)} now", _MISUSED)
        to = repairs.now if to is None else to
        for shard in dict.fromkeys(shards) if shards else range(settings.shards):
            outcome = repairs.repair(shard, to=to, reason=reason, actor=actor, dry_run=dry_run)
            if as_json:
                print_json(_as_json(outcome, to, dry_run=dry_run))
            rows.append(outcome)
    if not as_json:
        _show(rows, to, dry_run=dry_run)
    sys.stdout.flush()


def _done(outcome: Outcome, *, dry_run: bool) -> str:
    if not outcome.needed:
        return "not_needed"
    return "would_repair" if dry_run else "repaired"


def _as_json(outcome: Outcome, to: int, *, dry_run: bool) -> dict[str, object]:
    return {
        "shard": outcome.shard,
        "result": _done(outcome, dry_run=dry_run),
        "was": format_instant(outcome.ahead_to),
        **({"to": format_instant(to)} if outcome.needed else {}),
        "schedules": outcome.schedules,
        "missed": outcome.missed,
        "silent": [{"schedule_id": name, "until": format_instant(until)} for name, until in outcome.silent],
    }


def _show(outcomes: list[Outcome], to: int, *, dry_run: bool) -> None:
    columns = ("shard", "result", "had fired up to", "set back to", "schedules with a floor", "missed")
    rows = [
        (
            outcome.shard,
            _done(outcome, dry_run=dry_run).replace("_", " "),
            format_instant(outcome.ahead_to) if outcome.ahead_to else "",
            format_instant(to) if outcome.needed else "",
            outcome.schedules,
            outcome.missed,
        )
        for outcome in outcomes
    ]
    print_table(columns, rows)
    silent = [(name, until) for outcome in outcomes for name, until in outcome.silent]
    for name, until in silent[:5]:
        note(f"{name} goes on after {format_instant(until)}: what lies before was decided by the wrong clock")
    if silent:
        note("delete and create such a schedule if it must run earlier; `scheduler schedule history` names them all")
