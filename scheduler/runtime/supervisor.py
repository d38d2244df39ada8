"""A node: several processes under one parent. A process that dies is started again with back-off; a stop drains all.

The interpreter runs one thread at a time, so processes are the unit of scale. They are forked from a parent that has
loaded everything and holds nothing, no thread and no Kafka client: so they are there at once and all at the same time,
and one that is started again is of the same version as the others, whatever was installed meanwhile.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from scheduler.runtime.clock import Deadline
from scheduler.runtime.telemetry import event

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.context import ForkProcess

BACKOFF_S = (0.5, 1, 2, 5, 10, 30)
STEADY_S = 60.0  # alive so long: the next death starts the back-off anew
STOP_S = 15.0
LOOK_S = 0.1
HOPELESS = frozenset({2})  # wrong settings, told at the first start: starting again cannot help


SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Child:
    """One process and its history of deaths."""

    def __init__(self, body: Callable[[int], int], index: int) -> None:
        self._body = body
        self.index = index
        self.deaths = 0
        self.start_at = 0.0
        self._began = 0.0
        self.process: ForkProcess | None = None

    def start(self) -> None:
        self._began = time.monotonic()
        self.process = multiprocessing.get_context("fork").Process(target=self._run)
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # or the child takes one for its parent's
        self.process.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def _run(self) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        sys.exit(self._body(self.index))

    def died(self) -> float:
        """Note a death; returns the seconds to wait before the next start."""
        self.deaths = 1 if time.monotonic() - self._began > STEADY_S else self.deaths + 1
        pause = BACKOFF_S[min(self.deaths, len(BACKOFF_S)) - 1]
        self.start_at = time.monotonic() + pause
        self.process = None
        return pause


class Supervisor:
    """Runs `body(index)`, which returns an exit code, in so many processes until told to stop."""

    def __init__(self, body: Callable[[int], int], processes: int) -> None:
        self._children = [Child(body, index) for index in range(processes)]
        self._stop = threading.Event()

    def stop(self, *_: object) -> None:
        """Safe in a signal handler."""
        self._stop.set()

    def run(self) -> int:
        """The exit code: 0 after a stop, a child's own code if starting it again cannot help."""
        for number in SIGNALS:
            signal.signal(number, self.stop)
        code = 0
        try:
            while not self._stop.is_set() and code == 0:
                code = self._look()
                self._stop.wait(LOOK_S)
        finally:
            self._stop_all()
        return code

    def _look(self) -> int:
        for child in self._children:
            if child.process is None:
                if time.monotonic() >= child.start_at:
                    child.start()
                continue
            code = child.process.exitcode
            if code is None:
                continue
            if code in HOPELESS and child.deaths == 0:
                return code
            pause = child.died()
            event("process_died", logging.ERROR, index=child.index, code=code, restart_in_s=pause)
        return 0

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
