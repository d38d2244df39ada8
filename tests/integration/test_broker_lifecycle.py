"""How long an embedded cluster lives: with its program, beyond it, through restarts and the loss of a node."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from scheduler.local import Broker, java
from scheduler.local.probe import registered_brokers
from tests.support.node import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.broker

PROGRAM = """
import signal, sys
from pathlib import Path
from scheduler.local import Broker
broker = Broker.start(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
print(*broker.pids, broker.data_dir, flush=True)
if "leave" in sys.argv:
    sys.exit()
signal.pause()
"""
SCHEDULER = [sys.executable, "-c", "from scheduler.cli import main; main(prog_name='scheduler')"]


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def topics(broker: Broker) -> set[str]:
    return set(AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=30).topics)


def create_topic(broker: Broker, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, -1)])[name].result(30)


def gone(pid: int) -> bool:
    """Wait for the end of a process; one that nobody has reaped yet has ended too."""
    try:
        psutil.Process(pid).wait(30)
    except psutil.TimeoutExpired:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        pass
    return True


def scheduler(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SCHEDULER, "broker", *arguments], capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[str]:
    """A data directory whose broker is stopped at the end, whatever the test made of it."""
    folder = tmp_path / "data"
    yield str(folder)
    left = Broker.attach(folder)
    if left is not None:
        left.stop()


def test_a_killed_program_takes_its_broker_along() -> None:
    """After SIGKILL of the program that started it, neither the node nor its temporary directory is left."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        pid, folder = program.stdout.readline().split()
        guards = [child for child in psutil.Process(program.pid).children() if "guard.py" in " ".join(child.cmdline())]
        program.kill()
    assert gone(int(pid))
    assert len(guards) == 1
    assert gone(guards[0].pid)
    assert not Path(folder).exists()


def test_a_program_that_forgets_to_stop_takes_its_broker_along(tmp_path: Path) -> None:
    """An ordinary exit without `stop` ends the node, gently: its data directory is kept and can be started again."""
    folder = tmp_path / "data"
    command = [sys.executable, "-c", PROGRAM, str(folder), "leave"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert gone(int(done.stdout.split()[0]))
    with Broker.start(folder) as broker:
        assert len(broker.pids) == 1


def test_a_data_directory_keeps_topics_ports_and_cluster(tmp_path: Path) -> None:
    """Stopped and started again, the cluster is the same one at the same address."""
    with Broker.start(tmp_path / "data") as first:
        create_topic(first, "kept")
        layout = first.layout
    with Broker.start(tmp_path / "data") as again:
        assert again.bootstrap_servers == layout.bootstrap_servers
        assert again.layout.cluster_id == layout.cluster_id
        assert "kept" in topics(again)


def test_a_temporary_directory_is_removed() -> None:
    """Nothing of a temporary cluster is left after the stop; stopping twice is no error."""
    broker = Broker.start()
    assert broker.data_dir.exists()
    broker.stop()
    assert not broker.data_dir.exists()
    assert broker.pids == []
    broker.stop()


def test_three_nodes_serve_without_one_of_them() -> None:
    """A cluster of three accepts fully acknowledged records while one node is dead, and takes it back."""
    with Broker.start(nodes=3, heap_mb=256) as broker:
        create_topic(broker, "records")
        broker.kill(2)
        assert len(broker.pids) == 2
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all", "log_level": 0})
        failures: list[object] = []
        producer.produce("records", b"1", on_delivery=lambda error, _: failures.append(error))
        assert producer.flush(60) == 0
        assert failures == [None]
        broker.restart(2)
        assert len(broker.pids) == 3
        assert 3 in registered_brokers(broker.layout.nodes[2].port)


def test_a_restart_of_a_running_node_is_a_stop_and_a_start(private_broker: Broker) -> None:
    """`restart` without a kill keeps the data too, and the old process is gone."""
    create_topic(private_broker, "kept")
    (before,) = private_broker.pids
    private_broker.restart()
    assert private_broker.pids != [before]
    assert gone(before)
    assert "kept" in topics(private_broker)


def test_any_java_that_is_new_enough_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the bundled Java, the machine's own starts the same broker."""
    monkeypatch.setattr(java, "_bundled", lambda: None)
    try:
        own = java.find_java()
    except java.BrokerUnavailable as error:
        pytest.skip(f"this machine has no Java of its own: {error.why}")
    with Broker.start() as broker:
        assert psutil.Process(broker.pids[0]).cmdline()[0] == str(own.path)
        assert registered_brokers(port_of(broker.bootstrap_servers)) == {1}


def test_a_started_broker_outlives_the_command_and_is_found_again(data_dir: str) -> None:
    """`broker start`, `status`, `logs`, `restart` and `stop` are separate commands on one directory."""
    started = scheduler("start", "--data-dir", data_dir, "--json")
    assert started.returncode == 0, started.stderr
    shown = json.loads(started.stdout)
    assert registered_brokers(port_of(shown["bootstrap_servers"])) == {1}

    seen = json.loads(scheduler("status", "--data-dir", data_dir, "--json").stdout)
    assert {**seen, "uptime_ms": 0} == {**shown, "uptime_ms": 0}
    lines = scheduler("logs", "--data-dir", data_dir, "-n", "3").stdout.splitlines()
    assert len(lines) == 3

    again = scheduler("start", "--data-dir", data_dir)
    assert again.returncode == 1
    assert shown["bootstrap_servers"] in again.stderr

    restarted = json.loads(scheduler("restart", "--data-dir", data_dir, "--json").stdout)
    assert restarted["bootstrap_servers"] == shown["bootstrap_servers"]
    assert restarted["pids"] != shown["pids"]

    assert json.loads(scheduler("stop", "--data-dir", data_dir, "--json").stdout)["stopped"] is True
    assert gone(restarted["pids"][0])
    after = scheduler("status", "--data-dir", data_dir, "--json")
    assert after.returncode == 3
    assert json.loads(after.stdout)["running"] is False
    assert scheduler("stop", "--data-dir", data_dir).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_in_the_foreground_it_stops_with_the_command(data_dir: str, number: signal.Signals) -> None:
    """`--foreground` stays until it is told to stop, and stops the broker then."""
    command = [*SCHEDULER, "broker", "start", "--foreground", "--json", "--data-dir", data_dir]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        shown = json.loads(program.stdout.readline())
        program.send_signal(number)
        _, said = program.communicate(timeout=60)
    assert program.returncode == 0, said
    assert gone(shown["pids"][0])


def test_in_the_foreground_a_node_that_dies_is_an_error(data_dir: str) -> None:
    """A broker that ends by itself ends the command with its last words and exit code 3."""
    command = [*SCHEDULER, "broker", "start", "--foreground", "--json", "--data-dir", data_dir]

    def logs() -> list[Path]:
        return list(Path(data_dir).rglob("server.log"))

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        broker = psutil.Process(json.loads(program.stdout.readline())["pids"][0])
        # It answers before it has written so.
        wait_until(lambda: any("Kafka Server started" in log.read_text() for log in logs()), "its log says started")
        broker.kill()
        _, said = program.communicate(timeout=60)
    assert program.returncode == 3
    assert "ended by itself" in said
    assert "Kafka Server started" in said
