"""Transactional clients that failed, kept until they are at rest.

A client that was fenced and is destroyed at once now and then corrupts the memory of its process (librdkafka 2.16.0:
two of two runs with some hundred fences each ended in a crash, none of those that waited for three seconds): its own
threads are still dealing with what failed. Being fenced is usual here, for every shard that moves or stops.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

REST_S = 10.0


class Retired:
    """Holds on to clients for `REST_S`, or until the process ends; those at rest go when the next one comes."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._clients: deque[tuple[float, object]] = deque()

    def keep(self, client: object) -> None:
        """This one has failed and is of no further use."""
        now = self._monotonic()
        with self._lock:
            self._clients.append((now + REST_S, client))
            rested = []
            while self._clients[0][0] <= now:
                rested.append(self._clients.popleft())
        del rested  # destroying them may take a while: not under the lock

    def __len__(self) -> int:
        return len(self._clients)


RETIRED = Retired()  # of this process
