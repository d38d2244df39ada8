"""Watches what becomes visible to committed readers, transaction by transaction, and says at once when it must not be.

an occurrence id         is dispatched once
a dispatch               is appended at or after its `available_at`, which is at or after `scheduled_for`
after the answer to a pause, cancel or delete    nothing of the schedule starts, until a resume or a create
a shard's steps          follow each other without gap or repetition; its positions never go back
a command                has one answer: a repetition of it says the same, as long as there is a schedule to remember it
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from scheduler.core.time import parse_instant
from topics.messages import COMMAND_ID_HEADER

if TYPE_CHECKING:
    from tests.support.world.fibers import World
    from tests.support.world.log import Entry
    from tests.support.world.transactions import Txn

HELD = frozenset({"paused", "cancelled", "deleted"})
FREED = frozenset({"created", "resumed"})


@dataclass
class Dispatched:
    """One dispatch record."""

    schedule_id: str
    version: int
    scheduled_for: int
    origin: str


@dataclass
class Told:
    """One record of `scheduler.occurrences`: `count` nominals from `first` to `last` that will not run."""

    version: int
    state: str
    reason: str
    count: int
    first: int
    last: int


@dataclass
class Witness:
    """What was seen so far. `answers` are in the order of their commits, `replies` how many each command id has."""

    world: World
    namespace: str = ""
    dispatched: dict[str, Dispatched] = field(default_factory=dict)
    told: dict[str, list[Told]] = field(default_factory=dict)
    answers: list[dict[str, Any]] = field(default_factory=list)
    answered: dict[str, dict[str, Any]] = field(default_factory=dict)
    replies: Counter[str] = field(default_factory=Counter)
    steps: dict[int, int] = field(default_factory=dict)
    transactions: int = 0
    _remembered: dict[str, dict[str, Any]] = field(default_factory=dict)
    _held: set[str] = field(default_factory=set)
    _positions: dict[int, dict[str, int]] = field(default_factory=dict)

    def see(self, txn: Txn) -> None:
        """A transaction is committed."""
        self.transactions += 1
        starts: list[dict[str, Any]] = []
        held = set(self._held)  # and not let go by any answer of this transaction
        for log, entry in txn.entries:
            base = log.topic.removeprefix(self.namespace)
            if base.startswith("dispatch."):
                starts.append(self._dispatch(entry))
            elif base == "scheduler.replies":
                self._answer(entry)
                held &= self._held
            elif base == "scheduler.shards" and entry.key == b"%d" % log.number:
                self._step(log.number, entry)
            elif base == "scheduler.occurrences":
                self._tell(entry)
        for fields in starts:
            name = fields["schedule_id"]
            if fields["origin"] != "manual" and name in held:
                self.world.violate(f"{fields['occurrence_id']} starts after the answer that nothing would")

    def _dispatch(self, entry: Entry) -> dict[str, Any]:
        fields = orjson.loads(entry.value or b"")
        name = fields["occurrence_id"]
        scheduled_for, available_at = parse_instant(fields["scheduled_for"]), parse_instant(fields["available_at"])
        if name in self.dispatched:
            self.world.violate(f"{name} is dispatched twice")
        if not scheduled_for <= available_at <= entry.timestamp:
            self.world.violate(f"{name} is early: for {scheduled_for}, available {available_at}, at {entry.timestamp}")
        one = Dispatched(fields["schedule_id"], fields["version"], scheduled_for, fields["origin"])
        self.dispatched[name] = one
        return dict(fields)

    def _answer(self, entry: Entry) -> None:
        fields = orjson.loads(entry.value or b"")
        command_id = fields["command_id"]
        assert dict(entry.headers or [])[COMMAND_ID_HEADER] == command_id.encode()
        self.replies[command_id] += 1
        before = self._remembered.get(command_id)
        if before is not None and before["code"] != "not_found":  # of that nobody remembers anything
            same = all(before.get(name) == fields.get(name) for name in ("status", "code", "version", "effective_at"))
            if not same and fields["code"] != "stale_command":
                self.world.violate(f"command {command_id} is answered {before['code']}, then {fields['code']}")
            return
        self.answered[command_id] = self._remembered[command_id] = fields
        name = fields["schedule_id"]
        self.answers.append(fields)
        if fields["status"] == "accepted":
            if fields["code"] == "deleted":
                # Its memory of commands is gone with it: what comes once more now is news.
                self._remembered = {k: v for k, v in self._remembered.items() if v["schedule_id"] != name}
            if fields["code"] in HELD:
                self._held.add(name)
            elif fields["code"] in FREED or fields.get("state") == "active":
                self._held.discard(name)

    def _step(self, shard: int, entry: Entry) -> None:
        fields = orjson.loads(entry.value or b"")
        step, positions = fields["step"], fields["positions"]
        if step != self.steps.get(shard, 0) + 1:
            self.world.violate(f"shard {shard} commits step {step} after step {self.steps.get(shard, 0)}")
        self.steps[shard] = step
        before = self._positions.get(shard, {})
        if any(positions.get(topic, 0) < offset for topic, offset in before.items()):
            self.world.violate(f"shard {shard} goes back from {before} to {positions}")
        self._positions[shard] = positions

    def _tell(self, entry: Entry) -> None:
        fields = orjson.loads(entry.value or b"")
        first = parse_instant(fields.get("scheduled_for") or fields["first"])
        last = parse_instant(fields.get("scheduled_for") or fields["last"])
        one = Told(fields["version"], fields["state"], fields["reason"], fields.get("count", 1), first, last)
        self.told.setdefault(fields["schedule_id"], []).append(one)
