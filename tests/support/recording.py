"""Golden recordings: the commands of some hours, the changelogs they left halfway, and everything that was decided.

    python -m tests.support.recording       writes tests/replay/format-<N>/ for the record format of this code

Recorded once, when a format is new, and never again, so `history` belongs to the newest: later code must restore the
changelogs and decide the same (`tests/replay/test_recordings.py`). One file a kind, one JSON object a line. Halfway is
in the middle of what falls due at one instant, in steps so small that queues lag: `halfway` is what was decided before.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scheduler.core.record import FORMAT
from scheduler.core.time import format_instant, parse_instant
from scheduler.shard.shard import ShardSettings
from tests.support.driver import Driver, Topics

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parents[1] / "replay"
START = "2026-03-02T09:00:00Z"
HALFWAY = "2026-03-02T10:30:00Z"
END = "2026-03-02T12:00:00Z"
CHANGELOGS = ("scheduler.shards", "scheduler.live", "scheduler.schedules")


def history() -> Iterator[dict[str, Any]]:
    """What happens, in order: commands at instants, and outages."""

    def at(clock: str, verb: str, name: str, **fields: Any) -> dict[str, Any]:
        command = {
            "command": verb,
            "schedule_id": name,
            "command_id": f"{verb}-{clock.replace(':', '')}-{name.replace('/', '-')}",
        }
        return {"at": f"2026-03-02T{clock}Z", "command": {**command, **fields}}

    def create(clock: str, name: str, **spec: Any) -> dict[str, Any]:
        return at(clock, "create", name, spec=spec)

    every_10 = {"cron": "*/10 * * * *", "zone": "UTC"}
    yield create("09:00:00", "acme/often", trigger={"every_ms": 60_000}, misfire={"catch_up": 5}, payload={"n": 1})
    yield create("09:00:00", "acme/tenth", trigger=every_10, misfire="fire_once")
    yield create("09:00:00", "acme/skips", trigger=every_10, misfire="skip", priority="high")
    yield create("09:00:01", "acme/tokyo", trigger={"cron": "15 18-20 * * MON", "zone": "Asia/Tokyo"})
    yield create("09:00:01", "acme/window", trigger=every_10, window_ms=300_000, priority="background")
    yield create("09:00:02", "other/once", trigger={"at": "2026-03-02T09:30:00Z"})
    yield create("09:00:02", "other/later", trigger={"at": "2026-03-02T11:30:00Z"}, priority="critical")
    yield create("09:00:03", "other/held", trigger=every_10)
    yield create("09:00:03", "other/ended", trigger=every_10, end="2026-03-02T09:45:00Z")
    yield create("09:00:03", "other/gone", trigger=every_10)
    yield create("09:00:04", "other/wrong", trigger={"cron": "61 * * * *", "zone": "UTC"})
    yield at("09:05:00", "pause", "other/held", reason="maintenance")
    yield at("09:20:30", "update", "acme/tenth", spec={"payload": "second"})
    yield at("09:25:00", "delete", "other/gone")
    yield at("09:26:00", "trigger", "acme/tokyo", payload={"by": "hand"})
    yield {"at": "2026-03-02T09:31:30Z", "outage_until": "2026-03-02T10:02:30Z"}
    yield create("10:10:30", "other/gone", trigger=every_10)
    yield at("10:12:00", "update", "acme/skips", spec={"priority": "critical"}, effective_from="2026-03-02T11:00:00Z")
    yield at("10:15:00", "backfill", "acme/tenth", **{"from": "2026-03-02T09:00:00Z", "until": "2026-03-02T09:40:00Z"})
    yield at("10:28:00", "cancel", "other/ended")
    yield at("10:29:00", "pause", "acme/window")
    for n in range(8):  # more than the budget of a tenant gets through until halfway
        spec = {"trigger": {"every_ms": 1_000}, "end": "2026-03-02T10:29:55Z", "misfire": {"catch_up": 100}}
        yield create("10:29:05", f"third/{n}", window_ms=500 * (n % 2), **spec)
    yield {"at": "2026-03-02T10:29:10Z", "outage_until": "2026-03-02T10:29:58Z"}
    yield at("10:41:00", "resume", "other/held", catch_up=True)
    yield at("10:45:00", "resume", "acme/window")
    yield {"at": "2026-03-02T10:51:30Z", "outage_until": "2026-03-02T11:02:30Z"}
    yield at("11:15:00", "cancel", "acme/often")
    yield at("11:20:00", "delete", "acme/tenth")


def play(driver: Driver, happenings: list[dict[str, Any]], until: str) -> None:
    """Let it happen, up to an instant."""
    for one in happenings:
        driver.run_until(one["at"])
        if "command" in one:
            driver.send(dict(one["command"]))
            driver.run_until(one["at"])
        else:
            driver.outage(one["outage_until"])
    driver.run_until(until)


def changelogs(topics: Topics) -> list[dict[str, Any]]:
    return [
        {
            "topic": topic,
            "key": key.decode(),
            "value": None if value is None else json.loads(value),
            "at": at,
            "step": step,
        }
        for topic in CHANGELOGS
        for key, value, at, step in topics.records.get(topic, [])
    ]


def load(lines: list[dict[str, Any]]) -> Topics:
    """The topics of recorded changelogs."""
    topics = Topics()
    for line in lines:
        value = None if line["value"] is None else json.dumps(line["value"], separators=(",", ":")).encode()
        topics.append(line["topic"], line["key"].encode(), value, line["at"], line["step"])
    return topics


def decided(topics: Topics, since: str = START) -> list[dict[str, Any]]:
    """What the world sees of the decisions after an instant: starts, answers, and what did not run."""
    found = []
    for topic, _, value, at in topics.log:
        if value is None or at < parse_instant(since):
            continue
        fields = json.loads(value)
        if topic.startswith("dispatch."):
            names: tuple[str, ...] = ("occurrence_id", "available_at", "origin", "stands_for", "attempt", "payload")
        elif topic == "scheduler.replies":
            names = ("command_id", "code", "version", "revision", "state", "effective_at", "occurrence_id", "counts")
        elif topic == "scheduler.occurrences":
            names = ("state", "schedule_id", "version", "reason", "count", "scheduled_for", "first", "last")
        else:
            continue
        found.append({"at": format_instant(at), "topic": topic, **{n: fields[n] for n in names if n in fields}})
    return sorted(found, key=lambda one: (one["at"], json.dumps(one, sort_keys=True)))


def read(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def write(folder: Path) -> None:
    happenings = list(history())
    driver = Driver(START, ShardSettings(max_records=2))
    before = [one for one in happenings if one["at"] < HALFWAY]
    play(driver, before, format_instant(parse_instant(HALFWAY) - 1))
    driver.now += 1
    driver.turn()
    found = {
        "happenings": happenings,
        "changelogs": changelogs(driver.topics),
        "halfway": decided(driver.topics),
    }
    play(driver, happenings[len(before) :], END)
    found["decided"] = decided(driver.topics)
    folder.mkdir()
    for name, lines in found.items():
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text)


if __name__ == "__main__":
    target = FOLDER / f"format-{FORMAT}"
    if target.exists():
        sys.exit(f"{target} is there: a recording is made once, so that it stays what that release wrote")
    write(target)
