"""The whole shard without a broker: time moved by hand, topics as lists, commits, kills and restores as verbs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from scheduler.core.time import format_instant, parse_instant
from scheduler.shard.commands import Input
from scheduler.shard.rebuild import ORDER, Change, Rebuild
from scheduler.shard.shard import Shard, ShardSettings
from scheduler.shard.step import Step
from scheduler.state.store import MemoryStore, Store
from topics.catalog import Catalogue

START = parse_instant("2026-01-01T09:00:00Z")


@dataclass
class Topics:
    """What a read-committed reader sees: per topic a list of (key, value bytes or None, append instant, step)."""

    records: dict[str, list[tuple[bytes, bytes | None, int, int | None]]] = field(default_factory=dict)

    def append(self, topic: str, key: bytes, value: bytes | None, at: int, step: int | None) -> None:
        self.records.setdefault(topic, []).append((key, value, at, step))

    def values(self, topic: str) -> list[dict[str, Any]]:
        return [json.loads(v) for _, v, _, _ in self.records.get(topic, []) if v is not None]


class Driver:
    """One shard of one, driven by virtual time. `kill` forgets everything not committed; `start` restores and opens."""

    def __init__(self, now: int | str = START, settings: ShardSettings | None = None) -> None:
        self.now = parse_instant(now) if isinstance(now, str) else now
        self.catalogue = Catalogue(shards=1)
        self.settings = settings or ShardSettings()
        self.topics = Topics()
        self.store: Store = MemoryStore()
        self.commands: list[Input] = []
        self.shard: Shard | None = None
        self._sent = 0
        self.start()

    # --- the world

    def start(self, *, wipe: bool = False) -> None:
        """A new owner: restore from the topics (cold if `wipe`), then open."""
        if wipe:
            self.store = MemoryStore()
        restore(self.topics, self.store, self.catalogue)
        self.shard = Shard(0, self.catalogue, self.store, self.settings)
        self.shard.open(self.now)
        self._commands_end = len(self.commands)
        self.run_until(self.now)

    def kill(self) -> None:
        self.shard = None

    def restart(self, *, wipe: bool = False) -> None:
        self.kill()
        self.start(wipe=wipe)

    def send(self, command: dict[str, Any] | bytes, *, at: int | None = None) -> str:
        """Append a command to the log; applied by the next step. Returns its command id."""
        self._sent += 1
        appended = self.now if at is None else at
        if isinstance(command, dict):
            command.setdefault("command_id", f"c{self._sent}")
            key, value = command["schedule_id"].encode(), json.dumps(command).encode()
        else:
            key, value = b"k", command
        self.commands.append(Input(0, len(self.commands), appended, key, value))
        return str(command.get("command_id")) if isinstance(command, dict) else ""

    def do(self, verb: str, schedule_id: str = "acme/a", **fields: Any) -> dict[str, Any]:
        """Send a command, let the shard answer it now, return the reply."""
        command_id = self.send({"command": verb, "schedule_id": schedule_id, **fields})
        self.run_until(self.now)
        return next(r for r in reversed(self.topics.values("scheduler.replies")) if r["command_id"] == command_id)

    def run_until(self, until: int | str) -> None:
        """Let time pass, stopping at every instant at which something is due."""
        end = parse_instant(until) if isinstance(until, str) else until
        while True:
            self.turn()
            shard = self.shard
            assert shard is not None
            while shard.housekeep(self.now):
                pass
            due = shard.next_instant()
            if self._pending() or (due is not None and due <= self.now):
                if due == 0 and not self._pending():
                    # only work that waits for a budget: let a little time pass
                    if self.now >= end:
                        return
                    self.now = min(end, self.now + 10)
                continue
            if self.now >= end:
                return
            self.now = min(end, self.now + 5_000 if due is None else max(due, self.now + 1))

    def advance(self, ms: int) -> None:
        self.run_until(self.now + ms)

    def turn(self) -> Step | None:
        """One step: plan, commit, apply."""
        assert self.shard is not None
        step = self.plan()
        if step is not None:
            self.publish(step)
            self.shard.committed(step)
        if self.shard.position("scheduler.commands") >= self._commands_end:
            self.shard.commands_read()
        return step

    def plan(self) -> Step | None:
        assert self.shard is not None
        return self.shard.plan(self.now, self._pending())

    def _pending(self) -> list[Input]:
        assert self.shard is not None
        return self.commands[self.shard.position("scheduler.commands") :]

    def publish(self, step: Step) -> None:
        """The transaction commits."""
        for item in step.items:
            self.topics.append(item.entry.target.topic, item.entry.target.key, item.value, self.now, None)
        for record in step.records:
            number = dict(record.headers or []).get("step")
            self.topics.append(
                record.topic, record.key, record.value, self.now, None if number is None else int(number)
            )

    # --- what came of it

    def dispatched(self, schedule_id: str | None = None) -> list[dict[str, Any]]:
        """All dispatch values in the order of their topics, with the append instant as `at`."""
        found = []
        for topic, records in self.topics.records.items():
            if topic.startswith("dispatch."):
                for _, value, at, _ in records:
                    assert value is not None
                    found.append({**json.loads(value), "at": format_instant(at), "topic": topic})
        found.sort(key=lambda d: parse_instant(d["at"]))
        return [d for d in found if schedule_id in (None, d["schedule_id"])]

    def times(self, schedule_id: str = "acme/a") -> list[str]:
        return [d["scheduled_for"] for d in self.dispatched(schedule_id)]

    def occurrences(self) -> list[dict[str, Any]]:
        return self.topics.values("scheduler.occurrences")

    def schedule(self, schedule_id: str = "acme/a") -> dict[str, Any] | None:
        """The newest record of the compacted topic."""
        for key, value, _, _ in reversed(self.topics.records.get("scheduler.schedules", [])):
            if key.decode() == schedule_id:
                return None if value is None else dict(json.loads(value))
        return None

    def contents(self) -> dict[bytes, bytes]:
        """The whole store, without what is local to it."""
        return {k: v for k, v in self.store.items(b"", b"\xff") if not k.startswith(b"m")}


def restore(topics: Topics, store: Store, catalogue: Catalogue, *, compacted: bool = False) -> None:
    """Apply the changelogs as a new owner does; `compacted` keeps only the newest record of each key."""
    rebuild = Rebuild(store, 0)
    for base in ORDER:
        rebuild.begin(base)
        records = topics.records.get(catalogue.namespace + base, [])
        changes = [Change(i, k, v, s) for i, (k, v, _, s) in enumerate(records) if i >= rebuild.position(base)]
        if compacted:
            newest = {change.key: change.offset for change in changes}
            changes = [c for c in changes if newest[c.key] == c.offset]
        rebuild.apply(base, changes, len(records))
    assert rebuild.foreign == 0
