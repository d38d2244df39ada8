"""The due clock: what time it is for the purpose of firing. Not the wall clock of this machine.

A monotonic clock (that goes on while the machine sleeps) plus an offset to the brokers' append time, learned from small
probes. Each probe bounds the offset: the broker stamped it after it was sent and before it was acknowledged. The lower
bound is used, so that nothing is ever appended before it is due. A probe that took long (a frozen process, a busy
broker) bounds it loosely and contradicts nothing. Small changes are slewed; larger ones are believed only when five
probes in a row agree. The wall clock only raises an alarm.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Protocol

SLEW = 0.005  # at most 5 ms a second
JUMP_MS = 2_000
AGREEING = 5
AGREE_MS = 100
WINDOW = 10  # probes whose best bound counts
WALL_ALARM_MS = 2_000


class Clock(Protocol):
    """Reads of the machine's clocks, in ms."""

    def monotonic_ms(self) -> float: ...

    def wall_ms(self) -> float: ...


class SystemClock:
    """The machine's own: CLOCK_BOOTTIME where it exists, since it goes on during a suspend."""

    def __init__(self) -> None:
        self._id = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def monotonic_ms(self) -> float:
        return time.clock_gettime(self._id) * 1000

    def wall_ms(self) -> float:
        return time.time() * 1000


class DueClock:
    """Broker time by probes. Thread-safe; `now` is monotonic except after a believed backward jump."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._bounds: deque[float] = deque(maxlen=WINDOW)
        self._doubts: deque[float] = deque(maxlen=AGREEING)
        self._offset: float | None = None  # as of _as_of
        self._target = 0.0
        self._as_of = 0.0
        self.jumps = 0

    def observe(self, sent_ms: float, acked_ms: float, appended_ms: int) -> None:
        """One probe: sent and acknowledged by the monotonic clock, stamped by the broker in between."""
        bound = appended_ms - acked_ms
        highest = appended_ms - sent_ms
        with self._lock:
            if self._offset is None:
                self._offset = self._target = bound
                self._as_of = acked_ms
                self._bounds.append(bound)
                return
            self._settle(acked_ms)
            if bound - JUMP_MS <= self._target <= highest + JUMP_MS:
                self._doubts.clear()
                self._bounds.append(bound)
                self._target = max(self._bounds)
                return
            self._doubts.append(bound)
            if len(self._doubts) == AGREEING and max(self._doubts) - min(self._doubts) <= AGREE_MS:
                self._offset = self._target = max(self._doubts)
                self._bounds.clear()
                self._bounds.extend(self._doubts)
                self._doubts.clear()
                self.jumps += 1

    def now(self) -> int | None:
        """Milliseconds since the epoch; None before the first probe and while a jump is in doubt: emit nothing."""
        with self._lock:
            if self._offset is None or self._doubts:
                return None
            at = self._clock.monotonic_ms()
            self._settle(at)
            return int(at + self._offset)

    def wall_difference_ms(self) -> float | None:
        """How far the machine's wall clock is ahead of the brokers' time."""
        with self._lock:
            if self._offset is None:
                return None
            return self._clock.wall_ms() - (self._clock.monotonic_ms() + self._target)

    def _settle(self, at: float) -> None:
        """Move the offset towards its target, slowly enough that time never stands still or leaps."""
        if self._offset is None:
            return
        step = max(0.0, at - self._as_of) * SLEW
        self._offset += max(-step, min(step, self._target - self._offset))
        self._as_of = max(at, self._as_of)


class Deadline:
    """One budget of time for a whole action of several parts."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end - time.monotonic())
