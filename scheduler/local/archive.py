"""A picture of a started broker's classes, so that the next start takes a third of the time.

Java 25 and newer can write an ahead-of-time cache at the end of a run and map it at the next start *(measured on two
cores: format and start 5.9 s without, 1.4 s with)*. Writing takes some ten seconds, once per Java and per set of jars;
the result stays in the user's cache. It is a convenience: without one, everything works the same, only slower.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler.local.errors import BrokerUnavailable
from scheduler.local.java import WITH_ARCHIVE

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.local.node import Runtime

log = logging.getLogger(__name__)


def with_archive(runtime: Runtime, cache: Path, train: Callable[[Runtime, Path], None]) -> Runtime:
    """Return `runtime` with an archive, made by `train` if there is none yet; unchanged if there can be none.

    `train(runtime, folder)` must run a broker with that runtime and let it end by itself.
    """
    if runtime.java.major < WITH_ARCHIVE:
        return runtime
    path = cache / f"classes-{_identity(runtime)}.aot"
    if path.exists():
        return replace(runtime, archive=path)
    with suppress(OSError), (cache / "classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # somebody else is at it: go on without
        with tempfile.TemporaryDirectory(prefix="train-", dir=cache) as folder:
            log.info("preparing the broker's class archive, once: about ten seconds")
            fresh = Path(folder) / path.name
            try:
                train(
                    replace(runtime, options=(*runtime.options, f"-XX:AOTCacheOutput={fresh}")), Path(folder) / "node"
                )
                fresh.replace(path)
            except (BrokerUnavailable, OSError) as error:
                log.warning("no class archive, starts take longer: %s", error)
                return runtime
            return replace(runtime, archive=path)
    return runtime


def _identity(runtime: Runtime) -> str:
    # What Java itself compares before it uses an archive: the launcher and the files of the class path.
    seen = [runtime.java.path, *runtime.classpath]
    text = "\n".join(f"{path} {stat.st_size} {stat.st_mtime_ns}" for path in seen for stat in (path.stat(),))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
