"""The class archive is a convenience: it is made once, and nothing fails without it."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from scheduler.local import BrokerUnavailable
from scheduler.local.archive import with_archive
from scheduler.local.java import Java
from scheduler.local.node import Runtime


def runtime(folder: Path, major: int = 25) -> Runtime:
    for name in ("java", "a.jar"):
        (folder / name).touch()
    return Runtime(Java(folder / "java", major), (folder / "a.jar",))


def write_archive(training: Runtime, folder: Path) -> None:
    option = next(option for option in training.options if option.startswith("-XX:AOTCacheOutput="))
    Path(option.partition("=")[2]).write_bytes(b"classes")


def refuse(training: Runtime, folder: Path) -> None:
    pytest.fail("trained again")


def test_the_archive_is_made_once_and_used_from_then_on(tmp_path: Path) -> None:
    """The second start finds the first one's archive."""
    plain = runtime(tmp_path)
    first = with_archive(plain, tmp_path, write_archive)
    again = with_archive(plain, tmp_path, refuse)
    assert first.archive is not None
    assert first.archive.read_bytes() == b"classes"
    assert again == first
    assert f"-XX:AOTCache={first.archive}" in again.command("Main", tmp_path / "log")


def test_another_class_path_gets_another_archive(tmp_path: Path) -> None:
    """An archive fits one Java and one set of jars; after an upgrade a new one is made."""
    plain = runtime(tmp_path)
    first = with_archive(plain, tmp_path, write_archive)
    (tmp_path / "a.jar").write_bytes(b"newer")
    assert with_archive(plain, tmp_path, write_archive).archive != first.archive


def test_an_older_java_goes_without(tmp_path: Path) -> None:
    """Java 17 to 24 start the broker as well, only slower."""
    old = runtime(tmp_path, major=17)
    assert with_archive(old, tmp_path, refuse) == old


def test_a_failed_training_is_a_slower_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What goes wrong while training is logged, and the broker starts without an archive."""

    def fail(training: Runtime, folder: Path) -> None:
        raise BrokerUnavailable("no", why="because", then="nothing")

    plain = runtime(tmp_path)
    assert with_archive(plain, tmp_path, fail) == plain
    assert "starts take longer" in caplog.text


def test_a_training_that_wrote_nothing_is_a_slower_start(tmp_path: Path) -> None:
    """A Java that ended without an archive is no reason to fail."""
    plain = runtime(tmp_path)
    assert with_archive(plain, tmp_path, lambda *_: None) == plain


def test_two_at_once_train_once(tmp_path: Path) -> None:
    """While somebody else makes the archive, a start goes on without one instead of waiting."""
    plain = runtime(tmp_path)
    with (tmp_path / "classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert with_archive(plain, tmp_path, refuse) == plain
