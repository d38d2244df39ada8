"""`scheduler schedule …`: one schedule's life from the prompt, and many at once by selector.

Every change is a command on the command topic, answered by the shard; every look reads the compacted topic.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from scheduler.cli.bulk import new_bulk_id, run_bulk
from scheduler.cli.common import Cli, json_option, note, now_ms, pass_cli, print_json, print_table
from scheduler.cli.definition import definition
from scheduler.cli.documents import to_command
from scheduler.cli.kafka import command_client, kafka_errors, settings_with_broker
from scheduler.cli.looking import revisions, schedules, trigger_text
from scheduler.cli.replies import as_json as reply_json
from scheduler.cli.replies import as_lines
from scheduler.cli.schedule_options import asking_options, choice_options, definition_options, later_option
from scheduler.cli.selecting import is_bulk, selector
from scheduler.cli.values import absolute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topics.messages import Command

STATES = ("active", "paused", "completed", "cancelled", "broken")


@click.group("schedule", short_help="Create, look at and change schedules.")
def command() -> None:
    """Create, look at and change schedules. ID is `<tenant>/<name>`.

    \b
    Examples:
      scheduler schedule create acme/report --cron '0 9 * * mon-fri' --zone Europe/Berlin
      scheduler schedule create acme/once --at +90s --payload '{"n": 1}'
      scheduler schedule pause --tenant acme --dry-run
    """


@command.command("create")
@click.argument("schedule_id", metavar="ID")
@definition_options
@asking_options
@pass_cli
def create(cli: Cli, /, schedule_id: str, **options: Any) -> None:
    """Create the schedule ID. The same definition again is accepted and changes nothing.

    \b
    Examples:
      scheduler schedule create acme/report --cron '0 9 * * mon-fri' --zone Europe/Berlin --priority high
      scheduler schedule create acme/poll --every 10m --handler poll --payload '{"url": "..."}'
      scheduler schedule create acme/launch --at 2027-03-01T09:00:00 --zone America/New_York
      scheduler schedule create acme/report --file report.yaml --dry-run
    """
    spec = _fields(options)
    if "trigger" not in spec:
        raise click.UsageError("a schedule needs a trigger: --cron, --every, --at, or `trigger` in --file")
    _ask(cli, [_command("create", schedule_id, options, spec=spec, preview=options["preview"])], options)


@command.command("update")
@click.argument("schedule_id", metavar="ID")
@definition_options
@click.option("--unset", multiple=True, metavar="FIELD", help="Back to the default: end, calendar, ... (spec's names).")
@click.option("--supersede", is_flag=True, help="Cancel what the old definition still owes.")
@click.option("--expected-revision", type=int, help="Refuse if somebody changed it meanwhile.")
@later_option
@asking_options
@pass_cli
def update(cli: Cli, /, schedule_id: str, **options: Any) -> None:
    """Replace the named parts of ID's definition; the others stay. Nothing reaches into the past.

    \b
    Examples:
      scheduler schedule update acme/report --cron '30 9 * * mon-fri' --zone Europe/Berlin
      scheduler schedule update acme/report --priority critical --unset end --expected-revision 4
      scheduler schedule update acme/report --cron '0 7 * * *' --effective-from 2027-06-01T00:00:00Z
    """
    spec = _fields(options)
    if not spec:
        raise click.UsageError("nothing to change was given; see `scheduler schedule update --help`")
    extra = {"supersede": options["supersede"], "expected_revision": options["expected_revision"]}
    _ask(cli, [_command("update", schedule_id, options, spec=spec, preview=options["preview"], **extra)], options)


@command.command("pause")
@choice_options
@later_option
@asking_options
@pass_cli
def pause(cli: Cli, /, schedule_ids: Sequence[str], **options: Any) -> None:
    """Pause schedules: acknowledged before an instant, nothing starts at it, ever.

    With --all, --tenant, --label or --name-prefix this is the stop switch: it counts the active schedules, asks, and
    pauses them; `--dry-run` only counts. It accounts for each, and cut off it is finished by the --bulk-id it names.
    What it paused is found again by its --reason: `resume --tenant … --paused-for …`.

    \b
    Examples:
      scheduler schedule pause acme/report
      scheduler schedule pause --tenant acme --label team=billing --dry-run
      scheduler schedule pause --tenant acme --reason 'incident 4711'
      scheduler schedule pause --all --yes
    """
    _each(cli, "pause", schedule_ids, options)


@command.command("resume")
@choice_options
@click.option("--catch-up", is_flag=True, help="Run what the pause suppressed, as the misfire policy says.")
@click.option("--paused-for", metavar="REASON", help="Of those selected: only what was paused with this reason.")
@later_option
@asking_options
@pass_cli
def resume(cli: Cli, /, schedule_ids: Sequence[str], **options: Any) -> None:
    """Resume paused schedules; what fell into the pause stays suppressed unless --catch-up.

    \b
    Examples:
      scheduler schedule resume acme/report
      scheduler schedule resume --tenant acme --paused-for 'incident 4711'
    """
    _each(cli, "resume", schedule_ids, options)


@command.command("cancel")
@choice_options
@later_option
@asking_options
@pass_cli
def cancel(cli: Cli, /, schedule_ids: Sequence[str], **options: Any) -> None:
    """End schedules for good; they stay visible as cancelled. Many at once as `pause` does it.

    \b
    Examples:
      scheduler schedule cancel acme/report --reason 'replaced by acme/report2'
      scheduler schedule cancel --tenant acme --name-prefix trial/ --state paused
    """
    _each(cli, "cancel", schedule_ids, options)


@command.command("delete")
@choice_options
@asking_options
@pass_cli
def delete(cli: Cli, /, schedule_ids: Sequence[str], **options: Any) -> None:
    """Remove schedules; a later one with the same id continues with higher versions. Many at once as `pause` does it.

    \b
    Examples:
      scheduler schedule delete acme/report
      scheduler schedule delete --tenant acme --state cancelled --state completed
    """
    _each(cli, "delete", schedule_ids, options)


@command.command("trigger")
@click.argument("schedule_id", metavar="ID")
@click.option("--payload", metavar="JSON", help="Instead of the schedule's own.")
@asking_options
@pass_cli
def trigger(cli: Cli, /, schedule_id: str, **options: Any) -> None:
    """Run ID once now, beside its times; the reply names the occurrence.

    \b
    Examples:
      scheduler schedule trigger acme/report
      scheduler schedule trigger acme/report --payload '{"day": "2027-01-14"}' --command-id rerun-14
    """
    payload = _fields({"payload": options["payload"]})
    _ask(cli, [_command("trigger", schedule_id, options, **payload)], options)


@command.command("backfill")
@click.argument("schedule_id", metavar="ID")
@click.option("--from", "since", required=True, metavar="WHEN", help="The first instant of the range.")
@click.option("--until", required=True, metavar="WHEN", help="The first instant behind it.")
@click.option("--per-s", type=click.IntRange(min=1), help="At most so many a second [the tenant's catch-up budget].")
@click.option("--all-nominals", is_flag=True, help="Run again what ran before, as a new attempt.")
@asking_options
@pass_cli
def backfill(cli: Cli, /, schedule_id: str, **options: Any) -> None:
    """Run what is missing of ID in a range of the past, beside its times. Ask --dry-run first: it counts.

    What ran, under whatever version, is left out. A paused schedule's waits for the resume. How far it is stands on
    `scheduler.live`, its end in `scheduler schedule history`.

    \b
    Examples:
      scheduler schedule backfill acme/report --from 2027-03-01T00:00:00Z --until 2027-03-05T00:00:00Z --dry-run
      scheduler schedule backfill acme/report --from 2027-03-01T00:00:00Z --until now --per-s 2
    """
    fields: dict[str, Any] = {"only_missing": not options["all_nominals"], "per_s": options["per_s"]}
    fields["from"], fields["until"] = _instant(options["since"]), _instant(options["until"])
    _ask(cli, [_command("backfill", schedule_id, options, **fields)], options)


@command.command("cancel-backfill")
@click.argument("schedule_id", metavar="ID")
@asking_options
@pass_cli
def cancel_backfill(cli: Cli, /, schedule_id: str, **options: Any) -> None:
    """End ID's backfills; what they had still to run is recorded as cancelled.

    \b
    Example:
      scheduler schedule cancel-backfill acme/report
    """
    _ask(cli, [_command("cancel-backfill", schedule_id, options)], options)


@command.command("show")
@click.argument("schedule_id", metavar="ID")
@click.option("--next", "count", type=click.IntRange(min=0), default=5, show_default=True, help="Coming occurrences.")
@json_option
@pass_cli
def show(cli: Cli, schedule_id: str, *, count: int, as_json: bool) -> None:
    """Show ID as it is now, and when it runs next. Exits with 1 if there is no such schedule.

    \b
    Example:
      scheduler schedule show acme/report --json
    """
    settings = settings_with_broker(cli)
    with kafka_errors():
        found = schedules(settings, schedule_id=schedule_id)
    if not found:
        note(f"error: there is no schedule {schedule_id}; `scheduler schedule list` shows those there are")
        sys.exit(1)
    seen = found[0]
    upcoming = seen.upcoming(now_ms(), count)
    if as_json:
        print_json({**seen.as_json(), "next": upcoming})
        return
    schedule = seen.schedule
    rows: list[tuple[str, object]] = [
        ("schedule", schedule.schedule_id),
        ("state", schedule.state + (f": {schedule.broken_reason}" if schedule.broken_reason else "")),
        ("version", f"{schedule.version}, revision {schedule.revision}"),
        ("trigger", trigger_text(schedule)),
    ]
    spec = msgspec.to_builtins(schedule.spec, builtin_types=(msgspec.Raw,))
    rows += [
        (name, value if isinstance(value, str) else msgspec.json.encode(value).decode())
        for name, value in spec.items()
        if name != "trigger"
    ]
    rows += [("created", schedule.created_at), ("updated", schedule.updated_at)]
    rows += [(name, value) for name, value in (("by", schedule.actor), ("because", schedule.reason)) if value]
    rows += [("next", planned["scheduled_for"]) for planned in upcoming]
    print_table(["field", "value"], rows)


@command.command("list")
@click.option("--tenant", help="Only this tenant's.")
@click.option("--state", type=click.Choice(STATES), help="Only these.")
@click.option("--label", multiple=True, metavar="NAME=VALUE", help="Only those with this label.")
@json_option
@pass_cli
def list_(cli: Cli, *, tenant: str | None, state: str | None, label: tuple[str, ...], as_json: bool) -> None:
    """List schedules with their next time. With --json each as it stands on `scheduler.schedules`.

    \b
    Examples:
      scheduler schedule list --tenant acme
      scheduler schedule list --state broken --json
    """
    settings = settings_with_broker(cli)
    with kafka_errors():
        found = schedules(settings, tenant=tenant)
    now, rows = now_ms(), []
    for seen in found:
        schedule = seen.schedule
        labels = {f"{name}={value}" for name, value in schedule.spec.labels.items()}
        if state not in (None, schedule.state) or not labels.issuperset(label):
            continue
        if as_json:
            print_json(seen.as_json())
            continue
        upcoming = seen.upcoming(now, 1)
        following = upcoming[0]["scheduled_for"] if upcoming else "-"
        rows.append((schedule.schedule_id, schedule.state, schedule.spec.priority, trigger_text(schedule), following))
    if not as_json:
        print_table(["schedule", "state", "priority", "trigger", "next"], rows)


@command.command("history")
@click.argument("schedule_id", metavar="ID")
@json_option
@pass_cli
def history(cli: Cli, schedule_id: str, *, as_json: bool) -> None:
    """Show every revision of ID that is still kept: what, when, who and why. Exits with 1 if there is none.

    \b
    Example:
      scheduler schedule history acme/report
    """
    settings = settings_with_broker(cli)
    with kafka_errors():
        found = list(revisions(settings, schedule_id))
    if not found:
        note(f"error: the history has nothing about {schedule_id}")
        sys.exit(1)
    if as_json:
        for revision in found:
            print_json(msgspec.to_builtins(revision, builtin_types=(msgspec.Raw,)))
        return
    print_table(
        ["at", "change", "version", "revision", "state", "by", "because"],
        [(r.at, r.change, r.version, r.revision, r.state, r.actor, r.reason) for r in found],
    )


def _fields(options: dict[str, Any]) -> dict[str, Any]:
    """The spec fields of file and options; every mistake as one usage error."""
    try:
        return definition(options, now_ms())
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _instant(text: str) -> str:
    try:
        return absolute(text, now_ms())
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _command(verb: str, schedule_id: str, options: dict[str, Any], **fields: Any) -> Command:
    asking = {name: options[name] for name in ("dry_run", "command_id", "actor", "reason")}
    if options.get("effective_from") is not None:
        asking["effective_from"] = _instant(options["effective_from"])
    value = {"command": verb, "schedule_id": schedule_id, **asking, **fields}
    try:
        return to_command({name: item for name, item in value.items() if item is not None}, now_ms())
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _each(cli: Cli, verb: str, schedule_ids: Sequence[str], options: dict[str, Any]) -> None:
    """The named schedules, or all that are selected, after a count and a question."""
    extra = {"catch_up": True} if options.get("catch_up") else {}
    if schedule_ids and not is_bulk(options):
        _ask(cli, [_command(verb, name, options, **extra) for name in schedule_ids], options)
        return
    bulk_id = options["bulk_id"] or new_bulk_id()
    try:
        chosen = selector(verb, schedule_ids, options, bulk_id)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    once = {**options, "dry_run": False, "command_id": chosen.command_id}
    run_bulk(settings_with_broker(cli), _command(verb, "any/one", once, **extra), chosen, bulk_id, options)


def _ask(cli: Cli, commands: Sequence[Command], options: dict[str, Any]) -> None:
    """Sends, prints every reply, and exits with 1 if any was rejected."""
    settings = settings_with_broker(cli)
    rejected = 0
    with command_client(settings, timeout_s=options["timeout_s"]) as client:
        for _, reply in client.send_many(commands):
            rejected += reply.status == "rejected"
            if options["as_json"]:
                print_json(reply_json(reply))
                continue
            for line in as_lines(reply):
                click.echo(line, err=reply.status == "rejected")
    sys.exit(1 if rejected else 0)
