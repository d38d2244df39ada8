"""The parent of a node: what it does when a child ends by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scheduler.runtime import supervisor
from scheduler.runtime.supervisor import Child, Supervisor

if TYPE_CHECKING:
    from types import FrameType

PATIENCE_S = 60


def child(codes: Path, index: int) -> int:
    """Ends with the next code of the file; when there is none left, stops its parent and waits to be stopped."""
    left = codes.read_text().split()
    codes.write_text(" ".join(left[1:]))
    if left == ["deaf"]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif left:
        return int(left[0])
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(PATIENCE_S)
    return index


def node(codes: Path, method: str, refusals: int) -> int:
    """A parent with one such child, which the machine has no room for at first, and a short patience.

    Run in a program of its own: it forks, and takes signals.
    """
    supervisor.BACKOFF_S, supervisor.METHOD, supervisor.STOP_S = (0.01, 0.02), method, 1.0
    start = Child.start

    def refused(self: Child) -> None:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise BlockingIOError("no room for another process")
        start(self)

    Child.start = refused  # type: ignore[method-assign]
    return Supervisor(partial(child, codes), 1).run()


def supervised(folder: Path, codes: str, method: str = "fork", refusals: int = 0) -> int:
    """The parent's exit code."""
    state = folder / "codes"
    state.write_text(codes)
    command = [sys.executable, __file__, str(state), method, str(refusals)]
    return subprocess.run(command, timeout=PATIENCE_S, check=False).returncode


def test_wrong_settings_at_the_first_start_end_the_node(tmp_path: Path) -> None:
    """Starting again could not help, and the child has said why."""
    assert supervised(tmp_path, "2") == 2


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_that_served_is_started_again_whatever_it_ends_with(tmp_path: Path, method: str) -> None:
    """What it refuses now may be a moment's trouble, and the other processes serve on."""
    assert supervised(tmp_path, "1 2 2", method) == 0
    assert (tmp_path / "codes").read_text() == ""


def test_a_child_that_there_is_no_room_for_is_started_later(tmp_path: Path) -> None:
    """The parent stays, and hears signals all the while."""
    assert supervised(tmp_path, "1", refusals=3) == 0
    assert (tmp_path / "codes").read_text() == ""


def test_a_machine_without_room_for_long_ends_the_node(tmp_path: Path) -> None:
    """Whoever started it may start it anew, with nothing left of what the tries took."""
    assert supervised(tmp_path, "", refusals=supervisor.MOST_REFUSED + 1) == 1


def test_a_child_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    """So that a stop ends, and nobody is left who would be in the way of the next start."""
    assert supervised(tmp_path, "deaf") == 0


def stopped_anywhere(calls: int) -> int:
    """A parent that is told to stop as it calls a function for the n-th time since its first look, for each n."""

    def watch(frame: FrameType, event: str, _: object) -> None:
        nonlocal left
        if event == "call" and (left < number or frame.f_code.co_name == "_look"):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGTERM)

    for number in range(1, calls + 1):
        left = number
        sys.settrace(watch)
        code = Supervisor(lambda index: index, 0).run()
        sys.settrace(None)
        if code:
            return code
    return 0


def test_a_stop_may_come_at_any_moment() -> None:
    """Its handler runs between any two instructions of the parent: it must not wait for what these hold."""
    command = [sys.executable, __file__, "stopped", "8"]
    assert subprocess.run(command, timeout=PATIENCE_S, check=False).returncode == 0


if __name__ == "__main__":
    if sys.argv[1] == "stopped":
        sys.exit(stopped_anywhere(int(sys.argv[2])))
    sys.exit(node(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
