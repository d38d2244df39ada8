"""Threads that take turns: one runs at a time, one seed decides which, and time passes only while all of them wait.

A thread of the shell is a greenlet here. It goes on until it waits for something: an answer of the brokers, a lock, a
condition, an instant. Then the next one of those that could go on is drawn. So the order of events is a function of the
seed, and the shell's own code runs as it stands.

    dead      its fibers are unwound at once and nothing they still do on the way has an effect
    frozen    its fibers are not drawn until the process is thawed; time goes on for everybody else
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from itertools import count
from math import ceil
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet

if TYPE_CHECKING:
    from collections.abc import Callable

SECOND = 1_000_000  # time is kept in whole microseconds
MILLISECOND = 1_000
MOST_TURNS = 200_000  # at one instant: something goes round in circles
KEPT_NOTES = 400


def us(seconds: float) -> int:
    """Rounded up: whoever waits for the rest of a time-out must not find a rest again."""
    return max(0, ceil(seconds * SECOND))


class Killed(GreenletExit):
    """The process is dead; passes every `except Exception` on its way out."""


class Violation(AssertionError):
    """The shell broke a promise; the text says which."""


class Process:
    """What dies and freezes as one: an operating system process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self.fibers: dict[Fiber, None] = {}
        self.held: list[Fiber] = []  # would go on, were it not frozen


class Fiber:
    """One thread."""

    __slots__ = ("alarm", "done", "ended", "name", "process", "rope")

    def __init__(self, world: World, process: Process, run: Callable[[], object], name: str) -> None:
        self.process = process
        self.name = name
        self.alarm = 0  # grows with every wait, so that an alarm for an earlier one is void
        self.done = False
        self.ended = Signal(world)

        def body() -> None:
            try:
                run()
            finally:
                self.done = True
                process.fibers.pop(self, None)
                self.ended.send()

        self.rope = greenlet(body)


class Signal:
    """What fibers wait for."""

    __slots__ = ("_waiting", "_world")

    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting: list[Fiber] = []

    def wait(self, time: int | None = None) -> bool:
        """Until sent, or for so long; whether it was sent."""
        fiber = self._world.running()
        self._waiting.append(fiber)
        try:
            return self._world.park(time)
        finally:
            if fiber in self._waiting:
                self._waiting.remove(fiber)

    def send(self, most: int | None = None) -> None:
        """Wake all who wait, or at most so many, in the order of their coming."""
        woken, self._waiting = self._waiting[:most], [] if most is None else self._waiting[most:]
        for fiber in woken:
            self._world.wake(fiber)


class World:
    """The scheduler of fibers, the virtual clock and the seed. `notes` tells the last events, for the reader."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = 0  # µs since the world began
        self.notes: deque[tuple[int, str, str]] = deque(maxlen=KEPT_NOTES)
        self.heard: set[str] = set()  # the names of the shell's events so far
        self.violation: Violation | None = None
        self.turns = 0
        self._numbers = count(1)
        self._ready: list[Fiber] = []
        self._alarms: list[tuple[int, int, Fiber | None, int, Callable[[], None] | None]] = []
        self._running: Fiber | None = None
        self._parked: dict[Fiber, bool] = {}  # and whether it was woken

    # --- for fibers

    def running(self) -> Fiber:
        assert self._running is not None, "only a fiber can wait"
        return self._running

    def park(self, time: int | None = None) -> bool:
        """Wait to be woken, or for so long; whether it was woken."""
        fiber = self.running()
        if not fiber.process.alive:
            raise Killed
        fiber.alarm = next(self._numbers)
        self._parked[fiber] = False
        if time is not None:
            heapq.heappush(self._alarms, (self.now + max(0, time), fiber.alarm, fiber, fiber.alarm, None))
        self._hub.switch()
        return self._parked.pop(fiber)

    def sleep(self, time: int) -> None:
        self.park(time)

    def pause(self) -> None:
        """Anybody may go first."""
        fiber = self.running()
        if not fiber.process.alive:
            raise Killed
        self._ready.append(fiber)
        self._parked[fiber] = True
        self._hub.switch()
        del self._parked[fiber]

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    # --- for everybody

    def spawn(self, process: Process, run: Callable[[], object], name: str) -> Fiber:
        """A new thread of the process, ready to go."""
        fiber = Fiber(self, process, run, name)
        process.fibers[fiber] = None
        self._ready.append(fiber)
        return fiber

    def wake(self, fiber: Fiber) -> None:
        if self._parked.get(fiber) is False:
            self._parked[fiber] = True
            fiber.alarm = 0
            self._ready.append(fiber)

    def call_at(self, at: int, call: Callable[[], None]) -> None:
        """Something outside of all processes happens at that instant."""
        heapq.heappush(self._alarms, (max(at, self.now), next(self._numbers), None, 0, call))

    def call_in(self, time: int, call: Callable[[], None]) -> None:
        self.call_at(self.now + time, call)

    def note(self, who: str, what: str) -> None:
        self.notes.append((self.now, who, what))

    def violate(self, what: str) -> None:
        """A promise is broken: the world ends with the next turn."""
        self.note("VIOLATION", what)
        if self.violation is None:
            self.violation = Violation(what)

    # --- life and death

    def kill(self, process: Process) -> None:
        """None of its fibers runs again, except to unwind without effect."""
        process.alive = False
        for fiber in list(process.fibers):
            self._parked.pop(fiber, None)
            fiber.alarm = 0
            running, self._running = self._running, fiber
            fiber.rope.parent = getcurrent()
            fiber.rope.throw(Killed)
            self._running = running
        process.fibers.clear()
        process.held.clear()
        self._ready = [fiber for fiber in self._ready if fiber.process is not process]

    def freeze(self, process: Process) -> None:
        process.frozen = True

    def thaw(self, process: Process) -> None:
        process.frozen = False
        self._ready += process.held
        process.held = []

    # --- the loop

    def run(self, time: int, until: Callable[[], bool] | None = None) -> bool:
        """Let so much time pass; ends early once `until` holds, and says whether it did."""
        self._hub: Any = getcurrent()
        end = self.now + time
        at, turns = self.now, 0
        while True:
            if self.violation is not None:
                raise self.violation
            if until is not None and until():
                return True
            if self._ready:
                turns = turns + 1 if at == self.now else 0
                at = self.now
                assert turns < MOST_TURNS, (
                    f"no time passes, something goes round in circles: {[f.name for f in self._ready]}"
                )
                self._turn()
            elif self._alarms and self._alarms[0][0] <= end:
                self._ring()
            else:
                self.now = end
                return until is not None and until()

    def _turn(self) -> None:
        ready = self._ready
        index = int(self.random.random() * len(ready))
        ready[index], ready[-1] = ready[-1], ready[index]
        fiber = ready.pop()
        if fiber.process.frozen:
            fiber.process.held.append(fiber)
            return
        self.turns += 1
        self._running = fiber
        fiber.rope.parent = self._hub
        fiber.rope.switch()
        self._running = None

    def _ring(self) -> None:
        """The next instant at which something happens, and all that happens then."""
        self.now = self._alarms[0][0]
        while self._alarms and self._alarms[0][0] == self.now:
            _, _, fiber, alarm, call = heapq.heappop(self._alarms)
            if call is not None:
                call()
            elif fiber is not None and fiber.alarm == alarm:
                self._ready.append(fiber)  # not woken: its wait is over

    # --- the trace

    def story(self, last: int = 60) -> str:
        """The last events, one a line."""
        lines = [f"{at / SECOND:11.6f}  {who:<14} {what}" for at, who, what in list(self.notes)[-last:]]
        return "\n".join(lines)
