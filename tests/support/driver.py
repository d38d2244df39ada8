"""The whole shard without a broker: time moved by hand, topics as lists, commits, kills and restores as verbs.

`topics` is what a read-committed reader sees. Every record is checked as it is published: keys are UTF-8 text, values
are JSON objects or null that a broker takes, and all of it is on the shard's own partition.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scheduler.core.backfill import Ran
from scheduler.core.calendar import parse_calendar
from scheduler.core.calendars import NO_CALENDARS, Calendars
from scheduler.core.time import format_instant, parse_instant
from scheduler.shard import keys
from scheduler.shard.commands import Input
from scheduler.shard.rebuild import ORDER, Change, Rebuild, mark_applied
from scheduler.shard.shard import Shard, ShardSettings
from scheduler.state.store import MemoryStore, Store
from topics.catalog import Catalogue
from topics.codec import with_command_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.shard.step import Forward, Step

START = parse_instant("2026-01-01T09:00:00Z")
MOST_TURNS = 20_000  # steps at one instant
LARGEST_RECORD = 1_000_000  # bytes: what clients and brokers take unless they are told otherwise
LONGEST_LOOK_MS = 5_000  # an idle shard looks at least this often: longer would be an outage


@dataclass
class Topics:
    """Per topic a list of (key, value bytes or None, append instant, step); the index is the offset."""

    records: dict[str, list[tuple[bytes, bytes | None, int, int | None]]] = field(default_factory=dict)
    log: list[tuple[str, bytes, bytes | None, int]] = field(default_factory=list)  # all topics in the order of commit

    def append(self, topic: str, key: bytes, value: bytes | None, at: int, step: int | None) -> None:
        key.decode()
        if value is not None:
            assert isinstance(json.loads(value), dict), value
            assert len(value) <= LARGEST_RECORD, (topic, key, len(value))
        self.records.setdefault(topic, []).append((key, value, at, step))
        self.log.append((topic, key, value, at))

    def values(self, topic: str) -> list[dict[str, Any]]:
        return [json.loads(v) for _, v, _, _ in self.records.get(topic, []) if v is not None]

    def end(self, topic: str) -> int:
        return len(self.records.get(topic, []))


class Driver:
    """One shard driven by virtual time. `kill` forgets everything not committed; `start` restores and opens."""

    def __init__(
        self,
        now: int | str = START,
        settings: ShardSettings | None = None,
        catalogue: Catalogue | None = None,
        new_store: Callable[[], Store] = MemoryStore,
        *,
        number: int = 0,
        topics: Topics | None = None,
    ) -> None:
        self.now = _ms(now)
        self.catalogue = catalogue or Catalogue(shards=1)
        self.settings = settings or ShardSettings()
        self.number = number
        self.topics = topics or Topics()
        self._new_store = new_store
        self.store: Store = new_store()
        self.commands: list[Input] = []
        self.forwards: list[Forward] = []
        self.shard: Shard | None = None
        self.calendars = NO_CALENDARS
        self.steps = 0
        self._sent = 0
        self.answers = True  # whether backfills are told what ran
        self.start()

    # --- the world

    def start(self, *, wipe: bool = False, compacted: bool = False, run: bool = True, unread: int = 0) -> None:
        """A new owner: restore from the topics (cold if `wipe`; `compacted`: each key's newest only), then open.

        `unread`: so many commands that go before what is overdue have not reached it yet.
        """
        if wipe:
            self.store = self._new_store()
        restore(self.topics, self.store, self.catalogue, self.calendars, compacted=compacted, number=self.number)
        self.shard = Shard(self.number, self.catalogue, self.store, self.settings)
        self.shard.use(self.calendars)
        self.shard.open(self.now, len(self.commands) + unread)
        if run:
            self.run_until(self.now)

    def calendar(self, name: str, version: int, *, run: bool = True, deleted: bool = False, **fields: Any) -> None:
        """The reader of calendars meets a version; the shard hears of it between two steps."""
        parsed = None if deleted else parse_calendar({"name": name, "version": version, **fields})
        assert parsed is None or parsed.calendar is not None, parsed
        self.calendars = self.calendars.put(name, version, None if parsed is None else parsed.calendar)
        if self.shard is not None:
            self.shard.use(self.calendars)
            if run:
                self.run_until(self.now)

    def kill(self) -> None:
        """Memory is gone; the store and the topics stay."""
        self.shard = None

    def restart(self, *, wipe: bool = False, compacted: bool = False, run: bool = True) -> None:
        self.kill()
        self.start(wipe=wipe, compacted=compacted, run=run)

    def outage(self, until: int | str, *, wipe: bool = False, compacted: bool = False) -> None:
        """Killed now, started again at `until`."""
        self.kill()
        self.now = _ms(until)
        self.start(wipe=wipe, compacted=compacted)

    def crash_after_commit(self) -> Step | None:
        """The next step commits; the store never hears of it, and memory is gone."""
        step = self.plan()
        if step is not None:
            self.publish(step)
        self.kill()
        return step

    def crash_before_commit(self) -> Step | None:
        """The next step is planned and aborted, and memory is gone."""
        step = self.plan()
        self.kill()
        return step

    def send(self, command: dict[str, Any] | bytes | None, *, at: int | None = None, **record: Any) -> str:
        """Append a command to the log; applied by the next step. Returns its command id."""
        self._sent += 1
        appended = self.now if at is None else at
        if isinstance(command, dict):
            command.setdefault("command_id", f"c{self._sent}")
            named = with_command_id(command, command["command_id"])
            key, value = str(command["schedule_id"]).encode(), json.dumps(named, separators=(",", ":")).encode()
        else:
            key, value = b"k", command
        fields = {"partition": 0, "appended_at": appended, "key": key, "value": value, **record}
        self.commands.append(Input(offset=len(self.commands), **fields))
        return str(command.get("command_id")) if isinstance(command, dict) else ""

    def do(self, verb: str, schedule_id: str = "acme/a", **fields: Any) -> dict[str, Any]:
        """Send a command, let the shard answer it now, return the reply."""
        command_id = self.send({"command": verb, "schedule_id": schedule_id, **fields})
        self.run_until(self.now)
        return self.reply(command_id)

    def create(self, schedule_id: str = "acme/a", **spec: Any) -> dict[str, Any]:
        """Create with these spec fields, which must be accepted."""
        reply = self.do("create", schedule_id, spec=spec)
        assert reply["status"] == "accepted", reply
        return reply

    def reply(self, command_id: str) -> dict[str, Any]:
        """The newest reply to this command id."""
        return next(r for r in reversed(self.topics.values("scheduler.replies")) if r["command_id"] == command_id)

    def run_until(self, until: int | str) -> None:
        """Let time pass, stopping at every instant at which something is due."""
        end = _ms(until)
        turns, at = 0, self.now
        while True:
            turns = turns + 1 if self.now == at else 0
            at = self.now
            assert turns < MOST_TURNS, f"the shard never rests at {format_instant(at)}: it has work it does not do"
            self.turn()
            shard = self.shard
            assert shard is not None
            self.housekeep()
            self.inform()
            change = shard.next_instant(self.now)
            if self._pending() or (change is not None and change <= self.now):
                continue
            if self.now >= end:
                return
            look = self.now + LONGEST_LOOK_MS
            self.now = min(end, look if change is None else min(look, change))

    def leap(self, until: int | str) -> None:
        """As `run_until`, without the idle looks in between: for days, with a horizon of an hour."""
        end = _ms(until)
        while True:
            self.run_until(self.now)
            if self.now >= end:
                return
            assert self.shard is not None
            change = self.shard.next_instant(self.now)
            ahead = self.now + self.settings.horizon_ms // 2
            self.now = min(end, ahead if change is None else min(ahead, change))
            self.shard.idle_until(self.now - 1)

    def advance(self, ms: int) -> None:
        self.run_until(self.now + ms)

    def turn(self) -> Step | None:
        """One step: plan, commit, apply."""
        assert self.shard is not None
        self.inform()
        step = self.plan()
        if step is not None:
            self.publish(step)
            for base in ORDER:
                mark_applied(step.batch, base, self.topics.end(self.catalogue.namespace + base))
            self.shard.committed(step)
        return step

    def housekeep(self) -> None:
        """All that commits nothing: what fired is advanced, what comes is read ahead."""
        assert self.shard is not None
        while self.shard.housekeep(self.now):
            pass

    def inform(self) -> None:
        """Answer the shard's questions about what ran, from the dispatch topics."""
        assert self.shard is not None
        if self.answers:
            for question in self.shard.questions():
                ran = [
                    Ran(parse_instant(d["scheduled_for"]), d["version"], d["attempt"])
                    for d in self.dispatched(question.schedule_id)
                    if d["origin"] != "manual"
                ]
                self.shard.answer(question, ran)

    def plan(self) -> Step | None:
        assert self.shard is not None
        return self.shard.plan(self.now, self._pending()[: self.shard.max_inputs])

    def _pending(self) -> list[Input]:
        assert self.shard is not None
        return self.commands[self.shard.position("scheduler.commands") :]

    def publish(self, step: Step) -> None:
        """The transaction commits."""
        self.steps += 1
        for item in step.items:
            self.topics.append(item.entry.target.topic, item.entry.target.key, item.value, self.now, None)
        for record in step.records:
            assert record.partition % self.catalogue.shards == self.number
            number = dict(record.headers or []).get("step")
            self.topics.append(
                record.topic, record.key, record.value, self.now, None if number is None else int(number)
            )
        self.forwards += step.forwards

    def rewrite(self, schedule_id: str, old: bytes, new: bytes) -> None:
        """Restart cold as if another version had stored the schedule, with `new` in place of `old` in its record."""
        log = self.topics.records["scheduler.schedules"]
        index = max(i for i, (key, _, _, _) in enumerate(log) if key == schedule_id.encode())
        key, value, at, step = log[index]
        assert value is not None
        assert old in value, value
        log[index] = (key, value.replace(old, new), at, step)
        self.restart(wipe=True)

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

    def clocks(self, schedule_id: str = "acme/a") -> list[str]:
        """The times of day of what was dispatched, such as `09:30:00`."""
        return [text[11:-1] for text in self.times(schedule_id)]

    def occurrences(self, state: str | None = None) -> list[dict[str, Any]]:
        return [o for o in self.topics.values("scheduler.occurrences") if state in (None, o["state"])]

    def counts(self) -> dict[str, int]:
        """Nominals by the state of their records on `scheduler.occurrences`."""
        found: dict[str, int] = {}
        for record in self.occurrences():
            found[record["state"]] = found.get(record["state"], 0) + record.get("count", 1)
        return found

    def schedule(self, schedule_id: str = "acme/a") -> dict[str, Any] | None:
        """The newest record of the compacted topic."""
        for key, value, _, _ in reversed(self.topics.records.get("scheduler.schedules", [])):
            if key.decode() == schedule_id:
                return None if value is None else dict(json.loads(value))
        return None

    def after_takeover(self, store: Store) -> dict[bytes, bytes]:
        """The whole of a store, which is used up by this, as an owner that takes it over now would have it."""
        restore(self.topics, store, self.catalogue, self.calendars)
        shard = Shard(0, self.catalogue, store, self.settings)
        shard.use(self.calendars)
        shard.open(self.now, len(self.commands))
        return contents(store)

    def contents(self) -> dict[bytes, bytes]:
        """The whole store as the next owner takes it up, without what is local to it: passed places advanced."""
        assert self.shard is not None
        self.shard.advance_passed()
        self.shard.drop_horizon()
        return contents(self.store)

    def cold_contents(self, *, compacted: bool = False) -> dict[bytes, bytes]:
        """The same of an empty store restored from the topics alone."""
        store = self._new_store()
        restore(self.topics, store, self.catalogue, self.calendars, compacted=compacted, number=self.number)
        shard = Shard(self.number, self.catalogue, store, self.settings)
        shard.use(self.calendars)
        shard.open(self.now, len(self.commands))
        found = contents(store)
        store.close()
        return found


def changes(topics: Topics, name: str, start: int = 0) -> list[Change]:
    """The records of a changelog from an offset on."""
    records = topics.records.get(name, [])
    return [Change(start + i, k, v, s) for i, (k, v, _, s) in enumerate(records[start:])]


def contents(store: Store) -> dict[bytes, bytes]:
    return {k: v for k, v in store.items(b"", b"\xff") if not k.startswith(keys.META)}


def restore(
    topics: Topics,
    store: Store,
    catalogue: Catalogue,
    calendars: Calendars = NO_CALENDARS,
    *,
    compacted: bool = False,
    number: int = 0,
) -> None:
    """Apply the changelogs as a new owner does; `compacted` keeps only the newest record of each key."""
    rebuild = Rebuild(store, number, calendars)
    for base in ORDER:
        name = catalogue.namespace + base
        found = changes(topics, name, rebuild.position(base))
        if compacted:
            newest = {change.key: change.offset for change in found}
            found = [change for change in found if newest[change.key] == change.offset]
        rebuild.apply(base, found, topics.end(name))
        if base == ORDER[0]:
            rebuild.whole()
    assert rebuild.foreign == 0


def _ms(instant: int | str) -> int:
    return parse_instant(instant) if isinstance(instant, str) else instant
