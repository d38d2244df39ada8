"""The crash tests catch what they are there to catch: each bug is put in, and the tests that must fail do.

The table is printed in `ops/failures.md`, and a test compares the two. A row is a bug of `tests/crash/bugs.py`; each
test of it is run as it stands, by a pytest of its own, on the broker of this run, and has to fail by what it counted.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.crash.bugs import BUGS, VARIABLE
from tests.support.broker import ADDRESS
from tests.support.node import ROOT
from tests.support.verifier import report

if TYPE_CHECKING:
    from tests.support.broker import BrokerUnderTest

CAUGHT_BY = {
    "commit_order_swapped": ["crash/test_engine_kills.py::test_killed_at_every_point_of_a_step"],
    "fencing_off": ["crash/test_engine_members.py::test_a_frozen_process_returns_as_a_zombie"],
    "outside_the_transaction": ["crash/test_engine_kills.py::test_killed_at_every_point_of_a_step"],
    "floor_not_written": ["simulation/test_interleavings.py::test_a_crash_between_the_slices_of_a_backlog"],
    "shard_record_not_written": ["crash/test_engine_kills.py::test_killed_while_taking_over"],
    "positions_from_the_group": ["crash/test_engine_kills.py::test_killed_at_every_point_of_a_step"],
    "restore_skipped": [
        "crash/test_engine_kills.py::test_killed_at_every_point_of_a_step",
        "crash/test_matrix_members.py::test_some_order_of_members",
    ],
    "wall_clock": ["crash/test_engine_clocks.py::test_p49_a_wall_clock_that_steps_moves_nothing"],
}
COUNTED = r"lost [1-9]|doubled [1-9]|twice [1-9]|early [1-9]|strange [1-9]|to_come|dispatches; saw|the alarm|seconds"
CELLS = [
    # In the long form: most wait for what never comes. The seeded simulation catches bugs in the short one.
    pytest.param(bug, test, id=f"{bug}-{test.partition('::')[2]}", marks=pytest.mark.soak)
    for bug, tests in CAUGHT_BY.items()
    for test in tests
]


def test_every_bug_is_in_the_table() -> None:
    """And nothing else is."""
    assert CAUGHT_BY.keys() == BUGS.keys()


@pytest.mark.broker
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("bug", "test"), CELLS)
def test_it_is_caught(broker: BrokerUnderTest, bug: str, test: str) -> None:
    """The test fails, and not because something else was wrong. Simulations have the bug in their own process."""
    plugin = ["-p", "tests.crash.bugs"] if test.startswith("simulation") else []
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--show-capture=no", "-p", "no:cacheprovider", *plugin, f"tests/{test}"],
        env={**os.environ, VARIABLE: bug, ADDRESS: broker.bootstrap_servers, "A_KILL_S": "12"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, f"{test} does not catch {bug}:\n{done.stdout[-3000:]}"
    assert "too slow" not in done.stdout, done.stdout[-3000:]
    said = re.search(r"^E +(?:AssertionError: |assert )(.*)$", done.stdout, re.MULTILINE)
    assert said is not None, done.stdout[-3000:]
    assert plugin or re.search(COUNTED, said[1]), f"{test} fails with {bug}, but counts nothing wrong: {said[1]}"
    report(f"{bug} is caught: {said[1][:300]}")
