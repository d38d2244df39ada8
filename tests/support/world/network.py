"""Requests of one process to the brokers: they take time, and answers get lost; the client asks again.

A request whose answer was lost may have had its effect. A process that dies may leave a request behind that arrives
when it is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tests.support.world.fibers import MILLISECOND, Fiber, Process, Signal, World
from tests.support.world.group import OldGeneration, Rejoin, UnknownMember
from tests.support.world.transactions import Concurrent, NotOpen, OldEpoch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.world.brokers import Brokers

T = TypeVar("T")

BACK_OFF_US = 10 * MILLISECOND
ARRIVES = 0.5  # of the requests a dying process has sent
REFUSALS = (OldEpoch, NotOpen, UnknownMember, OldGeneration, Rejoin)


class Expired(Exception):
    """No answer in time: whether it had its effect is not known."""


class Link:
    """How one process reaches the brokers. `cut`: not at all."""

    def __init__(self, brokers: Brokers, process: Process) -> None:
        self.brokers = brokers
        self.process = process
        self.world: World = brokers.world
        self.cut = False
        self._changed = Signal(self.world)
        self._sent: dict[Fiber, Callable[[], object]] = {}  # on the way, not arrived
        brokers.reached.append(self._changed)

    @property
    def works(self) -> bool:
        return self.brokers.up and not self.cut

    def set_cut(self, *, cut: bool) -> None:
        self.cut = cut
        self._changed.send()

    def request(self, apply: Callable[[], T], until: int | None = None) -> T:
        """What the brokers answer; what they refuse with is raised. Raises Expired when `until` (world time) passes."""
        world = self.world
        while True:
            while not self.works:
                left = None if until is None else until - world.now
                if left is not None and left <= 0:
                    raise Expired
                self._changed.wait(left)
            self._travel_there(apply)
            if not self.works:
                continue
            refusal: Exception | None = None
            try:
                answer = apply()
            except Concurrent:
                world.sleep(self.brokers.travel_us() + BACK_OFF_US)
                if until is not None and world.now >= until:
                    raise Expired from None
                continue
            except REFUSALS as fault:
                refusal = fault
            world.sleep(self.brokers.travel_us())
            if not self.works or world.chance(self.brokers.lossy):
                world.note(self.process.name, "an answer is lost")
                world.sleep(BACK_OFF_US)
                continue
            if refusal is not None:
                raise refusal
            return answer

    def _travel_there(self, apply: Callable[[], object]) -> None:
        fiber = self.world.running()
        self._sent[fiber] = apply
        self.world.sleep(self.brokers.travel_us())
        self._sent.pop(fiber, None)

    def die(self) -> None:
        """The process is dead; some of what it has sent arrives all the same."""
        for apply in list(self._sent.values()):
            if self.works and self.world.chance(ARRIVES):
                self.world.call_in(self.brokers.travel_us(), lambda apply=apply: self._arrive(apply))
        self._sent.clear()
        self.brokers.reached.remove(self._changed)

    def _arrive(self, apply: Callable[[], object]) -> None:
        if not self.brokers.up:
            return
        try:
            apply()
        except (*REFUSALS, Concurrent):
            return
        self.world.note(self.process.name, "a request arrives from beyond the grave")
