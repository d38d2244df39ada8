"""The stores of a node on its disk: which directory a shard's store is in, who may use it, and whether it is any good.

All processes of a node share one directory per shard, so that a shard that moves between them finds its store warm; and
what a standby keeps up to date (`standby.py`) is the very store that an owner on this node opens. RocksDB lets one
process have it at a time. Who is the owner of a shard, or about to be, says so beside the store (`Mark`), and a standby
that sees the mark lets go at once. A mark is a lock, so it goes with its process, however that ends.

A store is only a copy of the changelogs: if another process still holds it (one that hangs or is frozen), a second copy
beside it is used, since a shard must never wait for its former owner.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from scheduler import wire
from scheduler.errors import StoreDamaged
from scheduler.runtime.telemetry import event
from scheduler.shard import keys
from scheduler.shard.rebuild import Identity, sign
from scheduler.state.rocks import RocksStore, StoreHeld, erase
from scheduler.state.store import Batch
from topics.catalog import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from scheduler.state.store import Store

STORE_LIFE_MS = DAY_MS // 2  # half of the tombstones' retention: an older store may have missed one
HELD_S = 1.0  # a planned hand-over closes the store in less
COPIES = 64  # as many processes as a node may have
LOOK_S = 0.02
PROBE_BYTES = 256 * 1024
STANDBY_BUFFER = 4 * 1024 * 1024  # bytes: what an owner that opens the store after us has to replay at most
_WHOLE = keys.meta("whole")


class Mark:
    """While it is held, this node has an owner of the shard, or one about to be. `folder` is the store's.

    Several may hold it at once, since a former owner may be frozen. It is a courtesy: without it, on a disk that
    refuses, a standby of the same node is found out by the store's own lock, and a second copy is used.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder.with_name(f"{folder.name}.owner")
        self._file: int | None = None

    def __enter__(self) -> Self:
        end = time.monotonic() + HELD_S
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            while not _lock(self._file, fcntl.LOCK_SH) and time.monotonic() < end:
                time.sleep(LOOK_S)  # a standby looks at it just now
        except OSError as fault:
            event("store_not_marked", logging.WARNING, path=str(self._path), text=str(fault))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def is_held(self) -> bool:
        """Whether anybody holds it now; to be asked of a mark of one's own."""
        try:
            file = os.open(self._path, os.O_RDWR)
        except OSError:
            return False
        try:
            return not _lock(file, fcntl.LOCK_EX)
        finally:
            os.close(file)


def _lock(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def refusal(folder: Path) -> str | None:
    """Why stores can't be kept in this folder: nothing can be written there, and what to do. None if it can."""
    probe = folder / f".probe-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(bytes(PROBE_BYTES))
    except OSError as fault:
        return f"stores can't be kept in {folder}: {fault}. Free disk space or mend its permissions"
    finally:
        with suppress(OSError):
            probe.unlink()
    return None


def open_store(
    folder: Path, identity: Identity, now: int, stopped: Callable[[], bool], *, wipe: bool = False
) -> RocksStore:
    """The shard's store, as it was left if it is ours and young enough, else empty; `folder` is its first directory.

    Raises StoreUnusable when the disk refuses, or when the store is another cluster's, namespace's or shard count's.
    """
    end = time.monotonic() + HELD_S
    copy = 0
    while True:
        path = folder if copy == 0 else folder.with_name(f"{folder.name}.{copy}")
        try:
            return _open(path, identity, now, wipe=wipe)
        except StoreHeld as fault:
            if copy == COPIES or stopped():
                raise
            if time.monotonic() < end:
                time.sleep(LOOK_S)
                continue
            event("store_held", logging.WARNING, shard=identity.shard, text=str(fault))
            copy += 1


def open_standby(folder: Path, identity: Identity, now: int, *, wipe: bool = False) -> RocksStore:
    """The shard's store for whoever keeps it warm; empty when `wipe` says so. Raises StateCorrupted, StoreHeld at once
    if somebody has it.
    """
    return _open(folder, identity, now, wipe=wipe, write_buffer=STANDBY_BUFFER)


def note_whole(store: Store, now: int) -> None:
    """All changelogs were followed to their ends at this instant, whether they had moved or not."""
    batch = Batch()
    batch.put(_WHOLE, b"%d" % now)
    store.write(batch)


def whole_at(store: Store) -> int | None:
    """The last instant at which the store is known to have held everything; None for a new one."""
    stored, noted = store.get(keys.RECORD), store.get(_WHOLE)
    known = [] if stored is None else [wire.record_from_bytes(stored).seen_until]
    return max(known + ([] if noted is None else [int(noted)]), default=None)


def _open(path: Path, identity: Identity, now: int, *, wipe: bool = False, write_buffer: int = 0) -> RocksStore:
    old = False
    try:
        store = RocksStore(path, write_buffer)
        try:
            sign(store, identity)
            known = whole_at(store)
            old = known is not None and now - known > STORE_LIFE_MS
        except BaseException:
            store.close()
            raise
    except StoreDamaged as fault:
        event("store_damaged", logging.ERROR, shard=identity.shard, text=str(fault))
        erase(path)
    else:
        if not old and not wipe:
            return store
        event("store_too_old" if old else "store_wiped", logging.WARNING, shard=identity.shard)
        store.destroy()
    store = RocksStore(path, write_buffer)
    sign(store, identity)
    return store
