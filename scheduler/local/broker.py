"""Start, stop, kill and restart an embedded cluster.

    with Broker.start() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

A cluster lives in a data directory: `broker.json` is its layout and who runs it, `node-N/` are the files of each node.
The directory belongs to one running cluster; a lock file makes two starts at once take turns, and the second then sees
the first. Whether a recorded process still runs is asked of the system each time, never remembered.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from scheduler.local import guard, jars, settings
from scheduler.local.archive import with_archive
from scheduler.local.errors import AlreadyRunning, BrokerUnavailable
from scheduler.local.java import find_java
from scheduler.local.node import Node, Runtime
from scheduler.local.ports import free_ports, is_free
from scheduler.local.probe import registered_brokers
from scheduler.local.recovery import fence_crashed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

log = logging.getLogger(__name__)

DEFAULT_HEAP_MB = 512
START_S = 60.0
STOP_S = 15.0
LOOK_EVERY_S = 0.02


class Broker:
    """One embedded cluster of one or three nodes on the loopback address.

    `start` and `attach` make one. A cluster that was not started `detached` ends with this process, however it ends.
    Methods that take a `node` want its place, from 0. Not for use by several threads at once.
    """

    def __init__(
        self,
        data_dir: Path,
        layout: settings.ClusterLayout,
        runtime: Runtime | None = None,
        *,
        temporary: bool = False,
    ) -> None:
        """Describe a cluster without starting anything; use `start` or `attach`."""
        self.data_dir = data_dir
        self.layout = layout
        self._runtime = runtime  # None until something is started
        self._temporary = temporary
        self._guard: subprocess.Popen[bytes] | None = None
        self._nodes = [Node(data_dir / node.name, node.pid) for node in layout.nodes]

    @classmethod
    def start(
        cls,
        data_dir: Path | None = None,
        *,
        nodes: int | None = None,
        ports: Sequence[int] | None = None,
        heap_mb: int = DEFAULT_HEAP_MB,
        detached: bool = False,
    ) -> Self:
        """Start a cluster and return when every node is registered and serves; a few seconds.

        `data_dir` is created if needed and continued if it holds a cluster, with its ports; `None` is a temporary one,
        removed at the end. `nodes` is 1 or 3 (default: as many as there are, else 1). `ports` are the client ports
        (default: the remembered ones, else free ones). `heap_mb` is the Java heap of each node. `detached` leaves the
        cluster running when this process ends.

        Raises `BrokerUnavailable` (`AlreadyRunning` if one runs there), and then nothing new is left running.
        """
        if nodes not in (None, 1, 3):
            raise ValueError(f"a cluster has 1 or 3 nodes, not {nodes}")
        runtime = _runtime(heap_mb)
        if data_dir is None:
            with _disk_errors(Path(tempfile.gettempdir())):
                folder = Path(tempfile.mkdtemp(prefix="kafka-"))
        else:
            folder = data_dir.expanduser().resolve()
        with _disk_errors(folder):
            return cls._start(folder, runtime, nodes, ports, temporary=data_dir is None, detached=detached)

    @classmethod
    def _start(
        cls,
        folder: Path,
        runtime: Runtime,
        count: int | None,
        ports: Sequence[int] | None,
        *,
        temporary: bool,
        detached: bool,
    ) -> Self:
        folder.mkdir(parents=True, exist_ok=True)
        with _taking_turns(folder):
            running = cls.attach(folder)
            if running is not None:
                raise AlreadyRunning(
                    f"A broker already runs in {folder}: {running.bootstrap_servers}.",
                    why=f"its process ids are {', '.join(map(str, running.pids))}",
                    then=f"use it, or `scheduler broker stop --data-dir {folder}`, or another --data-dir",
                )
            broker = cls(folder, _layout(folder, count, ports), runtime, temporary=temporary)
            try:
                broker._bring_up(runtime, detached=detached)
            except BaseException:
                broker._end(patience_s=0)
                raise
            return broker

    @classmethod
    def attach(cls, data_dir: Path) -> Self | None:
        """Return the running cluster of `data_dir`, whoever started it; `None` if none runs there."""
        folder = data_dir.expanduser().resolve()
        layout = recorded(folder)
        if layout is None:
            return None
        broker = cls(folder, layout)
        return broker if broker.pids else None

    @property
    def bootstrap_servers(self) -> str:
        """What clients connect to: `host:port`, comma separated."""
        return self.layout.bootstrap_servers

    @property
    def pids(self) -> list[int]:
        """The process ids of the nodes that run now."""
        return [process.pid for node in self._nodes if (process := node.process()) is not None]

    @property
    def logs(self) -> list[Path]:
        """The log file of each node."""
        return [node.log for node in self._nodes]

    @property
    def started_ms(self) -> int | None:
        """When the longest-running node started, in ms since the epoch; `None` if none runs."""
        times = [process.create_time() for node in self._nodes if (process := node.process()) is not None]
        return int(min(times) * 1000) if times else None

    def log_tail(self, count: int = 40) -> str:
        """The last `count` log lines of each node, with its name above them."""
        return "\n".join(f"--- {node.log}\n{node.log_tail(count)}" for node in self._nodes)

    def stop(self) -> None:
        """Stop all nodes and wait until they are gone; remove the directory if it is temporary.

        Nodes of a lasting directory get 15 s to close their files; those of a temporary one have nothing to keep and
        are killed at once. Stopping what is already stopped does nothing.
        """
        self._end(patience_s=0 if self._temporary else STOP_S)

    def kill(self, node: int = 0) -> None:
        """SIGKILL one node and wait until it is gone; its data and port stay."""
        self._nodes[node].end(0)
        self._tell_guard()

    def restart(self, node: int = 0) -> None:
        """Start one node again on the same data and port, stopping it first if it runs; wait until it serves.

        Raises `BrokerUnavailable` if it does not come back; the other nodes stay as they are.
        """
        runtime = self._runtime = self._runtime or _runtime(DEFAULT_HEAP_MB)
        one = self._nodes[node]
        one.end(STOP_S)
        fence_crashed(self.layout, self._nodes, [node], runtime, self._remember)
        one.spawn(runtime)
        self._remember()
        self._await_ready([node])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _bring_up(self, runtime: Runtime, *, detached: bool) -> None:
        _check_ports(self.layout)
        self._configure(runtime)
        if not detached:
            self._start_guard()
        fence_crashed(self.layout, self._nodes, range(len(self._nodes)), runtime, self._remember)
        for node in self._nodes:
            node.spawn(runtime)
            self._remember()
        self._await_ready(range(len(self._nodes)))

    def _configure(self, runtime: Runtime) -> None:
        for node, layout in zip(self._nodes, self.layout.nodes, strict=True):
            node.folder.mkdir(exist_ok=True)
            node.properties.write_text(settings.server_properties(self.layout, layout, node.data), "utf-8")
            node.log_config.write_text(settings.logging_properties(node.log), "utf-8")
            node.log.unlink(missing_ok=True)  # so that a failure shows this start's lines
        how = ["--standalone"]
        if len(self._nodes) > 1:
            how = ["--initial-controllers", settings.initial_controllers(self.layout)]
        fresh = [node for node in self._nodes if not node.formatted]
        with ThreadPoolExecutor(len(self._nodes), thread_name_prefix="format") as pool:
            for _ in pool.map(lambda node: node.format(runtime, self.layout.cluster_id, *how), fresh):
                pass

    def _await_ready(self, indexes: Sequence[int]) -> None:
        wanted = {self.layout.nodes[index].node_id for index in indexes}
        deadline = time.monotonic() + START_S
        waiting = list(indexes)
        while waiting:
            index = waiting[0]
            try:
                if wanted <= registered_brokers(self.layout.nodes[index].port):
                    waiting.pop(0)
                    continue
                why = "it waits to be admitted by the controller"
            except (OSError, ValueError) as error:
                why = str(error)
            node = self._nodes[index]
            if node.process() is None:
                raise self._failed(node, f"ended with exit code {node.exit_code} before it was ready")
            if time.monotonic() > deadline:
                raise self._failed(node, f"was not ready after {START_S:.0f} s ({why})")
            time.sleep(LOOK_EVERY_S)

    def _failed(self, node: Node, what: str) -> BrokerUnavailable:
        kept = "" if self._temporary else f"; all of it: {node.log}"
        return BrokerUnavailable(
            f"Kafka {node.folder.name} in {self.data_dir} {what}.",
            why=f"the last lines of its log say (free space there: {_free(self.data_dir)})\n{node.last_words()}",
            then=f"look for ERROR or Exception above{kept}; then start again",
        )

    def _remember(self) -> None:
        for index, node in enumerate(self._nodes):
            self.layout = self.layout.with_pid(index, node.pid)
        fresh = self.data_dir / "broker.json.new"
        fresh.write_text(self.layout.to_json(), "utf-8")
        fresh.replace(self.data_dir / "broker.json")
        self._tell_guard()

    def _start_guard(self) -> None:
        directory = str(self.data_dir) if self._temporary else "-"
        patience = "0" if self._temporary else str(STOP_S)
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), directory, patience],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def _tell_guard(self) -> None:
        if self._guard is None or self._guard.stdin is None:
            return
        self._guard.stdin.write((" ".join(map(str, self.pids)) + "\n").encode())
        self._guard.stdin.flush()

    def _end(self, *, patience_s: float) -> None:
        with ThreadPoolExecutor(len(self._nodes), thread_name_prefix="stop") as pool:
            for _ in pool.map(lambda node: node.end(patience_s), self._nodes):
                pass
        if self._guard is not None:
            # It removes the temporary directory and has nothing left to kill.
            self._tell_guard()
            self._guard.communicate()
            self._guard = None
        elif self._temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)


def _runtime(heap_mb: int) -> Runtime:
    cache = jars.cache_dir()
    runtime = Runtime(find_java(), jars.classpath(cache), heap_mb=heap_mb)
    return with_archive(runtime, cache, _train)


def _train(runtime: Runtime, folder: Path) -> None:
    """Run one broker from birth to its own end, for what the run leaves behind."""
    folder.mkdir()
    broker = Broker(folder, _layout(folder, 1, None))
    try:
        broker._configure(replace(runtime, options=()))  # noqa: SLF001 - it is the server's run that is recorded
        broker._bring_up(runtime, detached=False)  # noqa: SLF001 - as above
    finally:
        broker._end(patience_s=START_S)  # noqa: SLF001 - it writes the archive as it ends


def _layout(folder: Path, count: int | None, ports: Sequence[int] | None) -> settings.ClusterLayout:
    """The remembered layout of `folder`, or a new one; with `ports` as client ports if given."""
    if "," in str(folder):
        raise BrokerUnavailable(
            f"{folder} can't hold a broker's data.",
            why="Kafka reads a comma in a path as the beginning of another path",
            then="choose a --data-dir without a comma",
        )
    layout = recorded(folder)
    if layout is None:
        count = count or 1
        wanted = list(ports or ())
        free = free_ports(2 * count - len(wanted))
        clients = [*wanted, *(next(free) for _ in range(count - len(wanted)))]
        pairs = [(client, next(free)) for client in clients]
        return settings.new_layout(pairs, (secrets.token_bytes(16) for _ in range(count + 1)))
    if count not in (None, len(layout.nodes)):
        raise BrokerUnavailable(
            f"{folder} holds a cluster of {len(layout.nodes)} node(s), not {count}.",
            why="a cluster keeps the number of nodes it was made with",
            then=f"start it with --nodes {len(layout.nodes)}, or use another --data-dir",
        )
    return layout.with_ports(ports or ())


def recorded(folder: Path) -> settings.ClusterLayout | None:
    """The layout of the cluster whose data `folder` holds; `None` if it holds none."""
    path = folder / "broker.json"
    try:
        return settings.ClusterLayout.from_json(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise BrokerUnavailable(
            f"{path} can't be read.",
            why=str(error),
            then="use another --data-dir, or remove this one if its data may go",
        ) from error


def _check_ports(layout: settings.ClusterLayout) -> None:
    ports = [port for node in layout.nodes for port in (node.port, node.controller_port)]
    taken = [port for port in ports if not is_free(port)]
    if taken:
        raise BrokerUnavailable(
            f"Port {', '.join(map(str, taken))} on {settings.HOST} can't be used.",
            why="another program listens there, or this user may not",
            then="stop that program, or choose with --port (a remembered port is kept until another is given)",
        )


@contextmanager
def _taking_turns(folder: Path) -> Iterator[None]:
    with (folder / "broker.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise BrokerUnavailable(
            f"The data directory {folder} can't be written.",
            why=f"{error}; free space there: {_free(folder)}",
            then="free some space" if full else "choose a writable one with --data-dir (or TMPDIR for a temporary one)",
        ) from error


def _free(folder: Path) -> str:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        return f"{shutil.disk_usage(existing).free >> 20} MiB"
    except OSError as error:
        return f"unknown ({error})"


def default_data_dir() -> Path:
    """Where `scheduler broker start` keeps its data: `XDG_DATA_HOME`, else `~/.local/share`."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "kafka-streaming-scheduler" / "broker"
