"""What a process of a node asks of the C library."""

from __future__ import annotations

import ctypes
import platform
from types import SimpleNamespace

import pytest

from scheduler.runtime.process import LARGE_BLOCK, return_memory


def test_large_blocks_are_mapped_on_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """M_MMAP_THRESHOLD is -3 in the GNU library's malloc.h; 1 is its yes."""
    asked: list[tuple[int, int]] = []

    def mallopt(option: int, value: int) -> int:
        asked.append((option, value))
        return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    assert return_memory()
    assert asked == [(-3, LARGE_BLOCK)]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_the_library_here_takes_it() -> None:
    """Where we run."""
    assert return_memory()


def test_another_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has no such switch, or says no."""
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    assert not return_memory()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=lambda *_: 0))
    assert not return_memory()
