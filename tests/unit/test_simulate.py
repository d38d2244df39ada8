"""The simulator's own rules: order, outages, what an event says, and that skipping time changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.time import parse_instant
from scheduler.simulator import ScenarioInvalid, simulate
from tests.support.policy_cases import create, do, down, full, told


def play(*steps: dict[str, Any], start: str = "12:00", until: str = "12:10", **more: Any) -> list[dict[str, Any]]:
    return list(simulate({"from": full(start), "until": full(until), "steps": list(steps), **more}))


def lines(*steps: dict[str, Any], **more: Any) -> list[str]:
    return [told(event, "2026-01-01") for event in play(*steps, **more)]


def test_until_is_inclusive_and_from_is_not_a_nominal_of_a_create() -> None:
    """The instant of the create is not fired, the instant `until` is."""
    assert lines(create("12:00", "*/10 * * * *")) == [
        "12:00:00 accepted created",
        "12:10:00 dispatched 12:10:00 schedule",
    ]


def test_at_one_instant_the_nominal_comes_before_the_command() -> None:
    """A pause at 12:05 does not stop 12:05."""
    assert lines(create("12:00", "*/5 * * * *"), do("12:05", "pause"))[1:3] == [
        "12:05:00 dispatched 12:05:00 schedule",
        "12:05:00 accepted paused",
    ]


def test_commands_of_one_instant_keep_the_order_of_the_file() -> None:
    """Also across schedules, and a pause does not overtake."""
    told_ = lines(create("12:00", "0 * * * *"), create("12:00", "0 * * * *", "acme/b"), do("12:00", "pause"))
    assert told_ == ["12:00:00 accepted created", "12:00:00 acme/b accepted created", "12:00:00 accepted paused"]


def test_steps_are_taken_by_their_instants() -> None:
    """Whatever their order in the file."""
    told_ = lines(do("12:07", "cancel"), create("12:00", "*/5 * * * *"))
    assert told_ == [
        "12:00:00 accepted created",
        "12:05:00 dispatched 12:05:00 schedule",
        "12:07:00 accepted cancelled",
    ]


def test_commands_of_an_outage_are_applied_first_at_its_end() -> None:
    """Their order is kept, and only then is decided what was missed."""
    told_ = lines(
        create("12:00", "* * * * *"), down("12:01:30", "12:05:30"), do("12:02", "pause"), do("12:03", "resume")
    )
    assert told_[2:] == [
        "12:05:30 accepted paused",
        "12:05:30 suppressed 4 paused 12:02:00 to 12:05:00",
        "12:05:30 accepted resumed",
        "12:06:00 dispatched 12:06:00 schedule",
        "12:07:00 dispatched 12:07:00 schedule",
        "12:08:00 dispatched 12:08:00 schedule",
        "12:09:00 dispatched 12:09:00 schedule",
        "12:10:00 dispatched 12:10:00 schedule",
    ]


def test_an_outage_that_does_not_end_tells_nothing_more() -> None:
    """Beyond `until` nobody looks."""
    assert lines(create("12:00", "*/5 * * * *"), down("12:01", "13:00"), do("12:02", "pause")) == [
        "12:00:00 accepted created"
    ]


def test_a_command_before_an_outage_of_the_same_instant_is_applied_before_it() -> None:
    """And one after it in the file waits for its end."""
    told_ = lines(create("12:00", "* * * * *"), do("12:02", "pause"), down("12:02", "12:04:30"), do("12:02", "resume"))
    assert told_[2:5] == [
        "12:02:00 dispatched 12:02:00 schedule",
        "12:02:00 accepted paused",
        "12:04:30 accepted resumed",
    ]


def test_an_event_has_only_the_fields_that_apply() -> None:
    """The shapes of the contract, field by field."""
    events = play(
        create("12:00", "*/5 * * * *", misfire={"catch_up": 1}),
        down("12:01", "12:17"),
        do("12:18", "nonsense"),
        until="12:20",
    )
    assert events[0] == {
        "at": full("12:00"), "schedule_id": "acme/a", "event": "accepted", "version": 1, "code": "created",
    }  # fmt: skip
    assert events[1] == {
        "at": full("12:17"), "schedule_id": "acme/a", "event": "missed", "scheduled_for": full("12:10"), "version": 1,
        "reason": "downtime", "count": 2, "first": full("12:05"), "last": full("12:10"),
    }  # fmt: skip
    assert events[2] == {
        "at": full("12:17"), "schedule_id": "acme/a", "event": "dispatched", "scheduled_for": full("12:15"),
        "available_at": full("12:15"), "version": 1, "attempt": 1, "origin": "catch_up", "stands_for": 1,
    }  # fmt: skip
    assert {"event": "rejected", "code": "bad_field"}.items() <= events[3].items()
    assert events[3]["reason"].startswith("command: expected one of create")
    assert events[4] == {
        "at": full("12:20"), "schedule_id": "acme/a", "event": "dispatched", "scheduled_for": full("12:20"),
        "available_at": full("12:20"), "version": 1, "attempt": 1, "origin": "schedule",
    }  # fmt: skip


def test_a_command_that_names_no_schedule_is_rejected_with_what_it_named() -> None:
    """It goes where such records go, and the timeline still tells of it."""
    events = play({"at": full("12:00"), "command": {"command": "pause", "schedule_id": 7}})
    assert [(e["event"], e["schedule_id"], e["code"]) for e in events] == [("rejected", 7, "bad_field")]


def test_a_repeated_command_id_has_one_effect() -> None:
    """The second copy gets the same answer."""
    ask = do("12:01", "trigger", command_id="same")
    told_ = lines(
        create("12:00", "0 * * * *"), do("12:01", "pause", command_id="p"), do("12:02", "pause", command_id="p"), ask
    )
    assert told_[1:3] == ["12:01:00 accepted paused", "12:01:00 accepted dispatched"]
    assert told_[-1] == "12:02:00 accepted paused"


def test_a_lane_that_a_scenario_names_exists() -> None:
    """Unlike on a cluster, nothing has to be set up for it."""
    assert lines(create("12:00", "*/10 * * * *", lane="reports"))[-1] == "12:10:00 dispatched 12:10:00 schedule"


def test_undeclared_tenants_get_the_default_budget() -> None:
    """100 a second: of 150 caught up, the last 50 follow within half a second."""
    events = play(
        create("12:00", {"every_ms": 1000}, misfire={"catch_up": 150}),
        down("12:00:00.500", "12:04:00.500"),
        until="12:05",
    )
    late = [e["at"] for e in events if e.get("origin") == "catch_up"]
    assert late.count(full("12:04:00.500")) == 100
    assert len(late) == 150
    assert max(late) == full("12:04:01")


def test_the_same_scenario_tells_the_same() -> None:
    """Nothing is drawn, nothing depends on the machine's clock."""
    steps = [create("12:00", "* * * * *", f"acme/s{n}", window_ms=30_000) for n in range(5)]
    steps.append(down("12:02:10", "12:07:20"))
    assert play(*steps) == play(*steps)


