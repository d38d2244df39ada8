"""Laws of every simulation: each nominal ends once, nothing is early, a pause holds, and looking changes nothing."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.time import format_instant, parse_instant
from scheduler.simulator import simulate

START = parse_instant("2026-01-01T12:00:00Z")
MINUTE = 60_000
END = START + 60 * MINUTE
NOMINALS = [START + n * MINUTE for n in range(1, 61)]
Event = dict[str, Any]


def at(instant: int) -> str:
    return format_instant(instant)


def command(instant: int, verb: str, **fields: Any) -> dict[str, Any]:
    return {"at": at(instant), "command": {"command": verb, "schedule_id": "acme/a", **fields}}


instants = st.integers(1, 59 * 60 * 4).map(lambda quarter: START + quarter * 250)


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    """An hour of a schedule that fires every minute, with pauses, resumes and outages; the last minute is quiet."""
    spec = {
        "trigger": {"cron": "* * * * *", "zone": "UTC"},
        "misfire": draw(st.sampled_from(["fire_once", "skip", {"catch_up": 3}, {"catch_up": 50}])),
        "window_ms": draw(st.sampled_from([0, 0, 20_000, 300_000])),
        "max_lateness_ms": draw(st.sampled_from([1_000, 90_000, 86_400_000, None])),
    }
    steps = [command(START, "create", spec=spec)]
    for instant in draw(st.lists(instants, max_size=5)):
        verb = draw(st.sampled_from(["pause", "resume"]))
        steps.append(command(instant, verb, **({"catch_up": draw(st.booleans())} if verb == "resume" else {})))
    cuts = sorted(draw(st.lists(instants, max_size=6, unique=True)))
    outages = zip(cuts[::2], cuts[1::2], strict=False)
    steps += [{"at": at(gone), "outage_until": at(back)} for gone, back in outages]
    return {"from": at(START), "until": at(END), "steps": steps}


def ended(events: list[Event]) -> list[int]:
    """Every nominal that an event says the end of, each as often as it is said."""
    found = []
    for event in events:
        if event["event"] == "dispatched":
            found.append(parse_instant(event["scheduled_for"]))
        elif "count" in event:
            last = parse_instant(event["scheduled_for"])
            first = parse_instant(event.get("first", event["scheduled_for"]))
            inside = [n for n in NOMINALS if first <= n <= last]
            assert len(inside) == event["count"]
            found += inside
    return sorted(found)


@given(scenarios())
@settings(max_examples=50, deadline=None)
def test_every_nominal_ends_exactly_once(scenario: dict[str, Any]) -> None:
    """Dispatched, missed or suppressed; only one that is still in its window at the end has no end yet."""
    events = list(simulate(scenario))
    found = ended(events)
    window = scenario["steps"][0]["command"]["spec"]["window_ms"]
    assert found in ([NOMINALS, NOMINALS[:-1]] if window else [NOMINALS])


@given(scenarios())
@settings(max_examples=25, deadline=None)
def test_nothing_is_early_and_time_only_grows(scenario: dict[str, Any]) -> None:
    """Not before its nominal, not before its window lets it; events come in order."""
    events = list(simulate(scenario))
    times = [parse_instant(event["at"]) for event in events]
    assert times == sorted(times)
    for event in events:
        if event["event"] == "dispatched":
            named, available, sent = (parse_instant(event[k]) for k in ("scheduled_for", "available_at", "at"))
            assert named <= available <= sent
            assert available < named + MINUTE


@given(scenarios())
@settings(max_examples=25, deadline=None)
def test_nothing_starts_after_a_pause_until_the_resume(scenario: dict[str, Any]) -> None:
    """From the answer on, whatever was owed."""
    paused = False
    for event in simulate(scenario):
        if event["event"] == "accepted" and event["code"] in ("paused", "resumed"):
            paused = event["code"] == "paused"
        assert not (paused and event["event"] == "dispatched")


@given(scenarios(), st.lists(instants, max_size=8))
@settings(max_examples=25, deadline=None)
def test_looking_more_often_changes_nothing(scenario: dict[str, Any], looks: list[int]) -> None:
    """Idle time is skipped; stopping in it, to answer a question, gives the same events."""
    looked = scenario | {"steps": [*scenario["steps"], *(command(instant, "preview") for instant in looks)]}
    told = [event for event in simulate(looked) if event.get("code") != "previewed"]
    assert told == list(simulate(scenario))
