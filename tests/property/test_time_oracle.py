"""The engine against the brute-force oracle, in every zone, under every gap and fold policy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.core.cron import Cron, compile_cron
from scheduler.core.zones import find_zone
from tests.support.time_oracle import Expression, nominals
from tests.support.time_strategies import FOLDS, GAPS, ZONES, expressions, folds, gaps, instants, zones

_QUICK = settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
_LONG = settings(max_examples=100_000, deadline=None, suppress_health_check=list(HealthCheck))


def compiled(expression: Expression, zone: str, gap: str, fold: str) -> Cron | None:
    """The engine's trigger; None when it proves that the expression never fires."""
    parsed = compile_cron(expression.text, zone, expression.dialect, gap, fold)
    if parsed.trigger is None:
        assert [problem.code for problem in parsed.problems] == ["never_fires"], (expression.text, parsed.problems)
        return None
    assert isinstance(parsed.trigger, Cron)
    return parsed.trigger


def agree(expression: Expression, zone: str, gap: str, fold: str, low: int, length: int) -> None:
    """Every question about [low, low + length] seconds has the oracle's answer."""
    high = low + length
    expected = [at * 1000 for at in nominals(expression, zone, gap, fold, low, high)]
    trigger = compiled(expression, zone, gap, fold)
    if trigger is None:
        assert expected == []
        return
    a, b = low * 1000 - 1, high * 1000
    assert trigger.between(a, b, 10**6) == expected
    assert trigger.count_between(a, b) == len(expected)
    assert trigger.newest_before(b, 100, a) == expected[-100:]
    for at, following in [*pairwise(expected[:30]), *pairwise(expected[-5:])]:
        assert trigger.next_after(at) == following
        assert trigger.next_after(following - 1) == following
        assert trigger.prev_before(following) == at
        assert trigger.prev_before(at + 1) == at
    if expected:
        assert trigger.next_after(a) == expected[0]
        assert trigger.prev_before(b + 1) == expected[-1]
    else:
        following, before = trigger.next_after(a), trigger.prev_before(b + 1)
        assert following is None or following > b
        assert before is None or before <= a


def _length(expression: Expression, days: int) -> int:
    """At most ten days, fewer the more there is to list."""
    a_day = len(expression.seconds) * len(expression.minutes) * len(expression.hours)
    return min(days * 86_400, max(4 * 3600, 400 * 86_400 // a_day))


_ARGUMENTS = {"expression": expressions(), "zone": zones, "gap": gaps, "fold": folds, "data": st.data()}


@_QUICK
@given(**_ARGUMENTS, days=st.integers(1, 10))
def test_the_engine_names_what_the_oracle_finds(
    expression: Expression, zone: str, gap: str, fold: str, data: st.DataObject, days: int
) -> None:
    """Listing, counting, stepping either way: all agree with walking the wall clock, wherever clocks change."""
    low = data.draw(instants(zone))
    agree(expression, zone, gap, fold, low, _length(expression, days))


@pytest.mark.soak
@_LONG
@given(**_ARGUMENTS, days=st.integers(1, 10))
def test_the_engine_names_what_the_oracle_finds_for_long(
    expression: Expression, zone: str, gap: str, fold: str, data: st.DataObject, days: int
) -> None:
    """The same law over 100,000 examples."""
    low = data.draw(instants(zone))
    agree(expression, zone, gap, fold, low, _length(expression, days))


@pytest.mark.soak
@pytest.mark.parametrize("zone", ZONES)
def test_every_zone_under_every_policy(zone: str) -> None:
    """Each zone of the tables, with each gap and each fold policy, agrees with the oracle around its clock changes."""

    @settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
    @given(expression=expressions(), data=st.data())
    def law(expression: Expression, data: st.DataObject) -> None:
        low = data.draw(instants(zone))
        for gap in GAPS:
            for fold in FOLDS:
                agree(expression, zone, gap, fold, low, _length(expression, 3))

    law()


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(**_ARGUMENTS, year=st.sampled_from([2100, 2101, 2102, 2549, 2550, 2551]) | st.integers(2095, 9990))
def test_years_beyond_the_tables_agree_as_well(
    expression: Expression, zone: str, gap: str, fold: str, data: st.DataObject, year: int
) -> None:
    """Where only the footer's rule knows, and where years repeat those four centuries earlier."""
    low = (datetime(year, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    rule_changes = [at for at, _, _ in find_zone(zone).jumps(low, low + 366 * 86_400)]  # type: ignore[union-attr] # a zone
    near = data.draw(st.sampled_from(rule_changes)) if rule_changes else low + data.draw(st.integers(0, 365)) * 86_400
    agree(expression, zone, gap, fold, near + data.draw(st.integers(-100_000, 100_000)), _length(expression, 3))
