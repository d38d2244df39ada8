"""Locks, conditions, events and threads with the interface of `threading`, for fibers of one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from tests.support.world.fibers import Fiber, Process, Signal, World, us

if TYPE_CHECKING:
    from collections.abc import Callable

SWITCHES = 0.2  # how often somebody else gets in between before a lock is taken


def _us(seconds: float | None) -> int | None:
    return None if seconds is None else us(seconds)


class Condition:
    """As `threading.Condition`, its own lock included."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._owner: Fiber | None = None
        self._free = Signal(world)
        self._notified = Signal(world)

    def __enter__(self) -> Self:
        if self._world.chance(SWITCHES):
            self._world.pause()
        self._acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def wait(self, timeout: float | None = None) -> bool:
        self._release()
        try:
            return self._notified.wait(_us(timeout))
        finally:
            if self._world.running().process.alive:
                self._acquire()

    def notify(self, n: int = 1) -> None:
        self._notified.send(n)

    def notify_all(self) -> None:
        self._notified.send()

    def _acquire(self) -> None:
        while self._owner is not None:
            self._free.wait()
        self._owner = self._world.running()

    def _release(self) -> None:
        self._owner = None
        self._free.send()


class Event:
    """As `threading.Event`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._set = False
        self._changed = Signal(world)

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._changed.send()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            self._changed.wait(_us(timeout))
        return self._set


class Thread:
    """As `threading.Thread`: a fiber that begins with `start`."""

    def __init__(self, world: World, process: Process, run: Callable[[], None], name: str) -> None:
        self._world, self._process, self._run, self._name = world, process, run, name
        self._fiber: Fiber | None = None

    def start(self) -> None:
        self._fiber = self._world.spawn(self._process, self._run, self._name)

    def join(self, timeout: float | None = None) -> None:
        if self._fiber is not None and not self._fiber.done:
            self._fiber.ended.wait(_us(timeout))

    def is_alive(self) -> bool:
        return self._fiber is not None and not self._fiber.done
