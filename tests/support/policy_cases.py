"""Policy cases as data: a scenario, and exactly what the simulator must tell of it, one line an event.

    12:05:00 dispatched 12:05:00 schedule               at, scheduled_for, origin
    12:05:32 dispatched 12:05:00 available 12:05:32 ... in a window
    13:02:00 dispatched 13:00:00 catch_up for 12 v2     stands for twelve, version 2
    13:02:00 missed 9 downtime 12:05:00 to 12:45:00     how many, why, the range
    09:30:00 accepted paused

Instants on the day of `from` are shown as times of day. Identifiers P.. are those of the collected reports.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DAY = "2026-01-01T"
HOURLY = "0 * * * *"
MINUTELY = "* * * * *"
FIVE = "*/5 * * * *"
Step = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """`name` begins with the id of the report; `steps` and `expect` are in order."""

    name: str
    start: str
    until: str
    steps: tuple[Step, ...]
    expect: tuple[str, ...]
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def scenario(self) -> dict[str, Any]:
        return {"from": full(self.start), "until": full(self.until), "steps": list(self.steps), **self.more}


def full(at: str) -> str:
    """`12:05` of the usual day, or an instant as it is."""
    return at if "T" in at else f"{DAY}{at if at.count(':') > 1 else at + ':00'}Z"


def create(at: str, trigger: str | dict[str, Any], name: str = "acme/a", **spec: Any) -> Step:
    rule = {"cron": trigger, "zone": spec.pop("zone", "UTC")} if isinstance(trigger, str) else trigger
    return do(at, "create", name, spec={"trigger": rule, **spec})


def do(at: str, verb: str, name: str = "acme/a", **fields: Any) -> Step:
    return {"at": full(at), "command": {"command": verb, "schedule_id": name, **fields}}


def cron(expr: str, zone: str = "UTC") -> dict[str, Any]:
    return {"trigger": {"cron": expr, "zone": zone}}


def down(at: str, until: str) -> Step:
    return {"at": full(at), "outage_until": full(until)}


def once(at: str) -> dict[str, Any]:
    return {"at": full(at)}


def told(event: dict[str, Any], day: str) -> str:
    """An event as a line of a case."""

    def short(at: str) -> str:
        return at[11:].removesuffix("Z") if at[:10] == day else at

    words = [short(event["at"])]
    if event["schedule_id"] != "acme/a":
        words.append(str(event["schedule_id"]))
    words.append(event["event"])
    if event["event"] == "dispatched":
        words.append(short(event["scheduled_for"]))
        if event["available_at"] != event["scheduled_for"]:
            words.append(f"available {short(event['available_at'])}")
        words.append(event["origin"])
        if event.get("stands_for", 1) > 1:
            words.append(f"for {event['stands_for']}")
    elif "count" in event:
        first = event.get("first", event["scheduled_for"])
        words.append(f"{event['count']} {event['reason']} {short(first)}")
        if event["count"] > 1:
            words.append(f"to {short(event['last'])}")
    elif "code" in event:
        words.append(event["code"])
    if event.get("version", 1) > 1:
        words.append(f"v{event['version']}")
    return " ".join(words)
