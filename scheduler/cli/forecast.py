"""`scheduler forecast`: the load that the live schedules will make, before they make it.

Reads `scheduler.schedules` as it is and calculates; works while no scheduler runs.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import click

from scheduler.cli.common import MISUSED, Cli, Shown, json_option, note, now_ms, pass_cli, print_json, print_table
from scheduler.cli.kafka import kafka_errors, settings_with_broker
from scheduler.cli.looking import schedules
from scheduler.cli.moments import moment, zone_named
from scheduler.core.explain import local_text
from scheduler.core.time import format_instant
from scheduler.core.zones import pin_tables
from scheduler.errors import StateCorrupted
from scheduler.simulator.forecast import BUCKET_MS, bucket_edges, falls_between, forecast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scheduler.cli.looking import Seen
    from scheduler.core.model import Schedule
    from scheduler.core.zones import Zone
    from scheduler.simulator.forecast import Forecast

_BAR: Final = 40
_ROWS: Final = 60


@click.command("forecast", short_help="Show the load to come, its peaks, and what is behind them.")
@click.option("--from", "start", default="now", show_default=True, metavar="TIME", help="Where to begin.")
@click.option("--to", "end", default="+24h", show_default=True, metavar="TIME", help="Where to end (exclusive).")
@click.option("--by", type=click.Choice(list(BUCKET_MS)), default="hour", show_default=True, help="Size of a bucket.")
@click.option("--tenant", help="Only this tenant's schedules.")
@click.option("--zone", "zone_name", default="UTC", show_default=True, help="Of local times, days and what is shown.")
@click.option("--list", "listing", is_flag=True, help="List what falls between --from and --to instead of counting.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=200, show_default=True, help="Of --list.")
@json_option
@pass_cli
def command(
    cli: Cli,
    *,
    start: str,
    end: str,
    by: str,
    tenant: str | None,
    zone_name: str,
    listing: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Show how many occurrences the schedules as they are will start, by minute, hour or day.

    TIME is `now`, `+90m`, RFC 3339 with an offset, or a local time of --zone. Paused and ended schedules are left out
    and counted in a note; outages, catch-up and manual runs are not foreseen.

    \b
    Examples:
      scheduler forecast --to +7d --by day
      scheduler forecast --tenant acme --by minute --to +2h --json
      scheduler forecast --list --zone Europe/Berlin --from 2027-03-28T02:00:00 --to 2027-03-28T04:00:00
    """
    pin_tables()
    zone, now = zone_named(zone_name), now_ms()
    first, last = moment("--from", start, now, zone), moment("--to", end, now, zone)
    try:
        edges = bucket_edges(first, last, by, zone)
    except ValueError as fault:
        raise Shown(str(fault), MISUSED) from None
    settings = settings_with_broker(cli)
    with kafka_errors():
        found = list(_known(schedules(settings, tenant=tenant)))
    if listing:
        _list(found, first, last, limit, zone, as_json=as_json)
        return
    result = forecast(found, edges)
    if as_json:
        _print_json(result)
        return
    for line in chart(result, zone):
        click.echo(line)


def _known(found: Iterable[Seen]) -> Iterator[Schedule]:
    """Schedules this version can read; others are named and left out."""
    for seen in found:
        try:
            yield seen.known()
        except StateCorrupted as fault:
            note(f"left out: {fault}")


def _list(found: Sequence[Schedule], first: int, last: int, limit: int, zone: Zone, *, as_json: bool) -> None:
    falls = falls_between(found, first, last)
    rows = list(islice(falls, limit))
    if as_json:
        for nominal, schedule in rows:
            print_json(
                {
                    "schedule_id": schedule.schedule_id,
                    "version": schedule.version,
                    "scheduled_for": format_instant(nominal.scheduled_for),
                    "available_at": format_instant(nominal.available_at),
                }
            )
    else:
        print_table(
            ["starts", "schedule", "scheduled_for"],
            [(local_text(zone, n.available_at), s.schedule_id, format_instant(n.scheduled_for)) for n, s in rows],
        )
    if next(falls, None) is not None:
        note(f"there is more: these are the first {limit}; --limit shows more")
    _tell_left_out(forecast(found, (first, first + 1)))


def _print_json(result: Forecast) -> None:
    for index, count in enumerate(result.counts):
        start, end = format_instant(result.edges[index]), format_instant(result.edges[index + 1])
        print_json({"from": start, "to": end, "count": count})
    for peak in result.peaks:
        print_json(
            {
                "peak": {"from": format_instant(peak.start), "to": format_instant(peak.end), "count": peak.load},
                "schedules": [{"schedule_id": name, "count": count} for name, count in peak.schedules],
                "others": peak.others,
            }
        )
    print_json({"total": result.total, "left_out": result.left_out})


def chart(result: Forecast, zone: Zone) -> Iterator[str]:
    """Lines for a terminal: at most `_ROWS` bars (each the highest of its buckets), then the peaks in words."""
    group = -(-len(result.counts) // _ROWS)
    highest = max(result.counts, default=0)
    if group > 1:
        yield f"each line is {group} buckets and shows the highest of them"
    for index in range(0, len(result.counts), group):
        count = max(result.counts[index : index + group])
        bar = "█" * (-(-count * _BAR // highest) if highest else 0)
        yield f"{local_text(zone, result.edges[index])}  {bar:<{_BAR}} {count}"
    yield f"{result.total} in all"
    for peak in result.peaks:
        named = ", ".join(f"{name} ({count})" for name, count in peak.schedules)
        others = f" and {peak.others} more schedules" if peak.others else ""
        yield f"peak of {peak.load} from {local_text(zone, peak.start)}: {named}{others}"
    _tell_left_out(result)


def _tell_left_out(result: Forecast) -> None:
    if result.left_out:
        note("left out: " + ", ".join(f"{count} {state}" for state, count in sorted(result.left_out.items())))
