"""One process of a node: a consumer, a due clock, some shards. Ends on SIGTERM, SIGINT or when its parent is gone."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from scheduler.core.time import format_instant
from scheduler.errors import BrokerUnavailable, ConfigInvalid, StateCorrupted
from scheduler.runtime.assignment import Assignment
from scheduler.runtime.clock import DueClock, SystemClock
from scheduler.runtime.elders import Turn
from scheduler.runtime.health import Health
from scheduler.runtime.outside import Outside
from scheduler.runtime.probe import ClockWatch, Probe
from scheduler.runtime.standby import Standbys
from scheduler.runtime.tables import Tables
from scheduler.runtime.task import Phase, Surroundings
from scheduler.runtime.telemetry import Telemetry, event
from topics.admin import TopicsWrong, connect, observe, verify
from topics.partition import self_test

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.config import Settings
    from topics.catalog import Catalogue

STOP_S = 10.0
START_S = 30.0
STUCK_S = 30.0  # the poll loop has not turned for so long: not live


class Process:
    """Runs until told to stop. `run` returns the exit code."""

    def __init__(self, settings: Settings, index: int) -> None:
        self._settings = settings
        self._index = index
        self._stop = threading.Event()
        self._turned = time.monotonic()
        self._assignment: Assignment | None = None
        self._standbys: Standbys | None = None
        self._clock: DueClock | None = None
        self._parent = os.getppid()
        self._awaited: Mapping[str, str] = {}

    def stop(self, *_: object) -> None:
        """Drain and leave; safe in a signal handler."""
        self._stop.set()

    def run(self) -> int:
        """Raises BrokerUnavailable, ConfigInvalid or StateCorrupted when it cannot start."""
        settings = self._settings
        self_test()
        catalogue = settings.catalogue()
        outside = Outside(settings)
        _ = outside.plain  # finds the brokers, which takes it half a second, while we look at the topics
        cluster = check_topics(settings, catalogue)
        telemetry = Telemetry()
        system = SystemClock()
        clock = self._clock = DueClock(system)
        name = f"{settings.node_id}-{self._index}"
        probe = Probe(outside, catalogue.clock, name, clock, system)
        watch = ClockWatch(clock, telemetry)
        tables = Tables(outside, catalogue, telemetry)
        around = Surroundings(settings, catalogue, clock, telemetry, cluster, tables, outside)
        assignment = self._assignment = Assignment(around)
        standbys = self._standbys = Standbys(around, self._index)
        port = settings.http.port + self._index if settings.http.port else 0
        health = Health(settings.http.host, port, self.state, telemetry.registry)
        event("process_started", process=name, pid=os.getpid(), health=health.address)
        probe.start()
        tables.start()
        turn = Turn(outside, catalogue.clock, name, self._awaiting)
        try:
            standbys.start()  # whoever waits for others has warm copies when its turn comes
            turn.wait(probe)
            assignment.join()
            while not self._stop.is_set():
                assignment.poll()
                if assignment.is_outgrown and turn.is_over():
                    # A newer version has written a shard of ours, and is here to serve it.
                    assignment.close(STOP_S)
                    assignment = self._assignment = Assignment(around)
                    turn.wait(probe)
                    assignment.join()
                self._turned = time.monotonic()
                watch.look()
                if os.getppid() != self._parent:
                    event("parent_gone", logging.WARNING)
                    break
        finally:
            probe.say(waits=True)  # whoever waits for us need not wait any longer
            drained = assignment.close(STOP_S)
            standbys.stop()
            probe.stop()
            tables.stop()
            outside.plain.flush(1.0)
            health.close()
            event("process_stopped", process=name, drained=drained)
        return 0

    def _awaiting(self, awaited: Mapping[str, str]) -> bool:
        """Told for whom this process waits, and why; True to wait no longer."""
        self._awaited = awaited
        self._turned = time.monotonic()
        return self._stop.is_set() or os.getppid() != self._parent

    def state(self) -> dict[str, Any]:
        """What `/live` and `/ready` show."""
        live = time.monotonic() - self._turned < STUCK_S
        tasks = dict(self._assignment.tasks) if self._assignment else {}
        shards = {
            str(n): {"phase": task.phase.value, **({"trouble": task.trouble} if task.trouble else {})}
            for n, task in sorted(tasks.items())
        }
        now = self._clock.now() if self._clock else None
        difference = self._clock.wall_difference_ms() if self._clock else None
        alarms = self._clock.alarms() if self._clock else {}
        serving = all(task.phase is Phase.READY and task.trouble is None for task in tasks.values())
        return {
            "live": live,
            "ready": live and now is not None and not alarms and serving and not self._awaited,
            "now": None if now is None else format_instant(now),
            "wall_clock_ahead_ms": None if difference is None else round(difference),
            "clock_alarms": alarms,
            "waits_for": dict(self._awaited),
            "shards": shards,
            "standbys": self._standbys.state() if self._standbys else {},
        }


def check_topics(settings: Settings, catalogue: Catalogue) -> str:
    """The cluster's id, once all topics are there as they must be. Raises with every mistake and the next step."""
    try:
        admin = connect(settings.client_config())
        wanted = catalogue.specs()
        verify(wanted, observe(admin, wanted))
        cluster: str | None = admin.list_topics(timeout=START_S).cluster_id
    except TopicsWrong as fault:
        raise ConfigInvalid(
            [*fault.problems, "`scheduler topics plan` shows what `scheduler topics apply` would do"]
        ) from fault
    except KafkaException as fault:
        raise BrokerUnavailable(
            f"no broker answers at {settings.kafka.bootstrap_servers} ({fault.args[0].str()}): check that it runs and "
            "kafka.bootstrap_servers; `scheduler doctor` looks closer"
        ) from fault
    if cluster is None:
        raise StateCorrupted("the brokers do not say which cluster they are: a store could not be told apart")
    return cluster


def spare_collector() -> None:
    """Look for reference cycles rarely: a shard's values form none, and looking among millions of them takes long."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def main(settings: Settings, index: int) -> int:
    """The body of a child process."""
    spare_collector()
    process = Process(settings, index)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, process.stop)
    return process.run()
