"""Every given case of the time calculator, asked of the library and of the batch contract."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.batch import answer
from scheduler.core.cron import compile_cron
from scheduler.core.trigger import Every, Once, parse_trigger
from scheduler.core.zones import find_zone
from tests.support.time_checks import cases, check_case, check_golden, golden, ms


def of(*kinds: str) -> list[Any]:
    """The cases of the kinds, as parameters."""
    return [pytest.param(case, id=case["id"]) for case in cases() if case["kind"] in kinds]


def asked(case: dict[str, Any]) -> dict[str, Any]:
    """The case as a line of `scheduler next --batch`."""
    line = {"id": case["id"], "zone": case.get("tz"), "start": case.get("start", "2020-01-01T00:00:00Z")}
    line |= case.get("dst", {})
    if "expr" in case:
        line |= {"expr": case["expr"], "dialect": "seconds" if case.get("seconds") else "unix"}
    if "every_s" in case:
        line |= {"every_ms": case["every_s"] * 1000, "anchor": case["anchor"]}
    if "at_local" in case:
        line |= {"at_local": case["at_local"]}
    if "exclude_local_dates" in case:
        line |= {"calendar": {"exclude_dates": case["exclude_local_dates"]}}
    if "until" in case:
        line |= {"until": case["until"]}
    if "expect" in case:
        line |= {"count": max(1, len(case["expect"]) + bool(case.get("complete")))}
    return line


@pytest.mark.parametrize("case", of("cron", "never"))
def test_an_expression_fires_as_given(case: dict[str, Any]) -> None:
    """The first fires strictly after the start are the case's, and they can be counted."""
    check_case(compile_cron, case)


@pytest.mark.parametrize("case", of("cron", "rate", "oneshot", "calendar"))
def test_the_batch_answers_as_given(case: dict[str, Any]) -> None:
    """One line in, the same instants as text out; what can't be is refused by its code."""
    result = answer(asked(case))
    if not case["expect"]:
        assert result["error"]["code"] == "gap"
    else:
        assert [ms(text) for text in result["fires"]] == [ms(text) for text in case["expect"]]


@pytest.mark.parametrize("case", of("never"))
def test_what_never_fires_is_refused_when_created(case: dict[str, Any]) -> None:
    """An impossible date is an error of its own, not a silent schedule."""
    assert answer(asked(case))["error"]["code"] == "never_fires"


@pytest.mark.parametrize("case", of("count"))
def test_a_long_window_is_counted_and_listed(case: dict[str, Any]) -> None:
    """The count, the first and the last fire of a window; and the list has just so many."""
    line = asked(case)
    result = answer(line)
    parsed = parse_trigger(
        {"cron": case["expr"], "zone": case["tz"], "dialect": line["dialect"], **case["dst"]},
        schedule_id=None,
        effective_at=0,
    )
    assert parsed.trigger is not None
    assert parsed.trigger.count_between(ms(case["start"]), ms(case["until"])) == case["expect_count"]
    fires = result["fires"]
    assert (len(fires), fires[0], fires[-1]) == (case["expect_count"], case["expect_first"], case["expect_last"])


# Accepted although the case would refuse: section 6 of the design says so, and `unless_documented` has the answer.
DOCUMENTED = {"E19": "wrap-around", "E21": "wrap-around", "E32": "nW", "E79": "a-b/n, n wider than the range"}
# `expect_error: null`: decided once, and written down in the reference.
DECIDED = {"E37": False, "E39": False, "E72": True, "E73": False, "E84": True, "E85": True, "E86": True}


@pytest.mark.parametrize("case", of("syntax"))
def test_syntax_is_accepted_or_refused_as_given(case: dict[str, Any]) -> None:
    """Refused with a code, or accepted and then firing exactly as the reading says."""
    parsed = compile_cron(case["expr"], case.get("tz", "UTC"), fold="first")
    accepted = case["id"] in DOCUMENTED or DECIDED.get(case["id"], case["expect_error"] is False)
    if not accepted:
        assert parsed.trigger is None
        assert all(problem.code == "bad_field" and problem.message for problem in parsed.problems)
        return
    reading = case.get("unless_documented") or case.get("if_accepted") or case
    expected = [ms(text) for text in reading["expect"]]
    assert parsed.trigger is not None, parsed.problems
    assert parsed.trigger.between(ms(reading["start"]), expected[-1], 100) == expected


@pytest.mark.parametrize("case", of("zone"))
def test_a_zone_is_accepted_or_refused_as_given(case: dict[str, Any]) -> None:
    """Names in the tables exactly as written; nothing else, and nothing is stripped or folded."""
    result = answer({"id": 1, "expr": "0 0 * * *", "zone": case["tz"], "start": "2026-01-01T00:00:00Z"})
    if case["expect_error"] is False:
        assert "fires" in result
        assert find_zone(case["tz"]) is not None
    else:
        assert result["error"]["code"] == "unknown_zone"


@pytest.mark.parametrize("case", of("rate", "oneshot"))
def test_rates_and_one_shots_round_trip(case: dict[str, Any]) -> None:
    """A rate is a grid from its anchor, a one-shot its instant: the wire form gives back an equal value."""
    if "every_s" in case:
        trigger: Every | Once = Every(case["every_s"] * 1000, ms(case["anchor"]))
    else:
        local = case["at_local"] if case["expect"] else "2025-03-09T03:30:00"  # the one in the gap is no value
        parsed = parse_trigger(
            {"at_local": local, "zone": case["tz"], "fold": "first"}, schedule_id=None, effective_at=0
        ).trigger
        assert isinstance(parsed, Once)
        assert not case["expect"] or parsed.at == ms(case["expect"][0])
        trigger = parsed
    assert parse_trigger(trigger.to_wire(), schedule_id=None, effective_at=0).trigger == trigger


@pytest.mark.parametrize("item", [pytest.param(item, id=f"{at}") for at, item in enumerate(golden())])
def test_the_oracles_recorded_answers_hold(item: dict[str, Any]) -> None:
    """What the oracle once found is found again, by every question."""
    check_golden(compile_cron, item)
