"""`scheduler doctor`: is everything around the scheduler as it must be?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scheduler.cli.checks import (
    Finding,
    check_aborted,
    check_broker,
    check_clock,
    check_scheduler,
    check_topics,
)
from scheduler.cli.common import Cli, Shown, json_option, pass_cli, print_json
from scheduler.cli.kafka import kafka_errors, settings_with_broker
from scheduler.errors import BrokerUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scheduler.config import Settings

SHIPPED = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}


@click.command("doctor", short_help="Check broker, topics, clock and consumer settings.")
@click.option(
    "--consumer",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="A worker's consumer settings as a properties file; default: those we ship.",
)
@click.option(
    "-X", "properties", multiple=True, metavar="NAME=VALUE", help="One consumer setting; wins over --consumer."
)
@json_option
@pass_cli
def command(cli: Cli, *, consumer: Path | None, properties: tuple[str, ...], as_json: bool) -> None:
    """Check what the guarantees rest on: broker, topics, clock, shards, and a worker's consumer settings.

    The consumer check writes one aborted and one committed record to a topic of its own, reads them with the given
    settings, and removes the topic. Exits with 1 if a check failed, with 3 if no broker answers.

    \b
    Examples:
      scheduler doctor
      scheduler doctor --consumer worker.properties
      scheduler doctor -X isolation.level=read_uncommitted --json
    """
    given = dict(SHIPPED) if consumer is None and not properties else _consumer_settings(consumer, properties)
    settings = settings_with_broker(cli)
    worst = 0
    for finding in _findings(settings, given):
        if as_json:
            line = {"check": finding.check, "status": finding.status, "text": finding.text}
            print_json({**line, "next": finding.then} if finding.then else line)
        else:
            click.echo(f"{finding.status:<5} {finding.check:<10} {finding.text}")
            if finding.then:
                click.echo(f"{'':<16} next: {finding.then}")
        if finding.status == "fail":
            worst = max(worst, 3 if finding.check == "broker" else 1)
    sys.exit(worst)


def _findings(settings: Settings, consumer: Mapping[str, str]) -> Iterator[Finding]:
    broker = check_broker(settings)
    yield broker
    if broker.status == "fail":
        return  # nothing else can be asked
    topics = _answer("topics", lambda: check_topics(settings))
    yield topics
    if topics.status != "fail":
        yield _answer("clock", lambda: check_clock(settings, settings.catalogue().clock))
        yield _answer("scheduler", lambda: check_scheduler(settings))
    yield _answer("consumer", lambda: check_aborted(settings, consumer))


def _answer(name: str, check: Callable[[], Finding]) -> Finding:
    """The check's finding; that it could not be made is a finding too, and stops no other."""
    try:
        with kafka_errors():
            return check()
    except (BrokerUnavailable, Shown) as error:
        text = error.message if isinstance(error, Shown) else str(error)
        then = "check the brokers, and that this principal may describe, create, write and read topics"
        return Finding(check=name, status="fail", text=f"could not be checked: {text}", then=then)


def _consumer_settings(file: Path | None, properties: tuple[str, ...]) -> dict[str, str]:
    """Settings of a properties file and of -X. Raises `click.UsageError` for a line that is none."""
    lines = file.read_text(encoding="utf-8").splitlines() if file is not None else []
    found: dict[str, str] = {}
    for line in [*lines, *properties]:
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"{text!r} is no setting; expected name=value, like isolation.level=read_committed")
        found[name.strip()] = value.strip()
    return found
