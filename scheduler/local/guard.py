"""The guard: a small process beside an embedded cluster that outlives the program only to stop the cluster with it.

Run as a script by `broker.py`, with the standard library alone. Its arguments are the process id of the program (which
may be gone before this file is read), the directory to remove at the end (`-`: none) and the seconds a node gets to
stop by itself. It reads the process ids of the nodes from standard input,
one line each time they change, and acts when the input ends *or* its parent is no longer its parent: a fork of the
program may hold the pipe open, and a program killed with SIGKILL runs no cleanup of its own.

The kernel's parent-death signal would do this on Linux alone, and there it follows the *thread* that started the child.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time

LOOK_EVERY_S = 0.25


def follow(parent: int) -> list[int]:
    """Return the last process ids written by `parent`, once it is gone or has closed the pipe."""
    pids: list[int] = []
    buffer = b""
    while True:
        readable, _, _ = select.select([0], [], [], LOOK_EVERY_S)
        if not readable:
            if os.getppid() == parent:
                continue
            break  # nothing unread, and nobody left who would write
        data = os.read(0, 4096)
        if not data:
            break
        *lines, buffer = (buffer + data).split(b"\n")
        if lines:
            pids = [int(pid) for pid in lines[-1].split()]
    return pids


def end(pids: list[int], patience_s: float) -> None:
    """Ask every process to stop, and kill those that have not after `patience_s`."""
    deadline = time.monotonic() + patience_s
    _signal(pids, signal.SIGTERM if patience_s else signal.SIGKILL)
    while (pids := _signal(pids, 0)) and time.monotonic() < deadline:
        time.sleep(0.05)
    _signal(pids, signal.SIGKILL)


def _signal(pids: list[int], number: int) -> list[int]:
    alive = []
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            continue
        alive.append(pid)
    return alive


def main(parent: str, directory: str, patience_s: str) -> None:
    """Wait for the end of the parent, then end the nodes and remove `directory`."""
    end(follow(int(parent)), float(patience_s))
    if directory != "-":
        # A node that was just killed may still be seen by the file system for a moment.
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
