"""Brokers for tests: the embedded one, or the one whose address the environment gives."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

import pytest

from scheduler.local import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator

ADDRESS = "SCHEDULER_KAFKA__BOOTSTRAP_SERVERS"


class BrokerUnderTest(Protocol):
    """What a test may do to its broker."""

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def pids(self) -> list[int]: ...

    def kill(self, node: int = 0) -> None: ...

    def restart(self, node: int = 0) -> None: ...

    def log_tail(self, count: int = 40) -> str: ...


class GivenBroker:
    """A broker somebody else runs. Tests that need to kill it skip."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    @property
    def pids(self) -> list[int]:
        pytest.skip(f"the broker at {self.bootstrap_servers} ({ADDRESS}) is not ours to freeze")

    def kill(self, node: int = 0) -> None:
        pytest.skip(f"the broker at {self.bootstrap_servers} ({ADDRESS}) is not ours to kill")

    def restart(self, node: int = 0) -> None:
        pytest.skip(f"the broker at {self.bootstrap_servers} ({ADDRESS}) is not ours to restart")

    def log_tail(self, count: int = 40) -> str:
        return f"(the log of {self.bootstrap_servers} is where it runs)"


def given_or_embedded() -> Iterator[BrokerUnderTest]:
    """Yield the broker whose address the environment gives, else a fresh embedded node that ends afterwards."""
    address = os.environ.get(ADDRESS)
    if address:
        yield GivenBroker(address)
    else:
        with Broker.start() as broker:
            yield broker
