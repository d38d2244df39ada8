"""A process of a node whose clocks lie as a file says: `python -m tests.crash.wrong_clock FILE ... run`.

FILE is a JSON object, read again at every use: `wall_ms` is how far this process's wall clock is ahead, `broker_ms` how
far the append times are that the brokers tell it. The monotonic clock cannot be set, here as anywhere.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from scheduler.cli import main
from scheduler.runtime.clock import DueClock
from tests.crash.bugs import infest


def lie(path: Path) -> None:
    """From here on all of this process, its logs too, believes what the file says."""

    def told(name: str) -> int:
        return int(json.loads(path.read_text()).get(name, 0))

    true_time, true_ns, observe = time.time, time.time_ns, DueClock.observe

    def observe_wrongly(clock: Any, sent_ms: float, acked_ms: float, appended_ms: int) -> None:
        observe(clock, sent_ms, acked_ms, appended_ms + told("broker_ms"))

    time.time = lambda: true_time() + told("wall_ms") / 1000
    time.time_ns = lambda: true_ns() + told("wall_ms") * 1_000_000
    DueClock.observe = observe_wrongly  # type: ignore[method-assign] # a process of lies


class Lies:
    """The file, as the test writes it: whole at every instant."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tell()

    def tell(self, *, wall_ms: int = 0, broker_ms: int = 0) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"wall_ms": wall_ms, "broker_ms": broker_ms}))
        new.replace(self.path)


if __name__ == "__main__":
    infest()
    lie(Path(sys.argv[1]))
    main(sys.argv[2:], prog_name="scheduler")
