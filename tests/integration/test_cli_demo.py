"""`scheduler demo` as a user runs it: two terminals, Ctrl-C, a kill; and nothing is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.broker import BrokerUnderTest

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[2]
SCHEDULER = [sys.executable, "-m", "scheduler"]
GONE_S = 40.0  # a node drains for at most 20 s, the broker takes a few


def environment(**changes: str) -> dict[str, str]:
    """This process's, without settings of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SCHEDULER_", "DEMO_"))}
    return {**kept, "PYTHONUNBUFFERED": "1", **changes}


@contextmanager
def demo(*arguments: str, **changes: str) -> Iterator[subprocess.Popen[str]]:
    """A running demo; killed with all its children if the test fails in between."""
    with subprocess.Popen(
        [*SCHEDULER, "demo", *arguments],
        cwd=ROOT,
        env=environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        children = []
        try:
            yield process
        finally:
            if process.poll() is None:
                children = family(process.pid)
                process.kill()
            psutil.wait_procs(children, timeout=GONE_S)


def family(pid: int) -> list[psutil.Process]:
    """Every process below `pid`."""
    return psutil.Process(pid).children(recursive=True)


def second_terminal(process: subprocess.Popen[str]) -> str:
    """The settings file that the demo's hint names, once it stands there."""
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        found = re.search(r"SCHEDULER_CONFIG=(\S+)", line)
        if found is not None:
            return found[1]
    pytest.fail(f"the demo ended before its hint:\n{seen}")


def scheduler(config: str, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """A command in the second terminal, `text` on its standard input."""
    return subprocess.run(
        [*SCHEDULER, *arguments],
        cwd=ROOT,
        env=environment(SCHEDULER_CONFIG=config),
        input=text,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def accepted(config: str, *arguments: str) -> str:
    """The code of the reply to a `schedule` command that must be accepted."""
    done = scheduler(config, "schedule", *arguments, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    reply = json.loads(done.stdout)
    assert reply["status"] == "accepted"
    return str(reply["code"])


def test_a_second_terminal_changes_what_arrives_and_ctrl_c_ends_it_all() -> None:
    """Create, pause, update, cancel, each with its effect on the dispatch topics; then nothing is left."""
    with demo() as first:
        config = second_terminal(first)
        assert accepted(config, "create", "acme/hello", "--every", "1s", "--payload", '{"hello": "world"}') == "created"
        two = scheduler(config, "tail", "--tenant", "acme", "--count", "2", "--seconds", "30", "--json")
        arrivals = [json.loads(line) for line in two.stdout.splitlines()]
        assert [arrival["schedule_id"] for arrival in arrivals] == ["acme/hello"] * 2
        assert all(0 <= arrival["lateness_ms"] < 10_000 for arrival in arrivals)
        assert accepted(config, "pause", "acme/hello") == "paused"
        silent = scheduler(config, "tail", "--tenant", "acme", "--seconds", "3", "--json")
        assert silent.stdout == ""
        assert accepted(config, "update", "acme/hello", "--every", "2s") == "updated"
        assert accepted(config, "resume", "acme/hello") == "resumed"
        again = scheduler(config, "tail", "--tenant", "acme", "--count", "1", "--seconds", "30", "--json")
        assert "acme/hello:2:" in again.stdout
        assert accepted(config, "cancel", "acme/hello") == "cancelled"
        history = scheduler(config, "schedule", "history", "acme/hello", "--json")
        changes = [json.loads(line)["change"] for line in history.stdout.splitlines()]
        assert changes == ["created", "paused", "updated", "resumed", "cancelled"]
        crontab = ("import", "crontab", "-", "--tenant", "ops", "--zone", "Europe/Berlin")
        for lines in ("# backup\n30 2 * * * backup.sh\n@hourly rotate\n",) * 2:
            imported = scheduler(config, *crontab, text=lines)
            assert imported.returncode == 0, imported.stdout + imported.stderr
            assert imported.stdout.splitlines()[-1].startswith("2 imported, 0 rejected, 0 can't be taken")
        listed = scheduler(config, "schedule", "list", "--tenant", "ops", "--json")
        assert [json.loads(line)["revision"] for line in listed.stdout.splitlines()] == [1, 1]
        assert len(scheduler(config, "schedule", "list", "--json").stdout.splitlines()) == 44 + 1 + 2
        examined = scheduler(config, "doctor", "--json")
        findings = [json.loads(line) for line in examined.stdout.splitlines()]
        assert {finding["status"] for finding in findings} == {"ok"}, findings
        started = family(first.pid)
        assert len(started) >= 4  # the broker, the supervisor, two processes
        first.send_signal(signal.SIGINT)
        output, errors = first.communicate(timeout=GONE_S)
    assert first.returncode == 0, output + errors
    assert re.search(r"\d+ occurrences in \d+ s from 44 schedules \(0 rejected\), 0 early, 0 twice", output)
    _, alive = psutil.wait_procs(started, timeout=GONE_S)
    assert alive == []
    assert not Path(config).parent.exists()


def test_a_demo_of_some_seconds_ends_with_a_summary(broker: BrokerUnderTest, namespace: str) -> None:
    """On a given broker, under a namespace of its own; for programs each line is JSON, the last one the summary."""
    changes = {"SCHEDULER_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers, "SCHEDULER_NAMESPACE": namespace}
    with demo("--json", DEMO_SECONDS="8", **changes) as process:
        output, errors = process.communicate(timeout=150)
    assert process.returncode == 0, output + errors
    *arrivals, last = [json.loads(line) for line in output.splitlines()]
    summary = last["summary"]
    assert summary["dispatched"] == len(arrivals) > 10
    assert (summary["schedules_loaded"], summary["early"], summary["duplicates"], summary["faults"]) == (44, 0, 0, [])
    assert summary["lateness_ms"]["all"]["max"] >= summary["lateness_ms"]["all"]["p50"] >= 0


def test_a_killed_demo_takes_everything_with_it() -> None:
    """SIGKILL runs no cleanup; the guards do."""
    with demo() as process:
        second_terminal(process)
        started = family(process.pid)
        assert len(started) >= 4
        process.kill()
        process.communicate()
        _, alive = psutil.wait_procs(started, timeout=GONE_S)
    assert alive == []


def test_a_scheduler_that_dies_fails_the_demo() -> None:
    """It is named, with its last words, and the exit code is 1."""
    with demo() as process:
        second_terminal(process)
        nodes = [one for one in family(process.pid) if "run" in one.cmdline()]  # its processes are forks of the first
        (supervisor,) = [one for one in nodes if one.parent() not in nodes]
        started = family(process.pid)
        supervisor.kill()
        output, errors = process.communicate(timeout=90)
    _, alive = psutil.wait_procs(started, timeout=GONE_S)
    assert alive == []
    assert process.returncode == 1
    assert "fault: the scheduler ended by itself with code -9" in output, errors
