"""Why did it run, or not: the judgement, over what a shard really wrote."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.cli.why import as_lines, as_object
from scheduler.core.due import Lag, instant_end, queue_name
from scheduler.core.model import Priority
from scheduler.core.time import parse_instant
from scheduler.core.zones import find_zone
from scheduler.simulator.why import ANSWERS, judge
from tests.support.policy_cases import create, cron, do, down, full
from tests.support.traces import evidence

if TYPE_CHECKING:
    from scheduler.simulator.why import Verdict

HISTORY = (
    create("09:30", "0 * * * *", misfire="fire_once", window_ms=0),
    down("12:30", "15:10"),
    do("15:30", "update", spec=cron("30 * * * *"), actor="kim"),
    do("17:00", "pause", reason="incident 4711"),
    do("18:45", "resume"),
    do("19:45", "pause", actor="kim"),
)


def why(at: str, *steps: dict[str, Any], until: str = "20:50", now: str | None = None, **changes: Any) -> Verdict:
    scenario = {"from": full("09:00"), "until": full(until), "steps": list(steps or HISTORY)}
    found = evidence(scenario, "acme/a", parse_instant(full(at)), parse_instant(full(now or until)))
    return judge(replace(found, **changes))


@pytest.mark.parametrize(
    ("at", "answer", "words"),
    [
        ("10:00", "dispatched", "by its schedule, version 1, to dispatch.default.normal/0 at offset 0"),
        ("15:00", "dispatched", "caught up after an outage, version 1"),
        ("13:00", "missed", "missed (downtime), decided at 2026-01-01T15:10:00Z, version 1, with 1 others"),
        ("17:30", "suppressed", "suppressed (paused)"),
        ("20:30", "paused", "paused at 2026-01-01T19:45:00Z by kim; the record of it is written when the pause ends"),
        ("10:01", "not_named", "the rule of version 1 does not name 2026-01-01T10:01:00Z"),
        ("09:00", "not_named", "created at 2026-01-01T09:30:00Z, and counts strictly after that"),
        ("10:30", "not_named", "version 2 does, but came only at 2026-01-01T15:30:00Z"),
        ("15:30", "not_named", "version 2 does, but came only at 2026-01-01T15:30:00Z"),
        ("17:00", "not_named", "version 1 did, but was replaced before"),
    ],
)
def test_what_happened_is_told_by_its_record(at: str, answer: str, words: str) -> None:
    """Records first; then the definition that was in force strictly before the instant."""
    verdict = why(at)
    assert verdict.answer == answer
    assert words in verdict.text


def test_a_missed_one_names_the_run_that_stood_for_it() -> None:
    """Both records are evidence."""
    verdict = why("13:00")
    assert "2026-01-01T15:00:00Z ran for it" in verdict.text
    assert [place.topic for _, place, _ in verdict.evidence] == [
        "scheduler.occurrences",
        "dispatch.default.normal",
        "scheduler.schedule-history",
        "scheduler.schedules",
    ]


def test_the_nominals_around_it_are_those_of_the_definition_in_force() -> None:
    """Of the version that counted then."""
    verdict = why("10:01")
    assert (verdict.previous, verdict.next) == (parse_instant(full("10:00")), parse_instant(full("11:00")))
    assert verdict.definition is not None
    assert verdict.definition.version == 1


def test_a_gap_is_the_reason() -> None:
    """The local time that did not exist is named."""
    scenario = {
        "from": "2026-03-07T12:00:00Z", "until": "2026-03-09T12:00:00Z",
        "steps": [create("2026-03-07T12:00:00Z", "30 2 * * *", zone="America/New_York")],
    }  # fmt: skip
    at = parse_instant("2026-03-08T07:00:00Z")
    verdict = judge(evidence(scenario, "acme/a", at, parse_instant("2026-03-09T12:00:00Z")))
    assert verdict.answer == "not_named"
    assert "2026-03-08T02:30:00 does not exist" in verdict.text
    assert verdict.next == parse_instant("2026-03-09T06:30:00Z")


def test_start_and_end_are_reasons() -> None:
    """Each by name."""
    bounded = create("09:30", "0 * * * *", start=full("11:00"), end=full("13:00"))
    assert "its start is 2026-01-01T11:00:00Z" in why("10:00", bounded).text
    assert "its end is 2026-01-01T13:00:00Z" in why("13:00", bounded).text


@pytest.mark.parametrize(
    ("verb", "words"), [("delete", "did not exist then: deleted"), ("cancel", "was cancelled then")]
)
def test_after_its_end_a_schedule_names_nothing(verb: str, words: str) -> None:
    """Who ended it and when."""
    verdict = why("11:00", create("09:30", "0 * * * *"), do("10:30", verb, actor="kim"))
    assert verdict.answer == "ended"
    assert words in verdict.text
    assert "by kim" in verdict.text


def test_a_cancel_in_the_window_is_told_by_its_record() -> None:
    """The nominal was reached, and cancelled."""
    verdict = why("10:00", create("09:30", "0 * * * *", window_ms=3_000_000), do("10:00:00.001", "cancel"))
    assert verdict.answer == "cancelled"


def test_what_is_to_come_is_not_late() -> None:
    """Not before its instant, and not before its window lets it start."""
    assert why("20:00", create("09:30", "0 * * * *"), until="12:00").answer == "to_come"
    spread = create("09:30", "0 * * * *", window_ms=3_000_000)
    verdict = why("12:00", spread, until="12:00:00.001")
    assert verdict.answer == "to_come"
    assert "it is inside its window; its jitter lets it start at" in verdict.text


def test_what_waits_for_a_budget_is_waiting() -> None:
    """It is owed, and the record that owes it is evidence."""
    steps = (create("09:30", {"every_ms": 1000}, misfire={"catch_up": 500}), down("10:00", "10:30"))
    verdict = why("10:29:59", *steps, until="10:30:01")
    assert verdict.answer == "waiting"
    assert verdict.evidence[0][1].topic == "scheduler.live"


def test_what_is_planned_or_filled_in_is_no_start() -> None:
    """A change for later and a backfill are owed as well, and say nothing about this instant."""
    filled = {"from": full("07:00"), "until": full("08:00"), "per_s": 1}
    steps = (
        create("09:30", {"every_ms": 1000}, misfire="skip"),
        do("09:40", "update", spec={"priority": "high"}, effective_from=full("18:00")),
        do("10:00", "backfill", **filled),
    )
    assert why("09:29:00", *steps, until="10:00:05").answer == "not_named"
    assert why("10:00:06", *steps, until="10:00:05").answer == "to_come"


def test_a_scheduler_that_is_gone_makes_late() -> None:
    """The shard's own record says how far it came."""
    steps = (create("09:30", "0 * * * *"), down("10:30", "19:00"))
    verdict = why("11:00", *steps, until="12:00")
    assert verdict.answer == "late"
    assert "it is due and not dispatched: the shard has fired up to 2026-01-01T10:00:00Z" in verdict.text


