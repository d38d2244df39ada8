"""What a person types at a prompt: durations, instants, and a schedule's definition as options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.cli.definition import definition, spec_from_options
from scheduler.cli.values import absolute, format_duration_ms, parse_duration_ms, parse_moment

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_800_000_000_123  # 2027-01-15T08:00:00.123Z


@pytest.mark.parametrize(
    ("text", "ms"),
    [("90s", 90_000), ("1h30m", 5_400_000), ("250ms", 250), ("2w", 1_209_600_000), ("1d 2h", 93_600_000)],
)
def test_durations(text: str, ms: int) -> None:
    """Numbers with units, added up."""
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "5", "s", "-5s", "5 years", "1.5h", "٣s", "5sx"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    """Also what other tools would take: a bare number has no unit."""
    with pytest.raises(ValueError, match="like 90s or 1h30m"):
        parse_duration_ms(text)


@given(st.integers(min_value=0, max_value=10**15))
def test_a_printed_duration_reads_back(ms: int) -> None:
    """Printing is exact."""
    assert parse_duration_ms(format_duration_ms(ms)) == ms


def test_moments() -> None:
    """`now`, from now, or an instant; on the wire a relative one has whole seconds."""
    assert parse_moment("now", NOW) == NOW
    assert parse_moment("+1m", NOW) == NOW + 60_000
    assert parse_moment("2027-01-15T09:00:00+01:00", NOW) == 1_800_000_000_000
    assert absolute("+1m", NOW) == "2027-01-15T08:01:00Z"
    assert absolute("2027-01-15T09:00:00.5+01:00", NOW) == "2027-01-15T08:00:00.500Z"


@pytest.mark.parametrize(
    ("options", "spec"),
    [
        ({"cron": "0 9 * * *"}, {"trigger": {"cron": "0 9 * * *", "zone": "UTC"}}),
        (
            {"cron": "0 9 * * *", "zone": "Asia/Tokyo", "gap": "shift"},
            {"trigger": {"cron": "0 9 * * *", "zone": "Asia/Tokyo", "gap": "shift"}},
        ),
        ({"every": "10m"}, {"trigger": {"every_ms": 600_000}}),
        ({"at": "+5m"}, {"trigger": {"at": "2027-01-15T08:05:00Z"}}),
        (
            {"at": "2027-03-01T09:00:00", "zone": "Europe/Paris", "fold": "last"},
            {"trigger": {"at_local": "2027-03-01T09:00:00", "zone": "Europe/Paris", "fold": "last"}},
        ),
        ({"misfire": "catch_up:3"}, {"misfire": {"catch_up": 3}}),
        ({"max_lateness": "unlimited", "window": "5m"}, {"max_lateness_ms": None, "window_ms": 300_000}),
        (
            {"payload": '{"a": 1}', "label": ("team=x", "env=a=b")},
            {"payload": {"a": 1}, "labels": {"team": "x", "env": "a=b"}},
        ),
        ({"priority": "high", "unset": ("end",)}, {"priority": "high", "end": None}),
        ({}, {}),
    ],
)
def test_options_become_spec_fields(options: dict[str, Any], spec: dict[str, Any]) -> None:
    """Only what was given; what was not keeps its default or, in an update, its value."""
    assert spec_from_options(options, NOW) == spec


def test_every_mistaken_option_is_named_at_once() -> None:
    """With the option as it is typed."""
    options = {
        "cron": "x",
        "every": "1s",
        "misfire": "often",
        "window": "5",
        "label": ("x",),
        "payload": "{",
        "start": "soon",
    }
    with pytest.raises(ValueError, match="triggers") as raised:
        spec_from_options(options, NOW)
    assert [line.split(":")[0] for line in str(raised.value).splitlines()] == [
        "--cron and --every are both triggers; a schedule has one",
        "--window",
        "--start",
        "--misfire",
        "--payload",
        "--label",
    ]


@pytest.mark.parametrize("text", ["catch_up", "catch_up:0", "catch_up:x", "skip:1", "Skip"])
def test_what_is_no_misfire_policy_is_refused(text: str) -> None:
    """With the three that there are."""
    with pytest.raises(ValueError, match="expected fire_once, skip or catch_up:K"):
        spec_from_options({"misfire": text}, NOW)


def test_options_win_over_the_file(tmp_path: Path) -> None:
    """The file gives the rest."""
    file = tmp_path / "spec.yaml"
    file.write_text("trigger: {every_ms: 5000}\npriority: high\nowner: me\n")
    assert definition({"file": file, "priority": "low", "every": "1s"}, NOW) == {
        "trigger": {"every_ms": 1_000},
        "priority": "low",
        "owner": "me",
    }


def test_mistakes_of_file_and_options_come_together(tmp_path: Path) -> None:
    """A list is no spec; the option is wrong as well."""
    file = tmp_path / "spec.yaml"
    file.write_text("- a\n- b\n")
    with pytest.raises(ValueError, match="expected one object") as raised:
        definition({"file": file, "window": "5"}, NOW)
    assert "--window" in str(raised.value)


def test_a_zone_without_its_trigger_is_refused() -> None:
    """An update replaces the whole trigger, so a zone alone would be lost."""
    with pytest.raises(ValueError, match="repeat the trigger"):
        spec_from_options({"zone": "UTC"}, NOW)
