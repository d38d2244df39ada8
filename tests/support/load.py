"""The load under which things fail: schedules that fire every second, and a stream of commands.

steady-n   fire every second, with `catch_up`; nobody touches them
held-n     fire every second; paused and resumed again and again, the last tenth cancelled on the way
manual-n   fire when triggered
"""

from __future__ import annotations

import json
import random
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import Producer

from tests.support.commands import ask
from tests.support.verifier import Beat, beats, now_ms, quiet
from topics.codec import with_command_id
from topics.partition import partition_for

if TYPE_CHECKING:
    from types import TracebackType

    from tests.support.node import Cluster

TURN_S = 0.05
MANUAL = 50
FAR_MS = 10 * 365 * 86_400_000


class Load:
    """`steady` and `held` are what a witness must know. In its context commands are sent, `per_s` of them a second."""

    def __init__(self, cluster: Cluster, schedules: int, seconds: int, *, per_s: float = 0, seed: int = 0) -> None:
        self._cluster = cluster
        self._per_s = per_s
        self._chance = random.Random(seed)
        first = now_ms() + 8_000 + 6 * schedules  # creating them takes time, on a busy machine more
        self.seconds = seconds
        self.steady = beats(schedules, first, seconds, "steady")
        self.held = beats(max(2, schedules // 20), first, seconds, "held") if per_s else []
        self._cancelled = {beat.schedule_id for beat in self.held[: max(1, len(self.held) // 10)]}
        self._paused: set[str] = set()
        self._gone: set[str] = set()
        self._count = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def create(self, catch_up: int = 100) -> Self:
        """Make the schedules; each must be accepted before its first nominal."""
        more: dict[str, Any] = {"misfire": {"catch_up": catch_up}}
        commands = [beat.create(**more) for beat in [*self.steady, *self.held]]
        manual = [Beat(f"manual/manual-{n}", now_ms() + FAR_MS, now_ms() + 2 * FAR_MS) for n in range(MANUAL)]
        commands += [beat.create() for beat in manual if self._per_s]
        replies = ask(self._cluster, *commands)
        assert {reply.code for reply in replies} == {"created"}, [r for r in replies if r.code != "created"][:3]
        assert now_ms() < self.steady[0].first, "the machine was too slow to begin in time"
        return self

    def __enter__(self) -> Self:
        if self._per_s:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._per_s:
            self._thread.join()

    def _run(self) -> None:
        producer = Producer(
            {
                **self._cluster.kafka,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.max.ms": 500,
            },
            logger=quiet(),
        )
        began = time.monotonic()
        while not self._stop.wait(TURN_S):
            while self._count < (time.monotonic() - began) * self._per_s:
                self._send(producer, self._next())
            producer.poll(0)
        for schedule_id in sorted(self._paused):
            self._send(producer, {"command": "resume", "schedule_id": schedule_id})
        assert producer.flush(300) == 0

    def _next(self) -> dict[str, Any]:
        """Most are triggers; of the others half pause and half resume."""
        if self._chance.random() < 0.8:
            return {"command": "trigger", "schedule_id": f"manual/manual-{self._chance.randrange(MANUAL)}"}
        schedule_id = self._chance.choice(self.held).schedule_id
        if schedule_id in self._gone:
            return {"command": "trigger", "schedule_id": "manual/manual-0"}
        if schedule_id in self._cancelled and self._chance.random() < 0.02:
            self._gone.add(schedule_id)
            self._paused.discard(schedule_id)
            return {"command": "cancel", "schedule_id": schedule_id}
        if schedule_id in self._paused:
            self._paused.discard(schedule_id)
            return {"command": "resume", "schedule_id": schedule_id}
        self._paused.add(schedule_id)
        return {"command": "pause", "schedule_id": schedule_id}

    def _send(self, producer: Producer, command: dict[str, Any]) -> None:
        self._count += 1
        key = command["schedule_id"].encode()
        value = json.dumps(with_command_id(command, f"load-{self._count}"), separators=(",", ":")).encode()
        partition = partition_for(key, self._cluster.shards)
        while True:
            try:
                producer.produce(self._cluster.catalogue.commands, value, key, partition)
            except BufferError:  # the brokers are away for long: the stream waits
                producer.poll(0.1)
            else:
                return