def test_events_come_in_the_order_of_time() -> None:
    """Across windows, catch-up under a budget and on-time work."""
    steps = [create("12:00", "* * * * *", f"acme/s{n}", window_ms=50_000, misfire={"catch_up": 3}) for n in range(9)]
    events = play(*steps, down("12:02:10", "12:07:20"), tenants={"acme": {"catch_up_per_s": 0.5}})
    instants = [parse_instant(e["at"]) for e in events]
    assert instants == sorted(instants)
    assert len({e["at"] for e in events if e.get("origin") == "catch_up"}) == 27


def test_decades_are_skipped_not_walked() -> None:
    """19 leap days in 74 years: work is for what happens, not for time that passes."""
    events = play(create("12:00", "0 0 29 2 *"), until="2100-01-01T00:00:00Z")
    assert [e["scheduled_for"][:4] for e in events[1:]] == [str(year) for year in range(2028, 2100, 4)]


def test_a_completed_schedule_is_forgotten_a_day_later() -> None:
    """As live: its id is then free, and its version is not used again."""
    events = lines(
        create("12:00", {"at": full("12:05")}),
        create("2026-01-02T12:04:00Z", {"at": "2026-01-03T00:00:00Z"}),
        create("2026-01-02T12:06:00Z", {"at": "2026-01-03T00:00:00Z"}),
        until="2026-01-02T13:00:00Z",
    )
    assert events[3:] == [
        "2026-01-02T12:04:00Z rejected already_exists",
        "2026-01-02T12:06:00Z accepted created v2",
    ]


OFFICE = {"name": "office", "exclude_dates": ["2026-01-03"]}


def _daily(*steps: dict[str, Any]) -> list[str]:
    """A schedule at noon of each day of the calendar."""
    first = create("2026-01-01T00:00:00Z", "0 12 * * *", calendar="office")
    events = simulate(
        {
            "from": "2026-01-01T00:00:00Z",
            "until": "2026-01-06T00:00:00Z",
            "steps": [{"at": "2026-01-01T00:00:00Z", "calendar": OFFICE}, first, *steps],
        }
    )
    return [f"{e['at'][8:10]} {e['event']} {e.get('reason', '')}".rstrip() for e in events]


def test_a_calendar_takes_its_days_away() -> None:
    """The 3rd is closed, and that is told."""
    assert _daily() == [
        "01 accepted",
        "01 dispatched",
        "02 dispatched",
        "04 dispatched",
        "04 suppressed calendar",
        "05 dispatched",
    ]


def test_a_newer_version_of_a_calendar_counts_from_its_instant_on() -> None:
    """Its schedules are planned anew; also when it came while nobody was there."""
    newer = {"at": "2026-01-02T18:00:00Z", "calendar": {"name": "office", "exclude_dates": ["2026-01-04"]}}
    gone = {"at": "2026-01-02T17:00:00Z", "outage_until": "2026-01-02T19:00:00Z"}
    expected = ["01 accepted", "01 dispatched", "02 dispatched", "03 dispatched"]
    expected += ["05 dispatched", "05 suppressed calendar"]
    assert _daily(newer) == expected
    assert _daily(gone, newer) == expected


def test_a_deleted_calendar_breaks_its_schedules() -> None:
    """As on the topic."""
    deleted = {"at": "2026-01-02T18:00:00Z", "calendar": {"name": "office", "deleted": True}}
    assert _daily(deleted)[3:] == ["02 broken"]


def test_every_mistake_of_a_calendar_is_named() -> None:
    """With its path in the scenario."""
    with pytest.raises(ScenarioInvalid) as caught:
        _daily({"at": "2026-01-02T18:00:00Z", "calendar": {"name": "office", "exclude_dates": ["x"], "colour": 1}})
    assert [p.field for p in caught.value.problems] == [
        "steps[2].calendar.colour",
        "steps[2].calendar.exclude_dates",
    ]
