"""Backfills and changes for later in scenarios: the same code as live, so only that they get there is asked here."""

from __future__ import annotations

from typing import Any

from scheduler.simulator import simulate


def scenario(*steps: dict[str, Any]) -> dict[str, Any]:
    create = {
        "command": "create", "schedule_id": "acme/a",
        "spec": {"trigger": {"cron": "0 * * * *", "zone": "UTC"}, "misfire": "skip"},
    }  # fmt: skip
    first = {"at": "2026-01-01T00:30:00Z", "command": create}
    return {"from": "2026-01-01T00:00:00Z", "until": "2026-01-01T09:59:00Z", "steps": [first, *steps]}


def backfill(at: str, **fields: Any) -> dict[str, Any]:
    command = {
        "command": "backfill", "schedule_id": "acme/a", "from": "2026-01-01T00:00:00Z",
        "until": "2026-01-01T06:00:00Z", **fields,
    }  # fmt: skip
    return {"at": f"2026-01-01T{at}:00Z", "command": command}


def clocks(events: list[dict[str, Any]], origin: str) -> list[str]:
    return [e["scheduled_for"][11:16] for e in events if e["event"] == "dispatched" and e["origin"] == origin]


def test_a_backfill_after_an_outage() -> None:
    """What ran is left out, a dry run says the number first, overlapping ones are refused, live fires go on."""
    events = list(simulate(scenario(
        {"at": "2026-01-01T03:30:00Z", "outage_until": "2026-01-01T05:30:00Z"},
        backfill("07:30", dry_run=True), backfill("07:31", per_s=1), backfill("07:31"),
    )))  # fmt: skip
    answers = [(e["event"], e["code"], e.get("count")) for e in events if "code" in e]
    assert answers == [
        ("accepted", "created", None), ("accepted", "backfilling", 3), ("accepted", "backfilling", 6),
        ("rejected", "backfill_running", None),
    ]  # fmt: skip
    assert clocks(events, "backfill") == ["00:00", "04:00", "05:00"]
    assert clocks(events, "schedule") == ["01:00", "02:00", "03:00", "06:00", "07:00", "08:00", "09:00"]


def test_a_change_for_later() -> None:
    """It is accepted at once and counts strictly after its instant."""
    change = {
        "command": "update", "schedule_id": "acme/a", "effective_from": "2026-01-01T03:00:00Z",
        "spec": {"trigger": {"cron": "30 * * * *", "zone": "UTC"}},
    }  # fmt: skip
    events = list(simulate(scenario({"at": "2026-01-01T00:40:00Z", "command": change})))
    assert clocks(events, "schedule")[:5] == ["01:00", "02:00", "03:00", "03:30", "04:30"]
