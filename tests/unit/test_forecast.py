"""The load to come, calculated: buckets, peaks, windows, bounds, and the chart."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from scheduler.cli import forecast as cli_forecast
from scheduler.cli import main
from scheduler.cli.forecast import chart
from scheduler.core.time import format_instant, parse_instant
from scheduler.core.zones import find_zone
from scheduler.shard import keys
from scheduler.simulator.forecast import bucket_edges, falls_between, forecast
from scheduler.simulator.scenario import parse_scenario
from scheduler.simulator.world import World
from scheduler.wire import schedule_from_bytes
from tests.support.policy_cases import create, do, full

if TYPE_CHECKING:
    from scheduler.core.model import Schedule
    from scheduler.core.zones import Zone

NOON = parse_instant(full("12:00"))
HOUR = 3_600_000


def zone(name: str = "UTC") -> Zone:
    found = find_zone(name)
    assert found is not None
    return found


def schedules(*steps: dict[str, Any], until: str = "12:00") -> list[Schedule]:
    """What the commands leave behind, by the scheduler's own hand."""
    world = World(parse_scenario({"from": full("11:00"), "until": full(until), "steps": list(steps)}))
    for _ in world.run():
        pass
    return [schedule_from_bytes(v) for _, v in world._store.items(keys.SCHEDULE, keys.after_prefix(keys.SCHEDULE))]


MIXED = (
    create("11:00", "0,30 * * * *", "acme/half"),
    create("11:00", {"every_ms": 1000}, "acme/second"),
    create("11:00", "15 13 * * *", "b/once-a-day"),
    create("11:00", "*/10 * * * *", "b/ends", end=full("13:05")),
    create("11:00", "0 * * * *", "b/paused"),
    do("11:00", "pause", "b/paused"),
)


def test_every_occurrence_counts_in_its_bucket() -> None:
    """A bucket holds its start and not its end; start and end of schedules bound them."""
    edges = bucket_edges(NOON, NOON + 3 * HOUR, "hour", zone())
    result = forecast(schedules(*MIXED), edges)
    assert result.counts == (3600 + 2 + 6, 3600 + 2 + 1 + 1, 3600 + 2)


def test_dense_and_sparse_ways_of_counting_agree() -> None:
    """Whatever the size of the buckets, the sum is the same."""
    found = schedules(*MIXED)
    totals = {
        forecast(found, bucket_edges(NOON, NOON + 26 * HOUR, by, zone())).total for by in ("minute", "hour", "day")
    }
    assert len(totals) == 1


def test_a_peak_names_the_schedules_behind_it() -> None:
    """The most of it first."""
    peak = forecast(schedules(*MIXED), bucket_edges(NOON, NOON + 3 * HOUR, "hour", zone())).peaks[0]
    assert (peak.start, peak.end, peak.load) == (NOON, NOON + HOUR, 3608)
    assert peak.schedules[0] == ("acme/second", 3600)
    assert dict(peak.schedules)["acme/half"] == 2
    assert peak.others == 0


def test_many_schedules_behind_a_peak_are_counted() -> None:
    """Ten by name, the rest as a number."""
    found = schedules(*(create("11:00", "0 13 * * *", f"acme/s{n:02}") for n in range(25)))
    peak = forecast(found, bucket_edges(NOON, NOON + 3 * HOUR, "minute", zone())).peaks[0]
    assert (peak.load, len(peak.schedules), peak.others) == (25, 10, 15)


def test_what_does_not_run_is_left_out_and_counted() -> None:
    """Paused, completed, cancelled."""
    found = schedules(
        *MIXED,
        create("11:00", {"at": full("11:30")}, "c/done"),
        create("11:00", "0 * * * *", "c/off"),
        do("11:10", "cancel", "c/off"),
    )
    assert forecast(found, (NOON, NOON + 1)).left_out == {"paused": 1, "completed": 1, "cancelled": 1}


