"""A real node under test: `scheduler run` as a supervisor, or its processes one by one, with signals as verbs.

Every wait is for a condition with a deadline. What a node starts ends with it, frozen processes too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

from topics.admin import apply, connect, plan
from topics.catalog import Catalogue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PATIENCE_S = 60.0
LOOK_S = 0.05
ROOT = Path(__file__).parents[2]


def wait_until(condition: Callable[[], Any], what: str | Callable[[], str], seconds: float = PATIENCE_S) -> Any:
    """The first true value of `condition`. Fails with `what` when it does not come in time."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:.0f} s: {what() if callable(what) else what}")
        time.sleep(LOOK_S)


@dataclass
class Cluster:
    """The topics of one scheduler on a broker, and where its nodes keep their data."""

    bootstrap_servers: str
    namespace: str
    shards: int
    folder: Path
    lanes: tuple[str, ...] = ("default",)
    replication_factor: int = 1
    min_isr: int = 1
    nodes: list[Node] = field(default_factory=list)

    @property
    def catalogue(self) -> Catalogue:
        return Catalogue(
            namespace=self.namespace,
            shards=self.shards,
            lanes=self.lanes,
            replication_factor=self.replication_factor,
            min_isr=self.min_isr,
        )

    @property
    def kafka(self) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap_servers}

    def make_topics(self) -> Self:
        apply(connect(self.kafka), plan(self.catalogue.specs(), {}))
        return self

    def node(self, node_id: str = "n1", processes: int = 1, *, supervised: bool = False, **settings: Any) -> Node:
        """A node, not started; stopped with the cluster."""
        node = Node(self, node_id, processes, supervised=supervised, settings=settings)
        self.nodes.append(node)
        return node

    def close(self) -> None:
        """End what still runs, however it is."""
        for node in self.nodes:
            node.kill()


