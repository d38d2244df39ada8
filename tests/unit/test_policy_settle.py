"""The resolver of misfires: what becomes of a set of overdue nominals, as sentences and against a plain enumeration."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler.core.model import Misfire, MisfireKind, Nominal, Origin, Schedule, Spec, State
from scheduler.core.policy import (
    NOTHING_OWED,
    Look,
    Rules,
    grace_ms,
    late_limit,
    nominal_at,
    reached_as,
    settle,
    settle_one,
)
from scheduler.core.trigger import Every, Once

NOON = 1_767_268_800_000
MINUTE, HOUR = 60_000, 3_600_000
SKIP, FIRE_ONCE = Misfire(MisfireKind.SKIP), Misfire()


def catch_up(newest: int) -> Misfire:
    return Misfire(MisfireKind.CATCH_UP, newest)


def schedule(every_ms: int, **spec: Any) -> Schedule:
    """A rate on the grid of noon, undecided from noon on."""
    return Schedule(
        schedule_id="acme/a", state=State.ACTIVE, version=1, revision=1, created_at=0, updated_at=0, effective_at=0,
        floor=NOON - 1, spec=Spec(**({"trigger": Every(every_ms, NOON)} | spec)),
    )  # fmt: skip


def away(now: int, *, seen_until: int = NOON - 1, **more: Any) -> Look:
    return Look(now, seen_until, **more)


# --- grace ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("every_ms", "grace"), [(1_000, 15_000), (15_000, 15_000), (40_000, 40_000), (60_000, 60_000), (HOUR, 60_000)]
)
def test_the_grace_follows_the_distance(every_ms: int, grace: int) -> None:
    """At least 15 s, at most 60 s, in between the distance to the next nominal."""
    assert grace_ms(schedule(every_ms), NOON, Rules()) == grace


def test_the_grace_is_never_longer_than_max_lateness() -> None:
    """Who allows a second of lateness gets a second of grace."""
    assert grace_ms(schedule(HOUR, max_lateness_ms=1_000), NOON, Rules()) == 1_000


def test_the_last_nominal_has_the_full_grace() -> None:
    """Without a next nominal there is no distance to keep."""
    assert grace_ms(schedule(HOUR, trigger=Once(NOON)), NOON, Rules()) == 60_000


def test_the_limit_of_skip_is_the_grace_only_for_misfires() -> None:
    """What fell due while the shard was alive is merely late: under `skip` without a given limit it always runs."""
    assert late_limit(schedule(HOUR, misfire=SKIP)) is None
    assert late_limit(schedule(HOUR, misfire=SKIP, max_lateness_ms=5_000, lateness_given=True)) == 5_000
    assert late_limit(schedule(HOUR)) == 24 * HOUR


# --- the policies ---------------------------------------------------------------------------------------------------


def test_within_the_grace_all_run_under_any_policy() -> None:
    """What a takeover costs is no misfire: nothing is dropped, merged or called a catch-up."""
    for misfire in (SKIP, FIRE_ONCE, catch_up(1)):
        found = settle(schedule(5_000, misfire=misfire), NOON, away(NOON + 15_000))
        assert [(r.scheduled_for - NOON, r.origin, r.stands_for) for r in found.runs] == [
            (n * 5_000, Origin.SCHEDULE, 1) for n in range(4)
        ]
        assert found.is_plain


def test_fire_once_runs_the_newest_and_says_for_how_many() -> None:
    """`stands_for` counts the run itself; the `missed` record's count does not include it."""
    found = settle(schedule(MINUTE), NOON, away(NOON + 10 * MINUTE))
    [run] = found.catch_up
    [gone] = found.gone
    assert (run.scheduled_for, run.stands_for) == (NOON + 10 * MINUTE, 11)
    assert (gone.state, gone.reason, gone.count, gone.first, gone.last) == (
        "missed", "downtime", 10, NOON, NOON + 9 * MINUTE,
    )  # fmt: skip


def test_one_beyond_the_grace_puts_the_policy_over_all() -> None:
    """The youngest is punctual, the oldest is not: the policy covers the whole set."""
    found = settle(schedule(MINUTE, misfire=FIRE_ONCE), NOON, away(NOON + MINUTE + 1))
    assert found.runs == ()
    assert [r.scheduled_for for r in found.catch_up] == [NOON + MINUTE]


def test_skip_keeps_the_punctual_ones() -> None:
    """Under `skip` those within the grace run as if nothing had happened."""
    found = settle(schedule(MINUTE, misfire=SKIP), NOON, away(NOON + 10 * MINUTE + 30_000))
    assert [(r.scheduled_for, r.origin) for r in found.runs] == [(NOON + 10 * MINUTE, Origin.SCHEDULE)]
    assert found.gone[0].count == 10


def test_what_fell_due_while_alive_is_only_late() -> None:
    """Before `seen_until` no policy applies; after it the outage's nominals are judged by themselves."""
    found = settle(schedule(MINUTE, misfire=SKIP), NOON, away(NOON + 10 * MINUTE, seen_until=NOON + 3 * MINUTE))
    assert [r.scheduled_for for r in found.runs] == [NOON + n * MINUTE for n in (0, 1, 2, 3, 9, 10)]
    assert [(g.reason, g.count) for g in found.gone] == [("downtime", 5)]


def test_too_late_while_alive_is_missed_as_throttled() -> None:
    """max_lateness bounds what waits for its turn, too."""
    found = settle(schedule(MINUTE, max_lateness_ms=2 * MINUTE), NOON, Look(NOON + 5 * MINUTE, NOON + 5 * MINUTE))
    assert [r.scheduled_for for r in found.runs] == [NOON + n * MINUTE for n in (3, 4, 5)]
    assert [(g.reason, g.count) for g in found.gone] == [("throttled", 3)]