def test_jitter_moves_load_to_where_it_starts() -> None:
    """Named at 13:00, spread over the hour after it; what was named before the range and starts in it counts."""
    found = schedules(*(create("11:00", "0 13 * * *", f"acme/s{n}", window_ms=HOUR) for n in range(120)))
    result = forecast(found, bucket_edges(NOON + HOUR + HOUR // 2, NOON + 3 * HOUR, "minute", zone()))
    assert 40 < result.total < 80
    assert max(result.counts) < 10
    assert sum(result.counts[30:]) == 0


def test_days_are_the_zones() -> None:
    """A day of 23 hours in Berlin, and round hours of a zone that is half an hour off."""
    start = parse_instant("2026-03-28T12:00:00Z")
    edges = bucket_edges(start, start + 48 * HOUR, "day", zone("Europe/Berlin"))
    assert [format_instant(at)[8:16] for at in edges] == ["28T12:00", "28T23:00", "29T22:00", "30T12:00"]
    assert bucket_edges(NOON, NOON + HOUR, "hour", zone("Asia/Kolkata")) == (NOON, NOON + HOUR // 2, NOON + HOUR)


@pytest.mark.parametrize(("start", "end"), [(NOON, NOON), (NOON, NOON + 60_000 * 50_001)])
def test_a_range_is_neither_empty_nor_endless(start: int, end: int) -> None:
    """Refused before anything is read."""
    with pytest.raises(ValueError, match="range"):
        bucket_edges(start, end, "minute", zone())


def test_what_falls_between_comes_in_order() -> None:
    """Across schedules, as it is asked for: an endless range costs nothing."""
    falls = falls_between(schedules(*MIXED[:4]), NOON + HOUR, NOON + 10_000 * 24 * HOUR)
    first = [
        (f.schedule.schedule_id, f.nominal.scheduled_for - NOON - HOUR) for _, f in zip(range(4), falls, strict=False)
    ]
    assert first == [("acme/half", 0), ("acme/second", 0), ("b/ends", 0), ("acme/second", 1000)]


def test_the_chart_is_bounded() -> None:
    """A day of minutes is sixty lines or less, each the highest of its minutes."""
    lines = list(chart(forecast(schedules(*MIXED), bucket_edges(NOON, NOON + 24 * HOUR, "minute", zone())), zone()))
    assert lines[0] == "each line is 24 buckets and shows the highest of them"
    assert len(lines) == 1 + 60 + 1 + 3
    assert lines[1] == f"Thu 2026-01-01 12:00:00 UTC (+00:00)  {'█' * 40} 62"
    assert lines[-3].startswith("peak of 62 from Thu 2026-01-01 12:00:00 UTC (+00:00): acme/second (60), acme/half (1)")


def test_the_command_reads_the_live_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets, peaks and a total as JSON lines; the local times of --zone are understood."""

    class Seen:
        def __init__(self, value: bytes) -> None:
            self.value = value

        def known(self) -> Schedule:
            return schedule_from_bytes(self.value)

    world = World(parse_scenario({"from": full("11:00"), "until": full("12:00"), "steps": [MIXED[0], *MIXED[4:]]}))
    for _ in world.run():
        pass
    stored = [v for _, v in world._store.items(keys.SCHEDULE, keys.after_prefix(keys.SCHEDULE))]
    monkeypatch.setattr(cli_forecast, "schedules", lambda *_, **__: [Seen(v) for v in [*stored, b"{}"]])
    monkeypatch.setattr(cli_forecast, "settings_with_broker", lambda _: None)
    asked = ["forecast", "--zone", "Europe/Berlin", "--from", "2027-03-28T02:00:00", "--to", "2027-03-28T04:00:00"]
    result = CliRunner().invoke(main, [*asked, "--json"])
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert told[0] == {"from": "2027-03-28T01:00:00Z", "to": "2027-03-28T02:00:00Z", "count": 2}
    assert told[1]["schedules"] == [{"schedule_id": "acme/half", "count": 2}]
    assert told[-1] == {"total": 2, "left_out": {"paused": 1}}
    assert "left out: a schedule record cannot be read" in result.stderr
    listed = CliRunner().invoke(main, [*asked, "--list", "--limit", "1"])
    assert "Sun 2027-03-28 03:00:00 CEST (+02:00)\tacme/half\t2027-03-28T01:00:00Z" in listed.stdout
    assert "these are the first 1" in listed.stderr
