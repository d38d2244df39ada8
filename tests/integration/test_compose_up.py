"""The compose stack itself, where a Docker engine answers."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scheduler.local.probe import registered_brokers
from tests.support.docker_broker import engine_silence

if TYPE_CHECKING:
    from collections.abc import Iterator

COMPOSE = ["docker", "compose", "--project-directory", str(Path(__file__).parents[2] / "compose")]


@pytest.fixture
def stack() -> Iterator[None]:
    """The stack, up and healthy; gone with its data afterwards."""
    silence = engine_silence()
    if silence:
        pytest.skip(f"no Docker engine answers: {silence}")
    mine = [*COMPOSE, "--project-name", "scheduler-test"]
    try:
        subprocess.run([*mine, "up", "--wait", "--wait-timeout", "180"], check=True, timeout=240)
        yield
    finally:
        subprocess.run([*mine, "down", "--volumes"], check=True, timeout=60)


def test_the_stack_comes_up_healthy(stack: None) -> None:
    """After `up --wait` the broker serves on the port that the how-to names."""
    assert registered_brokers(9092) == {1}
