"""The store on disk: RocksDB through rocksdict, raw bytes."""

from __future__ import annotations

import shutil
from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rocksdict import BlockBasedOptions, DBCompressionType, Options, Rdict, ReadOptions, WriteBatch

from scheduler.errors import StateCorrupted, StoreDamaged, StoreUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from scheduler.state.store import Batch

MIB = 1024 * 1024
_WRITE_BUFFER = 16 * MIB  # two of them a shard; the memory of a process does not grow with its schedules
_BLOCK = 16 * 1024  # schedules resemble their neighbours: 63 bytes each on disk instead of 101 with 4 KiB
_BITS_A_KEY = 10  # most ids that are asked for by creates are not there: 0.5 us to find out instead of 1.9


class StoreHeld(StateCorrupted):
    """Another process has this store open: use another directory, a store is only a copy."""


def erase(directory: Path) -> None:
    """Delete a store that is closed, or cannot be opened. Raises StoreUnusable when the disk refuses."""
    try:
        shutil.rmtree(directory)
    except OSError as fault:
        raise _unusable(directory, "deleted", fault) from fault


def _unusable(directory: Path, done: str, fault: Exception) -> StoreUnusable:
    return StoreUnusable(
        f"the store {directory} could not be {done}: {fault}. Free disk space or mend its permissions and start again; "
        "or delete the directory: it is rebuilt from the topics"
    )


class RocksStore:
    """A `Store` in a directory of its own. Raises StoreUnusable with the next step when the disk refuses.

    `write_buffer`: bytes in memory, twice that at most, before they go to a file of their own; 0: the usual.
    """

    def __init__(self, directory: Path, write_buffer: int = 0) -> None:
        self._directory = directory
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_write_buffer_size(write_buffer or _WRITE_BUFFER)
        options.set_max_write_buffer_number(2)
        options.set_max_background_jobs(2)
        options.set_max_open_files(256)
        options.set_keep_log_file_num(2)
        blocks = BlockBasedOptions()
        blocks.set_block_size(_BLOCK)
        blocks.set_bloom_filter(_BITS_A_KEY, False)
        options.set_block_based_table_factory(blocks)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._db = Rdict(str(directory), options)
        except Exception as fault:  # rocksdict raises bare Exception
            raise self._refused("opened", fault) from fault

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._db.get(key)
        except Exception as fault:  # as above
            raise self._refused("read", fault) from fault
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if not keys:
            return []
        try:
            values: Any = self._db.get(list(keys))
        except Exception as fault:  # as above
            raise self._refused("read", fault) from fault
        return list(values)

    def write(self, batch: Batch) -> None:
        if not batch.ops:
            return
        native = WriteBatch(raw_mode=True)
        for key, value in sorted(batch.ops.items()):  # a quarter of the writing less than as they came
            if value is None:
                native.delete(key)
            else:
                native.put(key, value)
        try:
            self._db.write(native)
        except Exception as fault:  # as above
            raise self._refused("written", fault) from fault

    def keys(self, start: bytes, end: bytes) -> Iterator[bytes]:
        return self._walk(self._db.keys, start, end, lambda key: key)

    def items(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._walk(self._db.items, start, end, itemgetter(0))

    def _walk(
        self, read: Callable[..., Any], start: bytes, end: bytes, key_of: Callable[[Any], bytes]
    ) -> Iterator[Any]:
        """All that `read` gives in [start, end); where it stops although more is left, it begins again."""
        while True:
            found = None
            for found in read(from_key=start, read_opt=self._bounded(end)):
                yield found
            start = start if found is None else key_of(found) + b"\x00"
            if self._is_end(start, end):
                return

    def _is_end(self, start: bytes, end: bytes) -> bool:
        """Whether nothing is left in [start, end): the library ends a walk at what it can't read, and says nothing."""
        walk: Any = self._db.iter(self._bounded(end))
        walk.seek(start)
        if walk.valid():
            return False
        try:
            walk.status()
        except Exception as fault:  # as above
            raise self._refused("read", fault) from fault
        return True

    def forget(self, start: bytes, end: bytes) -> None:
        if start < end:
            self._db.delete_range(start, end)

    def close(self) -> None:
        # A disk that refused before refuses this, too. A store is only a copy: whatever it lacks is read again.
        with suppress(Exception):
            self._db.close()

    def destroy(self) -> None:
        """Close it and delete the directory."""
        self.close()
        erase(self._directory)

    @staticmethod
    def _bounded(end: bytes) -> ReadOptions:
        # Only the upper bound: with both bounds set, some orders of setting them silently give no rows.
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        return options

    def _refused(self, done: str, fault: Exception) -> StateCorrupted:
        if str(fault).startswith("Corruption"):
            return StoreDamaged(f"the store {self._directory} is damaged and will be rebuilt from the topics: {fault}")
        if "lock " in str(fault).lower():
            return StoreHeld(f"the store {self._directory} is held by another process: {fault}")
        return _unusable(self._directory, done, fault)
