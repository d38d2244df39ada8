"""Which occurrences are done: their ids, in the same database and the same transaction as their effects.

SQLite stands here for the team's own database; with another one the three statements stay the same. The file may be
shared by the workers of one machine (writers wait for each other), not over a network file system.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Self

_TABLE: Final = """
create table if not exists handled (
    occurrence_id text primary key,
    handled_ms integer not null
) without rowid
"""


class Ledger:
    """A file of handled occurrences. Raises sqlite3.Error when it cannot be opened or written; a context manager."""

    def __init__(self, path: Path | str, *, busy_timeout_s: float = 30.0) -> None:
        # Transactions are begun by hand: the driver's own would start too late to hold off another worker.
        self._db = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None)
        try:
            self._db.execute("pragma journal_mode=wal")
            # An offset may be committed right after the effect: the effect must then survive a power cut.
            self._db.execute("pragma synchronous=full")
            self._db.execute(_TABLE)
        except sqlite3.Error:
            self._db.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    def once(self, occurrence_id: str, effect: Callable[[sqlite3.Connection], None]) -> bool:
        """Run `effect` and remember the id, in one transaction; False, and no effect, if the id is known.

        Whatever `effect` raises is raised here, after everything it wrote was rolled back.
        """
        self._db.execute("begin immediate")  # takes the write lock now: a second worker waits here, not later
        try:
            known = self._db.execute(
                "insert into handled values (?, ?) on conflict do nothing",
                (occurrence_id, time.time_ns() // 1_000_000),
            )
            fresh = known.rowcount == 1
            if fresh:
                effect(self._db)
        except BaseException:
            self._db.execute("rollback")
            raise
        self._db.execute("commit")
        return fresh

    def knows(self, occurrence_id: str) -> bool:
        """Whether the occurrence was handled."""
        with closing(self._db.execute("select 1 from handled where occurrence_id = ?", (occurrence_id,))) as found:
            return found.fetchone() is not None

    def forget(self, before_ms: int) -> int:
        """Drop ids handled before an instant and return their number. Keep more than the topic's retention."""
        return self._db.execute("delete from handled where handled_ms < ?", (before_ms,)).rowcount
