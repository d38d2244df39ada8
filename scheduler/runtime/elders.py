"""Who must be gone before this process may own shards: a rolling upgrade, and what happens when one goes back.

Every process says on the clock topic, once a second, which zone tables it has and which record format it writes; a
process that starts hears the others there before it joins the group. Two owners with different tables would give one
schedule two times, as its shard moves between them; and what a newer record format says, an older process cannot read.

    newer tables, or a newer record format   waits as a standby until no process with older ones is left: the new nodes
                                             take over when the last old one has stopped
    older tables                             is let in, with an alarm: to refuse it would leave a rolled-back cluster
                                             without an owner
    an older record format                   waits until nobody writes a newer one; then it serves the shards it can
                                             read, and refuses the others with what to do
    an older record format, while it serves  as soon as it meets a shard that it can't read (it was frozen while the
                                             new ones took over): leaves the group while anybody newer is there

Who waits says so and is not waited for, so two never wait for each other.
"""

from __future__ import annotations

import logging
import math
from contextlib import closing
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from scheduler.core.record import FORMAT
from scheduler.core.zones import tz_version
from scheduler.runtime.telemetry import event
from topics.codec import Undecodable, decode
from topics.messages import ClockProbe
from topics.reading import bounds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from confluent_kafka import Message

    from scheduler.runtime.outside import Outside
    from scheduler.runtime.probe import Probe

ALIVE_MS = 3_000  # three probes: who said nothing for so long is gone
TAIL = 500  # records looked back at: more than the processes of a cluster send in that time
LOOK_S = 0.2
FIRST_LOOK_S = 0.02
LOOK_AGAIN_S = 5.0  # between looks for somebody newer
BOUNDS_S = 5.0


class Elders:
    """Who else lives, and with what. `name` is this process, `tables` and `written` its zone tables and record format.

    `is_outgrown`: it has met a shard written in a newer format than its own.
    """

    def __init__(self, name: str, tables: str, written: int = FORMAT, *, is_outgrown: bool = False) -> None:
        self._name = name
        self._tables = tables
        self._written = written
        self._is_outgrown = is_outgrown
        self._heard: dict[str, tuple[int, ClockProbe]] = {}  # process -> append time of its newest probe, the probe
        self._now: int | None = None  # append time of our own newest probe: the reference
        self._heard_all = False

    def hear(self, probe: ClockProbe, appended: int) -> None:
        """One probe of anybody, in the order of the topic."""
        if probe.process == self._name:
            self._now = appended
        elif probe.tz_version:
            self._heard[probe.process] = (appended, probe)

    def heard_all(self) -> None:
        """The end of the topic was reached."""
        self._heard_all = True

    @property
    def knows(self) -> bool:
        """Whether everything there was has been heard, and a probe of our own, which is the reference of who lives."""
        return self._heard_all and self._now is not None

    def awaited(self) -> dict[str, str]:
        """Process -> why this one may own no shards beside it."""
        found = {}
        for name, probe in self._alive().items():
            is_newer = probe.format > self._written
            if is_newer and (self._is_outgrown or not probe.waits):
                found[name] = f"record format {probe.format}, newer than {self._written}"
            elif probe.format < self._written and not probe.waits:
                found[name] = f"record format {probe.format}"
            elif not is_newer and probe.tz_version < self._tables:
                found[name] = f"zone tables {probe.tz_version}"
        return found

    def newer(self) -> dict[str, str]:
        """Process -> tables of those alive with newer ones."""
        return {name: p.tz_version for name, p in self._alive().items() if p.tz_version > self._tables}

    def _alive(self) -> dict[str, ClockProbe]:
        now = self._now or 0
        return {name: probe for name, (at, probe) in self._heard.items() if now - at <= ALIVE_MS}


class Turn:
    """When this process may own shards. `waiting` is told who is waited for, and says whether to stop waiting."""

    def __init__(self, outside: Outside, topic: str, name: str, waiting: Callable[[Mapping[str, str]], bool]) -> None:
        self._outside = outside
        self._topic = topic
        self._name = name
        self._waiting = waiting
        self._is_outgrown = False
        self._looked_at = -math.inf

    def wait(self, probe: Probe) -> None:
        """Return when nobody is to be waited for.

        Our own probes must be on their way already, and say that we wait. A broker that does not answer is no reason to
        wait here: the shards meet it next, and try again.
        """
        told = False
        for elders in self._listen():
            awaited = elders.awaited()
            if self._waiting(awaited) or (elders.knows and not awaited):
                break
            if elders.knows and not told:
                told = True
                event("waiting_for_others", logging.WARNING, processes=awaited)
        self._waiting({})
        probe.say(waits=False)
        if elders.newer():
            event("newer_tables_elsewhere", logging.ERROR, processes=elders.newer())

    def is_over(self) -> bool:
        """Whether a process that met a shard of a newer format has to leave it to somebody: asked every few seconds."""
        if self._outside.monotonic() - self._looked_at < LOOK_AGAIN_S:
            return False
        self._looked_at = self._outside.monotonic()
        for elders in self._listen(is_outgrown=True):
            if self._waiting({}) or elders.knows:
                break
        self._is_outgrown = bool(elders.awaited())
        return self._is_outgrown

    def _listen(self, *, is_outgrown: bool = False) -> Iterator[Elders]:
        """What is known, again and again. Ends when the brokers do not answer."""
        elders = Elders(self._name, tz_version(), is_outgrown=is_outgrown or self._is_outgrown)
        yield elders
        with closing(self._outside.changelog_consumer()) as consumer:
            try:
                _, high = bounds_of(consumer, self._topic, 0, timeout_s=BOUNDS_S)
                consumer.assign([TopicPartition(self._topic, 0, max(0, high - TAIL))])
                while True:
                    for message in consumer.consume(TAIL, LOOK_S if elders.knows else FIRST_LOOK_S):
                        _hear(elders, message)
                    yield elders
            except KafkaException as fault:
                event("others_unknown", logging.WARNING, text=fault.args[0].str())


def _hear(elders: Elders, message: Message) -> None:
    error = message.error()
    if error is not None:
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka spells it so
            elders.heard_all()
        return
    try:
        probe = decode(ClockProbe, message.value())
    except Undecodable:
        return  # not one of ours
    elders.hear(probe, message.timestamp()[1])
