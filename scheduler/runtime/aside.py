"""A node whose disk refuses leaves its shards to other nodes, and stays aside until it does not.

A shard's store is opened after its former owner was fenced. So whoever can't open it has silenced a shard that another
node could serve, and would go on doing so for as long as it is a member of the group.

    at the start                  nothing can be written where the stores belong: not a member yet
    while it serves               a shard's store has refused some times in a row: leaves the group
    aside                         keeps warm copies, if it can; tries the stores that refused; each time longer, so
                                  that a disk that is full again and again does not move shards again and again
    nobody else is in the group   a member, whatever the disk does: its shards try again, as those of a single node
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

from scheduler.errors import StateCorrupted, StoreUnusable
from scheduler.runtime.telemetry import event
from scheduler.state.rocks import StoreHeld

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.runtime.surroundings import Surroundings

LOOK_S = 5.0  # between questions to the group, and between looks at the disk
TURN_S = 0.2
REFUSALS = 4  # in a row: no matter of a moment
PAUSE_S = 10.0  # aside at least so long, twice that the next time
PAUSE_MAX_S = 600.0  # served so long: the next time is a first time again


class Aside:
    """When this process had better own no shards. `waiting` is told why, and says whether to stop waiting."""

    def __init__(self, around: Surroundings, waiting: Callable[[str], bool]) -> None:
        self._around = around
        self._waiting = waiting
        self._rest = around.outside.event()
        self._refused: list[int] = []
        self._pause = 0.0
        self._looked_at = self._joined_at = -math.inf

    @property
    def patience(self) -> int:
        """How often in a row a store may refuse before its shard had better be elsewhere; a second time, only once."""
        return 1 if self._is_back else REFUSALS

    @property
    def _is_back(self) -> bool:
        """Whether it was aside not long ago."""
        return self._pause > 0 and self._around.outside.monotonic() - self._joined_at < PAUSE_MAX_S

    def leaves(self, refused: list[int]) -> bool:
        """Whether to leave shards whose stores refuse to somebody who is there: looked at every few seconds."""
        now = self._around.outside.monotonic()
        if not refused or now - self._looked_at < LOOK_S:
            return False
        self._looked_at = now
        if not self._around.outside.has_company():
            return False
        self._refused = refused
        self._pause = min(PAUSE_MAX_S, self._pause * 2) if self._is_back else PAUSE_S
        return True

    def wait(self) -> None:
        """Return when the stores may be tried again, or when nobody else is there to serve."""
        outside = self._around.outside
        until = outside.monotonic() + self._pause if self._refused else -math.inf
        trouble: str | None = ""
        while not self._waiting(trouble or ""):
            told, trouble = bool(trouble), self._trouble()
            if trouble is None and outside.monotonic() < until:
                trouble = f"the disk refused a while ago; tried again after {self._pause:.0f} s"
            if trouble is None or not outside.has_company():
                break
            if not told:
                event("left_to_others", logging.ERROR, shards=self._refused, text=trouble)
            self._stay(trouble)
        self._waiting("")
        self._refused = []
        self._joined_at = outside.monotonic()

    def _stay(self, trouble: str) -> None:
        end = self._around.outside.monotonic() + LOOK_S
        while self._around.outside.monotonic() < end and not self._waiting(trouble):
            self._rest.wait(TURN_S)

    def _trouble(self) -> str | None:
        """Why stores can't be kept here; None if nothing is known against it."""
        around = self._around
        refusal = around.outside.refusal(around.stores)
        if refusal is not None:
            return refusal
        now = around.clock.now()
        if now is None:
            return None
        for shard in self._refused:
            try:
                around.outside.open_standby(around.store_path(shard), around.identity(shard), now).close()
            except StoreHeld:
                continue  # by a copy of ours: it could be opened
            except StoreUnusable as fault:
                return str(fault)
            except StateCorrupted:
                continue  # no matter of this node
        return None
