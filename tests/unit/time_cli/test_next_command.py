"""`scheduler next`: the batch contract line by line, and what people see."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from scheduler.cli import main
from scheduler.cli import next as module
from scheduler.core.batch import MOST_FIRES, answer

if TYPE_CHECKING:
    from click.testing import Result

NEW_YORK = ("--zone", "America/New_York")
GAP_DAY = (*NEW_YORK, "--after", "2026-03-07T12:00:00Z")
MONDAYS = ("--after", "2026-05-01T00:00:00Z", "--calendar", '{"working_days":["MON"]}')
HOUR = ("--after", "2026-01-01T00:00:00Z", "--until", "2026-01-01T01:00:00Z")
BASE = {"id": 1, "expr": "0 0 * * *", "zone": "UTC", "start": "2026-01-01T00:00:00Z"}


def run(*arguments: str, given: str | bytes = "") -> Result:
    """The command with these arguments and this standard input."""
    return CliRunner().invoke(main, ["next", *arguments], input=given)


def batch(*lines: object) -> list[dict[str, Any]]:
    """The answers to the lines; text stands for itself."""
    given = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    result = run("--batch", given=given + "\n")
    assert result.exit_code == 0
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_every_line_is_answered_in_order() -> None:
    """Good, bad and unreadable lines: one answer each, in the order of the questions, and exit code 0."""
    answers = batch(BASE | {"id": "a"}, "not json", "", BASE | {"id": {"x": [1]}}, "[1]", {"id": None})
    assert [line["id"] for line in answers] == ["a", None, None, {"x": [1]}, None, None]
    assert ["fires" in line for line in answers] == [True, False, False, True, False, False]
    assert {line["error"]["code"] for line in answers if "error" in line} == {"bad_field"}


def test_a_last_line_without_its_end_is_answered_too() -> None:
    """A file need not end with a newline, and no line at all is no answer."""
    assert run("--batch", given=json.dumps(BASE)).stdout.count("\n") == 1
    assert run("--batch", given="").stdout == ""


def test_bytes_that_are_no_text_are_one_error() -> None:
    """Invalid UTF-8 is a line that is not JSON."""
    result = run("--batch", given=b"\xff\xfe\n" + json.dumps(BASE).encode())
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert first["id"] is None
    assert second["fires"] == ["2026-01-02T00:00:00Z"]


def test_answers_leave_before_the_next_question_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two programs may talk line by line: each chunk read is answered and flushed before the next read."""
    events: list[str] = []

    class Source(io.BytesIO):
        def read1(self, _size: int | None = -1, /) -> bytes:
            events.append("read")
            return self.readline()

    class Sink(io.BytesIO):
        def write(self, data: Any, /) -> int:
            events.append("write")
            return len(data)

        def flush(self) -> None:
            events.append("flush")

    class Text:
        def __init__(self, buffer: io.BytesIO) -> None:
            self.buffer = buffer

    line = json.dumps(BASE).encode() + b"\n"
    monkeypatch.setattr(module.sys, "stdin", Text(Source(line * 2)))
    monkeypatch.setattr(module.sys, "stdout", Text(Sink()))
    module.run_batch()
    assert events[:6] == ["read", "write", "flush", "read", "write", "flush"]