def test_waiting_for_the_decision_does_not_age() -> None:
    """Lateness is judged at the first look after the outage, and what fell due after it is not part of it."""
    look = away(NOON + 30 * MINUTE, looked_at=NOON + 50_000)
    found = settle(schedule(10 * MINUTE, misfire=SKIP), NOON, look)
    assert [r.scheduled_for for r in found.runs] == [NOON + n * 10 * MINUTE for n in range(4)]
    assert found.gone == ()


def test_nothing_reached_is_nothing_owed() -> None:
    """No position, or one in the future."""
    assert settle(schedule(MINUTE), None, away(NOON)) == NOTHING_OWED
    assert settle(schedule(MINUTE), NOON + 1, away(NOON)) == NOTHING_OWED
    assert reached_as("suppressed", "paused", schedule(MINUTE), None, NOON) == ()


def test_an_end_bounds_nominals() -> None:
    """A nominal at the end or later is not reached, however late it is."""
    found = settle(schedule(MINUTE, end=NOON + 2 * MINUTE), NOON, away(NOON + HOUR))
    assert found.catch_up[0].scheduled_for == NOON + MINUTE
    [gone] = reached_as("suppressed", "paused", schedule(MINUTE, end=NOON + 2 * MINUTE), NOON, NOON + HOUR)
    assert (gone.count, gone.first, gone.last) == (2, NOON, NOON + MINUTE)


def test_one_that_waited_outside_is_judged_alike() -> None:
    """A nominal in its window, found late: as a misfire if nobody was there, as late if somebody was."""
    skip = schedule(HOUR, misfire=SKIP)
    nominal = Nominal(NOON, NOON + 5_000)
    late = NOON + 5_000 + 60_001
    assert settle_one(skip, nominal, away(late)).gone[0].count == 1
    assert settle_one(skip, nominal, away(late, seen_until=late)).runs[0].scheduled_for == NOON
    assert settle_one(schedule(HOUR), nominal, away(late)).catch_up[0].scheduled_for == NOON


# --- against a plain enumeration ------------------------------------------------------------------------------------

SCHEDULES = st.builds(
    schedule,
    st.sampled_from([1_000, 7_000, 45_000, MINUTE, 10 * MINUTE]),
    misfire=st.sampled_from([SKIP, FIRE_ONCE, catch_up(1), catch_up(3), catch_up(500)]),
    max_lateness_ms=st.sampled_from([None, 1_000, 20_000, 5 * MINUTE]),
    lateness_given=st.just(True),
    window_ms=st.sampled_from([0, 500, 30_000]),
    end=st.sampled_from([None, NOON + 3 * MINUTE]),
)


@settings(max_examples=300, deadline=None)
@given(one=SCHEDULES, gone_ms=st.integers(0, 40 * MINUTE), seen=st.floats(0, 1), looked=st.floats(0, 1))
def test_every_reached_nominal_is_in_exactly_one_part(one: Schedule, gone_ms: int, seen: float, looked: float) -> None:
    """runs + catch_up + waiting + gone = reached, none early; lateness, K and `stands_for` as the contract says."""
    now = NOON + gone_ms
    seen_until = NOON - 1 + int(gone_ms * seen)
    looked_at = seen_until + int((now - seen_until) * looked)
    every = one.spec.trigger
    assert isinstance(every, Every)
    end = now if one.spec.end is None else min(now, one.spec.end - 1)
    reached = list(range(NOON, end + 1, every.every_ms))

    found = settle(one, NOON if reached else None, Look(now, seen_until, looked_at=looked_at))

    ran = [r.scheduled_for for r in (*found.runs, *found.catch_up)]
    waiting = [n.scheduled_for for n in found.waiting]
    assert len(ran) + len(waiting) + sum(g.count for g in found.gone) == len(reached)
    assert len(set(ran + waiting)) == len(ran + waiting)
    assert set(ran + waiting) <= set(reached)
    assert waiting == [n for n in reached if nominal_at(one, n).available_at > now]
    for part in (found.runs, found.catch_up):
        assert [r.scheduled_for for r in part] == sorted(r.scheduled_for for r in part)
        assert all(r.available_at <= now for r in part)
        if one.spec.max_lateness_ms is not None:
            assert all(
                min(now, max(looked_at, r.available_at)) - r.available_at <= one.spec.max_lateness_ms for r in part
            )
    limit = {MisfireKind.FIRE_ONCE: 1, MisfireKind.CATCH_UP: one.spec.misfire.newest}.get(one.spec.misfire.kind, 10**6)
    assert len(found.catch_up) <= limit
    for run in found.catch_up:
        missed = sum(g.count for g in found.gone if g.reason == "downtime")
        assert run.stands_for == (missed + 1 if one.spec.misfire.kind is MisfireKind.FIRE_ONCE else 1)


@settings(max_examples=100, deadline=None)
@given(one=SCHEDULES, gone_ms=st.integers(0, 40 * MINUTE), at=st.integers(0, 40))
def test_a_floor_hides_what_it_covers(one: Schedule, gone_ms: int, at: int) -> None:
    """Nothing at or before a floor is ever named again."""
    floored = replace(one, floor=NOON + at * MINUTE)
    first = floored.next_after(0)
    assert first is None or first > floored.floor
    found = settle(floored, first, Look(NOON + gone_ms, NOON - 1))
    assert all(r.scheduled_for > floored.floor for r in (*found.runs, *found.catch_up))
