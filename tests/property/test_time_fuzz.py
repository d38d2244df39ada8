"""Nothing anybody types makes the parser or the search run for long, or raise."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from scheduler.core.batch import answer
from scheduler.core.cron import compile_cron
from scheduler.core.cron_fields import DIALECTS
from scheduler.core.trigger import parse_trigger
from tests.support.time_strategies import FOLDS, GAPS, ZONES

_FUZZ = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
_BOUND_S = 1.0
"""Far above what anything takes (milliseconds), far below what an endless loop would."""

_alphabet = "0123456789*/,-?LWBH#@() ABCDEFGHIJKLMNOPRSTUVWY\t\n\u00a0\u0665"
_fragments = st.sampled_from(
    ["*", "*/", "?", "L", "LW", "15W", "L-3", "FRI#2", "5L", "H", "H(0-9)", "H/5", "0", "59", "60", "22-2", "-", ","]
)
_words = st.sampled_from(
    ["/0", "MON", "JAN-", "2026", "#5", "@daily", "@every 5m", "rate(5 minutes)", "cron(", ")", " ", "1-31", "31"]
)
_texts = st.one_of(
    st.text(max_size=60),
    st.text(_alphabet, max_size=60),
    st.lists(_fragments | _words, max_size=12).map("".join),
    st.lists(_fragments | _words, min_size=5, max_size=7).map(" ".join),
)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)


@_FUZZ
@given(
    text=_texts,
    dialect=st.sampled_from(sorted(DIALECTS)),
    zone=st.sampled_from(ZONES),
    gap=st.sampled_from(GAPS),
    fold=st.sampled_from(FOLDS),
    t=st.integers(-62_135_596_800_000, 253_402_300_799_999),
)
@example(text="0 0 29 2 */7", dialect="unix", zone="UTC", gap="skip", fold="auto", t=253_000_000_000_000)
@example(text="* * * * * ? 2099", dialect="quartz", zone="UTC", gap="shift", fold="both", t=0)
@example(text="0 9 30 12 ? 2011", dialect="aws", zone="Pacific/Apia", gap="skip", fold="auto", t=0)
def test_parsing_and_searching_always_end(text: str, dialect: str, zone: str, gap: str, fold: str, t: int) -> None:
    """Any text in any dialect: a trigger or problems, in bounded time; and any question to the trigger ends too."""
    began = time.perf_counter()
    parsed = compile_cron(text, zone, dialect, gap, fold, "acme/x")
    if parsed.trigger is None:
        assert parsed.problems
        assert all(problem.field and problem.code and problem.message for problem in parsed.problems)
    else:
        after, before = parsed.trigger.next_after(t), parsed.trigger.prev_before(t)
        assert after is None or after > t
        assert before is None or before < t
        assert parsed.trigger.count_between(t, t + 10**12) >= 0
    assert time.perf_counter() - began < _BOUND_S


@_FUZZ
@given(
    case=st.fixed_dictionaries(
        {"id": _json},
        optional={
            "expr": _texts | _json,
            "every_ms": st.integers() | _json,
            "anchor": st.text(max_size=30) | _json,
            "at_local": st.text(max_size=30) | _json,
            "zone": st.sampled_from(ZONES) | _json,
            "start": st.just("2026-01-01T00:00:00Z") | _json,
            "until": st.just("2026-02-01T00:00:00Z") | _json,
            "count": st.integers(-3, 50) | _json,
            "gap": st.sampled_from(GAPS) | _json,
            "fold": st.sampled_from(FOLDS) | _json,
            "dialect": st.sampled_from(sorted(DIALECTS)) | _json,
            "schedule_id": st.text(max_size=10) | _json,
            "calendar": st.dictionaries(
                st.sampled_from(["exclude_dates", "working_days", "include_dates", "exclude_ranges", "holidays"]), _json
            )
            | _json,
            "roll": st.sampled_from(["skip", "next", "previous"]) | _json,
        },
    )
)
def test_any_json_object_gets_an_answer(case: dict[str, object]) -> None:
    """Whatever stands in a case, the answer is fires or an error with a code, and its id is given back."""
    result = answer(case)
    assert result["id"] == case["id"]
    assert ("fires" in result) != ("error" in result)
    json.dumps(result)


@_FUZZ
@given(spec=_json)
def test_any_json_is_a_trigger_or_problems(spec: object) -> None:
    """The parser of triggers never raises and never returns nothing."""
    parsed = parse_trigger(spec, schedule_id=None, effective_at=0)
    assert (parsed.trigger is None) == bool(parsed.problems)


@pytest.mark.parametrize(
    "text",
    ["1," * 5000 + "1 * * * *", "*" * 10_240, "0 " * 5000, "9" * 10_240 + " * * * *", "(" * 10_240, "\u0665" * 10_240],
)
def test_ten_kilobytes_are_refused_at_once(text: str) -> None:
    """Long input is refused by its length, with a short message, in a thousandth of the bound."""
    began = time.perf_counter()
    parsed = compile_cron(text, "UTC")
    assert time.perf_counter() - began < 0.05
    assert parsed.trigger is None
    assert sum(len(problem.message) for problem in parsed.problems) < 1000
