"""What is accepted, what is refused and with which words, and what is warned about."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from scheduler.core.cron import Cron, compile_cron, parse_rate
from scheduler.core.problem import Problem
from scheduler.core.time import format_instant, parse_instant
from scheduler.core.trigger import Every, Once, parse_trigger

START = parse_instant("2026-01-01T00:00:00Z")


def parse(spec: object, *, at: int = START) -> Any:
    """The spec parsed for a schedule named acme/x."""
    return parse_trigger(spec, schedule_id="acme/x", effective_at=at)


def fires(expr: str, count: int, *, dialect: str = "unix", seed: str | None = None) -> list[str]:
    """The first fires of 2026 in UTC."""
    trigger = compile_cron(expr, "UTC", dialect, "skip", "auto", seed).trigger
    assert trigger is not None, compile_cron(expr, "UTC", dialect, "skip", "auto", seed).problems
    return [format_instant(at)[:-4] for at in trigger.between(START - 1, 10**15, count)]


@pytest.mark.parametrize(
    ("expr", "dialect", "expected"),
    [
        ("0 0 12 L-3 * ?", "quartz", ["2026-01-28T12:00", "2026-02-25T12:00"]),
        ("0 0 12 L-3W * ?", "quartz", ["2026-01-28T12:00", "2026-02-25T12:00", "2026-03-27T12:00"]),
        ("0 0 12 LW * ?", "quartz", ["2026-01-30T12:00", "2026-02-27T12:00"]),
        ("0 0 12 ? * 6#3", "quartz", ["2026-01-16T12:00", "2026-02-20T12:00"]),
        ("0 0 12 ? * FRI#2", "quartz", ["2026-01-09T12:00"]),
        ("0 0 12 ? * 5L", "quartz", ["2026-01-29T12:00", "2026-02-26T12:00"]),
        ("0 0 12 ? * 1", "quartz", ["2026-01-04T12:00"]),
        ("0 0 12 ? * L", "quartz", ["2026-01-03T12:00", "2026-01-10T12:00"]),
        ("0 0 12 ? * MON-SUN", "quartz", ["2026-01-01T12:00", "2026-01-02T12:00", "2026-01-03T12:00"]),
        ("0 0 12 ? * FRI-MON", "quartz", ["2026-01-02T12:00", "2026-01-03T12:00", "2026-01-04T12:00"]),
        ("0 0 12 1 1 ? 2028-2030/2", "quartz", ["2028-01-01T12:00", "2030-01-01T12:00"]),
        ("cron(0 10 * * ? *)", "aws", ["2026-01-01T10:00", "2026-01-02T10:00"]),
        ("cron(15 12 ? * 2-6 2027)", "aws", ["2027-01-01T12:15", "2027-01-04T12:15"]),
        ("0 10 1 * ? 2030", "aws", ["2030-01-01T10:00", "2030-02-01T10:00"]),
        ("5/15 * * * *", "unix", ["2026-01-01T00:05", "2026-01-01T00:20", "2026-01-01T00:35", "2026-01-01T00:50"]),
        ("0 22-2 * * *", "unix", ["2026-01-01T00:00", "2026-01-01T01:00", "2026-01-01T02:00", "2026-01-01T22:00"]),
        ("0 22-4/3 * * *", "unix", ["2026-01-01T01:00", "2026-01-01T04:00", "2026-01-01T22:00"]),
        ("0 0 28-2 * *", "unix", ["2026-01-01T00:00", "2026-01-02T00:00", "2026-01-28T00:00"]),
        ("0 0 * * 5-7", "unix", ["2026-01-02T00:00", "2026-01-03T00:00", "2026-01-04T00:00", "2026-01-09T00:00"]),
        ("0 0 * * 7-1", "unix", ["2026-01-04T00:00", "2026-01-05T00:00", "2026-01-11T00:00"]),
        ("0 0 * * 7/3", "unix", ["2026-01-03T00:00", "2026-01-04T00:00", "2026-01-07T00:00"]),
        ("0 0 * * 5/2", "unix", ["2026-01-02T00:00", "2026-01-09T00:00"]),
        ("0 0 1,L,15W * *", "unix", ["2026-01-01T00:00", "2026-01-15T00:00", "2026-01-31T00:00"]),
        ("007 00 01 01 *", "unix", ["2026-01-01T00:07"]),
        ("0\t0  1   1 *", "unix", ["2026-01-01T00:00"]),
        ("0 0 2B,LB * *", "unix", ["2026-01-02T00:00", "2026-01-30T00:00"]),
    ],
)  # fmt: skip
def test_an_accepted_expression_fires_as_its_dialect_means(expr: str, dialect: str, expected: list[str]) -> None:
    """Numbers, names and special forms by the table of the dialect."""
    assert fires(expr, len(expected), dialect=dialect) == expected


@pytest.mark.parametrize(
    ("expr", "dialect", "field", "hint"),
    [
        ("0 0 12 * * *", "unix", "cron", "`seconds`"),
        ("0 0 12 * * ? 2026", "unix", "cron", "`quartz`"),
        ("0 12 * *", "unix", "cron", "found 4"),
        ("", "unix", "cron", "empty"),
        (" \t ", "unix", "cron", "empty"),
        ("60 * * * *", "unix", "minute", "0-59"),
        ("* 24 * * *", "unix", "hour", "0-23"),
        ("*/0 * * * *", "unix", "minute", "at least 1"),
        ("*/90 * * * *", "unix", "minute", "every_ms = 5400000"),
        ("0/60 * * * *", "unix", "minute", "every_ms"),
        ("0 0 */31 * *", "unix", "day_of_month", "only one value"),
        ("* * * * MONDAY", "unix", "day_of_week", "MON"),
        ("* * * JANUARY-MAR *", "unix", "month", "JAN"),
        ("0 0 ? * *", "unix", "day_of_month", "quartz and aws"),
        ("0 0 L-3 * *", "unix", "day_of_month", "quartz and aws"),
        ("0 0 * * L5", "unix", "day_of_week", "5L"),
        ("0 0 * * 5#L", "unix", "day_of_week", "5L"),
        ("0 0 * * L", "unix", "day_of_week", "weekday before it"),
        ("0 0 1-15W * *", "unix", "day_of_month", "stand alone"),
        ("0 0 10-L * *", "unix", "day_of_month", "stand alone"),
        ("0 0 32W * *", "unix", "day_of_month", "1 to 31"),
        ("0 0 0B * *", "unix", "day_of_month", "1 to 23"),
        ("0 0 * * 1#6", "unix", "day_of_week", "1 to 5"),
        ("@every 5m", "unix", "cron", "every_ms"),
        ("@reboot", "unix", "cron", "no meaning"),
        ("@daily 5", "unix", "cron", "may not follow"),
        ("@daily", "quartz", "cron", "unix and seconds"),
        ("TZ=UTC 0 0 * * *", "unix", "cron", "`zone`"),
        ("rate(5 minutes)", "unix", "cron", "aws"),
        ("at(2026-01-01T00:00:00)", "aws", "cron", "at_local"),
        ("0 0 * * *\n* * * * *", "unix", "cron", "one line"),
        ("0\u00a00 * * *", "unix", "cron", "ASCII"),
        ("\u0665 * * * *", "unix", "cron", "ASCII"),
        ("0 0 12 * * *", "quartz", "day_of_week", "`?`"),
        ("0 0 12 ? * ?", "quartz", "day_of_week", "`?`"),
        ("0 0 12 ? * 0", "quartz", "day_of_week", "1 is Sunday"),
        ("0 0 12 ? * 8", "quartz", "day_of_week", "1 is Sunday"),
        ("0 0 12 * * ? 2100", "quartz", "year", "1970-2099"),
        ("0 0 12 * * ? 2030-2026", "quartz", "year", "wrap"),
        ("0 0 12 L-31 * ?", "quartz", "day_of_month", "1 to 30"),
        ("H * * * *", "unix", "minute", "schedule id"),
        ("5 H(9-17)/20 * * *", "unix", "hour", "schedule id"),
        ("1_0 * * * *", "unix", "minute", "0-59"),
        ("+5 * * * *", "unix", "minute", "signs"),
        ("1--5 * * * *", "unix", "minute", "signs"),
        (",1 * * * *", "unix", "minute", "missing"),
    ],
)
def test_a_mistake_is_refused_with_a_hint(expr: str, dialect: str, field: str, hint: str) -> None:
    """The error names the field, and says what is allowed or what was meant."""
    parsed = compile_cron(expr, "UTC", dialect)
    assert parsed.trigger is None
    assert [problem.code for problem in parsed.problems] == ["bad_field"]
    assert parsed.problems[0].field == field
    assert hint in parsed.problems[0].message


def test_all_mistakes_are_named_at_once() -> None:
    """Every field, the zone and the policies: one answer for everything that has to be repaired."""
    parsed = parse({"cron": "61 25 0 13 8", "zone": "Mars/Phobos", "gap": "jump", "fold": "twice"})
    assert [problem.field for problem in parsed.problems] == [
        *("gap", "fold", "zone", "minute", "hour", "day_of_month", "month", "day_of_week"),
    ]
    assert [problem.code for problem in parsed.problems] == ["bad_field"] * 2 + ["unknown_zone"] + ["bad_field"] * 5


@pytest.mark.parametrize(
    ("expr", "word"),
    [
        ("0 0-23/2 * * *", "repeated hour"),
        ("0 8-23/24 * * *", "only its first value 8"),
        ("*/45 * * * *", "starts anew"),
        ("0 */5 * * *", "starts anew"),
        ("0 0 1-31/32 * *", "only its first value 1"),
    ],
)
def test_what_surprises_is_said(expr: str, word: str) -> None:
    """Legal, but not what people often think: accepted with a warning."""
    parsed = compile_cron(expr, "UTC")
    assert parsed.trigger is not None
    assert word in parsed.warnings[0].message


def test_what_is_plain_has_no_warning() -> None:
    """A warning that always comes is read by nobody."""
    for expr in ("*/15 * * * *", "0 9-17/2 * * MON-FRI", "0 */6 * * *", "0 0 L * *"):
        assert compile_cron(expr, "Europe/Paris").warnings == ()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"at": "2026-03-08T09:30:00+02:00"}, Once(parse_instant("2026-03-08T07:30:00Z"))),
        ({"every_ms": 1000}, Every(1000, START)),
        ({"every_ms": 60_000, "anchor": "2026-01-01T00:00:07.250Z"}, Every(60_000, START + 7250)),
        ({"cron": "rate(5 minutes)", "zone": "UTC", "dialect": "aws"}, Every(300_000, START)),
        (
            {"at_local": "2025-11-02T01:30:00", "zone": "America/New_York", "fold": "last"},
            Once(parse_instant("2025-11-02T06:30:00Z"), "2025-11-02T01:30:00", "America/New_York", "last"),
        ),
    ],
)
def test_each_form_of_trigger(spec: dict[str, object], expected: object) -> None:
    """One-shot, local one-shot, rate: what the wire form says, with the default anchor filled in."""
    assert parse(spec).trigger == expected


@pytest.mark.parametrize(
    ("spec", "field", "code"),
    [
        (None, "", "bad_field"),
        ([], "", "bad_field"),
        ({}, "", "bad_field"),
        ({"at": "yesterday"}, "at", "bad_field"),
        ({"at": 5}, "at", "bad_field"),
        ({"at": "2026-03-08T07:30:00"}, "at", "bad_field"),
        ({"every_ms": 999}, "every_ms", "bad_field"),
        ({"every_ms": 1000.0}, "every_ms", "bad_field"),
        ({"every_ms": True}, "every_ms", "bad_field"),
        ({"every_ms": 1000, "anchor": "x"}, "anchor", "bad_field"),
        ({"at_local": "2025-03-09T02:30:00", "zone": "America/New_York"}, "at_local", "gap"),
        ({"at_local": "2025-11-02T01:30:00", "zone": "America/New_York"}, "fold", "fold"),
        ({"at_local": "2025-11-02T01:30:00", "zone": "America/New_York", "fold": "both"}, "fold", "bad_field"),
        ({"at_local": "2025-11-02T01:30:00Z", "zone": "America/New_York"}, "at_local", "bad_field"),
        ({"at_local": "2025-11-02T01:30:00"}, "zone", "bad_field"),
        ({"at_local": 7, "zone": "UTC"}, "at_local", "bad_field"),
        ({"cron": "0 0 * * *"}, "zone", "bad_field"),
        ({"cron": 5, "zone": "UTC"}, "cron", "bad_field"),
        ({"cron": "0 0 * * *", "zone": "UTC", "dialect": 3}, "dialect", "bad_field"),
        ({"cron": "0 0 * * *", "zone": "UTC", "dialect": "vixie"}, "dialect", "bad_field"),
        ({"cron": "0 0 30 2 *", "zone": "UTC"}, "day_of_month", "never_fires"),
        ({"cron": "0 0 0 29 2 ? 2027", "zone": "UTC", "dialect": "quartz"}, "day_of_month", "never_fires"),
        ({"cron": "0 0 0 1 1 ? 2020", "zone": "UTC", "dialect": "quartz"}, "year", "never_fires"),
        ({"cron": "0 0 12 30 12 ? 2011", "zone": "Pacific/Apia", "dialect": "quartz"}, "year", "never_fires"),
        ({"cron": "rate(1 minutes)", "zone": "UTC", "dialect": "aws"}, "cron", "bad_field"),
        ({"cron": "0 0 * * *", "zone": "UTC", "every_ms": 5}, "every_ms", "bad_field"),
    ],
)
def test_each_form_has_its_errors(spec: object, field: str, code: str) -> None:
    """The field and the code say what is wrong with the form."""
    parsed = parse(spec)
    assert parsed.trigger is None
    assert [(problem.field, problem.code) for problem in parsed.problems] == [(field, code)]


def test_a_gap_names_its_neighbours() -> None:
    """A one-shot in a gap is told the last time before it and the first after it, and their instants."""
    (problem,) = parse({"at_local": "2025-03-09T02:30:00", "zone": "America/New_York"}).problems
    for text in ("2025-03-09T01:59:59", "2025-03-09T03:00:00", "2025-03-09T06:59:59Z", "2025-03-09T07:00:00Z"):
        assert text in problem.message


def test_an_unknown_field_is_a_warning() -> None:
    """Newer senders may say more; what is ignored is said."""
    parsed = parse({"cron": "0 0 * * *", "zone": "UTC", "colour": "blue"})
    assert parsed.trigger is not None
    assert parsed.warnings == (
        Problem("colour", "unknown_field", "'colour' is not a field of a cron trigger and is ignored"),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [("rate(1 minute)", 60_000), ("rate(5 minutes)", 300_000), (" rate( 7 days ) ", 604_800_000)],
)  # fmt: skip
def test_a_rate_is_milliseconds(text: str, expected: int) -> None:
    """AWS's rates, singular for one and plural for more."""
    assert parse_rate(text) == expected


