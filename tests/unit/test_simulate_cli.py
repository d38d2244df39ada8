"""`scheduler simulate`: what goes to which stream, exit codes, the timeline and the picture."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from scheduler.cli import main
from scheduler.simulator import ScenarioInvalid, parse_scenario
from tests.support.policy_cases import create, do, down, full

if TYPE_CHECKING:
    from pathlib import Path

SCENARIO: dict[str, Any] = {
    "from": full("09:00"),
    "until": full("14:00"),
    "settings": {"grace_ms": 60_000},
    "tenants": {"acme": {"catch_up_per_s": 5}},
    "steps": [
        create("09:00", "*/5 * * * *", "acme/report", misfire={"catch_up": 3}, max_lateness_ms=3_600_000),
        down("12:01", "13:02"),
        do("13:30", "pause", "acme/report"),
        {"at": full("13:40"), "clock_step_ms": -5000},
    ],
}


def run(tmp_path: Path, scenario: object, *options: str) -> Any:
    path = tmp_path / "scenario.json"
    path.write_text(scenario if isinstance(scenario, str) else json.dumps(scenario))
    return CliRunner().invoke(main, ["simulate", str(path), *options])


def test_json_is_one_event_a_line(tmp_path: Path) -> None:
    """And nothing else is on standard output."""
    result = run(tmp_path, SCENARIO, "--json")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert [e["event"] for e in events].count("dispatched") == 36 + 3 + 6
    assert all({"at", "schedule_id", "event"} <= e.keys() for e in events)


def test_more_events_than_asked_for_end_it_with_what_there_was(tmp_path: Path) -> None:
    """A scenario of a century must not run for a day unasked: exit code 1, and from where to look on."""
    result = run(tmp_path, SCENARIO, "--json", "--max-events", "10")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 10
    assert result.stderr == (
        "error: stopped at 2026-01-01T09:50:00Z after 10 events: look at less, or raise --max-events\n"
    )


def test_the_timeline_folds_what_is_ordinary(tmp_path: Path) -> None:
    """A person sees the outage, what came of it, and runs of ordinary dispatches as one line."""
    result = run(tmp_path, SCENARIO)
    assert (
        result.stdout
        == """\
2026-01-01
  09:00:00      acme/report  accepted    created: version 1
  09:05:00      acme/report  dispatched  36 on time, to 12:00:00
  12:01:00      -            outage      nobody is there until 2026-01-01T13:02:00Z
  13:02:00      -            back        commands that waited are applied first
  13:02:00      acme/report  missed      9 (downtime): 2026-01-01T12:05:00Z to 2026-01-01T12:45:00Z
  13:02:00      acme/report  dispatched  caught up, for 2026-01-01T12:50:00Z, 720 s after it
  13:02:00      acme/report  dispatched  caught up, for 2026-01-01T12:55:00Z, 420 s after it
  13:02:00      acme/report  dispatched  caught up, for 2026-01-01T13:00:00Z, 120 s after it
  13:05:00      acme/report  dispatched  6 on time, to 13:30:00
  13:30:00      acme/report  accepted    paused: version 1
  13:40:00      -            clock       the wall clock moves by -5 s: an alarm; the due clock does not follow
  14:00:00      acme/report  suppressed  6 (paused): 2026-01-01T13:35:00Z to 2026-01-01T14:00:00Z
  14:00:00      -            end         2 accepted, 45 dispatched, 9 missed, 6 suppressed
