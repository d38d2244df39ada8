"""The transaction coordinator: who may write under a transactional id, and how its transactions end.

    begun by the first record; ended by `end`, by the next `init` of the id, or after its time-out
    decided at once (`committed`), told to the partitions one by one by markers, a little later
    until all markers are written, whoever asks for the id hears `Concurrent` and asks again

An id has an epoch. `init` and a time-out make it grow, and whoever comes with an older one is `OldEpoch` for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.world.brokers import Brokers
    from tests.support.world.log import Draft, Entry, Log


class Concurrent(Exception):
    """The transaction before is not over yet: ask again."""


class OldEpoch(Exception):
    """Somebody newer has the transactional id."""


class NotOpen(Exception):
    """There is no transaction to end."""


@dataclass(eq=False)
class Txn:
    """One transaction. `committed` from the decision on; readers learn it from the markers."""

    owner: str
    epoch: int
    began: int
    committed: bool = False
    decided: bool = False
    logs: dict[Log, None] = field(default_factory=dict)
    entries: list[tuple[Log, Entry]] = field(default_factory=list)


@dataclass
class _Id:
    """What the coordinator knows of a transactional id."""

    epoch: int = -1
    timeout: int = 0
    txn: Txn | None = None
    last: Txn | None = None  # the one before, if this epoch decided it


class Coordinator:
    """All transactional ids. `on_commit` is called at the decision, before anybody can see the records."""

    def __init__(self, brokers: Brokers, on_commit: Callable[[Txn], None]) -> None:
        self._brokers = brokers
        self._world = brokers.world
        self._on_commit = on_commit
        self._ids: dict[str, _Id] = {}

    def init(self, name: str, timeout: int) -> int:
        """A new epoch of the id, for whoever asks; what was open is aborted first."""
        known = self._ids.setdefault(name, _Id())
        if known.txn is not None:
            if not known.txn.decided:
                known.epoch += 1  # from here on the old owner is fenced
                self._decide(known, committed=False)
            raise Concurrent
        known.epoch += 1
        known.timeout = timeout
        known.last = None
        return known.epoch

    def append(self, name: str, epoch: int, log: Log, drafts: Sequence[Draft]) -> list[Entry]:
        """Records of the open transaction, which the first of them begins."""
        known = self._of(name, epoch)
        if known.txn is None:
            known.txn = Txn(name, epoch, self._world.now)
            self._world.call_in(known.timeout, lambda txn=known.txn: self._expire(known, txn))
        elif known.txn.decided:
            raise Concurrent
        known.txn.logs[log] = None
        entries = log.append(drafts, self._brokers.wall_ms(), known.txn)
        known.txn.entries += [(log, entry) for entry in entries]
        return entries

    def end(self, name: str, epoch: int, *, commit: bool) -> None:
        """Decide the open transaction; asked again, the answer is the same."""
        known = self._of(name, epoch)
        if known.txn is not None and not known.txn.decided:
            self._decide(known, committed=commit)
            return
        decided = known.txn or known.last
        if decided is None or decided.committed is not commit or decided.epoch != epoch:
            raise NotOpen

    def is_current(self, name: str, epoch: int) -> bool:
        return self._ids[name].epoch == epoch

    def _of(self, name: str, epoch: int) -> _Id:
        known = self._ids[name]
        if known.epoch != epoch:
            raise OldEpoch
        return known

    def _decide(self, known: _Id, *, committed: bool) -> None:
        txn = known.txn
        assert txn is not None
        txn.decided, txn.committed = True, committed
        self._world.note(
            txn.owner, f"{'commit' if committed else 'abort'} of epoch {txn.epoch}, {len(txn.entries)} records"
        )
        if committed:
            self._on_commit(txn)
        unmarked = list(txn.logs)
        self._world.random.shuffle(unmarked)
        self._mark(known, txn, unmarked)

    def _mark(self, known: _Id, txn: Txn, unmarked: list[Log]) -> None:
        if not self._brokers.up:
            self._brokers.when_up(lambda: self._mark(known, txn, unmarked))
        elif unmarked:
            unmarked.pop().mark(txn, self._brokers.wall_ms())
            self._world.call_in(self._brokers.marker_us(), lambda: self._mark(known, txn, unmarked))
        else:
            known.txn = None
            known.last = txn if txn.epoch == known.epoch else None

    def _expire(self, known: _Id, txn: Txn) -> None:
        if known.txn is not txn or txn.decided:
            return
        if not self._brokers.up:
            self._brokers.when_up(lambda: self._expire(known, txn))
            return
        self._world.note(txn.owner, f"transaction of epoch {txn.epoch} timed out")
        known.epoch += 1
        self._decide(known, committed=False)