@pytest.mark.parametrize(
    ("more", "fires"),
    [
        ({}, ["2026-01-02T00:00:00Z"]),
        ({"count": 2}, ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"]),
        ({"until": "2026-01-03T00:00:00Z"}, ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"]),
        ({"until": "2026-01-02T23:59:59.999Z"}, ["2026-01-02T00:00:00Z"]),
        ({"until": "2026-01-03T00:00:00Z", "count": 1}, ["2026-01-02T00:00:00Z"]),
        ({"until": "2025-01-03T00:00:00Z"}, []),
        ({"until": "2026-01-01T12:00:00Z", "count": 7}, []),
        ({"start": "2026-01-01T23:59:59.999999Z"}, ["2026-01-02T00:00:00Z"]),
        ({"start": "2026-01-02T00:00:00.000001Z"}, ["2026-01-03T00:00:00Z"]),
        ({"start": "2026-01-02T01:00:00+01:00"}, ["2026-01-03T00:00:00Z"]),
        ({"expr": None, "every_ms": 1500, "count": 2}, ["2026-01-01T00:00:01.500Z", "2026-01-01T00:00:03Z"]),
        ({"expr": None, "every_ms": 86_400_000, "anchor": "2026-03-01T00:00:00Z"}, ["2026-03-01T00:00:00Z"]),
        ({"expr": None, "at_local": "2026-07-01T09:00:00"}, ["2026-07-01T09:00:00Z"]),
        ({"expr": None, "at_local": "2020-07-01T09:00:00"}, []),
        ({"expr": None, "at": "2026-07-01T09:00:00Z"}, ["2026-07-01T09:00:00Z"]),
        ({"expr": "rate(90 minutes)", "dialect": "aws", "count": 2}, ["2026-01-01T01:30:00Z", "2026-01-01T03:00:00Z"]),
        ({"calendar": {"exclude_dates": ["2026-01-02"]}}, ["2026-01-03T00:00:00Z"]),
        ({"calendar": {"working_days": ["WED"]}, "roll": "next", "count": 1}, ["2026-01-07T00:00:00Z"]),
        ({"calendar": {"working_days": ["WED"]}, "roll": "previous"}, ["2026-01-07T00:00:00Z"]),
        ({"expr": "0 0 1 1 *", "start": "9999-06-01T00:00:00Z"}, []),
    ],
)  # fmt: skip
def test_a_case_has_these_fires(more: dict[str, object], fires: list[str]) -> None:
    """Strictly after start, not after until, at most count; fractions only when they are not zero."""
    assert batch(BASE | more) == [{"id": 1, "fires": fires}]


@pytest.mark.parametrize(
    ("more", "code", "field"),
    [
        ({"expr": "61 * * * *"}, "bad_field", "minute"),
        ({"expr": "0 0 12 * * *"}, "bad_field", "expr"),
        ({"expr": None}, "bad_field", "expr"),
        ({"every_ms": 1000}, "bad_field", "expr"),
        ({"expr": None, "every_ms": 5}, "bad_field", "every_ms"),
        ({"expr": None, "every_ms": 5000, "zone": "Mars/Phobos"}, "unknown_zone", "zone"),
        ({"expr": "0 0 30 2 *"}, "never_fires", "day_of_month"),
        ({"calendar": {"working_days": ["MON"]}, "expr": "0 0 * * TUE"}, "never_fires", "calendar"),
        ({"zone": "Mars/Phobos"}, "unknown_zone", "zone"),
        ({"zone": None}, "bad_field", "zone"),
        ({"start": "yesterday"}, "bad_field", "start"),
        ({"start": None}, "bad_field", "start"),
        ({"until": 5}, "bad_field", "until"),
        ({"count": 0}, "bad_field", "count"),
        ({"count": True}, "bad_field", "count"),
        ({"count": 1_000_001}, "too_many", "count"),
        ({"expr": "* * * * * *", "dialect": "seconds", "until": "2026-02-01T00:00:00Z"}, "too_many", "until"),
        ({"expr": None, "at_local": "2025-03-09T02:30:00", "zone": "America/New_York"}, "gap", "at_local"),
        ({"expr": None, "at_local": "2025-11-02T01:30:00", "zone": "America/New_York"}, "fold", "fold"),
        ({"expr": None, "at_local": "2025-11-02T01:30:00", "zone": "America/New_York", "fold": "both"}, "fold", "fold"),
        ({"gap": "jump"}, "bad_field", "gap"),
        ({"fold": 3}, "bad_field", "fold"),
        ({"dialect": "vixie"}, "bad_field", "dialect"),
        ({"schedule_id": 5}, "bad_field", "schedule_id"),
        ({"calendar": {"exclude_dates": ["soon"]}}, "bad_field", "exclude_dates"),
        ({"calendar": 5}, "bad_field", "calendar"),
        ({"roll": "next"}, "bad_field", "roll"),
        ({"expr": "61 * * * *", "calendar": {}}, "bad_field", "minute"),
        ({"expr": None, "every_ms": 5000, "zone": 5, "calendar": {}}, "unknown_zone", "zone"),
        ({"calendar": {}, "roll": "sideways"}, "bad_field", "roll"),
        ({"expr": None, "every_ms": 5000, "calendar": {}, "roll": "next"}, "not_supported", "roll"),
        ({"expr": "H * * * *"}, "bad_field", "minute"),
    ],
)
def test_a_wrong_case_has_this_code(more: dict[str, object], code: str, field: str) -> None:
    """The code and the field of the first mistake, and a sentence."""
    (line,) = batch(BASE | more)
    assert line["id"] == 1
    assert (line["error"]["code"], line["error"]["field"]) == (code, field)
    assert len(line["error"]["message"]) > 20


def test_exactly_a_million_are_answered() -> None:
    """The limit itself is within the limit."""
    case = BASE | {"expr": "* * * * * *", "dialect": "seconds", "until": "2026-01-12T13:46:40Z"}
    assert len(answer(case)["fires"]) == MOST_FIRES  # type: ignore[arg-type] # decoded JSON
    assert answer(case | {"until": "2026-01-12T13:46:41Z"})["error"]["code"] == "too_many"  # type: ignore[index] # decoded JSON


def test_surprises_are_warned_about() -> None:
    """The fires come with what is legal but surprising, unknown fields included."""
    (line,) = batch(BASE | {"expr": "0 0-23/2 * * *", "zone": "EST", "colour": "blue"})
    assert line["fires"]
    assert [warning["field"] for warning in line["warnings"]] == ["hour", "zone", "colour"]


def test_hashed_values_need_the_schedule() -> None:
    """`schedule_id` is what `H` hashes."""
    one, two = batch(
        BASE | {"expr": "H H * * *", "schedule_id": "a/b"}, BASE | {"expr": "H H * * *", "schedule_id": "a/c"}
    )
    assert one["fires"] != two["fires"]


def test_the_next_fires_are_shown_with_the_wall_clock() -> None:
    """The instant, and what a clock there shows."""
    result = run("0 9 * * *", *NEW_YORK, "--after", "2026-03-07T12:00:00Z", "--count", "2")
    assert result.stdout.splitlines() == [
        "2026-03-07T14:00:00Z      Sat 2026-03-07 09:00:00 EST (-05:00)",
        "2026-03-08T13:00:00Z      Sun 2026-03-08 09:00:00 EDT (-04:00)",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("30 2 * * *", *GAP_DAY), ["skipped:", "2026-03-08T02:30:00 does not exist"]),
        (("30 2 * * *", *GAP_DAY, "--gap", "shift"), ["gap:", "length of the gap"]),
        (("30 2 * * *", *GAP_DAY, "--gap", "forward"), ["gap:", "first instant"]),
        (("30 1 * * *", *NEW_YORK, "--after", "2026-11-01T00:00:00Z"), ["fold: first of two", "fixed"]),
        (("30 * * * *", *NEW_YORK, "--after", "2026-11-01T05:00:00Z"), ["fold: second of two", "begins with *"]),
        (("0 0-23/2 * * *",), ["warning:", "repeated hour"]),
        (("0 9 L * *", *MONDAYS), ["removed:", "SUN"]),
        (
            ("0 9 L * *", *MONDAYS, "--roll", "next"),
            ["moved:", "2026-06-01"],
        ),
        (("0 9 * * *", "--window", "60000"), ["starts 20"]),
        (("--every-ms", "90000", "--after", "2026-01-01T00:00:00Z"), ["every 90 seconds", "2026-01-01T00:01:30Z"]),
        (("--at-local", "2999-07-01T09:00:00", "--zone", "Asia/Tokyo"), ["once, at 2999-07-01T09:00:00 in Asia/Tokyo"]),
        (("0 0 0 1 1 ? 2099", "--dialect", "quartz"), ["in 2099", "2099-01-01T00:00:00Z"]),
        (("0 9 * * *", *HOUR), ["no fires in this time"]),
    ],
)  # fmt: skip
def test_an_explanation_says_why(arguments: tuple[str, ...], words: list[str]) -> None:
    """Gaps, folds, calendars, jitter and warnings stand beside the fires they act on."""
    result = run(*arguments, "--explain")
    for word in words:
        assert word in result.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("*/15 9-17 * * MON-FRI",), "every 15 minutes, from 09:00 to 17:59, on Monday to Friday, in UTC"),
        (("30 9 1,15 JAN-MAR FRI#2",), "1 and 15 of the month or on Friday number 2 of the month, in January to March"),
        (("0 9 */2 * 5L",), "at 09:00, on days 1, 3, 5, 7, 9"),
        (("* * * * *",), "every minute, every day"),
        (("30 * * * *",), "at minute 30 of every hour, every day"),
        (("*/10 * * * * *", "--dialect", "seconds"), "every 10 seconds, every day"),
        (("0 0 12 L-3 * ?", "--dialect", "quartz"), "at 12:00, on 3 days before the last day of the month"),
        (("0 0 12 ? * 2L 2027-2029", "--dialect", "quartz"), "on the last Monday of the month, in 2027-2029"),
        (("0 12 LW,15W,3B,LB * *",), "the last Monday-to-Friday day of the month"),
        (("--every-ms", "86400000"), "every day of elapsed time"),
    ],
)  # fmt: skip
def test_a_rule_is_told_in_words(arguments: tuple[str, ...], sentence: str) -> None:
    """The words come from the compiled rule, not from the text."""
    assert sentence in run(*arguments, "--explain", "--after", "2026-01-01T00:00:00Z").stdout.splitlines()[0]


