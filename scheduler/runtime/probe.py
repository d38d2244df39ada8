"""What feeds the due clock and what watches it: one probe a second, and its alarms as metrics and log events."""

from __future__ import annotations

import logging
from itertools import count
from typing import TYPE_CHECKING

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaException

from scheduler.core.record import FORMAT
from scheduler.core.time import FIRST_BELIEVED, LAST_BELIEVED, format_instant
from scheduler.core.zones import tz_version
from scheduler.errors import BrokerUnavailable, SchedulerError
from scheduler.runtime.clock import ALARMS, WALL_ALARM_MS, Clock, Deadline, DueClock, SystemClock
from scheduler.runtime.telemetry import Telemetry, event
from topics.codec import encode
from topics.messages import ClockProbe

if TYPE_CHECKING:
    from confluent_kafka import Message, Producer

    from scheduler.runtime.outside import Outside

PROBE_S = 1.0
ANSWER_S = 10.0  # that a tool waits for one
FIRST_PROBES = 4  # quickly, to bound the offset well before anything fires


class Probe:
    """Sends a probe a second to the clock topic and tells the due clock when it was stamped."""

    def __init__(self, outside: Outside, topic: str, name: str, clock: DueClock, system: Clock) -> None:
        self._outside, self._producer, self._topic, self._name = outside, outside.plain, topic, name
        self._clock, self._system = clock, system
        self._stop = outside.event()
        self._thread = outside.thread(self._run, "clock")
        self._sequence = count(1)
        self._waits = True  # until this process may own shards

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PROBE_S * 2)

    def say(self, *, waits: bool) -> None:
        """Whether this process owns no shards, or soon none; a change is told at once, not with the next probe."""
        if waits != self._waits:
            self._waits = waits
            self._send()

    def _run(self) -> None:
        while not self._stop.is_set():
            sequence = self._send()
            # Serves every delivery report of the plain producer, a forwarded command's too.
            deadline = Deadline(0.02 if sequence < FIRST_PROBES else PROBE_S, self._outside.monotonic)
            while (left := deadline.left()) and not self._stop.is_set():
                self._producer.poll(min(left, 0.2))

    def _send(self) -> int:
        sequence = next(self._sequence)
        sent = self._system.monotonic_ms()

        def delivered(error: object, message: Message) -> None:
            if error is not None:
                return  # the clock goes on without it, and says so after a while
            kind, stamp = message.timestamp()
            if kind == TIMESTAMP_LOG_APPEND_TIME:
                self._clock.observe(sent, self._system.monotonic_ms(), stamp)
            else:
                event("probe_failed", logging.ERROR, text=f"{self._topic} has no LogAppendTime: no broker's time in it")

        probe = ClockProbe(
            process=self._name, sequence=sequence, tz_version=tz_version(), format=FORMAT, waits=self._waits
        )
        try:
            self._producer.produce(self._topic, encode(probe), self._name.encode(), on_delivery=delivered)
        except (BufferError, KafkaException) as fault:
            event("probe_failed", logging.WARNING, text=str(fault))
        return sequence


class ClockWatch:
    """Shows the due clock: metrics at every look, a log event when an alarm begins or ends."""

    def __init__(self, clock: DueClock, telemetry: Telemetry) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._raised: set[str] = set()

    def look(self) -> None:
        """Called a few times a second by the poll loop."""
        telemetry = self._telemetry
        difference = self._clock.wall_difference_ms()
        if difference is not None:
            telemetry.clock_offset.set(difference / 1000)
        telemetry.clock_jumps.set(self._clock.jumps)
        telemetry.clock_probe_age.set(self._clock.probe_age_ms() / 1000)
        alarms = self._clock.alarms()
        for reason in ALARMS:
            telemetry.clock_alarm.labels(reason).set(reason in alarms)
        for reason in sorted(alarms.keys() - self._raised):
            event("clock_alarm", logging.ERROR, reason=reason, text=alarms[reason])
        for reason in sorted(self._raised - alarms.keys()):
            event("clock_alarm_over", reason=reason)
        self._raised = set(alarms)


def brokers_time(plain: Producer, topic: str, name: str) -> int:
    """The append time of one probe (ms), for a tool that has no due clock. Raises BrokerUnavailable."""
    stamps: list[tuple[int, int]] = []
    failed: list[object] = []

    def delivered(error: object, message: Message) -> None:
        (failed.append(error) if error is not None else stamps.append(message.timestamp()))

    try:
        plain.produce(topic, encode(ClockProbe(process=name, sequence=1)), name.encode(), on_delivery=delivered)
    except KafkaException as fault:
        raise BrokerUnavailable(str(fault.args[0])) from fault
    plain.flush(ANSWER_S)
    if not stamps or stamps[0][0] != TIMESTAMP_LOG_APPEND_TIME:
        raise BrokerUnavailable(
            f"the brokers did not tell their time within {ANSWER_S:.0f} s ({failed or topic}): `scheduler doctor` "
            "looks closer"
        )
    return stamps[0][1]


def refuse_wrong_clocks(now: int) -> None:
    """Raises SchedulerError when the brokers' time and this machine's differ too much to write either down."""
    apart = SystemClock().wall_ms() - now
    if abs(apart) > WALL_ALARM_MS or not FIRST_BELIEVED <= now <= LAST_BELIEVED:
        raise SchedulerError(
            f"the brokers say it is {format_instant(now)}, which is {abs(apart) / 1000:.1f} s "
            f"{'behind' if apart > 0 else 'ahead of'} this machine's clock: put the clocks right first, or a wrong "
            "instant would be written down"
        )
