"""The parent of a node: what it does when a child ends by itself."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from scheduler.runtime import supervisor
from scheduler.runtime.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Ends with the next code of the file beside it; waits to be stopped when there is none left.
CHILD = """
import pathlib, sys, time
codes = pathlib.Path(sys.argv[1])
left = codes.read_text().split()
codes.write_text(" ".join(left[1:]))
if left:
    sys.exit(int(left[0]))
pathlib.Path(sys.argv[1] + ".up").touch()
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A short back-off, and the test runner's own signal handlers again afterwards."""
    monkeypatch.setattr(supervisor, "BACKOFF_S", (0.01, 0.02))
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def _supervised(folder: Path, codes: str) -> Supervisor:
    script, state = folder / "child.py", folder / "codes"
    script.write_text(CHILD)
    state.write_text(codes)
    return Supervisor([sys.executable, str(script), str(state)], 1)


def test_wrong_settings_at_the_first_start_end_the_node(tmp_path: Path) -> None:
    """Starting again could not help, and the child has said why."""
    assert _supervised(tmp_path, "2").run() == 2


def test_a_child_that_served_is_started_again_whatever_it_ends_with(tmp_path: Path) -> None:
    """What it refuses now may be a moment's trouble, and the other processes serve on."""
    one = _supervised(tmp_path, "1 2 2")
    watcher = threading.Thread(target=_stop_when_up, args=(one, tmp_path / "codes.up"))
    watcher.start()
    assert one.run() == 0
    watcher.join()
    assert (tmp_path / "codes").read_text() == ""


def _stop_when_up(one: Supervisor, sign: Path) -> None:
    wait = threading.Event()
    for _ in range(1000):
        if sign.exists():
            break
        wait.wait(0.02)
    one.stop()
