"""The options of `scheduler schedule …`, in the three sets its commands share."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from scheduler.cli.common import json_option
from topics.messages import PRIORITIES

if TYPE_CHECKING:
    from collections.abc import Callable

_F = TypeVar("_F", bound="Callable[..., Any]")


def _options(*options: Callable[[_F], _F]) -> Callable[[_F], _F]:
    def apply(function: _F) -> _F:
        for option in reversed(options):
            function = option(function)
        return function

    return apply


asking_options = _options(
    json_option,
    click.option("--dry-run", is_flag=True, help="Ask what would happen; nothing changes."),
    click.option("--command-id", help="Idempotency key: sent twice it has one effect. Default: a new one."),
    click.option("--actor", default=getpass.getuser, show_default="your user name", help="Who; stands in the history."),
    click.option("--reason", help="Why; stands in the history."),
    click.option("--timeout", "timeout_s", default=30.0, show_default=True, help="Seconds to wait for a reply."),
)

later_option = click.option(
    "--effective-from", metavar="WHEN", help="Let it count from then on: RFC 3339 or +2h. Accepted now, decided then."
)

definition_options = _options(
    click.option("--cron", metavar="EXPR", help="A cron expression, read in --zone."),
    click.option("--every", metavar="DURATION", help="A fixed rate: 10m, 1h30m, 1s."),
    click.option("--at", metavar="WHEN", help="Once: RFC 3339, +90s, or a local time with --zone."),
    click.option("--zone", help="IANA time zone [UTC]."),
    click.option("--dialect", help="Of --cron: unix (default), seconds, quartz, aws."),
    click.option("--gap", help="Of --cron: skip (default), forward, shift: a local time that does not exist."),
    click.option("--fold", help="Of --cron: auto (default), first, last, both: a local time that occurs twice."),
    click.option("--anchor", metavar="WHEN", help="Of --every: an instant on its grid."),
    click.option("--start", metavar="WHEN", help="No occurrence before."),
    click.option("--end", metavar="WHEN", help="No occurrence at or after."),
    click.option("--calendar", help="A named calendar."),
    click.option("--roll", help="skip (default), next, previous: days the calendar excludes."),
    click.option("--priority", type=click.Choice(PRIORITIES), help="[normal]"),
    click.option("--lane", help="[the tenant's, else default]"),
    click.option("--window", metavar="DURATION", help="Spread the start over this time [0s: strict]."),
    click.option("--misfire", help="After an outage: fire_once (default), skip, catch_up:K."),
    click.option("--max-lateness", metavar="DURATION", help="Later than this it is missed, or `unlimited` [1d]."),
    click.option("--timeout-after", "timeout", metavar="DURATION", help="How long an attempt may take."),
    click.option("--deadline", metavar="DURATION", help="After this, counted from available_at, nobody need start."),
    click.option("--handler", help="Which code of the workers it is for."),
    click.option("--payload", metavar="JSON", help="Handed to the worker untouched."),
    click.option("--label", multiple=True, metavar="NAME=VALUE", help="May be given several times."),
    click.option("--owner", help="Who is responsible."),
    click.option("--description", help="What it does."),
    click.option("--impact", help="What it means if it doesn't run."),
    click.option("--runbook", help="Where it says what to do then."),
    click.option(
        "--file", type=click.Path(path_type=Path, dir_okay=False), help="Spec fields as YAML or JSON; options win."
    ),
    click.option("--preview", type=click.IntRange(min=0), default=3, show_default=True, help="Show the next N."),
)


choice_options = _options(
    click.argument("schedule_ids", nargs=-1, metavar="[ID]..."),
    click.option("--all", "everything", is_flag=True, help="All of them."),
    click.option("--tenant", help="All of this tenant."),
    click.option("--label", multiple=True, metavar="NAME=VALUE", help="All with this label; of several, with each."),
    click.option("--name-prefix", metavar="TEXT", help="All whose name, behind the tenant's, begins so."),
    click.option(
        "--state", "states", multiple=True, metavar="STATE", help="Of those only these; default: what it changes."
    ),
    click.option(
        "--bulk-id", metavar="ID", help="Finish the bulk run of this id, which was cut off. Default: a new one."
    ),
    click.option("--yes", is_flag=True, help="Don't ask before changing many."),
)
