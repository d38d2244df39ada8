"""`scheduler topics plan|apply`: make the cluster's topics agree with the catalogue, or see where they don't."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from scheduler.cli.common import Cli, Shown, json_option, pass_cli, print_json
from scheduler.cli.kafka import kafka_errors, settings_with_broker

if TYPE_CHECKING:
    from scheduler.config import Settings
    from topics.admin import Plan


@click.group("topics", short_help="Plan and apply the topics the scheduler needs.")
def command() -> None:
    """Plan and apply the topics the scheduler needs.

    Names, partitions and settings come from the catalogue (`topics/README.md`) and the settings `namespace`, `shards`,
    `lanes`, `kafka.replication_factor` and `retention`. Nothing is ever deleted or shrunk.
    """


@command.command("plan")
@json_option
@pass_cli
def plan_command(cli: Cli, *, as_json: bool) -> None:
    """Show what `apply` would do; change nothing.

    Exits with 0 when every topic is as it should be, 1 when something differs.

    \b
    Examples:
      scheduler topics plan
      scheduler topics plan --json | jq .change
    """
    with kafka_errors():
        proposal = proposed(settings_with_broker(cli))
    _show(proposal, as_json=as_json)
    sys.exit(0 if proposal.empty else 1)


@command.command("apply")
@json_option
@pass_cli
def apply_command(cli: Cli, *, as_json: bool) -> None:
    """Create what is missing and set what differs; explain what is left.

    Exits with 1 when something that the scheduler can't start with has to be decided by a person.

    \b
    Example:
      scheduler topics apply
    """
    from topics.admin import TopicsWrong, apply, connect

    settings = settings_with_broker(cli)
    with kafka_errors():
        proposal = proposed(settings)
        try:
            apply(connect(settings.client_config()), proposal)
        except TopicsWrong as error:
            raise Shown(str(error)) from error
    _show(proposal, as_json=as_json)
    if not as_json and not proposal.empty:
        click.echo(f"{len(proposal.changes)} changes made")
    sys.exit(1 if any(drift.blocking for drift in proposal.drift) else 0)


def proposed(settings: Settings) -> Plan:
    """What there is to do on the cluster of these settings. Raises ConnectionError without a broker."""
    from topics.admin import connect, observe, plan

    wanted = settings.catalogue().specs()
    return plan(wanted, observe(connect(settings.client_config()), wanted))


def _show(proposal: Plan, *, as_json: bool) -> None:
    if not as_json:
        click.echo(str(proposal))
        return
    for change in proposal.changes:
        line: dict[str, Any] = {"change": type(change).__name__, "topic": change.spec.name, "text": str(change)}
        print_json(line)
    for drift in proposal.drift:
        print_json({"drift": drift.topic, "blocking": drift.blocking, "text": drift.what})
