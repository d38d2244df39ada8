"""Selectors of bulk commands: what they take, and that all mistakes of one are told at once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from scheduler.cli import main
from scheduler.cli.selecting import Selector, is_bulk, selector
from scheduler.errors import StateCorrupted

NOTHING: dict[str, Any] = {
    "everything": False,
    "tenant": None,
    "label": (),
    "name_prefix": None,
    "states": (),
    "bulk_id": None,
    "command_id": None,
}


def chosen(verb: str = "pause", **options: Any) -> Selector:
    return selector(verb, [], {**NOTHING, **options}, options.get("bulk_id") or "b1")


def record(state: str = "active", *answered: str, reason: str | None = None, **labels: str) -> bytes:
    """A schedule record; `answered` are the ids of commands it remembers."""
    recent = [{"command_id": one, "command": "pause", "status": "accepted"} for one in answered]
    return msgspec.json.encode({"state": state, "reason": reason, "spec": {"labels": labels}, "recent": recent})


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ({"everything": True}, {"acme/a.1", "acme/b", "acme2/a"}),
        ({"tenant": "acme"}, {"acme/a.1", "acme/b"}),
        ({"name_prefix": "a"}, {"acme/a.1", "acme2/a"}),
        ({"tenant": "acme", "name_prefix": "a."}, {"acme/a.1"}),
        ({"tenant": "acm"}, set()),
        ({"name_prefix": "acme"}, set()),
    ],
)
def test_tenant_and_prefix_are_parts_of_the_name(options: dict[str, Any], taken: set[str]) -> None:
    """A tenant is a whole one; a prefix is the name's, behind the slash; both must hold."""
    names = ["acme/a.1", "acme/b", "acme2/a"]
    assert {name for name in names if chosen(**options).takes(name.encode(), record())} == taken


def test_every_label_must_be_there_with_its_value() -> None:
    """A value may have '=' in it, or be empty."""
    one = chosen(label=("team=billing", "key=a=b", "x="))
    assert one.takes(b"acme/a", record(team="billing", key="a=b", x="", more="1"))
    assert not one.takes(b"acme/a", record(team="billing", key="a=b"))
    assert not one.takes(b"acme/a", record(team="billing2", key="a=b", x=""))


@pytest.mark.parametrize(
    ("verb", "usual"),
    [
        ("pause", {"active"}),
        ("resume", {"paused"}),
        ("cancel", {"active", "paused", "broken"}),
        ("delete", {"active", "paused", "completed", "cancelled", "broken"}),
    ],
)
def test_states_are_those_the_command_changes(verb: str, usual: set[str]) -> None:
    """Unless some of them are named."""
    states = ("active", "paused", "completed", "cancelled", "broken")
    assert {s for s in states if chosen(verb, everything=True).takes(b"acme/a", record(s))} == usual
    named = chosen("delete", everything=True, states=("cancelled", "completed"))
    assert {s for s in states if named.takes(b"acme/a", record(s))} == {"cancelled", "completed"}


def test_what_the_run_has_reached_is_selected_again() -> None:
    """Whatever its state is by now: but only what the rest of the selector means, and only by the same run."""
    one = chosen(tenant="acme", bulk_id="b7")
    reached = record("paused", "c1", "b7.pause")
    assert one.takes(b"acme/a", reached)
    assert one.has_reached(reached)
    assert not one.takes(b"other/a", reached)
    assert not one.takes(b"acme/a", record("paused", "b7.resume", "b77.pause"))
    assert not one.takes(b"acme/a", record("paused", reason="b7.pause"))
    assert not one.has_reached(record("active", "c1"))


def test_a_reason_chooses_among_the_paused() -> None:
    """What somebody paused for another reason rests."""
    one = chosen("resume", everything=True, paused_for="incident")
    assert one.takes(b"acme/a", record("paused", reason="incident"))
    assert not one.takes(b"acme/a", record("paused", reason="holiday"))


def test_a_record_nobody_can_read_stops_the_run() -> None:
    """Nothing may be silently left out of a count."""
    with pytest.raises(StateCorrupted, match="cannot be read"):
        chosen(everything=True).takes(b"acme/a", b'{"state": 5}')


def test_a_selector_tells_all_its_mistakes_at_once() -> None:
    """Names beside it, and a tenant, a prefix, labels, states and an id that are none: one usage error has them all."""
    wrong = ["--all", "--tenant", "Acme", "--name-prefix", "/x", "--label", "team", "--label", "a=1", "--label", "a=2"]
    wrong += ["--state", "broken", "--state", "gone", "--bulk-id", "no spaces", "--command-id", "c1"]
    result = CliRunner().invoke(main, ["schedule", "resume", "acme/a", *wrong])
    assert result.exit_code == 2
    for part in (
        "name schedules or select them",
        "--all is all of them: leave out --all, or --tenant, --label, --name-prefix",
        "--command-id names one command",
        "--bulk-id: 'no spaces' is none",
        "--tenant: 'Acme' is none",
        "--name-prefix: no name begins with '/x'",
        "--label: 'team' is none: NAME=VALUE",
        "--label: a can't be both '1' and '2'",
        "--state: resume changes nothing about 'broken' ones; it does about paused",
        "--state: resume changes nothing about 'gone' ones",
    ):
        assert part in result.stderr


@pytest.mark.parametrize("options", [[], ["--state", "active"], ["--bulk-id", "b1"]])
def test_nothing_is_selected_by_silence(options: list[str]) -> None:
    """A state or an id alone is no selector: all of them must be said."""
    result = CliRunner().invoke(main, ["schedule", "pause", *options])
    assert result.exit_code == 2
    assert "say which: --tenant, --label or --name-prefix, or --all" in result.stderr


def test_names_alone_are_no_bulk() -> None:
    """They are answered one by one, as ever."""
    assert not is_bulk(NOTHING)
    assert is_bulk({**NOTHING, "label": ("a=b",)})
