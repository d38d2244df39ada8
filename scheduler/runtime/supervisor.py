"""A node: several processes under one parent. A process that dies is started again with back-off; a stop drains all.

The interpreter runs one thread at a time, so processes are the unit of scale. The parent holds no thread and no Kafka
client, so its processes can be forks of it: they need not load anything, and are there all at the same time (ADR 0022).
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scheduler.runtime.clock import Deadline
from scheduler.runtime.telemetry import event

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

BACKOFF_S = (0.5, 1, 2, 5, 10, 30)
STEADY_S = 60.0  # alive so long: the next death starts the back-off anew
STOP_S = 15.0
MOST_REFUSED = 20  # starts in a row: each leaves some files open, in Python's own library
LOOK_S = 0.1
HOPELESS = frozenset({2})  # wrong settings, told at the first start: starting again cannot help
SIGNALS = (signal.SIGTERM, signal.SIGINT)
METHOD = "fork" if sys.platform == "linux" else "spawn"  # the libraries of other systems do not all survive a fork

Body = Callable[[int], int]


class Child:
    """One process and its history of deaths."""

    def __init__(self, body: Body, index: int) -> None:
        self._body = body
        self.index = index
        self.deaths = 0
        self.start_at = 0.0
        self._began = 0.0
        self.process: BaseProcess | None = None

    def start(self) -> None:
        """Raises OSError when the machine has no room for another process."""
        self._began = time.monotonic()
        context: Any = multiprocessing.get_context(METHOD)
        process = context.Process(target=_be, args=(self._body, self.index))
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # or the child takes one for its parent's
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        self.process = process

    def died(self) -> float:
        """Note a death; returns the seconds to wait before the next start."""
        self.deaths = 1 if time.monotonic() - self._began > STEADY_S else self.deaths + 1
        self.process = None
        return self.rest(self.deaths)

    def rest(self, times: int) -> float:
        """Put off the next start after so many failures in a row; returns the seconds."""
        pause = BACKOFF_S[min(times, len(BACKOFF_S)) - 1]
        self.start_at = time.monotonic() + pause
        return pause


def _be(body: Body, index: int) -> None:
    """What a child runs: a stop that came before it has a handler of its own ends it at once."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    sys.exit(body(index))


class Supervisor:
    """Runs `body(index)`, which returns an exit code, in so many processes until told to stop."""

    def __init__(self, body: Body, processes: int) -> None:
        self._children = [Child(body, index) for index in range(processes)]
        self._stopping = False  # no event: setting one in a signal handler may wait for a lock for ever
        self._refused = 0  # starts in a row

    def stop(self, *_: object) -> None:
        """Safe in a signal handler."""
        self._stopping = True

    def run(self) -> int:
        """The exit code: 0 after a stop, a child's own code if starting it again cannot help."""
        for number in SIGNALS:
            signal.signal(number, self.stop)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored by whoever started us, no child would be seen to end
        code = 0
        try:
            while not self._stopping and code == 0:
                code = self._look()
                time.sleep(LOOK_S)  # between two looks: a stop is seen with the next one
        finally:
            self._stop_all()
        return code

    def _look(self) -> int:
        for child in self._children:
            if child.process is None:
                if time.monotonic() >= child.start_at and not self._start(child):
                    return 1
                continue
            code = child.process.exitcode
            if code is None:
                continue
            if code in HOPELESS and child.deaths == 0:
                return code
            pause = child.died()
            event("process_died", logging.ERROR, index=child.index, code=code, restart_in_s=pause)
        return 0

    def _start(self, child: Child) -> bool:
        """False when the machine has had no room for too long."""
        try:
            child.start()
        except OSError as fault:
            self._refused += 1
            pause = child.rest(self._refused)
            event("process_not_started", logging.ERROR, index=child.index, text=str(fault), restart_in_s=pause)
            return self._refused <= MOST_REFUSED
        self._refused = 0
        return True

    def _stop_all(self) -> None:
        deadline = Deadline(STOP_S)
        running = [child.process for child in self._children if child.process is not None]
        for process in running:
            process.terminate()
        for process in running:
            process.join(max(0.1, deadline.left()))
            if process.exitcode is None:
                event("process_killed", logging.ERROR, pid=process.pid)
                process.kill()
                process.join()
