"""A node with newer zone tables waits as a standby until no process with older ones is left.

Two owners with different tables would give one schedule two times, as its shard moves between them. Every process says
on the clock topic, once a second, which tables it has; a process that starts hears the others there before it joins the
group. So a rolling upgrade works: the new nodes take over when the last old one has stopped. An older one that starts
beside newer ones is let in, with an alarm: to refuse it would leave a rolled-back cluster without an owner.
"""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicPartition

from scheduler.runtime.kafka import changelog_consumer
from scheduler.runtime.telemetry import event
from topics.codec import Undecodable, decode
from topics.messages import ClockProbe

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message

    from scheduler.config import Settings

ALIVE_MS = 3_000  # three probes: who said nothing for so long is gone
TAIL = 500  # records looked back at: more than the processes of a cluster send in that time
LOOK_S = 0.2
BOUNDS_S = 5.0


class Elders:
    """Who else lives, and with which tables. `name` is this process, `version` its own tables."""

    def __init__(self, name: str, version: str) -> None:
        self._name = name
        self._version = version
        self._heard: dict[str, tuple[int, str]] = {}  # process -> (append time of its newest probe, its tables)
        self._now: int | None = None  # append time of our own newest probe: the reference

    def hear(self, process: str, version: str, appended: int) -> None:
        """One probe of anybody, in the order of the topic."""
        if process == self._name:
            self._now = appended
        elif version:
            self._heard[process] = (appended, version)

    @property
    def knows(self) -> bool:
        """Whether our own probe was heard: then everything before it was, too."""
        return self._now is not None

    def older(self) -> dict[str, str]:
        """Process -> tables of those alive with older ones."""
        return {name: version for name, version in self._alive().items() if version < self._version}

    def newer(self) -> dict[str, str]:
        """Process -> tables of those alive with newer ones."""
        return {name: version for name, version in self._alive().items() if version > self._version}

    def _alive(self) -> dict[str, str]:
        now = self._now or 0
        return {name: version for name, (at, version) in self._heard.items() if now - at <= ALIVE_MS}


def await_turn(settings: Settings, topic: str, elders: Elders, waiting: Callable[[dict[str, str]], bool]) -> None:
    """Return when no process with older tables is left. `waiting` is told who is, and says whether to stop waiting.

    Our own probes must be on their way already. A broker that does not answer is no reason to wait here: the shards
    meet it next, and try again.
    """
    told = False
    with closing(changelog_consumer(settings)) as consumer:
        try:
            _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=BOUNDS_S)
            consumer.assign([TopicPartition(topic, 0, max(0, high - TAIL))])
            while not waiting(elders.older()):
                for message in consumer.consume(TAIL, LOOK_S if told or not elders.knows else 0):
                    _hear(elders, message)
                if elders.knows and not elders.older():
                    break
                if elders.older() and not told:
                    told = True
                    event("waiting_for_older_tables", logging.WARNING, processes=elders.older())
        except KafkaException as fault:
            event("tables_of_others_unknown", logging.WARNING, text=fault.args[0].str())
    if elders.newer():
        event("newer_tables_elsewhere", logging.ERROR, processes=elders.newer())


def _hear(elders: Elders, message: Message) -> None:
    if message.error() is not None:
        return
    try:
        probe = decode(ClockProbe, message.value())
    except Undecodable:
        return  # not one of ours
    elders.hear(probe.process, probe.tz_version, message.timestamp()[1])
