"""A broker that can't start says what, why and what next, and leaves nothing behind."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from scheduler.local import Broker, BrokerUnavailable
from scheduler.local.errors import AlreadyRunning

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.broker

START = """
import sys
from pathlib import Path
from scheduler.local import Broker, BrokerUnavailable
try:
    with Broker.start(Path(sys.argv[1])) as broker:
        print("started", flush=True)
        sys.stdin.readline()
except BrokerUnavailable as error:
    print(type(error).__name__, flush=True)
"""


def nodes_in(folder: Path) -> list[int]:
    """Process ids of the nodes whose files are in `folder`."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if any(argument.startswith(f"{folder}/node-") for argument in command):
            found.append(process.pid)
    return found


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The data directory of a cluster that ran and was stopped."""
    folder = tmp_path / "data"
    Broker.start(folder).stop()
    return folder


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_taken_port_is_named(tmp_path: Path, taken_port: int) -> None:
    """The port is checked before anything starts, and the error names it."""
    with pytest.raises(BrokerUnavailable, match=f"Port {taken_port} on 127.0.0.1 can't be used") as caught:
        Broker.start(tmp_path, ports=[taken_port])
    assert "--port" in caught.value.then
    assert nodes_in(tmp_path) == []


def test_an_unwritable_directory_is_named(tmp_path: Path) -> None:
    """The error names the directory, the system's reason and the free space."""
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "data"
    with pytest.raises(BrokerUnavailable, match="can't be written") as caught:
        Broker.start(folder)
    assert str(folder) in caught.value.what
    assert "Not a directory" in caught.value.why
    assert "MiB" in caught.value.why


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of space while writing a node's files: the advice is to free some, and nothing runs."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(BrokerUnavailable, match="can't be written") as caught:
        Broker.start(tmp_path)
    assert "No space left" in caught.value.why
    assert caught.value.then == "free some space"
    assert nodes_in(tmp_path) == []


def test_a_node_that_ends_early_shows_its_last_words(stopped: Path) -> None:
    """Data of another cluster makes Kafka refuse; the error carries its log, not only an exit code."""
    meta = stopped / "node-1" / "data" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=7"))
    with pytest.raises(BrokerUnavailable, match="ended with exit code 1 before it was ready") as caught:
        Broker.start(stopped)
    assert "Stored node id 7 doesn't match previous node id 1" in caught.value.why
    assert str(stopped / "node-1" / "server.log") in caught.value.then
    assert nodes_in(stopped) == []


def test_a_heap_too_small_shows_what_java_said(tmp_path: Path) -> None:
    """What the Java launcher prints before Kafka logs anything is shown as well."""
    with pytest.raises(BrokerUnavailable, match="could not be formatted") as caught:
        Broker.start(tmp_path, heap_mb=1)
    assert "Too small maximum heap" in caught.value.why


def test_a_running_cluster_is_not_started_twice(private_broker: Broker) -> None:
    """The second start names the address of the first, and the first goes on."""
    pids = private_broker.pids
    with pytest.raises(AlreadyRunning, match=private_broker.bootstrap_servers):
        Broker.start(private_broker.data_dir)
    assert private_broker.pids == pids


def test_of_two_starts_at_once_one_wins(tmp_path: Path) -> None:
    """Two programs that start on one directory at the same time: one runs, one is told."""
    command = [sys.executable, "-c", START, str(tmp_path / "data")]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as two,
    ):
        assert one.stdout is not None
        assert two.stdout is not None
        said = {one.stdout.readline().strip(), two.stdout.readline().strip()}
        one.communicate("\n")
        two.communicate("\n")
    assert said == {"started", "AlreadyRunning"}
    assert nodes_in(tmp_path) == []


def test_another_number_of_nodes_is_refused(stopped: Path) -> None:
    """A cluster of one does not become one of three by starting it so."""
    with pytest.raises(BrokerUnavailable, match=r"holds a cluster of 1 node\(s\), not 3"):
        Broker.start(stopped, nodes=3)


def test_a_damaged_layout_is_refused(stopped: Path) -> None:
    """A file that can't be read is named; it is not taken for a new cluster, which would hide the data."""
    (stopped / "broker.json").write_text("{")
    with pytest.raises(BrokerUnavailable, match=r"broker\.json can't be read"):
        Broker.start(stopped)


def test_a_comma_in_the_path_is_refused(tmp_path: Path) -> None:
    """Kafka would take it for two directories."""
    with pytest.raises(BrokerUnavailable, match="comma"):
        Broker.start(tmp_path / "a,b")
