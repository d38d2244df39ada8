"""The jars of the embedded broker: pinned by coordinates and by content, fetched once, kept in the user's cache.

`jars.lock` is what jgo resolved from `COORDINATES`, with the SHA-256 of every file. Starting a broker therefore walks
no POM and asks no version of anybody: what is in the cache is used, what is missing is fetched through jgo (its own
settings file names mirrors) and compared with the lock before it gets its final name. A file under its final name is
thus whole and right, and the second start needs no network.

After changing `COORDINATES`, write the lock again:

    python -m scheduler.local.jars > scheduler/local/jars.lock
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from scheduler.local.errors import BrokerUnavailable, not_installed

log = logging.getLogger(__name__)

KAFKA_VERSION = "4.3.1"
COORDINATES = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",  # the stock console producer and consumer
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",  # Kafka logs to slf4j 1.7; without a binding it logs nowhere
)


@dataclass(frozen=True, slots=True)
class Jar:
    """One file of the class path: where Maven keeps it and what it must contain."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The name in the cache; artifact names are unique in the lock (a test says so)."""
        return f"{self.artifact}-{self.version}.jar"


def locked() -> tuple[Jar, ...]:
    """Read the lock: every jar of the class path, in class path order."""
    text = resources.files(__package__).joinpath("jars.lock").read_text("utf-8")
    jars = []
    for line in text.splitlines():
        coordinate, sha256 = line.split()
        group, artifact, version = coordinate.split(":")
        jars.append(Jar(group, artifact, version, sha256))
    return tuple(jars)


def classpath(cache: Path) -> tuple[Path, ...]:
    """Return the class path as existing files under `cache`, fetching what is missing.

    Raises `BrokerUnavailable` if something is missing and can't be fetched, or is not what the lock says.
    """
    folder = cache / "jars"
    jars = locked()
    missing = [jar for jar in jars if not (folder / jar.file_name).exists()]
    if missing:
        _fetch(missing, folder)
    return tuple(folder / jar.file_name for jar in jars)


def _fetch(jars: list[Jar], folder: Path) -> None:
    log.info("fetching %d jars of Apache Kafka %s into %s, once", len(jars), KAFKA_VERSION, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # jgo writes straight to the final path, so an interrupted download would look complete: it gets a folder of its
        # own each time, and only verified files leave it. Two starts at once do the same work twice, harmlessly.
        with (
            tempfile.TemporaryDirectory(prefix="fetch-", dir=folder.parent) as scratch,
            ThreadPoolExecutor(8, thread_name_prefix="jars") as pool,
        ):
            context = _context(Path(scratch))
            for _ in pool.map(lambda jar: _fetch_one(context, jar, folder), jars):
                pass
    except OSError as error:  # includes what the HTTP client raises
        raise _no_jars(len(jars), folder, error) from error
    except RuntimeError as error:  # jgo: not found in any repository
        raise _no_jars(len(jars), folder, error) from error


def _fetch_one(context: Any, jar: Jar, folder: Path) -> None:
    path = context.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve()
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != jar.sha256:
        raise BrokerUnavailable(
            f"{jar.file_name} is not the file this version was built with.",
            why=f"its SHA-256 is {found}, the lock says {jar.sha256}; a proxy or mirror may have changed it",
            then="look at the repositories in jgo's settings file, then start again",
        )
    path.replace(folder / jar.file_name)


def _no_jars(count: int, folder: Path, error: Exception) -> BrokerUnavailable:
    return BrokerUnavailable(
        f"{count} of the jars of Apache Kafka {KAFKA_VERSION} are not in {folder} and could not be fetched.",
        why=f"{type(error).__name__}: {error}",
        then="run `scheduler broker start` once with a network (jgo's settings file names a mirror), copy that folder"
        " from a machine that has it, or give a broker's address in SCHEDULER_KAFKA__BOOTSTRAP_SERVERS",
    )


def _context(repo_cache: Path) -> Any:
    try:
        from jgo.config import GlobalSettings
        from jgo.constants import MAVEN_CENTRAL_URL
        from jgo.maven import MavenContext
    except ImportError as error:
        raise not_installed(error) from error
    mirrors = GlobalSettings.load().repositories
    return MavenContext(repo_cache=repo_cache, remote_repos={**mirrors, "central": MAVEN_CENTRAL_URL})


def resolve() -> tuple[Jar, ...]:
    """Let jgo resolve `COORDINATES` with everything they need at run time; the contents of a new lock."""
    with tempfile.TemporaryDirectory() as scratch:
        context = _context(Path(scratch))
        wanted = [context.create_dependency(_parsed(coordinate)) for coordinate in COORDINATES]
        inputs, transitive = context.resolver.resolve(wanted)
        needed = [*inputs, *(one for one in transitive if one.scope in ("compile", "runtime"))]
        return tuple(
            Jar(
                one.groupId,
                one.artifactId,
                one.version,
                hashlib.sha256(one.artifact.resolve().read_bytes()).hexdigest(),
            )
            for one in needed
        )


def _parsed(coordinate: str) -> Any:
    from jgo.parse import Coordinate

    # raw: what one coordinate's parent POM says of versions must not reach into the others (log4j's names a Kafka 3)
    return replace(Coordinate.parse(coordinate), scope="compile", raw=True)


def cache_dir() -> Path:
    """Where fetched and derived files are kept: `XDG_CACHE_HOME`, else `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kafka-streaming-scheduler"


if __name__ == "__main__":
    for jar in resolve():
        sys.stdout.write(f"{jar.group}:{jar.artifact}:{jar.version} {jar.sha256}\n")
