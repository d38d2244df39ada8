"""What `tail` and `demo` make of dispatch records."""

from __future__ import annotations

import pytest

from scheduler.cli.arrivals import Arrival, Tally, percentile
from topics.messages import PRIORITIES, Dispatch

DUE = 1_800_000_000_000


def arrival(name: str = "a/b", *, late: int = 7, priority: str = "normal", attempt: int = 1) -> Arrival:
    dispatch = Dispatch(
        occurrence_id=f"{name}:1:20270115T080000.000Z",
        schedule_id=name,
        tenant="a",
        version=1,
        shard=3,
        lane="default",
        priority=priority,  # type: ignore[arg-type] # one of the literals
        attempt=attempt,
        scheduled_for="2027-01-15T07:59:00Z",
        available_at="2027-01-15T08:00:00Z",
        origin="schedule",
        stands_for=1,
        tz_version="",
        generation=0,
    )
    return Arrival.of(dispatch, enqueued_at=DUE + late, topic="dispatch.default.normal", partition=3, offset=41)


def test_lateness_counts_from_available_at() -> None:
    """Jitter is no lateness."""
    assert arrival(late=7).lateness_ms == 7
    assert arrival().as_json()["lateness_ms"] == 7
    assert arrival().as_json()["enqueued_at"] == "2027-01-15T08:00:00.007Z"


def test_a_line_shows_id_scheduled_lateness_and_partition() -> None:
    """What issue and help promise."""
    line = arrival(late=1234).as_line()
    for part in ("07:59:00Z", "+1,234 ms", "normal", "3@41", "a/b:1:20270115T080000.000Z"):
        assert part in line


def test_a_tally_finds_duplicates_and_early_ones() -> None:
    """Another attempt is no duplicate; one millisecond before its instant is early, on the instant is not."""
    tally = Tally()
    for item in (arrival(), arrival(attempt=2), arrival(), arrival("a/c", late=0), arrival("a/d", late=-1)):
        tally.add(item)
    assert tally.count == 4
    assert tally.duplicates == ["a/b:1:20270115T080000.000Z"]
    assert tally.early == ["a/d:1:20270115T080000.000Z"]


def test_rows_are_by_priority_and_for_all() -> None:
    """In the order of the priorities, those without arrivals left out."""
    tally = Tally()
    for number, late in enumerate([5, 1, 3]):
        tally.add(arrival(f"a/n{number}", late=late))
    tally.add(arrival("a/c", late=9, priority="critical"))
    assert tally.rows(PRIORITIES) == [("critical", 1, 9, 9, 9), ("normal", 3, 3, 5, 5), ("all", 4, 3, 9, 9)]
    assert Tally().rows(PRIORITIES) == []


@pytest.mark.parametrize(("percent", "value"), [(50, 50), (99, 99), (100, 100), (1, 1)])
def test_percentiles_are_values_that_occurred(percent: int, value: int) -> None:
    """Nearest rank, no interpolation."""
    assert percentile(range(1, 101), percent) == value
