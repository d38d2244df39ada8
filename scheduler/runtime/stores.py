"""The stores of a node on its disk: which directory a shard's store is in, and whether it may be used.

All processes of a node share one directory per shard, so that a shard that moves between them finds its store warm. A
store is only a copy of the changelogs: if another process still holds it (one that hangs or is frozen), a second copy
beside it is used at once, since a shard must never wait for its former owner.
"""

from __future__ import annotations

import logging
import shutil
import time
from typing import TYPE_CHECKING

from scheduler import wire
from scheduler.runtime.telemetry import event
from scheduler.shard import keys
from scheduler.shard.rebuild import Identity, claim
from scheduler.state.rocks import RocksStore, StoreHeld
from topics.catalog import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STORE_LIFE_MS = DAY_MS // 2  # half of the tombstones' retention: an older store may have missed one
HELD_S = 1.0  # a planned hand-over closes the store in less
COPIES = 64  # as many processes as a node may have
LOOK_S = 0.02


def open_store(folder: Path, identity: Identity, now: int, stopped: Callable[[], bool]) -> RocksStore:
    """The shard's store, as it was left if it is ours and young enough, else empty; `folder` is its first directory.

    Raises StateCorrupted when the disk refuses, or when the store is another cluster's, namespace's or shard count's.
    """
    end = time.monotonic() + HELD_S
    copy = 0
    while True:
        path = folder if copy == 0 else folder.with_name(f"{folder.name}.{copy}")
        try:
            return _open(path, identity, now)
        except StoreHeld as fault:
            if copy == COPIES or stopped():
                raise
            if time.monotonic() < end:
                time.sleep(LOOK_S)
                continue
            event("store_held", logging.WARNING, shard=identity.shard, text=str(fault))
            copy += 1


def _open(path: Path, identity: Identity, now: int) -> RocksStore:
    store = RocksStore(path)
    try:
        claim(store, identity)
        stored = store.get(keys.RECORD)
        old = stored is not None and now - wire.record_from_bytes(stored).seen_until > STORE_LIFE_MS
    except BaseException:
        store.close()
        raise
    if not old:
        return store
    event("store_too_old", logging.WARNING, shard=identity.shard)
    store.close()
    shutil.rmtree(path)
    store = RocksStore(path)
    claim(store, identity)
    return store
