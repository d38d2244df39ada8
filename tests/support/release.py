"""Earlier states of this code, from the history of the clone: to run old processes beside new ones."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from scheduler.core.record import FORMAT
from tests.support.node import ROOT

if TYPE_CHECKING:
    from pathlib import Path

WHERE = "scheduler/core/record.py"
SAFE = "scheduler/runtime/elders.py"  # without it an old process is no member that others know of


def last_of_an_older_format() -> str:
    """The last commit before the record format became what it is. Skips with the reason if there is none."""
    newer = None
    for commit in _commits():
        if _format(commit) < FORMAT:
            return commit if newer is None else _git("rev-parse", f"{newer}^")
        newer = commit
    pytest.skip(f"no commit of this clone's history has a record format before {FORMAT}")


def first_of_this_format() -> str:
    """The commit with which the record format became what it is, or the first of it that can run beside others."""
    found = None
    for commit in _commits():
        if _format(commit) < FORMAT:
            break
        found = commit
    if found is None:
        pytest.skip("the history of this clone does not reach back to this record format")
    if _git("ls-tree", "--name-only", found, SAFE):
        return found
    return _git("log", "--reverse", "--format=%H", "--", SAFE).splitlines()[0]


def unpack(commit: str, folder: Path) -> Path:
    """The files of a commit in a folder of their own."""
    folder.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    # What runs there must be what lies there, whatever is installed.
    where = [sys.executable, "-c", "import scheduler; print(scheduler.__file__)"]
    found = subprocess.run(where, cwd=folder, capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(folder)), found
    return folder


def _commits() -> list[str]:
    """Those that touched the record, newest first."""
    return _git("log", "--format=%H", "--", WHERE).splitlines()


def _format(commit: str) -> int:
    found = re.search(r"^FORMAT = (\d+)", _git("show", f"{commit}:{WHERE}"), re.MULTILINE)
    return 0 if found is None else int(found[1])


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as fault:
        pytest.skip(f"no history to take an earlier release from: {fault}")
    return done.stdout.strip()
