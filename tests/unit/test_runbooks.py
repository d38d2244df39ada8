"""Every runbook is complete, and what it tells the reader to look at and to type exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from scheduler.cli import main
from scheduler.runtime.telemetry import Telemetry

ROOT = Path(__file__).parents[2]
RUNBOOKS = sorted((ROOT / "ops" / "runbooks").glob("*.md"))
SECTIONS = ("What it means", "How it is detected", "How to identify", "Investigate", "Resolve", "When not to act")

every_runbook = pytest.mark.parametrize("runbook", RUNBOOKS, ids=lambda path: path.stem)


def metrics() -> set[str]:
    """The names as a scrape shows them; counters with and without their suffix."""
    telemetry = Telemetry()
    telemetry.lag.add(("normal", "schedule"), 0.0)
    telemetry.lateness.add(("normal", "schedule"), 0.0)
    found = set()
    for family in telemetry.registry.collect():
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [])
        found |= {family.name, *(family.name + suffix for suffix in suffixes)}
    return found


def commands(text: str) -> list[str]:
    """Lines of shell blocks, and code spans, that call the product."""
    blocks = "\n".join(re.findall(r"^\s*```sh\n(.*?)^\s*```", text, re.DOTALL | re.MULTILINE))
    lines = [line.strip() for line in blocks.splitlines()]
    return [found for found in [*lines, *re.findall(r"`([^`\n]+)`", text)] if found.startswith("scheduler ")]


def mistake(line: str) -> str | None:
    """What of a command line does not exist; options are looked up, values are not."""
    command: click.Command = main
    context = click.Context(main)
    words = shlex.split(line)[1:]
    while words and isinstance(command, click.Group):
        below = command.get_command(context, words[0])
        if below is None:
            return words[0]
        command = below
        words = words[1:]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return next((word for word in words if word.startswith("-") and word.split("=")[0] not in known), None)


def test_there_are_runbooks() -> None:
    """An empty folder would make the other tests pass."""
    assert RUNBOOKS


@every_runbook
def test_it_has_its_sections_in_order(runbook: Path) -> None:
    """From what it means to when not to act: somebody who is woken up reads it from top to bottom."""
    headings = re.findall(r"^## (.+)$", runbook.read_text(), re.MULTILINE)
    assert [heading for heading in headings if heading in SECTIONS] == list(SECTIONS)


@every_runbook
def test_every_metric_exists(runbook: Path) -> None:
    """A renamed metric may not leave its old name behind."""
    named = set(re.findall(r"\bscheduler_[a-z_]+", runbook.read_text()))
    assert named
    assert named - metrics() == set()


@every_runbook
def test_every_command_exists(runbook: Path) -> None:
    """Each command and each of its options is one the command line has."""
    lines = commands(runbook.read_text())
    assert lines
    assert {line: mistake(line) for line in lines if mistake(line) is not None} == {}


@pytest.mark.parametrize("line", ["scheduler nonsense", "scheduler repair-cursor --every", "scheduler schedule burn x"])
def test_what_does_not_exist_is_found(line: str) -> None:
    """The check itself can fail."""
    assert mistake(line) is not None


@every_runbook
def test_every_event_and_file_exists(runbook: Path) -> None:
    """Log events and source files are named as the code has them."""
    text = runbook.read_text()
    source = "\n".join(path.read_text() for path in (ROOT / "scheduler").rglob("*.py"))
    for line in re.findall(r"^- Log events: (.+)$", text, re.MULTILINE):
        for name in re.findall(r"`([a-z_]+)`", line):
            assert f'event("{name}"' in source, name
    for path in re.findall(r"`((?:scheduler|topics|consumers|ops|tests)/[\w/.-]+)`", text):
        assert (ROOT / path).exists(), path