def test_for_programs_each_fire_is_one_object() -> None:
    """`--json` has the same content: fires, notes, the rule, warnings."""
    result = run(
        "30 2 * * *",
        *NEW_YORK,
        "--after",
        "2026-03-07T12:00:00Z",
        "--gap",
        "shift",
        "--json",
        "--explain",
        "--count",
        "1",
    )
    fire, summary = (json.loads(line) for line in result.stdout.splitlines())
    assert fire["scheduled_for"] == "2026-03-08T07:30:00Z"
    assert fire["notes"][0]["kind"] == "gap"
    assert summary["trigger"] == {"cron": "30 2 * * *", "zone": "America/New_York", "gap": "shift"}
    plain = run("30 2 * * *", "--zone", "EST", "--json", "--count", "1", "--window", "5000")
    fire, warned = (json.loads(line) for line in plain.stdout.splitlines())
    assert "available_at" in fire
    assert warned["warnings"][0]["field"] == "zone"
    refused = run("61 * * * *", "--json")
    assert refused.exit_code == 1
    assert json.loads(refused.stdout)["error"]["field"] == "minute"


def test_a_month_can_be_looked_at() -> None:
    """Weeks from Monday, each day with its times, clock changes marked and told."""
    result = run("30 2 * * 0,MON", *NEW_YORK, "--month", "2026-03")
    lines = result.stdout.splitlines()
    assert lines[0] == "March 2026, America/New_York"
    assert lines[1].split() == ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
    assert "8!" in result.stdout
    assert lines[-1].startswith("! 2026-03-08T02:30:00 does not exist")
    assert result.stdout.count("02:30 ") + result.stdout.count("02:30\n") == 9
    dense = run("*/20 * * * *", *NEW_YORK, "--month", "2026-11").stdout
    assert "+70 more" in dense
    assert "+73 more" in dense


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "one of EXPR"),
        (("0 9 * * *", "--every-ms", "5000"), 2, "one of EXPR"),
        (("0 9 * * *", "--after", "soon"), 2, "--after"),
        (("0 9 * * *", "--month", "March"), 2, "2026-03"),
        (("0 9 * * *", "--calendar", "{"), 2, "--calendar"),
        (("0 9 * * *", "--calendar", "/nowhere.json"), 2, "--calendar"),
        (("0 9 * * *", "--calendar", '{"version": 0}'), 1, "version"),
        (("0 9 * * *", "--zone", "Europe/Pariss"), 1, "Europe/Paris"),
        (("61 25 * * *",), 1, "hour"),
        (("--every-ms", "5000", "--calendar", "{}", "--roll", "next"), 1, "fixed rate"),
    ],
)
def test_a_mistake_ends_with_its_words_and_code(arguments: tuple[str, ...], code: int, words: str) -> None:
    """1: the rule is refused, with every problem; 2: the command is used wrongly."""
    result = run(*arguments)
    assert result.exit_code == code
    assert words in result.output


def test_a_calendar_may_be_a_file(tmp_path: Any) -> None:
    """The same JSON in a file."""
    path = tmp_path / "calendar.json"
    path.write_text('{"exclude_dates": ["2026-01-02"]}')
    result = run("0 9 * * *", "--after", "2026-01-01T12:00:00Z", "--calendar", str(path), "--count", "1")
    assert result.stdout.startswith("2026-01-03T09:00:00Z")


def test_the_reference_is_printed() -> None:
    """The reference of the syntax is at hand where the command is."""
    assert "| `nW` | `15W` |" in run("--reference").stdout


def test_a_roll_without_a_calendar_is_refused() -> None:
    """As in a batch: it would silently do nothing."""
    result = run("0 0 * * *", "--roll", "next")
    assert (result.exit_code, "--calendar" in result.stderr) == (2, True)
