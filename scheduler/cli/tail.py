"""`scheduler tail`: what arrives on the dispatch topics, as it arrives."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from scheduler.cli.arrivals import HEADING, Arrival
from scheduler.cli.common import Cli, json_option, note, pass_cli, print_json
from scheduler.cli.kafka import kafka_errors, settings_with_broker
from topics.codec import Undecodable, decode
from topics.messages import PRIORITIES, Dispatch
from topics.reading import Record, follow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@click.command("tail", short_help="Follow the dispatch topics.")
@json_option
@click.option("--lane", help="Only this lane; default: all.")
@click.option("--priority", type=click.Choice(PRIORITIES), help="Only this priority; default: all.")
@click.option("--tenant", help="Only this tenant's.")
@click.option("--schedule", "schedule_id", metavar="ID", help="Only this schedule's.")
@click.option(
    "--from-beginning", is_flag=True, help="What is still kept first; default: only what arrives from now on."
)
@click.option("--count", type=click.IntRange(min=1), help="End after this many.")
@click.option("--seconds", type=click.FloatRange(min=0), help="End after this time.")
@pass_cli
def command(
    cli: Cli,
    *,
    as_json: bool,
    lane: str | None,
    priority: str | None,
    tenant: str | None,
    schedule_id: str | None,
    from_beginning: bool,
    count: int | None,
    seconds: float | None,
) -> None:
    """Follow the dispatch topics: scheduled time, lateness, priority, partition and id of each occurrence.

    Reads committed records only, without a consumer group: nothing is taken from any worker. Lateness is the broker's
    append time minus `available_at`. Ends with Ctrl-C, `--count` or `--seconds`.

    \b
    Examples:
      scheduler tail
      scheduler tail --priority critical --json
      scheduler tail --schedule acme/report --from-beginning --count 10
    """
    settings = settings_with_broker(cli)
    catalogue = settings.catalogue()
    if lane is not None and lane not in settings.lanes:
        raise click.BadParameter(
            f"{lane!r} is no lane here; lanes are {', '.join(settings.lanes)}", param_hint="--lane"
        )
    topics = [
        catalogue.dispatch(name, level)
        for name in settings.lanes
        if lane in (None, name)
        for level in PRIORITIES
        if priority in (None, level)
    ]
    if not as_json:
        click.echo(HEADING)
    shown = 0
    with kafka_errors(), stopping(seconds) as stop:
        for record in follow(settings.client_config(), topics, from_beginning=from_beginning, stop=stop):
            arrival = arrival_of(record)
            if arrival is None or (schedule_id or arrival.schedule_id) != arrival.schedule_id:
                continue
            if tenant is not None and not arrival.schedule_id.startswith(tenant + "/"):
                continue
            if as_json:
                print_json(arrival.as_json())
            else:
                click.echo(arrival.as_line())
                sys.stdout.flush()
            shown += 1
            if shown == count:
                return


def arrival_of(record: Record) -> Arrival | None:
    """The record as an arrival; what is no dispatch is named on standard error and skipped."""
    try:
        return Arrival.of(
            decode(Dispatch, record.value),
            enqueued_at=record.append_ms,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
        )
    except (Undecodable, ValueError) as error:
        note(f"{record.topic}/{record.partition}@{record.offset}: {error}")
        return None


@contextmanager
def stopping(seconds: float | None = None) -> Iterator[Callable[[], bool]]:
    """Gives "is it time to stop?": after `seconds`, or once Ctrl-C or SIGTERM came, which end nothing by themselves."""
    asked: list[bool] = []  # no event: setting one in a signal handler may wait for a lock for ever
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: asked.append(True)) for number in numbers]
    deadline = None if seconds is None else time.monotonic() + seconds
    try:
        yield lambda: bool(asked) or (deadline is not None and time.monotonic() >= deadline)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
