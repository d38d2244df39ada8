"""One node of an embedded cluster: a Java process, its folder, and its end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scheduler.local.errors import BrokerUnavailable, not_installed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from scheduler.local.java import Java

SERVER = "kafka.Kafka"
LAST_THREADS_S = 5.0  # a process counts as a zombie from its first thread's end; it can be reaped after its last
FORMATTER = "kafka.tools.StorageTool"


@dataclass(frozen=True, slots=True)
class Runtime:
    """How to start a Java program on the broker's class path."""

    java: Java
    classpath: tuple[Path, ...]
    heap_mb: int = 512
    archive: Path | None = None
    options: tuple[str, ...] = ()

    def command(self, main: str, log_config: Path, *arguments: str) -> list[str]:
        """The command line of `main`."""
        quiet = (
            ()
            if self.java.major < 23
            else ("--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED")
        )
        archive = () if self.archive is None else (f"-XX:AOTCache={self.archive}",)
        return [
            str(self.java.path),
            f"-Xmx{self.heap_mb}m",
            "-XX:+UseSerialGC",
            # The quick compiler alone: a broker this small lives shorter than the thorough one takes to pay off
            # (measured, four times 200,000 transactional records on two cores: half the CPU, as fast or faster).
            "-XX:TieredStopAtLevel=1",
            "-XX:+ExitOnOutOfMemoryError",
            "-Xlog:disable",
            "-Xlog:all=error:stderr",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={log_config}",
            *quiet,
            *archive,
            *self.options,
            "-cp",
            os.pathsep.join(map(str, self.classpath)),
            main,
            *arguments,
        ]


@dataclass
class Node:
    """The process of one node. `pid` is the last one started, by whomever; `folder` holds all its files."""

    folder: Path
    pid: int | None = None
    exit_code: int | None = field(default=None, init=False)
    _spawned: int | None = field(default=None, init=False)  # the id of a child of ours, until it has ended

    @property
    def properties(self) -> Path:
        return self.folder / "server.properties"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def console(self) -> Path:
        return self.folder / "console.log"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log_config(self) -> Path:
        return self.folder / "log4j2.properties"

    @property
    def crashed(self) -> bool:
        """Whether the last run did not end by itself: Kafka leaves a mark when it does, and removes it at a start."""
        ran = any(self.data.glob("__cluster_metadata-0/*.log"))
        return ran and not (self.data / ".kafka_cleanshutdown").exists()

    @property
    def formatted(self) -> bool:
        return (self.data / "meta.properties").exists()

    def format(self, runtime: Runtime, cluster_id: str, *how: str) -> None:
        """Make the data directory that of a new cluster. Raises `BrokerUnavailable` with the tool's own words."""
        # The formatter logs elsewhere: two programs must not roll one file.
        command = runtime.command(
            FORMATTER, self.log_config, "format", "--cluster-id", cluster_id, "--config", str(self.properties), *how
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise BrokerUnavailable(
                f"The data directory {self.data} could not be formatted.",
                why=last_lines((done.stdout + done.stderr).splitlines(), 8),
                then="check free space and permissions there, then start again",
            )

    def spawn(self, runtime: Runtime, properties: Path | None = None, log_config: Path | None = None) -> None:
        """Start the server in a session of its own, so that a Ctrl-C meant for us does not reach it first.

        `properties` and `log_config` are those of an ordinary run unless given; `properties` must lie beside them.
        No `Popen`: the process may have to outlive us, and may be one that somebody else started.
        """
        command = runtime.command(SERVER, log_config or self.log_config, str(properties or self.properties))
        out = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        self.exit_code = None
        self.pid = self._spawned = os.posix_spawn(
            command[0],
            command,
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(self.console), out, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )

    def process(self) -> Any | None:
        """Return the running process (a `psutil.Process`) if there is one and it is this node's.

        A process id may have been given to somebody else since it was written down; this node's file on the command
        line is what tells. (Not asked of a child of ours: its id is safe until we have seen its end, and right after
        the start its command line is still empty.)
        """
        try:
            import psutil
        except ImportError as error:
            raise not_installed(error) from error
        if self.pid is None:
            return None
        try:
            process = psutil.Process(self.pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                self._spawned = None
                self.exit_code = process.wait(LAST_THREADS_S)
                return None
            ours = self.pid == self._spawned or any(a.startswith(str(self.properties)) for a in process.cmdline())
        except psutil.Error:
            return None
        return process if ours else None

    def end(self, patience_s: float) -> None:
        """Stop the process and wait for its end; it is killed after `patience_s`, at once if that is 0."""
        process = self.process()
        if process is None:
            return
        import psutil

        try:
            process.send_signal(signal.SIGTERM if patience_s else signal.SIGKILL)
            try:
                process.wait(patience_s or None)
            except psutil.TimeoutExpired:
                process.kill()
                process.wait()
        except psutil.NoSuchProcess:
            pass
        self._spawned = None

    def last_words(self, log: Path | None = None) -> str:
        """What the process said last, without the stack frames that hide it. `log`: that of another run than usual."""
        lines = [*_lines(log or self.log, 400), *_lines(self.console, 20)]
        return last_lines((line for line in lines if not line.startswith("\tat ")), 15)

    def log_tail(self, count: int) -> str:
        """The last `count` lines of the log, and what the process said on its console."""
        return last_lines([*_lines(self.log, count), *_lines(self.console, 20)], count)


def _lines(path: Path, count: int) -> list[str]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return [line.rstrip("\n") for line in deque(file, count)]
    except OSError:
        return []


def last_lines(lines: Iterable[str], count: int) -> str:
    """The last `count` of `lines` as one text."""
    return "\n".join(deque(lines, count)) or "(it said nothing)"
