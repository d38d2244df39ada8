"""What the policies decide, as whole timelines: each case plays in virtual time and must tell exactly its lines."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.simulator import simulate
from tests.support.policy_cases import DAY, Case, create, down, full, told
from tests.support.policy_table import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_tells_exactly_its_timeline(case: Case) -> None:
    """The policy decides this case so, and nothing else happens."""
    assert tuple(told(event, full(case.start)[:10]) for event in simulate(case.scenario)) == case.expect


def test_every_nominal_ends_in_exactly_one_state() -> None:
    """Dispatched, missed, suppressed and cancelled add up to the nominals there are, in every case of one minute."""
    for kind in ("skip", "fire_once", {"catch_up": 3}):
        steps = [
            create("12:00", "* * * * *", misfire=kind),
            down("12:05", "12:20"),
            {"at": full("12:30:30"), "command": {"command": "pause", "schedule_id": "acme/a"}},
            {"at": full("12:40:30"), "command": {"command": "resume", "schedule_id": "acme/a"}},
            down("12:50", "12:50:20"),
            {"at": full("12:59:30"), "command": {"command": "pause", "schedule_id": "acme/a"}},
        ]
        events = list(simulate({"from": full("12:00"), "until": full("13:10"), "steps": steps}))
        assert _ended(events) == 70, kind


def _ended(events: list[dict[str, Any]]) -> int:
    states = ("dispatched", "missed", "suppressed", "cancelled")
    return sum(event.get("count", 1) for event in events if event["event"] in states)


def test_offsets_of_the_same_rule_spread_out() -> None:
    """P54: schedules with the same cron do not start at the same instant of their window."""
    steps = [create("11:00", "0 12 * * *", f"acme/s{n}", window_ms=3_600_000) for n in range(60)]
    events = simulate({"from": full("11:00"), "until": full("13:00"), "steps": steps})
    starts = [event["at"] for event in events if event["event"] == "dispatched"]
    assert len(starts) == len(set(starts)) == 60
    assert {at[14] for at in starts} == set("012345")  # in each of the six tens of minutes


def test_a_rate_does_not_drift() -> None:
    """P61: the thousandth period of ten seconds starts 10,000 seconds after the first."""
    steps = [create("00:00", {"every_ms": 10_000, "anchor": full("00:00")})]
    events = simulate({"from": full("00:00"), "until": full("02:46:50"), "steps": steps})
    starts = [event["at"] for event in events if event["event"] == "dispatched"]
    assert starts[0] == f"{DAY}00:00:10Z"
    assert starts[1000] == f"{DAY}02:46:50Z"
    assert len(starts) == 1001


def test_what_is_not_there_yet_is_refused_by_name() -> None:
    """A verb of a later version changes nothing and says so."""
    ask = {"at": full("12:00"), "command": {"command": "replay", "schedule_id": "acme/a"}}
    events = list(simulate({"from": full("12:00"), "until": full("12:01"), "steps": [ask]}))
    assert [(event["event"], event["code"]) for event in events] == [("rejected", "not_supported")]
