"""Definitions that differ in their payloads alone are read once: the result is what reading each of them gives."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.core.spec import MAX_PAYLOAD_BYTES, SpecContext, parse_spec
from scheduler.core.time import parse_instant
from scheduler.core.trigger import Every
from topics.codec import SpecFields, split_command

CRON = {"cron": "0 9 * * 1-5", "zone": "Europe/Berlin"}
NOW = parse_instant("2026-01-01T09:00:00Z")
SPECS: dict[str, dict[str, Any]] = {
    "cron": {"trigger": CRON},
    "payload": {"trigger": CRON, "payload": {"a": [1, "x"]}, "handler": "h"},
    "null payload": {"trigger": CRON, "payload": None},
    "payload too large": {"trigger": CRON, "payload": "x" * (MAX_PAYLOAD_BYTES + 1)},
    "payload like another field": {"trigger": CRON, "window_ms": 7, "payload": 7},
    "payload inside another field": {"labels": {"payload": "x"}, "trigger": CRON, "payload": "x"},
    "spread by the schedule's id": {"trigger": {"cron": "H H * * *", "zone": "UTC"}},
    "a rate anchored at its instant": {"trigger": {"every_ms": 60_000}},
    "a rate of AWS": {"trigger": {"cron": "rate(5 minutes)", "zone": "UTC", "dialect": "aws", "anchor": "x"}},
    "years that end": {"trigger": {"cron": "0 0 9 ? * MON 2026", "zone": "UTC", "dialect": "quartz"}},
    "calendar": {"trigger": CRON, "calendar": "bank"},
    "warnings": {"trigger": {"cron": "0 9 * * *", "zone": "EST"}, "colour": "red"},
    "problems": {"trigger": CRON, "window_ms": -1, "lane": 7},
    "once": {"trigger": {"at": "2026-03-01T09:00:00Z"}, "max_lateness_ms": None},
}


def fields_of(spec: dict[str, Any]) -> dict[str, object]:
    value = json.dumps({"command": "create", "spec": spec}, separators=(",", ":")).encode()
    fields = split_command(value)["spec"]
    assert isinstance(fields, dict)
    return fields


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_shared_definition_is_the_one_that_reading_it_gives(spec: dict[str, Any]) -> None:
    """Whatever a definition says, and whenever and under whichever id it comes: the cache changes nothing."""
    for schedule_id, at in (("acme/a", NOW), ("acme/b", NOW + 1), ("acme/c", parse_instant("2027-01-01T00:00:00Z"))):
        context = SpecContext(schedule_id, at)
        fields = fields_of(spec)
        assert parse_spec(fields, context) == parse_spec(dict(fields), context)


def test_definitions_that_differ_in_their_payloads_share_their_template() -> None:
    """Their triggers are one object; what depends on the instant of the command is nobody else's."""
    first, second = (fields_of({"trigger": CRON, "payload": n}) for n in (1, 2))
    assert isinstance(first, SpecFields)
    assert isinstance(second, SpecFields)
    assert first.template is second.template
    one, two = (parse_spec(fields, SpecContext("acme/a", NOW)).spec for fields in (first, second))
    assert one is not None
    assert two is not None
    assert (one.payload, two.payload) == (b"1", b"2")
    assert one.trigger is two.trigger
    early, late = (parse_spec(fields_of({"trigger": {"every_ms": 60_000}}), SpecContext("acme/a", at)).spec
                   for at in (NOW, NOW + 1))  # fmt: skip
    assert early is not None
    assert late is not None
    assert (early.trigger, late.trigger) == (Every(60_000, NOW), Every(60_000, NOW + 1))


def test_a_definition_with_blanks_has_no_template_and_is_read_as_well() -> None:
    """As other libraries print JSON."""
    fields = split_command(json.dumps({"command": "create", "spec": SPECS["payload"]}).encode())["spec"]
    compact = fields_of(SPECS["payload"])
    assert isinstance(compact, SpecFields)
    assert isinstance(fields, dict)
    assert not isinstance(fields, SpecFields)
    context = SpecContext("acme/a", NOW)
    assert parse_spec(fields, context).spec == parse_spec({**compact, "payload": b'{"a": [1, "x"]}'}, context).spec


def test_a_long_definition_is_read_each_time() -> None:
    """What is kept of those that are read once has a bound."""
    short, long = (fields_of({"trigger": CRON, "description": "x" * size}) for size in (100, 1_100))
    assert isinstance(short, SpecFields)
    assert hasattr(short, "template")
    assert isinstance(long, SpecFields)
    assert not hasattr(long, "template")
