"""Laws of every trigger, whatever its kind: order, least instant, splitting, both directions, pickling, jitter."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from scheduler.core.calendar import Calendar
from scheduler.core.calendared import Calendared
from scheduler.core.cron import compile_cron
from scheduler.core.jitter import available_at
from scheduler.core.time import format_instant, parse_instant, stamp
from scheduler.core.trigger import Every, Once, Trigger, parse_trigger
from scheduler.core.zones import CYCLE, FAR
from tests.support.time_strategies import expressions, folds, gaps, zones

if TYPE_CHECKING:
    from collections.abc import Callable

_LAW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
_FROM, _UNTIL = parse_instant("1900-01-01T00:00:00Z"), parse_instant("2200-01-01T00:00:00Z")
_calendars = st.builds(
    Calendar,
    st.just("c"),
    st.integers(1, 3),
    st.integers(1, 127),
    st.frozensets(st.integers(19_000, 19_400), max_size=40),
    st.frozensets(st.integers(19_000, 19_400), max_size=5),
)
moments = st.integers(_FROM, _UNTIL)


@st.composite
def triggers(draw: Callable[..., object]) -> Trigger:
    """Any trigger: one-shots, rates, expressions, each perhaps under a calendar."""
    kind = draw(st.integers(0, 7))
    if kind == 0:
        return Once(draw(moments))
    if kind == 1:
        return Every(draw(st.integers(1000, 10**11)), draw(moments))
    if kind == 2:
        every = Every(draw(st.integers(3_600_000, 10**11)), draw(moments))
        return Calendared(every, draw(_calendars), "skip", draw(zones))
    expression = draw(expressions())
    parsed = compile_cron(expression.text, draw(zones), expression.dialect, draw(gaps), draw(folds))
    assume(parsed.trigger is not None)
    if kind > 5:
        return Calendared(parsed.trigger, draw(_calendars), draw(st.sampled_from(("skip", "next", "previous"))), "UTC")
    return parsed.trigger


def few(trigger: Trigger, a: int) -> tuple[int, list[int]]:
    """An end of a window from `a` on that holds at most 60 nominals, and these."""
    found = trigger.between(a, a + 400 * 86_400_000, 60)
    return (found[-1] if len(found) == 60 else a + 400 * 86_400_000), found


@_LAW
@given(trigger=triggers(), t=moments)
def test_the_next_nominal_is_later_and_the_one_before_earlier(trigger: Trigger, t: int) -> None:
    """next_after(t) > t; prev_before(t) < t; and neither is between the other and t."""
    after, before = trigger.next_after(t), trigger.prev_before(t)
    assert after is None or after > t
    assert before is None or before < t
    if after is not None:
        back = trigger.prev_before(after)
        assert back is None or back <= t
        assert trigger.next_after(after - 1) == after
    if before is not None:
        assert trigger.next_after(before - 1) == before


@_LAW
@given(trigger=triggers(), a=moments, data=st.data())
def test_a_window_splits_anywhere(trigger: Trigger, a: int, data: st.DataObject) -> None:
    """The nominals of (a, c] are those of (a, b] followed by those of (b, c]; so are their counts."""
    c, found = few(trigger, a)
    b = data.draw(st.integers(a, c))
    assert trigger.between(a, b, 100) + trigger.between(b, c, 100) == found
    assert trigger.count_between(a, b) + trigger.count_between(b, c) == trigger.count_between(a, c) == len(found)


@_LAW
@given(trigger=triggers(), a=moments, k=st.integers(1, 70))
def test_backwards_equals_forwards(trigger: Trigger, a: int, k: int) -> None:
    """The newest k of a window, found from its end, are the last k of the list found from its start."""
    c, found = few(trigger, a)
    assert trigger.newest_before(c, k, a) == found[-k:]
    assert found == sorted(set(found))


@_LAW
@given(trigger=triggers(), a=moments)
def test_a_trigger_is_the_same_after_a_journey(trigger: Trigger, a: int) -> None:
    """Pickled and read again it is equal, hashes alike and answers alike; a cron has the same wire form."""
    again = pickle.loads(pickle.dumps(trigger))
    assert again == trigger
    assert hash(again) == hash(trigger)
    assert again.next_after(a) == trigger.next_after(a)
    if not isinstance(trigger, Calendared):
        parsed = parse_trigger(trigger.to_wire(), schedule_id=None, effective_at=0)
        assert parsed.trigger == trigger


@pytest.mark.parametrize("fold", ["auto", "both"])
def test_another_process_gives_the_same_answers(fold: str) -> None:
    """Hash seeds, start order and earlier questions of a process have no influence."""
    program = (
        "from scheduler.core.trigger import parse_trigger\n"
        f"spec = {{'cron': 'H H(0-5) * * *', 'zone': 'Europe/Berlin', 'fold': {fold!r}}}\n"
        "parsed = parse_trigger(spec, schedule_id='acme/nightly', effective_at=0)\n"
        "print(parsed.trigger.between(0, 10**11, 2000))"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(answers) == 1


@_LAW
@given(trigger=triggers(), a=moments, window_ms=st.integers(0, 10**9))
def test_jitter_keeps_the_order_and_the_window(trigger: Trigger, a: int, window_ms: int) -> None:
    """available_at lies in [nominal, nominal + window), before the next nominal; the order never turns."""
    _, found = few(trigger, a)
    starts = []
    for at in found:
        following = trigger.next_after(at)
        start = available_at(f"acme/x:1:{stamp(at)}", at, window_ms, following)
        assert at <= start < at + max(1, window_ms)
        assert following is None or start < following
        starts.append(start)
    assert starts == sorted(starts)


def test_jitter_is_spread_evenly() -> None:
    """20,000 occurrences over a window: each of 20 equal parts gets its share (chi-squared below the 0.1 % point)."""
    window_ms, parts, total = 60_000, 20, 20_000
    counts = [0] * parts
    for number in range(total):
        at = 1_700_000_000_000 + number * 3_600_000
        jitter = available_at(f"acme/job-{number % 97}:2:{stamp(at)}", at, window_ms, None) - at
        counts[jitter * parts // window_ms] += 1
    expected = total / parts
    assert sum((count - expected) ** 2 / expected for count in counts) < 43.8


@settings(_LAW, max_examples=40)
@given(expression=expressions(), zone=zones, t=st.integers(FAR * 1000, 240_000_000_000_000))
def test_far_years_repeat_after_four_centuries(expression: object, zone: str, t: int) -> None:
    """Beyond the tables the answers are those of 400 years earlier, moved."""
    trigger = compile_cron(expression.text, zone, expression.dialect).trigger  # type: ignore[attr-defined] # by kind
    assume(trigger is not None)
    after = trigger.next_after(t)
    cycle = CYCLE * 1000
    earlier = t - ((t - FAR * 1000) // cycle + 1) * cycle
    expected = trigger.next_after(earlier)
    assert after is None or after - t == expected - earlier
    assert trigger.count_between(t, t + cycle) == trigger.count_between(t - cycle, t)


@_LAW
@given(t=st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_text_of_an_instant_round_trips(t: int) -> None:
    """format and parse are inverse over the years 1 to 9999; the stamp is the same digits without punctuation."""
    text = format_instant(t)
    assert parse_instant(text) == t
    full = text if "." in text else f"{text[:-1]}.000Z"
    assert stamp(t) == full.replace("-", "").replace(":", "")
