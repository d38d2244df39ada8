"""`scheduler why`: one answer to "why did it run, or not run, at that time?", with the records that prove it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from scheduler.cli.common import MISUSED, Cli, Shown, json_option, now_ms, pass_cli, print_json
from scheduler.cli.kafka import kafka_errors, settings_with_broker
from scheduler.cli.moments import moment, zone_named
from scheduler.core.explain import local_text
from scheduler.core.identity import schedule_id_fault
from scheduler.core.model import DEFAULT_MAX_LATENESS_MS
from scheduler.core.time import format_instant
from scheduler.core.zones import pin_tables
from scheduler.simulator.why import judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.core.zones import Zone
    from scheduler.simulator.why import Verdict
    from topics import messages as m

_FAULTS: Final = frozenset({"unknown", "absent"})
_POLICY: Final = ("misfire", "max_lateness_ms", "window_ms", "overlap", "start", "end", "priority", "lane")


@click.command("why", short_help="Say why a schedule did or did not run at an instant.")
@click.argument("schedule_id", metavar="SCHEDULE")
@click.option("--at", "at_text", required=True, metavar="TIME", help="The instant, as the schedule would name it.")
@click.option("--zone", "zone_name", default="UTC", show_default=True, help="Of a local TIME and of what is shown.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(1), default=30.0, show_default=True, help="Seconds.")
@json_option
@pass_cli
def command(cli: Cli, *, schedule_id: str, at_text: str, zone_name: str, timeout_s: float, as_json: bool) -> None:
    """Say in one answer why SCHEDULE did or did not run at TIME, with the records that prove it.

    TIME is RFC 3339 with an offset, a local time of --zone, `now`, or `+2h` for something to come. Reads the history,
    the dispatch topics and the shard's own record. Exits with 1 for a schedule nobody knows and for an occurrence
    that left no trace although it should have.

    \b
    Examples:
      scheduler why acme/report --at 2027-03-01T09:00:00Z
      scheduler why acme/nightly --zone America/New_York --at 2027-03-14T02:30:00 --json
    """
    pin_tables()
    fault = schedule_id_fault(schedule_id)
    if fault is not None:
        raise Shown(fault, MISUSED)
    zone, now = zone_named(zone_name), now_ms()
    at = moment("--at", at_text, now, zone)
    settings = settings_with_broker(cli)
    with kafka_errors():
        from scheduler.cli.evidence import Collector

        evidence = Collector(settings, schedule_id, timeout_s=timeout_s).collect(at, now)
    verdict = judge(evidence)
    if as_json:
        print_json(as_object(schedule_id, at, verdict))
    else:
        for line in as_lines(schedule_id, at, verdict, zone):
            click.echo(line)
    if verdict.answer in _FAULTS:
        sys.exit(1)


def as_object(schedule_id: str, at: int, verdict: Verdict) -> dict[str, Any]:
    """The verdict for programs; what does not apply is left out."""
    found: dict[str, Any] = {
        "schedule_id": schedule_id,
        "at": format_instant(at),
        "answer": verdict.answer,
        "text": verdict.text,
    }
    if verdict.definition is not None:
        revision = verdict.definition
        found |= {"version": revision.version, "revision": revision.revision}
        found["policy"] = _policy(revision.spec)
    if verdict.previous is not None:
        found["previous"] = format_instant(verdict.previous)
    if verdict.next is not None:
        found["next"] = format_instant(verdict.next)
    found["evidence"] = [
        {"what": what, "topic": place.topic, "partition": place.partition, "offset": place.offset}
        | ({} if record is None else {"record": record})
        for what, place, record in verdict.evidence
    ]
    return found


def as_lines(schedule_id: str, at: int, verdict: Verdict, zone: Zone) -> Iterator[str]:
    """The verdict for a person."""
    yield f"{schedule_id} at {local_text(zone, at)}: {verdict.answer.replace('_', ' ')}"
    yield f"  {verdict.text}"
    if verdict.definition is not None:
        revision = verdict.definition
        trigger = "" if revision.spec is None else f", {bytes(revision.spec.trigger).decode()}"
        yield f"  in force: version {revision.version}, revision {revision.revision} since {revision.at}{trigger}"
        told = ", ".join(f"{name} {value}" for name, value in _policy(revision.spec).items())
        yield f"  policy: {told}"
    around = (("before", verdict.previous), ("after", verdict.next))
    for word, nominal in around:
        if nominal is not None:
            yield f"  the nominal {word} it: {local_text(zone, nominal)}"
    for what, place, _ in verdict.evidence:
        yield f"  {what}: {place.topic}/{place.partition} offset {place.offset}"


def _policy(spec: m.Spec | None) -> dict[str, Any]:
    """What of a definition decides about late, spread and overlapping runs; defaults included."""
    if spec is None:
        return {}
    values = {name: getattr(spec, name) for name in _POLICY}
    if spec.max_lateness_ms is msgspec.UNSET:
        values["max_lateness_ms"] = "the grace" if spec.misfire == "skip" else DEFAULT_MAX_LATENESS_MS
    elif spec.max_lateness_ms is None:
        values["max_lateness_ms"] = "unlimited"
    return {name: value for name, value in values.items() if value is not None}