def test_what_waits_for_its_turn_is_late() -> None:
    """The shard has passed it, but its queue lags; without that lag a missing record is a fault."""
    steps = [create("09:30", "0 * * * *"), down("10:30", "19:00")]
    scenario = {"from": full("09:00"), "until": full("12:00"), "steps": steps}
    found = evidence(scenario, "acme/a", parse_instant(full("11:00")), parse_instant(full("11:01")))
    assert found.shard is not None
    record, place = found.shard
    passed = record.moved(cursor=instant_end(found.now))
    lag = Lag(after=instant_end(parse_instant(full("10:00"))))
    lagging = passed.moved(lags={queue_name(Priority.NORMAL, "acme/a"): lag})
    verdict = judge(replace(found, shard=(lagging, place)))
    assert verdict.answer == "late"
    assert "waits for its turn" in verdict.text
    assert "this queue is served up to 2026-01-01T10:00:00Z" in verdict.text
    assert judge(replace(found, shard=(passed, place))).answer == "absent"


def test_what_nobody_knows_is_unknown() -> None:
    """Neither now nor in the history."""
    assert why("10:00", create("09:30", "0 * * * *", "acme/other")).answer == "unknown"


def test_missing_records_are_a_fault_unless_they_may_be_gone() -> None:
    """Older than what is kept is no accusation."""
    assert why("10:00", dispatches=()).answer == "absent"
    assert why("10:00", dispatches=(), kept_since=parse_instant(full("11:00"))).answer == "too_old"


def test_a_history_that_begins_later_is_too_old() -> None:
    """Its first revision is then no create."""
    found = why("10:00").evidence
    assert found
    late = evidence({"from": full("09:00"), "until": full("20:50"), "steps": list(HISTORY)}, "acme/a", 0, 1)
    verdict = why("10:00", dispatches=(), revisions=late.revisions[1:])
    assert verdict.answer == "too_old"


def test_a_completed_one_shot() -> None:
    """It ran; afterwards it names nothing."""
    assert why("10:00", create("09:30", {"at": full("10:00")})).answer == "dispatched"
    assert why("11:00", create("09:30", {"at": full("10:00")})).answer == "not_named"


def test_every_answer_is_known_and_printable() -> None:
    """For people with the records' places, for programs with the records themselves."""
    utc = find_zone("UTC")
    assert utc is not None
    for at in ("10:00", "13:00", "17:30", "20:30", "10:01"):
        verdict = why(at)
        assert verdict.answer in ANSWERS
        lines = list(as_lines("acme/a", parse_instant(full(at)), verdict, utc))
        assert lines[0].startswith(f"acme/a at Thu 2026-01-01 {at}:00 UTC")
        assert any("policy: misfire fire_once, max_lateness_ms 86400000" in line for line in lines)
        told = as_object("acme/a", parse_instant(full(at)), verdict)
        assert {"schedule_id", "at", "answer", "text", "evidence", "policy", "version", "revision"} <= told.keys()
