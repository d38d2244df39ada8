"""Files of commands: what is read, and what is refused with its line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.cli.documents import Located, Mistake, read_commands

NOW = 1_800_000_000_000  # 2027-01-15T08:00:00Z


def read(text: str) -> list[Located | Mistake]:
    return list(read_commands(text, "f", NOW))


def lines(text: str) -> list[tuple[int, str]]:
    """(line, schedule_id or reason) of everything found."""
    return [
        (found.line, found.command.schedule_id if isinstance(found, Located) else found.why) for found in read(text)
    ]


def test_yaml_documents_and_lists_give_commands_with_their_lines() -> None:
    """A document is one command or a list of them."""
    text = """\
# ours
command: pause
schedule_id: a/one
---
- command: pause
  schedule_id: a/two
- {command: resume, schedule_id: a/three}
"""
    assert lines(text) == [(2, "a/one"), (5, "a/two"), (7, "a/three")]


def test_json_lines_are_recognised_by_their_first_line() -> None:
    """Blank lines are skipped; a broken line stops nothing."""
    text = '\n{"command":"pause","schedule_id":"a/b"}\n\n{"command":\n{"command":"resume","schedule_id":"a/c"}'
    found = lines(text)
    assert [found[0], found[2]] == [(2, "a/b"), (5, "a/c")]
    assert found[1][0] == 4
    assert "not a JSON object on one line" in found[1][1]


def test_only_a_line_feed_ends_a_json_line() -> None:
    """JSON text may hold other separators of Unicode as they are."""
    command = '{"command": "create", "schedule_id": "acme/a", "spec": {"payload": "a\x85b\u2028c"}}'
    [found] = read(command + "\n")
    assert isinstance(found, Located)
    assert found.command.spec == {"payload": "a\x85b\u2028c"}


def test_a_line_nested_too_deep_is_a_mistake_with_its_place() -> None:
    """Also in the first line, by which the format is told."""
    [found] = read('{"a":' * 100_000)
    assert isinstance(found, Mistake)
    assert found.line == 1


def test_a_json_document_over_several_lines_is_yaml() -> None:
    """YAML contains JSON, so a pretty-printed file works too."""
    assert lines(json.dumps({"command": "pause", "schedule_id": "a/b"}, indent=2)) == [(1, "a/b")]


def test_text_stays_text() -> None:
    """No dates, no `yes`/`on` booleans, no octal or sexagesimal numbers: as JSON would have it."""
    text = """\
command: create
schedule_id: a/b
spec:
  trigger: {at: 2027-03-08T07:30:00Z}
  payload: {a: on, b: yes, c: 2027-03-08, d: 0755, e: 12:30, f: true, g: 1.5, h: ~, i: 7, j: .5, k: 1_000}
"""
    (found,) = read(text)
    assert isinstance(found, Located)
    assert found.command.spec == {
        "trigger": {"at": "2027-03-08T07:30:00Z"},
        "payload": {
            "a": "on", "b": "yes", "c": "2027-03-08", "d": "0755", "e": "12:30", "f": True, "g": 1.5, "h": None,
            "i": 7, "j": ".5", "k": "1_000",
        },
    }  # fmt: skip


def test_relative_instants_count_from_now() -> None:
    """In `trigger.at`, `start` and `end`; nowhere else."""
    text = "command: create\nschedule_id: a/b\nspec: {trigger: {at: +90s}, end: +1d, description: +1d}"
    (found,) = read(text)
    assert isinstance(found, Located)
    assert found.command.spec == {
        "trigger": {"at": "2027-01-15T08:01:30Z"},
        "end": "2027-01-16T08:00:00Z",
        "description": "+1d",
    }


@pytest.mark.parametrize(
    ("text", "line", "fragment"),
    [
        ("command: pause", 1, "missing required field `schedule_id`"),
        ("command: halt\nschedule_id: a/b", 1, "Invalid enum value 'halt'"),
        ("command: pause\nschedule_id: a/b\nresaon: x", 1, "did you mean `reason`?"),
        ("command: pause\ncommand: resume\nschedule_id: a/b", 2, "'command' is given twice"),
        ("command: pause\nschedule_id: a/b\npreview: many", 1, "Expected `int"),
        ("- a\n- b", 1, "this is text"),
        ("command: pause\nschedule_id: [", 2, "is no YAML"),
        ("command: pause\nschedule_id: !!python/object:os.system x", 2, "could not determine a constructor"),
        ("command: create\nschedule_id: a/b\nspec: {1: 2}", 3, "is no text"),
        ("command: create\nschedule_id: a/b\nspec: {trigger: {at: +soon}}", 1, "is no duration"),
        ("{a: &x [*x]}", 1, "recursive"),
        ("\x00", 1, "is no YAML"),
        ("[" * 5000, 1, "is no YAML"),
    ],
)
def test_mistakes_come_back_with_file_and_line(text: str, line: int, fragment: str) -> None:
    """And with what would be right."""
    found = [item for item in read(text) if isinstance(item, Mistake)]
    assert any(item.line == line and fragment in item.why for item in found), found
    assert str(found[0]).startswith("f:")


def test_a_mistake_leaves_the_other_documents_alone() -> None:
    """Only a syntax error hides what is below it, and says so."""
    text = "command: pause\n---\ncommand: pause\nschedule_id: a/b\n---\n{\n"
    found = read(text)
    assert [type(item) for item in found] == [Mistake, Located, Mistake]
    assert "nothing below this line was read" in str(found[2])


def test_an_empty_file_holds_nothing() -> None:
    """Nor does one with comments only."""
    assert read("") == []
    assert read("# nothing\n") == []


@given(st.text(max_size=200))
def test_nothing_raises(text: str) -> None:
    """Whatever a file says, it is commands and mistakes."""
    assert all(isinstance(found, Located | Mistake) for found in read(text))
