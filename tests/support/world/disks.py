"""The stores of a node: what a process leaves there, another one finds; a loss of power forgets the last batches."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Self

from scheduler.errors import StoreUnusable
from scheduler.runtime.stores import STORE_LIFE_MS, whole_at
from scheduler.shard.rebuild import Identity, sign
from scheduler.state.rocks import StoreHeld
from scheduler.state.store import Batch, MemoryStore
from tests.support.world.fibers import MILLISECOND, Killed, Process, World

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

UNSYNCED = 50  # the newest batches, which a loss of power may forget
HELD_US = 1_000 * MILLISECOND
LOOK_US = 20 * MILLISECOND
SLOW = 0.01  # of writes
SWITCHES = 0.03  # how often somebody else gets in between when a store is read


class Directory:
    """One store's files. One handle has it open at a time; it goes with its process."""

    def __init__(self) -> None:
        self.map = MemoryStore()
        self.handle: DiskStore | None = None
        self.undo: deque[dict[bytes, bytes | None]] = deque(maxlen=UNSYNCED)

    @property
    def is_held(self) -> bool:
        return self.handle is not None and self.handle.process.alive

    def lose(self, batches: int) -> None:
        """Forget the newest batches, all of them if there are that many."""
        for _ in range(min(batches, len(self.undo))):
            back = Batch()
            back.ops = self.undo.pop()
            self.map.write(back)


class Disk:
    """All stores of one node, by path, and the marks beside them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.refuses = False
        self.directories: dict[str, Directory] = {}
        self.marks: dict[str, list[Process]] = {}

    def open_store(
        self, process: Process, folder: Path, identity: Identity, now: int, stopped: Callable[[], bool], *, wipe: bool
    ) -> DiskStore:
        """As `runtime/stores.py`: a store that somebody holds is left alone, and a copy beside it used."""
        end = self.world.now + HELD_US
        copy = 0
        while True:
            name = f"{folder}.{copy}" if copy else str(folder)
            try:
                return self._open(process, name, identity, now, wipe=wipe)
            except StoreHeld:
                if stopped():
                    raise
                if self.world.now < end:
                    self.world.sleep(LOOK_US)
                else:
                    copy += 1

    def open_standby(self, process: Process, folder: Path, identity: Identity, now: int, *, wipe: bool) -> DiskStore:
        return self._open(process, str(folder), identity, now, wipe=wipe)

    def _open(self, process: Process, name: str, identity: Identity, now: int, *, wipe: bool) -> DiskStore:
        if self.refuses:
            raise StoreUnusable(f"{name} could not be opened: the disk refuses")
        directory = self.directories.setdefault(name, Directory())
        if directory.is_held:
            raise StoreHeld(f"{name} is open elsewhere")
        known = whole_at(directory.map)
        if wipe or (known is not None and now - known > STORE_LIFE_MS):
            directory = self.directories[name] = Directory()
        directory.handle = store = DiskStore(self, process, name)
        sign(store, identity)
        return store

    def refusal(self, folder: Path) -> str | None:
        return f"{folder} cannot be written" if self.refuses else None

    def lose_power(self) -> None:
        for directory in self.directories.values():
            directory.lose(int(self.world.random.random() * UNSYNCED))

    def wipe(self) -> None:
        self.directories.clear()


class DiskMark:
    """As `runtime/stores.py`: while it is held, this node has an owner of the shard, or one about to be."""

    def __init__(self, disk: Disk, process: Process, folder: Path) -> None:
        self._process = process
        self._holders = disk.marks.setdefault(str(folder), [])

    def __enter__(self) -> Self:
        self._holders.append(self._process)
        return self

    def __exit__(self, *_: object) -> None:
        self._holders.remove(self._process)

    def is_held(self) -> bool:
        return any(process.alive for process in self._holders)


class DiskStore(MemoryStore):
    """An open store. A write takes time, and reaches the disk whole or not at all."""

    def __init__(self, disk: Disk, process: Process, name: str) -> None:
        self.process = process
        self._disk, self._world, self._name = disk, disk.world, name
        self._directory = disk.directories[name]
        self._map = self._directory.map._map

    def get(self, key: bytes) -> bytes | None:
        if self._world.chance(SWITCHES):
            self._world.pause()
        return super().get(key)

    def write(self, batch: Batch) -> None:
        if self._disk.refuses:
            raise StoreUnusable(f"{self._name} could not be written: the disk refuses")
        self._wait()
        if not self.process.alive:
            raise Killed
        self._directory.undo.append({key: self._map.get(key) for key in batch.ops})
        super().write(batch)
        self._wait()

    def forget(self, start: bytes, end: bytes) -> None:
        self._directory.undo.append(dict(self.items(start, end)))
        super().forget(start, end)

    def close(self) -> None:
        if self._directory.handle is self:
            self._directory.handle = None

    def destroy(self) -> None:
        self.close()
        if self.process.alive and self._disk.directories.get(self._name) is self._directory:
            del self._disk.directories[self._name]

    def _wait(self) -> None:
        random = self._world.random.random
        if random() < SLOW:
            self._world.sleep(int(random() * 100 * MILLISECOND))
        elif random() < 0.2:
            self._world.sleep(int(random() * MILLISECOND))
