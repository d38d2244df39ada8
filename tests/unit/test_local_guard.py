"""The guard: whatever happens to the program, its nodes end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from scheduler.local import guard
from scheduler.local.node import Node

if TYPE_CHECKING:
    from pathlib import Path

SLEEPER = [sys.executable, "-c", "import signal; signal.pause()"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()",
]
# A program that starts a guard and a child, lets a fork hold the guard's pipe open, and waits to be killed.
PROGRAM = """
import os, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
command = [sys.executable, "-I", "-S", sys.argv[1], str(os.getpid()), *sys.argv[2:]]
watcher = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
watcher.stdin.write(f"{child.pid}\\n".encode())
watcher.stdin.flush()
fork = os.fork()
if fork == 0:
    os.close(1)
    signal.pause()
print(child.pid, fork, watcher.pid, flush=True)
signal.pause()
"""


def start_guard(directory: str, patience_s: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, guard.__file__, str(os.getpid()), directory, str(patience_s)]
    return subprocess.Popen(command, stdin=subprocess.PIPE)


def test_the_end_of_the_program_ends_its_nodes(tmp_path: Path) -> None:
    """When the pipe closes, the last processes named are ended and the temporary directory is gone."""
    folder = tmp_path / "data"
    folder.mkdir()
    with (
        subprocess.Popen(SLEEPER) as node,
        start_guard(str(folder), 0.2) as watcher,
    ):
        watcher.communicate(f"{node.pid}\n".encode(), timeout=30)
        assert node.wait(30) == -signal.SIGTERM
    assert not folder.exists()


def test_what_was_taken_off_the_list_is_left_alone() -> None:
    """Each line replaces the one before: a node that was stopped and whose id was reused is nobody's business."""
    with (
        subprocess.Popen(SLEEPER) as other,
        start_guard("-", 0) as watcher,
    ):
        watcher.communicate(f"{other.pid}\n\n".encode(), timeout=30)
        assert watcher.returncode == 0
        assert other.poll() is None
        other.kill()


def test_a_node_that_does_not_listen_is_killed() -> None:
    """Patience has an end."""
    with (
        subprocess.Popen(STUBBORN, stdout=subprocess.PIPE) as node,
        start_guard("-", 0.2) as watcher,
    ):
        assert node.stdout is not None
        assert node.stdout.readline() == b"deaf\n"
        watcher.communicate(f"{node.pid}\n".encode(), timeout=30)
        assert node.wait(30) == -signal.SIGKILL


def test_a_killed_program_whose_fork_lives_on_ends_its_nodes(tmp_path: Path) -> None:
    """SIGKILL runs no cleanup and a fork keeps the pipe open: the guard sees that its parent is gone."""
    folder = tmp_path / "data"
    folder.mkdir()
    command = [sys.executable, "-c", PROGRAM, guard.__file__, str(folder), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        node, fork, watcher = (psutil.Process(int(pid)) for pid in program.stdout.readline().split())
        program.kill()
        try:
            gone, _ = psutil.wait_procs([node, watcher], timeout=30)
        finally:
            fork.kill()
    assert {process.pid for process in gone} == {node.pid, watcher.pid}
    assert not folder.exists()


def test_a_reused_process_id_is_not_ours(tmp_path: Path) -> None:
    """A recorded id that now belongs to another program counts as not running, and is never signalled."""
    node = Node(tmp_path / "node-1", pid=os.getpid())
    assert node.process() is None
    node.end(0)  # would end this very test run


@pytest.mark.parametrize("pid", [None, 2**22 + 1])
def test_a_process_that_is_gone_is_stopped_already(tmp_path: Path, pid: int | None) -> None:
    """Stopping what no longer runs is no error."""
    node = Node(tmp_path / "node-1", pid=pid)
    node.end(1)
    assert node.process() is None
