"""The due clock: what time it is for the purpose of firing. Not the wall clock of this machine.

A monotonic clock (that goes on while the machine sleeps) plus an offset to the brokers' append time, learned from small
probes. Each probe bounds the offset: the broker stamped it after it was sent and before it was acknowledged. The lower
bound is used, so that nothing is appended before it is due as long as the brokers' time is steady.

    what is seen                               what becomes of the time
    a probe that took more than 2 s            nothing: it says too little (a frozen process, a busy broker)
    a change of at most 2 s                    the offset is slewed, 5 ms a second
    a larger one                               none, until five probes in a row agree; one ordinary probe ends the doubt
    the first probe, apart from the wall clock the same: none, until five agree
    an instant outside 2020-2100               none; never believed, however often it is said
    a machine's clock that runs fast           a bound loses 0.1 ms a second, so that an old one is never early
    no probes (a broker away, for minutes)     it goes on by the monotonic clock; after a minute an alarm
    the machine slept, the process was frozen  it has gone on; the shard sees that nobody looked: an outage
    the wall clock steps                       it goes on; an alarm

A believed jump forwards is an outage for the shards. One backwards is the only way for `now` to go back: the shards
wait for up to a minute, and beyond that they stop.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from scheduler.core.time import FIRST_BELIEVED, LAST_BELIEVED, format_instant

if TYPE_CHECKING:
    from collections.abc import Callable

SLEW = 0.005  # at most 5 ms a second
DRIFT = 0.0001  # a machine's clock may run so much faster than the brokers': a bound is worth less the older it is
JUMP_MS = 2_000
LOOSE_MS = 2_000  # a probe that took longer bounds nothing worth knowing
AGREEING = 5
AGREE_MS = 100
WINDOW = 10  # probes whose best bound counts
WALL_ALARM_MS = 2_000
STARTING_MS = 5_000  # no first answer for so long is no longer a start
SILENT_MS = 60_000  # without a probe the two clocks may have drifted apart by some ms: worth knowing, not dangerous

ALARMS = ("silent", "absurd", "doubt", "wall")


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
    """Broker time by probes. Thread-safe; `now` never goes back except by a believed jump of the brokers' time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._bounds: deque[float] = deque(maxlen=WINDOW)  # what each would be at instant 0 of the monotonic clock
        self._doubts: deque[float] = deque(maxlen=AGREEING)
        self._doubted = False
        self._offset: float | None = None  # as of _as_of
        self._target = 0.0  # the best lower bound, as of the last probe
        self._ceiling = 0.0  # the best upper bound
        self._as_of = 0.0
        self._heard: float | None = None  # the bound of the last probe, believed or not
        self._heard_at = clock.monotonic_ms()  # or the beginning
        self._absurd: int | None = None  # what the last probe said, if that was outside of what is ever believed
        self.jumps = 0

    def observe(self, sent_ms: float, acked_ms: float, appended_ms: int) -> None:
        """One probe: sent and acknowledged by the monotonic clock, stamped by the broker in between."""
        if acked_ms - sent_ms > LOOSE_MS:
            return
        bound = appended_ms - acked_ms
        highest = appended_ms + 1 - sent_ms  # stamps are cut to whole ms
        with self._lock:
            self._settle(acked_ms)
            self._heard, self._heard_at = bound, max(acked_ms, self._heard_at)
            self._absurd = None if FIRST_BELIEVED <= appended_ms <= LAST_BELIEVED else appended_ms
            if self._absurd is not None:
                self._doubts.clear()
                self._doubted = True
            elif self._is_ordinary(bound, highest):
                self._follow(bound, highest, acked_ms)
            else:
                self._doubt(bound, highest, acked_ms)

    def now(self) -> int | None:
        """Milliseconds since the epoch; None before the first probe and while a jump is in doubt: emit nothing."""
        with self._lock:
            if self._offset is None or self._doubted:
                return None
            at = self._clock.monotonic_ms()
            self._settle(at)
            return int(at + self._offset)

    def wall_difference_ms(self) -> float | None:
        """How far the machine's wall clock is ahead of what the brokers last said; None before they said anything."""
        with self._lock:
            return self._wall_difference()

    def probe_age_ms(self) -> float:
        """How long ago a probe was last answered in time, or this clock was made."""
        with self._lock:
            return max(0.0, self._clock.monotonic_ms() - self._heard_at)

    def alarms(self) -> dict[str, str]:
        """What is wrong with the time, and what to do: one sentence for each of ALARMS that holds now."""
        age_s = self.probe_age_ms() / 1000
        found = {}
        with self._lock:
            if self._heard is None and age_s * 1000 > STARTING_MS:
                found["silent"] = "no probe of the brokers' time was answered yet: there is no time to fire by"
            elif self._heard is not None and age_s * 1000 > SILENT_MS:
                found["silent"] = (
                    f"no probe of the brokers' time was answered for {age_s:.0f} s: it is carried on by this machine's "
                    "monotonic clock; check the brokers and the topic scheduler.clock"
                )
            if self._absurd is not None:
                found["absurd"] = (
                    f"the brokers' clock says {_text(self._absurd)}, which is never believed: nothing fires until it "
                    "is put right"
                )
            elif self._doubted:
                found["doubt"] = (
                    f"the brokers' time {self._leap()}: nothing fires until {AGREEING} probes in a row agree "
                    f"({len(self._doubts)} so far) or the old time is back"
                )
            difference = self._wall_difference()
            if difference is not None and abs(difference) > WALL_ALARM_MS:
                found["wall"] = (
                    f"this machine's wall clock is {abs(difference) / 1000:.1f} s "
                    f"{'ahead of' if difference > 0 else 'behind'} the brokers' time, by which everything fires: set "
                    "the clocks of brokers and nodes with NTP"
                )
        return found

    # --- under the lock

    def _is_ordinary(self, bound: float, highest: float) -> bool:
        if self._offset is not None:
            return bound - JUMP_MS <= self._ceiling and self._target <= highest + JUMP_MS
        difference = self._wall_difference()
        return not self._doubted and difference is not None and abs(difference) <= WALL_ALARM_MS

    def _follow(self, bound: float, highest: float, at: float) -> None:
        self._doubts.clear()
        self._doubted = False
        if self._offset is None or self._target > highest or bound > self._ceiling:
            # The brokers' time changed a little: what bounded it before does so no more.
            self._bounds.clear()
            self._ceiling = highest
        self._bounds.append(bound + at * DRIFT)
        self._ceiling = min(self._ceiling, highest)
        self._aim(at)
        if self._offset is None:
            self._offset = self._target

    def _doubt(self, bound: float, highest: float, at: float) -> None:
        self._doubted = True
        self._doubts.append(bound)
        if len(self._doubts) < AGREEING or max(self._doubts) - min(self._doubts) > AGREE_MS:
            return
        self.jumps += self._offset is not None
        self._bounds.clear()
        self._bounds.extend(doubt + at * DRIFT for doubt in self._doubts)
        self._aim(at)
        self._offset = self._target
        self._ceiling = max(highest, self._target)
        self._doubts.clear()
        self._doubted = False

    def _settle(self, at: float) -> None:
        """Move the offset towards its target, slowly enough that time never stands still or leaps."""
        if self._offset is not None:
            step = max(0.0, at - self._as_of) * SLEW
            self._offset += max(-step, min(step, self._target - self._offset))
        self._as_of = max(at, self._as_of)

    def _aim(self, at: float) -> None:
        """At the best of the bounds there are now, by what each is still worth."""
        self._target = max(self._bounds) - at * DRIFT

    def _wall_difference(self) -> float | None:
        if self._heard is None:
            return None
        return self._clock.wall_ms() - (self._clock.monotonic_ms() + self._heard)

    def _leap(self) -> str:
        if self._offset is None or self._heard is None:
            return "and this machine's wall clock contradict each other, or it was absurd at first"
        leap = self._heard - self._target
        return f"jumped {'forwards' if leap > 0 else 'backwards'} by {abs(leap) / 1000:.1f} s"


def _text(instant: int) -> str:
    try:
        return format_instant(instant)
    except (ValueError, OverflowError):
        return f"{instant} ms since 1970"


class Deadline:
    """One budget of time for a whole action of several parts, by a clock of seconds that pass."""

    def __init__(self, seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._end = monotonic() + seconds

    def left(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end - self._monotonic())
