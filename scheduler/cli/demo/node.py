"""The scheduler of a demo: `scheduler run` as a child process, stopped with the demo however the demo ends."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Self

from scheduler.local import guard

if TYPE_CHECKING:
    from pathlib import Path

STOP_S = 20.0


class DemoNode:
    """A running node. A context manager: leaving it drains the node, then kills what is left of it."""

    def __init__(self, config: Path, processes: int, log: Path) -> None:
        self.log = log
        command = [sys.executable, "-m", "scheduler", "--config", str(config), "run", "--processes", str(processes)]
        with log.open("ab") as output:
            # A session of its own: Ctrl-C is the demo's to handle, and the whole group can be ended.
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self._guard = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), "-", str(STOP_S)], stdin=subprocess.PIPE
        )
        assert self._guard.stdin is not None  # noqa: S101 - asked for above
        self._guard.stdin.write(f"{self._process.pid}\n".encode())
        self._guard.stdin.flush()
        self._children: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        finally:
            self._guard.communicate()

    def remember_children(self) -> None:
        """From now on a child that is no longer there has died."""
        self._children = self._running()

    def deaths(self) -> list[str]:
        """What ended by itself, in words; empty while all is well."""
        if self._process.poll() is not None:
            return [f"the scheduler ended by itself with code {self._process.returncode}"]
        gone = self._children - self._running()
        return [f"process {pid} of the scheduler died" for pid in sorted(gone)]

    def _running(self) -> set[int]:
        import psutil

        try:
            children = psutil.Process(self._process.pid).children()
            return {child.pid for child in children if child.status() != psutil.STATUS_ZOMBIE}
        except psutil.Error:
            return set()

    def last_words(self, lines: int = 15) -> str:
        """The end of its log."""
        try:
            return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
        except OSError:
            return "(it has written no log)"
