"""The parent of a node: what it does when a child ends by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from scheduler.runtime import supervisor
from scheduler.runtime.supervisor import Supervisor

PATIENCE_S = 60


def child(codes: Path, index: int) -> int:
    """Ends with the next code of the file; when there is none left, stops its parent and waits to be stopped."""
    left = codes.read_text().split()
    codes.write_text(" ".join(left[1:]))
    if left:
        return int(left[0])
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(PATIENCE_S)
    return index


def node(codes: Path) -> int:
    """A parent with one such child and a short back-off. Run in a program of its own: it forks, and takes signals."""
    supervisor.BACKOFF_S = (0.01, 0.02)
    return Supervisor(lambda index: child(codes, index), 1).run()


def supervised(folder: Path, codes: str) -> int:
    """The parent's exit code."""
    state = folder / "codes"
    state.write_text(codes)
    return subprocess.run([sys.executable, __file__, str(state)], timeout=PATIENCE_S, check=False).returncode


def test_wrong_settings_at_the_first_start_end_the_node(tmp_path: Path) -> None:
    """Starting again could not help, and the child has said why."""
    assert supervised(tmp_path, "2") == 2


def test_a_child_that_served_is_started_again_whatever_it_ends_with(tmp_path: Path) -> None:
    """What it refuses now may be a moment's trouble, and the other processes serve on."""
    assert supervised(tmp_path, "1 2 2") == 0
    assert (tmp_path / "codes").read_text() == ""


if __name__ == "__main__":
    sys.exit(node(Path(sys.argv[1])))
