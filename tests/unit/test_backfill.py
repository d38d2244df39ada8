"""The value of a backfill: what it takes next, what it leaves out, what remains."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.backfill import Backfill, Ran, bounds, inform
from scheduler.core.model import Schedule, Spec, State
from scheduler.core.trigger import Every

EVERY = 1_000
FIRST, UNTIL = 10_000, 30_000
NOMINALS = range(FIRST, UNTIL, EVERY)


def definition(version: int = 2, **spec: Any) -> Schedule:
    return Schedule(
        schedule_id="acme/a", state=State.ACTIVE, version=version, revision=1, created_at=0, updated_at=0,
        effective_at=25_000, floor=25_000, spec=Spec(trigger=Every(EVERY, 0), **spec),
    )  # fmt: skip


def backfill(*owed: int, only_missing: bool = True) -> Backfill:
    return Backfill(
        command_id="c", definition=definition(), first=FIRST, until=UNTIL, after=FIRST - 1, accepted_at=40_000,
        only_missing=only_missing, owed=owed,
    )  # fmt: skip


@given(
    ran=st.lists(st.tuples(st.sampled_from(range(0, 40_000, 500)), st.integers(1, 3), st.integers(1, 4))),
    owed=st.sets(st.sampled_from(NOMINALS)),
    sizes=st.lists(st.integers(0, 7), min_size=60, max_size=60),
    only_missing=st.booleans(),
)
def test_it_runs_each_nominal_it_should_once_in_order(
    ran: list[tuple[int, int, int]], owed: set[int], sizes: list[int], *, only_missing: bool
) -> None:
    """However it is cut into steps: all but what is owed and (unless asked for) what ran, and the counts agree."""
    left = inform(backfill(*sorted(owed), only_missing=only_missing), [Ran(*one) for one in ran])
    done = {at for at, _, _ in ran} if only_missing else set()
    expected = [n for n in NOMINALS if n not in done and n not in owed]
    assert (left.total, left.remaining, left.left_out) == (20, len(expected), 20 - len(expected))
    gone = left.left()
    summary = None if gone is None else (gone.count, gone.first, gone.last)
    assert summary == ((len(expected), expected[0], expected[-1]) if expected else None)
    runs = []
    for size in [*sizes, 100]:
        taken, left = left.take(size)
        runs += taken
        assert left.remaining == len(expected) - len(runs)
        assert left.dispatched == len(runs)
    assert [run.scheduled_for for run in runs] == expected
    attempts = {n: max((a for at, v, a in ran if at == n and v == 2), default=0) + 1 for n in expected}
    assert {run.scheduled_for: run.attempt for run in runs} == attempts


def test_the_jitter_is_that_of_the_first_time() -> None:
    """Cut to the next nominal, as it was before a floor had passed the range."""
    windowed = Backfill(
        command_id="c", definition=definition(window_ms=3_000), first=FIRST, until=UNTIL, after=FIRST - 1, accepted_at=1
    )
    runs, _ = windowed.take(100)
    assert all(run.scheduled_for <= run.available_at < run.scheduled_for + EVERY for run in runs)
    assert len({run.available_at - run.scheduled_for for run in runs}) > 5


def test_bounds() -> None:
    """Start and end of the definition, the first undecided nominal, and windows that are still open."""
    schedule = definition(start=12_000, end=28_000)
    assert bounds(schedule, FIRST, UNTIL, None, 40_000) == (12_000, 28_000)
    assert bounds(schedule, FIRST, UNTIL, 20_000, 40_000) == (12_000, 20_000)
    assert bounds(schedule, FIRST, UNTIL, None, 15_000) == (12_000, 15_001)
    assert bounds(definition(window_ms=900), FIRST, UNTIL, None, 20_000) == (FIRST, 19_101)
    assert bounds(schedule, FIRST, UNTIL, 5_000, 40_000) == (12_000, 12_000)
