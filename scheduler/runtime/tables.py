"""The tables that every shard needs whole: today the calendars. One reader a process, on a thread of its own.

It reads the topic from its beginning, then follows it. What it has is an immutable value, replaced as a whole: a shard
takes it up between two steps. Nothing opens before the first reading has reached the topic's end, so that no shard
takes a calendar for missing that was only not read yet.
"""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from scheduler import wire
from scheduler.core.calendars import NO_CALENDARS, Calendars
from scheduler.runtime.kafka import changelog_consumer
from scheduler.runtime.telemetry import event

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message

    from scheduler.config import Settings
    from scheduler.runtime.telemetry import Telemetry

BATCH = 500
POLL_S = 0.2


class Tables:
    """`calendars` is the newest set; `wait` gives it once it is whole."""

    def __init__(self, settings: Settings, topic: str, telemetry: Telemetry) -> None:
        self._settings = settings
        self._topic = topic
        self._telemetry = telemetry
        self.calendars: Calendars = NO_CALENDARS
        self._whole = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tables", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(POLL_S * 10)

    def wait(self, stopped: Callable[[], bool]) -> Calendars | None:
        """The calendars, as soon as the topic was read to its end; None if `stopped` says so before."""
        while not self._whole.wait(POLL_S):
            if stopped():
                return None
        return self.calendars

    def _run(self) -> None:
        with closing(changelog_consumer(self._settings)) as consumer:
            consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
            read = NO_CALENDARS
            while not self._stop.is_set():
                first = consumer.poll(POLL_S)
                if first is None:
                    continue
                for message in [first, *consumer.consume(BATCH, 0)]:
                    error = message.error()
                    if error is None:
                        read = self._with(read, message)
                    elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka spells it so
                        self._publish(read)
                        self._whole.set()
                    else:
                        event("tables_error", logging.WARNING, text=error.str())
                if self._whole.is_set():
                    self._publish(read)

    def _publish(self, read: Calendars) -> None:
        if read is not self.calendars:
            self.calendars = read
            self._telemetry.calendars.set(len(read.names()))
            event("calendars_read", names=read.names()[:50])

    def _with(self, read: Calendars, message: Message) -> Calendars:
        """The set after one record; one that is no calendar is passed over, and an alarm."""
        key, value = message.key(), message.value()
        try:
            name, version = wire.split_calendar_key(key)
            if value is None:
                return read.drop(name, version)
            return read.put(name, version, wire.calendar_from_bytes(value, name, version))
        except ValueError as fault:
            self._telemetry.calendars_refused.inc()
            event("calendar_refused", logging.ERROR, key=repr(key)[:120], offset=message.offset(), text=str(fault))
            return read
