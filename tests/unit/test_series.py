"""Runs in series: few numbers for many runs, and every run comes back as it was."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler import wire
from scheduler.core.model import Origin, Run, Schedule, Spec, State
from scheduler.core.policy import MAX_BACKLOG, nominal_at
from scheduler.core.series import Series, in_series, spread, take
from scheduler.core.trigger import Every
from tests.support.driver import LARGEST_RECORD

if TYPE_CHECKING:
    from collections.abc import Sequence

SECOND = 1_000
LATER = 10**9  # than all that is owed
GAPS = st.lists(st.sampled_from([SECOND, SECOND, SECOND, 2 * SECOND, 7 * SECOND]), min_size=1, max_size=40)


def schedule(window_ms: int = 0) -> Schedule:
    return Schedule(
        schedule_id="acme/a", state=State.ACTIVE, version=1, revision=1, created_at=0, updated_at=0,
        effective_at=0, floor=10**9, spec=Spec(trigger=Every(SECOND, 0), window_ms=window_ms),
    )  # fmt: skip


def owed_by(definition: Schedule, nominals: Sequence[int], alone: frozenset[int] = frozenset()) -> list[Run]:
    """Runs as an outage leaves them; those at `alone` stand for others."""
    before = Schedule(**{field: getattr(definition, field) for field in definition.__struct_fields__} | {"floor": 0})
    return [
        Run(n, nominal_at(before, n).available_at, Origin.CATCH_UP, 9 if index in alone else 1)
        for index, n in enumerate(nominals)
    ]


@settings(max_examples=200, deadline=None)
@given(
    gaps=GAPS,
    alone=st.frozensets(st.integers(0, 40), max_size=3),
    window_ms=st.sampled_from([0, 400, 5 * SECOND]),
    limits=st.lists(st.integers(0, 9), max_size=12),
)
def test_what_is_taken_and_what_is_left_are_the_runs(
    gaps: list[int], alone: frozenset[int], window_ms: int, limits: list[int]
) -> None:
    """Cut anywhere and written down again: the same runs in the same order, jitter included."""
    definition = schedule(window_ms)
    runs = owed_by(definition, list(accumulate(gaps)), alone)
    owed = in_series(runs)
    assert spread(owed, definition) == runs
    assert [n for series in owed for n in series.nominals()] == [run.scheduled_for for run in runs]
    taken: list[Run] = []
    for limit in limits:
        some, owed = take(owed, limit, definition, LATER)
        assert len(some) == min(limit, len(runs) - len(taken))
        taken += some
    assert taken + spread(owed, definition) == runs


def test_ten_thousand_at_equal_distances_are_one() -> None:
    """However long the outage was, and whatever has been dispatched of it."""
    runs = owed_by(schedule(), range(SECOND, 10_001 * SECOND, SECOND))
    assert in_series(runs) == [Series(runs[0], 10_000, SECOND)]
    assert take(in_series(runs), 100, schedule(), LATER)[1] == [Series(runs[100], 9_900, SECOND)]


def test_a_rule_that_names_less_by_now_moves_no_run_past_the_next() -> None:
    """A calendar took the nominals between them away: what is owed keeps its order and its instants."""
    runs = owed_by(schedule(30 * SECOND), range(SECOND, 30 * SECOND, SECOND))
    bare = schedule(30 * SECOND)
    bare = Schedule(
        **{field: getattr(bare, field) for field in bare.__struct_fields__}
        | {"spec": Spec(trigger=Every(3_600 * SECOND, 0), window_ms=30 * SECOND)}
    )
    assert spread(in_series(runs), bare)[:-1] == runs[:-1]
    now = runs[-1].available_at + 1
    assert spread(in_series(runs), bare)[-1].available_at > now, "or nothing is shown"
    taken, _ = take(in_series(runs), len(runs), bare, now)
    assert [*taken[:-1], taken[-1]._replace(available_at=runs[-1].available_at)] == runs
    assert taken[-1].available_at == now


def test_the_most_that_is_owed_irregularly_is_a_record_that_is_taken() -> None:
    """Every second distance another one: half as many series as runs, with milliseconds in all their instants."""
    definition = schedule(400)
    nominals = list(accumulate(1_001 + 6_000 * (n % 2) + n for n in range(MAX_BACKLOG)))
    owed = in_series(owed_by(definition, nominals))
    assert len(owed) == MAX_BACKLOG // 2
    assert len(wire.catch_up_record(owed, definition, 0, frozen=True)) < LARGEST_RECORD - 100_000  # and a payload


def test_one_that_stands_for_others_is_no_part_of_a_series() -> None:
    """The newest of each of three outages, and single runs around them."""
    runs = owed_by(schedule(), [1000, 2000, 3000, 4000], frozenset({1}))
    assert [(series.count, series.first.stands_for) for series in in_series(runs)] == [(1, 1), (1, 9), (2, 1)]
