"""The demo's data and its verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scheduler.cli.arrivals import Arrival, Tally
from scheduler.cli.demo import _second_terminal, demo_commands
from scheduler.cli.demo.verdict import Verdict
from scheduler.core.spec import SpecContext, parse_spec

NOW = 1_800_000_000_000


def test_every_demo_schedule_is_accepted_by_the_core() -> None:
    """Without a single mistake or warning, and each is described and owned."""
    for item in demo_commands(NOW):
        fields = dict(item.command.spec or {})
        if "payload" in fields:
            fields["payload"] = json.dumps(fields["payload"]).encode()
        parsed = parse_spec(fields, SpecContext(schedule_id=item.command.schedule_id, effective_at=NOW))
        assert (parsed.problems, parsed.warnings) == ((), ()), item.command.schedule_id
        assert parsed.spec is not None
        assert parsed.spec.description, item.command.schedule_id
        assert parsed.spec.owner, item.command.schedule_id


def test_the_demo_is_as_varied_as_companies_are() -> None:
    """At least 40 schedules: several zones, tenants and priorities, one-shots, fixed rates, minutes and seconds."""
    commands = [item.command for item in demo_commands(NOW)]
    ids = [command.schedule_id for command in commands]
    triggers = [(command.spec or {})["trigger"] for command in commands]
    assert len(ids) >= 40
    assert len(set(ids)) == len(ids)
    assert len({name.split("/")[0] for name in ids}) >= 5
    assert len({trigger["zone"] for trigger in triggers if "zone" in trigger}) >= 12
    assert {(command.spec or {}).get("priority", "normal") for command in commands} == {
        "critical", "high", "normal", "background",
    }  # fmt: skip
    assert sum("at" in trigger for trigger in triggers) >= 4
    assert {1_000, 60_000} <= {trigger.get("every_ms") for trigger in triggers}
    assert "* * * * *" in {trigger.get("cron") for trigger in triggers}
    assert all(command.command_id for command in commands)


def verdict(*lateness: int, twice: bool = False, rejected: int = 0, deaths: list[str] | None = None) -> Verdict:
    tally = Tally()
    for number, late in enumerate(lateness):
        arrival = Arrival(
            occurrence_id=f"a/b:1:{number}",
            schedule_id="a/b",
            priority="normal",
            origin="schedule",
            attempt=1,
            scheduled_for=NOW,
            available_at=NOW,
            enqueued_at=NOW + late,
            topic="t",
            partition=0,
            offset=number,
        )
        tally.add(arrival)
        if twice:
            tally.add(arrival)
    return Verdict(tally=tally, loaded=3, rejected=rejected, seconds=1.0, deaths=deaths or [])


def test_a_good_demo_exits_with_zero() -> None:
    """Something arrived, on time or late, once."""
    good = verdict(0, 5, 40)
    assert (good.exit_code, good.faults) == (0, [])
    assert good.as_json()["lateness_ms"]["all"] == {"count": 3, "p50": 5, "p99": 40, "max": 40}
    assert "3 occurrences in 1 s from 3 schedules (0 rejected), 0 early, 0 twice" in good.as_lines()


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        (verdict(), "nothing arrived"),
        (verdict(5, -1), "1 came before their time, first a/b:1:1"),
        (verdict(5, twice=True), "1 came twice"),
        (verdict(5, rejected=2), "2 of the demo's schedules were rejected"),
        (verdict(5, deaths=["process 7 of the scheduler died"]), "process 7"),
    ],
)
def test_each_fault_is_named_and_fails_the_demo(bad: Verdict, fault: str) -> None:
    """A demo that shows a broken promise must not end with 0."""
    assert bad.exit_code == 1
    assert any(fault in line for line in bad.faults)
    assert any(fault in line for line in bad.as_lines())


def test_the_commands_of_the_second_terminal_show_something_in_their_order() -> None:
    """What is followed still runs then, and the README's own example can be typed afterwards: its id is free."""
    lines = [line for line in _second_terminal(Path("demo.toml")).splitlines() if " acme/" in line]
    verbs = [next(verb for verb in ("create", "tail", "update", "cancel") if f" {verb} " in line) for line in lines]
    assert verbs == ["create", "tail", "update", "cancel"]
    readme = Path(__file__).parents[2] / "README.md"
    assert "acme/hello" in readme.read_text(encoding="utf-8")
    assert not any("acme/hello" in line for line in lines)
