"""Free ports on the loopback address.

They are chosen below the range the kernel gives to outgoing connections. A client that keeps reconnecting to a dead
broker's port can, from within that range, be connected to itself; the broker then never gets its port back.
"""

from __future__ import annotations

import secrets
import socket
from typing import TYPE_CHECKING

from scheduler.local.settings import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator

CHOICE = range(20_000, 32_000)


def free_ports(count: int) -> Iterator[int]:
    """Yield `count` different ports that nobody uses now."""
    seen: set[int] = set()
    while len(seen) < count:
        port = CHOICE.start + secrets.randbelow(len(CHOICE))
        if port not in seen and is_free(port):
            seen.add(port)
            yield port


def free_ports_from(first: int, count: int) -> list[int] | None:
    """Return the `count` ports from `first` on if all of them are free, else `None`."""
    ports = list(range(first, first + count))
    return ports if all(map(is_free, ports)) else None


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