class Node:
    """Processes that share a node id. `supervised`: under the product's own supervisor, which restarts them."""

    def __init__(
        self, cluster: Cluster, node_id: str, processes: int, *, supervised: bool, settings: dict[str, Any]
    ) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.processes = processes
        self.supervised = supervised
        self.data = Path(settings.pop("data_dir", cluster.folder / "data"))
        self.root = Path(settings.pop("root", ROOT))  # whose code it runs
        self.log = cluster.folder / f"{node_id}.log"
        self.config = cluster.folder / f"{node_id}.toml"
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        values = {
            "namespace": cluster.namespace,
            "shards": cluster.shards,
            "lanes": list(cluster.lanes),
            "node_id": node_id,
            "data_dir": str(self.data),
            "processes": processes,
            "session_timeout_ms": 2_500,
            "heartbeat_interval_ms": 400,
            **settings,
        }
        lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
        lines += [
            "[kafka]",
            f'bootstrap_servers = "{cluster.bootstrap_servers}"',
            f"replication_factor = {cluster.replication_factor}",
            f"min_insync_replicas = {cluster.min_isr}",
        ]
        self.config.write_text("\n".join(lines) + "\n")

    # --- verbs

    def start(
        self,
        *more: int,
        crash: tuple[str, int] | None = None,
        by: str = "SIGKILL",
        lies: Path | None = None,
        program: str | None = None,
        env: dict[str, str] | None = None,
    ) -> Self:
        """Start all processes, or those given by index; with `crash`, such that they fail `by` a signal at a point.

        See `tests/crash/child.py` for the points. With `lies`, such that their clocks lie as that file says.
        `program` is another module to run than `scheduler`.
        """
        program = program or ("tests.crash.bugs" if "TEST_BUG" in os.environ else "scheduler")
        base = [sys.executable, "-m", program]
        if crash is not None:
            base = [sys.executable, "-m", "tests.crash.child", crash[0], str(crash[1]), by]
        if lies is not None:
            base = [sys.executable, "-m", "tests.crash.wrong_clock", str(lies)]
        base += ["--config", str(self.config), "run"]
        with self.log.open("ab") as log:
            for index in more or range(1 if self.supervised else self.processes):
                command = base if self.supervised else [*base, "--child", str(index)]
                self._running[index] = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.root,
                    env={**os.environ, **(env or {})},
                    start_new_session=True,
                )
        return self

    def signal(self, number: int, index: int = 0) -> None:
        os.kill(self.pid(index), number)

    def sigkill(self, index: int = 0) -> None:
        """One process dies at once."""
        self.signal(signal.SIGKILL, index)
        if not self.supervised:
            self._running[index].wait(PATIENCE_S)

    def is_frozen(self, index: int = 0) -> bool:
        return bool(psutil.Process(self.pid(index)).status() == psutil.STATUS_STOPPED)

    def freeze(self, index: int = 0) -> None:
        self.signal(signal.SIGSTOP, index)

    def thaw(self, index: int = 0) -> None:
        self.signal(signal.SIGCONT, index)

    def leave(self, index: int = 0) -> int:
        """A planned stop of one process; returns its exit code."""
        process = self._running.pop(index)
        process.terminate()
        return process.wait(PATIENCE_S)

    def runs(self, index: int = 0) -> bool:
        """Whether a process was started and has not ended."""
        return index in self._running and self._running[index].poll() is None

    def stop(self) -> list[int]:
        """A planned stop of everything; returns the exit codes."""
        for process in self._running.values():
            if process.poll() is None:
                process.terminate()
        codes = [process.wait(PATIENCE_S) for process in self._running.values()]
        self._running.clear()
        return codes

    def kill(self) -> None:
        """SIGKILL whatever of the node is left."""
        for process in self._running.values():
            for one in _family(process.pid):
                try:
                    one.kill()
                except psutil.NoSuchProcess:
                    continue
            process.wait(PATIENCE_S)
        self._running.clear()

    def await_death(self, index: int = 0) -> int:
        """The exit code of a process that is expected to end by itself."""
        code = wait_until(lambda: self._ended(index), lambda: f"a process to die; {self.words()}")
        del self._running[index]
        return int(code[0])

    def _ended(self, index: int) -> tuple[int] | None:
        code = self._running[index].poll()
        return None if code is None else (code,)

    # --- looks

    def pid(self, index: int = 0) -> int:
        """The process id of one process; under a supervisor it changes with every restart."""
        if not self.supervised:
            return self._running[index].pid
        started = [e for e in self.events("process_started") if e["process"] == f"{self.node_id}-{index}"]
        return int(started[-1]["pid"])

    def pids(self) -> set[int]:
        """Everything that runs, the supervisor included."""
        return {one.pid for process in self._running.values() for one in _family(process.pid)}

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """Log events so far, oldest first."""
        return [event for event in self._events() if name in (None, event["event"])]

    def _events(self) -> Iterator[dict[str, Any]]:
        if not self.log.exists():
            return
        for line in self.log.read_text(errors="replace").splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and "event" in event:
                yield event

    def words(self, count: int = 25) -> str:
        """The end of the log, for a failure's text."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join([f"the log of {self.node_id} ends:", *lines[-count:]])

    def state(self, index: int = 0) -> dict[str, Any] | None:
        """What `/ready` of a process says; None if it does not answer. `status` is the HTTP status."""
        pid = self._running[index].pid if not self.supervised and index in self._running else None
        started = [
            e
            for e in self.events("process_started")
            if e["process"] == f"{self.node_id}-{index}" and pid in (None, e["pid"])
        ]
        if not started:
            return None
        try:
            with urllib.request.urlopen(started[-1]["health"] + "/ready", timeout=2) as answer:
                return {**json.loads(answer.read()), "status": answer.status}
        except urllib.error.HTTPError as error:
            with error:
                return {**json.loads(error.read()), "status": error.code}
        except OSError:
            return None

    def metrics(self, index: int = 0) -> str:
        started = [e for e in self.events("process_started") if e["process"] == f"{self.node_id}-{index}"]
        with urllib.request.urlopen(started[-1]["health"] + "/metrics", timeout=5) as answer:
            return str(answer.read().decode())


def _family(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [p for p in (process, *process.children(recursive=True)) if p.status() != psutil.STATUS_ZOMBIE]
    except psutil.NoSuchProcess:
        return []


def owners(nodes: Sequence[Node]) -> dict[int, list[str]]:
    """Shard -> the processes that say they serve it."""
    found: dict[int, list[str]] = {}
    for node in nodes:
        for index in range(node.processes):
            for shard, what in ((node.state(index) or {}).get("shards") or {}).items():
                if what["phase"] == "ready":
                    found.setdefault(int(shard), []).append(f"{node.node_id}-{index}")
    return found


def await_ready(*nodes: Node, seconds: float = PATIENCE_S) -> dict[int, str]:
    """Wait until every shard of the cluster is served by exactly one of the nodes' processes; shard -> process."""
    shards = nodes[0].cluster.shards

    def served() -> dict[int, list[str]] | None:
        found = owners(nodes)
        whole = len(found) == shards and all(len(names) == 1 for names in found.values())
        states = [node.state(index) for node in nodes for index in range(node.processes)]
        return found if whole and all(state and state["status"] == 200 for state in states) else None

    def what() -> str:
        states = [node.state(index) for node in nodes for index in range(node.processes)]
        return f"one owner for each of {shards} shards: {states}\n" + "\n".join(node.words() for node in nodes)

    found = wait_until(served, what, seconds)
    return {shard: names[0] for shard, names in sorted(found.items())}
