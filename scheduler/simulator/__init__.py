"""What would happen? Scenarios run through the real shard in virtual time, without a broker.

    from scheduler.simulator import simulate

    def test_the_report_catches_up_three_times_after_an_outage():
        events = simulate({
            "from": "2026-01-01T09:00:00Z", "until": "2026-01-01T14:00:00Z",
            "steps": [
                {"at": "2026-01-01T09:00:00Z", "command": {"command": "create", "schedule_id": "acme/report", "spec": {
                    "trigger": {"cron": "*/5 * * * *", "zone": "UTC"}, "misfire": {"catch_up": 3}}}},
                {"at": "2026-01-01T12:01:00Z", "outage_until": "2026-01-01T13:02:00Z"},
            ],
        })
        late = [e["scheduled_for"] for e in events if e["event"] == "dispatched" and e["origin"] == "catch_up"]
        assert late == ["2026-01-01T12:50:00Z", "2026-01-01T12:55:00Z", "2026-01-01T13:00:00Z"]

The shape of a scenario is in `scenario.py`, of an event in `events.py`; `scheduler simulate` is the same from a prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.simulator.events import Event, Events, suppressed_so_far
from scheduler.simulator.scenario import Scenario, ScenarioInvalid, parse_scenario
from scheduler.simulator.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

__all__ = ["Event", "Scenario", "ScenarioInvalid", "parse_scenario", "play", "simulate"]


def simulate(scenario: Mapping[str, Any]) -> Iterator[Event]:
    """The events of a scenario (decoded JSON) in time order, made as they are asked for.

    Deterministic: the same scenario gives the same events. Raises ScenarioInvalid with every mistake, at once and not
    at the first event.
    """
    return play(parse_scenario(scenario))


def play(scenario: Scenario) -> Iterator[Event]:
    """The events of a checked scenario. At the end, what still running pauses have suppressed is told too."""
    world = World(scenario)
    events = Events(world.catalogue)
    for happened in world.run():
        yield from events.of(happened)
    for schedule in world.still_paused():
        yield from suppressed_so_far(schedule, scenario.until)