"""
    )


def test_every_mistake_is_named_at_once(tmp_path: Path) -> None:
    """On standard error, with exit code 2 and nothing on standard output; later things by their code."""
    bad = {
        "from": 3, "workers": [], "grace": 1, "tenants": {"A": {}, "b": {"catch_up_per_s": 0}},
        "settings": {"grace_ms": -1},
        "steps": [{"at": full("12:00")}, 4, {"at": "x", "command": 3}, {"at": full("12:00"), "clock_step_ms": 0}],
    }  # fmt: skip
    result = run(tmp_path, bad, "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    lines = result.stderr.splitlines()
    assert lines[0] == "error: the scenario has 12 mistakes:"
    assert [line.split(": ")[0].strip() for line in lines[1:]] == [
        "workers", "grace", "from", "until", "settings.grace_ms", "tenants.A", "tenants.b.catch_up_per_s", "steps[0]",
        "steps[1]", "steps[2].at", "steps[2].command", "steps[3].clock_step_ms",
    ]  # fmt: skip
    assert "not_supported" in lines[1]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"until": full("08:00")}, "until"),
        ({"until": "2101-01-01T00:00:00Z"}, "until"),
        ({"steps": [do("08:00", "pause")]}, "steps[0].at"),
        ({"steps": [do("14:00:00.001", "pause")]}, "steps[0].at"),
        ({"steps": [down("12:00", "12:00")]}, "steps[0].outage_until"),
        ({"steps": [down("12:00", "13:00"), down("12:30", "12:40")]}, "steps[1].at"),
        ({"steps": [{**do("12:00", "pause"), "clock_step_ms": 5}]}, "steps[0]"),
        ({"steps": [{**do("12:00", "pause"), "comand": 5}]}, "steps[0].comand"),
        ({"steps": None}, "steps"),
        ({"settings": []}, "settings"),
        ({"tenants": {"acme": {"rate": 5}}}, "tenants.acme.rate"),
        ({"title": "two\nlines"}, "title"),
    ],
)
def test_a_scenario_that_cannot_be_meant_is_refused(change: dict[str, Any], field: str) -> None:
    """Each mistake is found where it stands, and alone."""
    with pytest.raises(ScenarioInvalid) as caught:
        parse_scenario(SCENARIO | change)
    assert [problem.field for problem in caught.value.problems] == [field]


@pytest.mark.parametrize("text", ["", "{", "[1]", "3", '{"from": NaN}', "[" * 5000])
def test_what_is_no_scenario_at_all_is_said_so(tmp_path: Path, text: str) -> None:
    """Exit code 2 and one sentence."""
    result = run(tmp_path, text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")


def test_a_file_that_is_not_there_is_said_so() -> None:
    """Like any other misuse."""
    result = CliRunner().invoke(main, ["simulate", "no-such-file.json"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no-such-file.json" in result.stderr


def test_the_picture_is_well_formed_whatever_the_names(tmp_path: Path) -> None:
    """Titles and ids are text in it, never markup; every event has its mark and the outage is shaded."""
    title = "<script>alert('x')</script> & \"co\""
    svg = tmp_path / "out.svg"
    steps = [*SCENARIO["steps"], {"at": full("13:50"), "command": {"command": "pause", "schedule_id": "<b>&"}}]
    result = run(tmp_path, SCENARIO | {"title": title, "steps": steps}, "--svg", str(svg), "--json")
    assert result.exit_code == 0
    root = ET.fromstring(svg.read_text())
    space = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{space}title").text == title  # type: ignore[union-attr] # it is there
    assert not list(root.iter(f"{space}script"))
    texts = [element.text or "" for element in root.iter(f"{space}title")]
    assert any(text.startswith("outage from 2026-01-01T12:01:00Z") for text in texts)
    assert sum("dispatched for" in text for text in texts) == 36 + 6
    assert texts.count("3 times late") == 1  # caught up at one instant
    assert sum("missed" in text and "9 nominals" in text for text in texts) == 2  # its mark and its span
    assert any(element.text == "<b>&" for element in root.iter(f"{space}text"))


def test_a_picture_of_much_stays_small(tmp_path: Path) -> None:
    """Many marks are as many as there are pixels; schedules beyond sixty are counted, not drawn."""
    steps = [create("00:00", {"every_ms": 600_000}, f"acme/s{n}") for n in range(65)]
    steps[0] = create("00:00", {"every_ms": 20_000}, "acme/s0")
    svg = tmp_path / "out.svg"
    result = run(tmp_path, {"from": full("00:00"), "until": full("12:00"), "steps": steps}, "--svg", str(svg), "--json")
    assert result.exit_code == 0
    assert "5 more schedules are not drawn" in svg.read_text()
    assert svg.read_text().count("<rect") < 900 + 59 * 72 + 10  # a mark a pixel, not one for each of 2,160


def test_a_picture_that_cannot_be_written_is_found_before_anything_is_printed(tmp_path: Path) -> None:
    """Exit code 2."""
    result = run(tmp_path, SCENARIO, "--svg", str(tmp_path / "no" / "such.svg"))
    assert (result.exit_code, result.stdout) == (2, "")
