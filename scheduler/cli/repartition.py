"""`scheduler repartition`: move a cluster to another number of shards."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Any

import click

from scheduler.cli.common import Cli, Shown, json_option, note, pass_cli, print_json, print_table, progress
from scheduler.cli.kafka import kafka_errors, settings_with_broker
from scheduler.core.time import format_instant
from scheduler.core.zones import pin_tables

if TYPE_CHECKING:
    from scheduler.config import Settings
    from scheduler.runtime.repartition import Census, Outcome, Repartition

_MISUSED = 2


@click.command("repartition", short_help="Move a cluster to another number of shards.")
@click.option("--namespace", required=True, metavar="NEW", help="Where to: a namespace nobody uses yet, as `v2.`.")
@click.option("--shards", required=True, type=int, metavar="N", help="How many shards it has there.")
@click.option("--reason", required=True, help="Why; stands in the history.")
@click.option("--actor", default=getpass.getuser, show_default="your user name", help="Who; stands in the history.")
@click.option("--dry-run", is_flag=True, help="Say what there is to move and what is in the way; nothing changes.")
@click.option("--yes", is_flag=True, help="Don't ask before the old namespace is ended.")
@json_option
@pass_cli
def command(
    cli: Cli,
    *,
    namespace: str,
    shards: int,
    reason: str,
    actor: str,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Move everything from the namespace of the settings to a new one with another number of shards.

    The old shards are ended for good, their schedules carried over with everything that is owed, and each new shard
    is compared with what was carried before it may be served. Nothing is lost or fired twice; until nodes run with
    the new namespace nothing fires, which counts as an outage. Cut off, it is run again. First read the runbook,
    ops/runbooks/repartition.md.

    \b
    Examples:
      scheduler repartition --namespace v2. --shards 64 --reason 'growth' --dry-run
      scheduler repartition --namespace v2. --shards 64 --reason 'growth'
    """
    old = settings_with_broker(cli)
    new = old.model_copy(update={"namespace": namespace, "shards": shards})
    problems = _problems(old, new)
    if not reason.strip():
        problems.append("--reason is empty: it is what the next person finds in the history")
    if problems:
        raise Shown("\n".join(problems), _MISUSED)
    from scheduler.runtime.repartition import Repartition
    from scheduler.shard.repartition import Reasons

    pin_tables()

    def bar(total: int | None, what: str) -> Any:
        return progress(total, what, quiet=as_json)

    with kafka_errors():
        move = Repartition(old, new, Reasons(reason, actor), bar)
        move.check()
        if dry_run:
            _plan(move, new, as_json=as_json)
            return
        if not yes:
            click.confirm(
                f"end namespace {old.namespace!r} and move it to {namespace!r}, {shards} shards?", abort=True, err=True
            )
        outcome = move.run()
    _tell(outcome, old, new, as_json=as_json)


def _problems(old: Settings, new: Settings) -> list[str]:
    problems = []
    if old.namespace == new.namespace:
        problems.append(f"--namespace: {new.namespace!r} is the one to move from; name another, topics can't shrink")
    try:
        new.catalogue()
    except ValueError as fault:
        problems.append(str(fault))
    return problems


def _plan(move: Repartition, new: Settings, *, as_json: bool) -> None:
    topics = move.new_topics
    rows = []
    for found in move.census():
        rows.append(found)
        if as_json:
            print_json(_as_json(found))
    total = sum(found.schedules.total() for found in rows)
    behind = sum(found.behind for found in rows)
    if as_json:
        print_json({"dry_run": True, "schedules": total, "behind": behind, "new_topics": topics})
        return
    print_table(
        ["shard", "schedules", "owed besides", "behind", "commands waiting", "moved before"],
        [
            (f.shard, f.schedules.total(), f.live.total(), f.behind, f.commands, "yes" if f.moved else "no")
            for f in rows
        ],
    )
    click.echo(
        f"{total} schedules would move to namespace {new.namespace!r} with {new.shards} shards, of which {len(topics)} "
        "topics would be created; nothing was changed"
    )
    if behind:
        note(f"{behind} schedules are behind: let the nodes catch up first, or the move prolongs their outage")


def _as_json(found: Census) -> dict[str, Any]:
    return {
        "shard": found.shard,
        "schedules": dict(found.schedules),
        "live": dict(found.live),
        "behind": found.behind,
        "commands_waiting": found.commands,
        "moved": found.moved,
    }


def _tell(outcome: Outcome, old: Settings, new: Settings, *, as_json: bool) -> None:
    cut = outcome.cut
    if as_json:
        print_json(
            {
                "from": {"namespace": old.namespace, "shards": old.shards},
                "to": {"namespace": new.namespace, "shards": new.shards},
                "at": None if cut is None else format_instant(cut.at),
                "schedules": outcome.schedules,
                "live": outcome.live,
                "commands": outcome.commands,
                "checksums": {str(shard): checksum for shard, checksum in outcome.checksums.items()},
            }
        )
        return
    if cut is None:
        click.echo(
            f"everything had been moved to {new.namespace!r}; {outcome.commands} commands were carried over since"
        )
        return
    click.echo(
        f"moved {outcome.schedules} schedules and {outcome.live} records of what is owed, compared and found the same, "
        f"to namespace {new.namespace!r} ({new.shards} shards) as of {format_instant(cut.at)}; {outcome.commands} "
        "commands carried over"
    )
    note(f"start nodes with namespace = {new.namespace!r} and shards = {new.shards}; stop those of {old.namespace!r}")
    note(f"consumers: subscribe to {new.namespace}dispatch.… beside the old topics until those are read to their ends")
    note("commands sent to the old namespace meanwhile: run the same command once more when all senders have moved")
