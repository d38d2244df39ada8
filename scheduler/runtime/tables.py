"""The tables that every shard needs whole: calendars and tenants. One reader a process, on a thread of its own.

It reads the topics from their beginning, then follows them. What it has are immutable values, replaced as a whole:
a shard takes them up between two steps. Nothing opens before the first reading has reached the ends, so that no shard
takes a calendar for missing that was only not read yet.
"""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError, TopicPartition

from scheduler import wire
from scheduler.core.calendars import NO_CALENDARS, Calendars
from scheduler.core.tenants import NO_TENANTS, Tenants
from scheduler.errors import BrokerUnavailable, Retriable
from scheduler.runtime.clock import Deadline
from scheduler.runtime.outside import Outside
from scheduler.runtime.reading import PartitionReader
from scheduler.runtime.telemetry import Telemetry, event

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Consumer, Message

    from scheduler.config import Settings
    from topics.catalog import Catalogue

BATCH = 500
POLL_S = 0.2
WHOLE_S = 30.0  # that a tool waits for both topics

T = TypeVar("T", Calendars, Tenants)


class Tables:
    """`calendars` and `tenants` are the newest sets; `wait` gives the first once both are whole."""

    def __init__(self, outside: Outside, catalogue: Catalogue, telemetry: Telemetry) -> None:
        self._outside = outside
        self._catalogue = catalogue
        self._telemetry = telemetry
        self._refused = {"tenant": telemetry.tenants_refused, "calendar": telemetry.calendars_refused}
        self.calendars: Calendars = NO_CALENDARS
        self.tenants: Tenants = NO_TENANTS
        self._whole = outside.event()
        self._stop = outside.event()
        self._thread = outside.thread(self._run, "tables")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(POLL_S * 10)

    def wait(self, stopped: Callable[[], bool]) -> Calendars | None:
        """The calendars, as soon as the topics were read to their ends; None if `stopped` says so before."""
        while not self._whole.wait(POLL_S):
            if stopped():
                return None
        return self.calendars

    def _run(self) -> None:
        unread = {self._catalogue.calendars, self._catalogue.tenants}
        with closing(self._outside.changelog_consumer()) as consumer:
            consumer.assign(self._beginnings(consumer, sorted(unread)))
            calendars, tenants = NO_CALENDARS, NO_TENANTS
            while not self._stop.is_set():
                first = consumer.poll(POLL_S)
                if first is None:
                    continue
                for message in [first, *consumer.consume(BATCH, 0)]:
                    error = message.error()
                    if error is None:
                        if message.topic() == self._catalogue.tenants:
                            tenants = self._with(tenants, message, "tenant", wire.tenant_from_bytes)
                        else:
                            calendars = self._with(calendars, message, "calendar", wire.calendar_from_bytes)
                    elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka spells it so
                        unread.discard(message.topic() or "")
                    else:
                        event("tables_error", logging.WARNING, text=error.str())
                if not unread:
                    self._publish(calendars, tenants)
                    self._whole.set()

    def _beginnings(self, consumer: Consumer, topics: list[str]) -> list[TopicPartition]:
        """Where to read from: as numbers, since what OFFSET_BEGINNING stands for is found out half a second later."""
        reader = PartitionReader(consumer, "", 0, "beginning of", self._stop.is_set)
        places: list[TopicPartition] = []
        while len(places) < len(topics) and not self._stop.is_set():
            topic = topics[len(places)]
            try:
                places.append(TopicPartition(topic, 0, reader.bounds(topic)[0]))
            except Retriable as fault:
                event("tables_error", logging.WARNING, text=str(fault))
                self._stop.wait(POLL_S)
        return places

    def _publish(self, calendars: Calendars, tenants: Tenants) -> None:
        if calendars is not self.calendars:
            self.calendars = calendars
            self._telemetry.calendars.set(len(calendars.names()))
            event("calendars_read", names=calendars.names()[:50])
        if tenants is not self.tenants:
            self.tenants = tenants
            event("tenants_read", count=len(tenants.by_tenant))

    def _with(self, read: T, message: Message, kind: str, parse: Callable[[bytes, str, int], Any]) -> T:
        """The set after one record; one that is none of its kind is passed over, and an alarm."""
        key, value = message.key(), message.value()
        try:
            name, version = wire.split_versioned_key(key)
            return read.drop(name, version) if value is None else read.put(name, version, parse(value, name, version))
        except ValueError as fault:
            self._refused[kind].inc()
            event(f"{kind}_refused", logging.ERROR, key=repr(key)[:120], offset=message.offset(), text=str(fault))
            return read


def read_calendars(settings: Settings, catalogue: Catalogue) -> Calendars:
    """The calendars as they are now, for a tool that owns no clock or shard. Raises BrokerUnavailable."""
    tables = Tables(Outside(settings), catalogue, Telemetry())
    deadline = Deadline(WHOLE_S)
    tables.start()
    try:
        calendars = tables.wait(lambda: not deadline.left())
    finally:
        tables.stop()
    if calendars is None:
        raise BrokerUnavailable(f"{catalogue.calendars} could not be read within {WHOLE_S:.0f} s")
    return calendars
