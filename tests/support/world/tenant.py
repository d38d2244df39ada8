"""A tenant who sends commands all the time, to the right partition or not, some of them twice, and keeps a list."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from scheduler.core.time import format_instant
from tests.support.world.log import Draft
from topics.codec import with_command_id
from topics.partition import partition_for

if TYPE_CHECKING:
    from random import Random

    from tests.support.world.brokers import Brokers

WRONG_PARTITION = 0.1
TWICE = 0.1
VERBS = {"create": 6, "update": 4, "pause": 3, "resume": 3, "cancel": 1, "delete": 1, "trigger": 2}


class Tenant:
    """`sent` are the commands by their ids. Any number of schedules, but of few names, so that commands meet.

    `times`: how often each was sent, of those to the right partition. These copies overtake each other, as those of an
    idempotent producer do not: then some are known by their ids only, and answered once more.
    """

    def __init__(self, brokers: Brokers, random: Random, names: int) -> None:
        self._brokers, self._random = brokers, random
        self._names = [f"{random.choice(('acme', 'globex'))}/job-{n}" for n in range(names)]
        self.sent: dict[str, dict[str, Any]] = {}
        self.times: dict[str, int] = {}

    def begin(self) -> None:
        """Every schedule once, so that there is something to fire."""
        for name in self._names:
            self._send({"command": "create", "schedule_id": name, "spec": self._spec()})

    def act(self) -> None:
        """One command of some kind for some schedule."""
        verb = self._random.choices([*VERBS], [*VERBS.values()])[0]
        command: dict[str, Any] = {"command": verb, "schedule_id": self._random.choice(self._names)}
        if verb == "create":
            command["spec"] = self._spec()
        elif verb == "update":
            command["spec"] = self._change()
        elif verb == "resume" and self._random.random() < 0.3:
            command["catch_up"] = True
        if verb == "update" and self._random.random() < 0.2:
            command["supersede"] = True
        self._send(command)

    def unanswered(self, answered: dict[str, Any]) -> list[str]:
        return [name for name in self.sent if name not in answered]

    def _send(self, command: dict[str, Any]) -> None:
        command = with_command_id(command, f"c{len(self.sent) + 1}")
        self.sent[command["command_id"]] = command
        key, value = command["schedule_id"].encode(), json.dumps(command, separators=(",", ":")).encode()
        logs = self._brokers.topics[self._brokers.catalogue.commands]
        home = partition_for(key, len(logs))
        number = self._random.randrange(len(logs)) if self._random.random() < WRONG_PARTITION else home
        times = 2 if self._random.random() < TWICE else 1
        if number == home:
            self.times[command["command_id"]] = times
        for _ in range(times):
            logs[number].append([Draft(key, value)], self._brokers.wall_ms())
        self._brokers.world.note("tenant", f"{command['command']} {command['schedule_id']} ({command['command_id']})")

    def _spec(self) -> dict[str, Any]:
        random, now = self._random, self._brokers.wall_ms()
        spec: dict[str, Any] = {"trigger": self._trigger(now), "payload": {"n": random.randrange(1000)}}
        if random.random() < 0.5:
            spec["priority"] = random.choice(("critical", "high", "normal", "background"))
        if random.random() < 0.3:
            spec["window_ms"] = random.choice((300, 900, 5_000))
        if random.random() < 0.7:
            spec["misfire"] = random.choice(("skip", {"catch_up": 3}, {"catch_up": 1000}))
        if random.random() < 0.2:
            spec["max_lateness_ms"] = random.choice((None, 2_000, 20_000))
        if random.random() < 0.2:
            spec["end"] = format_instant(now + random.randrange(1_000, 60_000))
        if random.random() < 0.1:
            spec["start"] = format_instant(now + random.randrange(-5_000, 20_000))
        return spec

    def _trigger(self, now: int) -> dict[str, Any]:
        random = self._random
        kind = random.random()
        if kind < 0.25:
            return {"at": format_instant(now + random.randrange(-300, 40_000))}
        if kind < 0.65:
            every = random.choice((1_000, 1_500, 2_000, 3_000, 7_000))
            return {"every_ms": every, "anchor": format_instant(now - now % 60_000 - random.randrange(60_000))}
        if kind < 0.95:
            return {"cron": f"*/{random.choice((2, 3, 5, 10))} * * * * *", "zone": "UTC", "dialect": "seconds"}
        return {"cron": "* * * * *", "zone": "UTC"}

    def _change(self) -> dict[str, Any]:
        random = self._random
        what = random.random()
        if what < 0.3:
            return {"payload": {"n": random.randrange(1000)}}
        if what < 0.6:
            return {"trigger": self._trigger(self._brokers.wall_ms())}
        if what < 0.8:
            return {"priority": random.choice(("critical", "high", "normal", "background"))}
        return {"window_ms": random.choice((0, 300, 900, 5_000))}