@pytest.mark.parametrize(
    "text", ["rate(0 minutes)", "rate(5 minute)", "rate(5 weeks)", "rate(5)", "rate(-1 days)", "rate"]
)
def test_a_wrong_rate_is_a_problem(text: str) -> None:
    """What begins like a rate and is none is told how rates are written."""
    assert isinstance(parse_rate(text), Problem)


def test_hashed_values_are_stable_and_spread() -> None:
    """`H` depends on the schedule id and the field alone, lies in its range, and spreads schedules."""
    assert fires("H H(1-4) H * *", 1, seed="acme/a") == fires("H H(1-4) H * *", 1, seed="acme/a")
    minutes = {fires("H 0 * * *", 1, seed=f"acme/{number}")[0][-2:] for number in range(300)}
    assert len(minutes) > 50
    for number in range(50):
        first = fires("H(10-12) H(1-4) H * *", 1, seed=f"acme/{number}")[0]
        assert 10 <= int(first[-2:]) <= 12
        assert 1 <= int(first[11:13]) <= 4
        steps = fires("H/15 * * * *", 5, seed=f"acme/{number}")
        assert [int(text[-2:]) // 15 for text in steps] == [0, 1, 2, 3, 0]
        assert len({int(text[-2:]) % 15 for text in steps}) == 1


def test_equal_triggers_are_one_object() -> None:
    """A hundred expressions on a million schedules are a hundred objects, unless the schedule id is hashed."""
    spec = {"cron": "0 9 * * THU", "zone": "UTC"}
    one = parse_trigger(spec, schedule_id="acme/a", effective_at=0).trigger
    assert parse_trigger(spec, schedule_id="acme/b", effective_at=5).trigger is one
    hashed = {"cron": "H 9 * * *", "zone": "UTC"}
    first, second = (parse_trigger(hashed, schedule_id=name, effective_at=0).trigger for name in ("acme/a", "acme/c"))
    assert first != second


def test_a_compiled_expression_is_small() -> None:
    """At most 1 KB, everything counted but the text and what is shared between expressions (zone, fields)."""
    trigger = compile_cron("7,19,43 3-9 1,11,L FEB-NOV MON#2", "Europe/Paris").trigger
    assert isinstance(trigger, Cron)
    wall = trigger.search.wall
    parts: list[object] = [trigger, trigger.search, wall, wall.clock, wall.clock.rule, *wall.clock, *wall.clock.rule]
    parts += [getattr(wall, name) for name in wall.__slots__ if name not in {"_days", "clock"}]
    assert sum(sys.getsizeof(part) for part in {id(part): part for part in parts}.values()) <= 1024


def test_what_a_gap_swallows_can_be_seen() -> None:
    """Each skipped nominal has a record: local time, instant of the gap, reason; and they can be counted."""
    trigger = compile_cron("15,45 2 * * *", "America/New_York").trigger
    assert isinstance(trigger, Cron)
    a, b = parse_instant("2025-01-01T00:00:00Z"), parse_instant("2027-01-01T00:00:00Z")
    found = list(trigger.skipped_between(a, b))
    assert [skipped.local for skipped in found] == [
        *("2025-03-09T02:15:00", "2025-03-09T02:45:00", "2026-03-08T02:15:00", "2026-03-08T02:45:00"),
    ]
    assert {format_instant(skipped.at) for skipped in found} == {"2025-03-09T07:00:00Z", "2026-03-08T07:00:00Z"}
    assert trigger.skipped_count(a, b) == 4
    moved = compile_cron("15,45 2 * * *", "America/New_York", "unix", "shift").trigger
    assert isinstance(moved, Cron)
    assert list(moved.skipped_between(a, b)) == []
    assert moved.skipped_count(a, b) == 0


def test_thirty_one_million_missed_seconds_cost_nothing() -> None:
    """Counting a year of seconds and finding its newest five does not walk through it."""
    trigger = compile_cron("* * * * * *", "Europe/Paris", "seconds").trigger
    assert trigger is not None
    now = START + 365 * 86_400_000
    assert trigger.count_between(START, now) == 365 * 86_400
    assert trigger.newest_before(now, 5, START) == [now - 4000, now - 3000, now - 2000, now - 1000, now]
