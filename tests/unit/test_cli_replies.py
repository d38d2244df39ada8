"""Replies for people."""

from __future__ import annotations

from scheduler.cli.replies import as_lines
from topics.messages import Planned, Problem, Reply


def reply(**fields: object) -> Reply:
    given = {
        "command": "create", "schedule_id": "a/b", "command_id": "c", "status": "accepted", "code": "created",
        "message": "armed", "at": "2027-01-01T00:00:00Z",
    }  # fmt: skip
    return Reply(**{**given, **fields})  # type: ignore[arg-type] # fields by name


def test_what_went_well_is_one_line() -> None:
    """With state, version and revision where the shard gave them."""
    assert as_lines(reply()) == ["a/b: created: armed"]
    assert as_lines(reply(state="active", version=2, revision=3, dry_run=True)) == [
        "a/b: created, active, version 2, revision 3 (dry run, nothing was changed): armed"
    ]


def test_every_mistake_has_its_line_and_names_its_field_once() -> None:
    """The summary sentence would only say the same again."""
    errors = [
        Problem(field="zone", code="unknown_zone", message="'Mars' is no zone"),
        Problem(field="minute", code="bad_field", message="minute: '61' is out of range"),
        Problem(field="", code="bad_field", message="too large"),
    ]
    assert as_lines(reply(status="rejected", code="bad_field", message="all of it", errors=errors)) == [
        "a/b: bad_field: 3 mistakes",
        "  error    zone: 'Mars' is no zone",
        "  error    minute: '61' is out of range",
        "  error    (whole): too large",
    ]


def test_warnings_counts_the_occurrence_and_the_preview_follow() -> None:
    """Jitter is shown where there is some."""
    planned = [
        Planned(scheduled_for="2027-01-01T09:00:00Z", available_at="2027-01-01T09:00:00Z"),
        Planned(scheduled_for="2027-01-02T09:00:00Z", available_at="2027-01-02T09:00:07Z"),
    ]
    warning = Problem(field="spec.colour", code="unknown_field", message="ignored")
    lines = as_lines(
        reply(warnings=[warning], counts={"kept": 1, "cancelled": 2}, occurrence_id="a/b:1:m-c", preview=planned)
    )
    assert lines[1:] == [
        "  warning  spec.colour: ignored",
        "  settled  2 cancelled, 1 kept",
        "  occurrence  a/b:1:m-c",
        "  next     2027-01-01T09:00:00Z",
        "  next     2027-01-02T09:00:00Z  available 2027-01-02T09:00:07Z",
    ]
