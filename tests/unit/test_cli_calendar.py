"""`scheduler calendar`: files become versions, all mistakes are told at once, and the same again changes nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from click.testing import CliRunner

from scheduler.cli import calendar as cli_calendar
from scheduler.cli import main
from scheduler.config_load import load_settings
from scheduler.wire import split_versioned_key
from topics.codec import decode
from topics.messages import Calendar

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

OFFICE = """
name: munich-office
working_days: [MON, TUE, WED, THU, FRI]
holidays: [{country: DE, subdivision: BY}]
exclude_dates: [2026-12-24]
exclude_ranges: [{from: 2026-12-27, to: 2026-12-31}]
description: when somebody is in the office
"""


class Topic:
    """The calendar topic as a table."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes | None] = {}

    def versions(self, *_: Any, **__: Any) -> dict[str, dict[int, Calendar]]:
        found: dict[str, dict[int, Calendar]] = {}
        for key, value in self.rows.items():
            if value is not None:
                name, version = split_versioned_key(key)
                found.setdefault(name, {})[version] = decode(Calendar, value)
        return found

    def write(self, _kafka: Any, topic: str, rows: list[tuple[bytes, bytes | None]]) -> None:
        assert topic == "scheduler.calendars"
        self.rows.update(rows)


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    made = Topic()
    settings = load_settings(None, {"kafka": {"bootstrap_servers": "nowhere:1"}})
    monkeypatch.setattr(cli_calendar, "calendar_versions", made.versions)
    monkeypatch.setattr(cli_calendar, "write_rows", made.write)
    monkeypatch.setattr(cli_calendar, "settings_with_broker", lambda _: settings)
    return made


def run(*arguments: str, text: str = "") -> Result:
    return CliRunner().invoke(main, ["calendar", *arguments], input=text)


def test_an_applied_calendar_is_a_version_and_the_same_again_is_unchanged(topic: Topic) -> None:
    """Created, unchanged, updated; written in another order or form it is still the same."""
    assert run("apply", "-", text=OFFICE).output == "munich-office@1 created\n"
    assert run("apply", "-", text=OFFICE).output == "munich-office@1 unchanged\n"
    fields = msgspec.json.decode(topic.rows[b"munich-office@1"] or b"")
    as_json = json.dumps({key: value for key, value in reversed(fields.items()) if key not in ("version", "at")})
    assert run("apply", "-", text=as_json).output == "munich-office@1 unchanged\n"
    assert run("apply", "-", "--dry-run", text=OFFICE + "include_dates: [2026-12-19]").output == (
        "munich-office@2 would be updated\n"
    )
    assert list(topic.rows) == [b"munich-office@1"]
    told = run("apply", "-", "--json", "--actor", "ops", text=OFFICE + "include_dates: [2026-12-19]").output
    assert json.loads(told) == {"name": "munich-office", "version": 2, "result": "updated", "dry_run": False}
    assert decode(Calendar, topic.rows[b"munich-office@2"]).actor == "ops"


def test_every_mistake_is_told_at_once_and_nothing_is_written(topic: Topic, tmp_path: Path) -> None:
    """With file and line, of every calendar in every file."""
    file = tmp_path / "bad.yaml"
    file.write_text(
        "name: Bad Name\nversion: 3\nworking_days: [MON, NODAY]\nexclude_dates: [2026-02-30]\nholiday: []\n"
        "---\nname: ok\nholidays: [{country: XX}]\n---\nname: fine\n---\nname: fine\n---\njust text\n"
    )
    result = run("apply", str(file))
    assert result.exit_code == 2
    lines = result.output.splitlines()
    parts = [":1: name: 'Bad Name'", ":1: version: ", "'NODAY'", "'2026-02-30'", "did you mean holidays?"]
    for part in [*parts, ":7: holidays", ":12: 'fine' is given twice", ":14: expected an object"]:
        assert any(part in line for line in lines), (part, lines)
    assert lines[-1] == "error: nothing was written"
    assert topic.rows == {}


def test_what_is_shown_can_be_applied_again(topic: Topic) -> None:
    """`show` prints the form that `apply` reads; `list` one line a calendar."""
    run("apply", "-", text=OFFICE)
    shown = run("show", "munich-office").output
    assert shown.startswith("# version 1, 20")
    assert run("apply", "-", text=shown).output == "munich-office@1 unchanged\n"
    assert "munich-office\t1\tMON TUE WED THU FRI\t1\t2\t0" in run("list").output
    assert json.loads(run("list", "--json").output)["name"] == "munich-office"
    assert json.loads(run("show", "munich-office", "--version", "1", "--json").output)["version"] == 1
    missing = run("show", "paris")
    assert (missing.exit_code, missing.output) == (
        1,
        "error: no calendar is called 'paris'; there are munich-office\n",
    )


def test_a_deleted_calendar_keeps_its_numbers(topic: Topic) -> None:
    """Deleting is a version; what comes after it counts on, so that no version ever means two things."""
    run("apply", "-", text=OFFICE)
    assert run("delete", "munich-office").output == "munich-office@2 deleted\n"
    assert run("delete", "munich-office").exit_code == 1
    assert run("list").output.splitlines()[1:] == []
    assert run("show", "munich-office").exit_code == 1
    assert run("apply", "-", text=OFFICE).output == "munich-office@3 created\n"


def test_old_versions_end(topic: Topic) -> None:
    """The topic keeps the last twenty of a calendar."""
    for number in range(25):
        run("apply", "-", text=f"name: busy\ndescription: change {number}\n")
    left = [key for key, value in topic.rows.items() if value is not None]
    assert left == [b"busy@%d" % version for version in range(6, 26)]
