"""A process of a node that fails at a named point: `python -m tests.crash.child P N SIGKILL --config ... run`.

The product has no hooks for this: methods are wrapped here, in this process only. The N-th time the point P is reached
the process sends itself the signal: SIGKILL ends it with nothing flushed, closed or committed, SIGSTOP freezes it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from scheduler.cli import main
from scheduler.runtime.assignment import Assignment
from scheduler.runtime.restore import Restore
from scheduler.runtime.standby import Follower
from scheduler.runtime.transaction import Transaction
from scheduler.shard.rebuild import Rebuild
from scheduler.shard.shard import Shard
from scheduler.state.rocks import RocksStore
from tests.crash.bugs import infest

if TYPE_CHECKING:
    from collections.abc import Callable


class Fuse:
    """Burns down by one at each touch; at zero the process is gone, or frozen."""

    def __init__(self, nth: int, number: signal.Signals) -> None:
        self.nth = nth
        self._left = nth
        self._signal = number

    def touch(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), self._signal)


def wrap(owner: type, name: str, before: Callable[..., None] | None, after: Callable[..., None] | None = None) -> None:
    """Call `before` and `after` around a method, with its arguments."""
    original = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(*args)
        result = original(*args, **kwargs)
        if after is not None:
            after(*args)
        return result

    setattr(owner, name, wrapped)


def starts(step: Any) -> bool:
    """Something is dispatched by the step: on time, or of a catch-up, which is among its other records."""
    return bool(step.items) or any("dispatch." in record.topic for record in step.records)


def before_produce(fuse: Fuse) -> None:
    """The step is decided; nothing of it is written."""
    wrap(Transaction, "_produce", lambda _self, step, _applied: fuse.touch() if starts(step) else None)


def before_commit(fuse: Fuse) -> None:
    """All records of the step are on the brokers, uncommitted."""

    def after(transaction: Any, step: Any, _applied: object) -> None:
        if starts(step):
            transaction._producer.flush(10)
            fuse.touch()

    wrap(Transaction, "_produce", None, after)


def after_commit(fuse: Fuse) -> None:
    """The step is committed; the store does not know."""
    wrap(Transaction, "commit", None, lambda _self, step: fuse.touch() if starts(step) else None)


def after_store(fuse: Fuse) -> None:
    """The store has the step; fired entries are not advanced."""
    wrap(Shard, "committed", None, lambda _self, step: fuse.touch() if starts(step) else None)


def in_advance(fuse: Fuse) -> None:
    """Advancing, the moves are decided and not written."""
    advancing: list[bool] = []
    wrap(Shard, "_advance", lambda _self: advancing.append(True), lambda _self: advancing.clear())
    wrap(RocksStore, "write", lambda *_: fuse.touch() if advancing else None)


def in_restore(fuse: Fuse) -> None:
    """Some of a changelog is applied."""
    wrap(Rebuild, "apply", None, lambda *_: fuse.touch())


def after_restore(fuse: Fuse) -> None:
    """Everything is applied; the shard is not open."""
    wrap(Restore, "run", None, lambda *_: fuse.touch())


def in_standby(fuse: Fuse) -> None:
    """Following another node's shard, records are at hand and not written to the copy."""
    following: list[bool] = []
    wrap(Follower, "apply", lambda *_: following.append(True), lambda *_: following.clear())
    wrap(RocksStore, "write", lambda *_: fuse.touch() if following else None)


def in_init(fuse: Fuse) -> None:
    """The old owner is fenced; nothing is restored."""
    wrap(Transaction, "init", None, lambda _self: fuse.touch())


def in_assigned(fuse: Fuse) -> None:
    """Inside the rebalance callback that brings shards."""
    wrap(Assignment, "_assigned", None, lambda *_: fuse.touch())


def in_revoked(fuse: Fuse) -> None:
    """Inside the rebalance callback that takes shards away."""
    wrap(Assignment, "_revoked", lambda *_: fuse.touch())


def while_forwarding(fuse: Fuse) -> None:
    """The copy for the right partition is acknowledged; the step that read the command is not committed."""
    wrap(Transaction, "_forward", None, lambda *_: fuse.touch())


def slow_store(fuse: Fuse) -> None:
    """Nothing fails, but each write of a store takes so many milliseconds: a disk that is busy with something else."""
    wrap(RocksStore, "write", lambda *_: time.sleep(fuse.nth / 1000))


POINTS: dict[str, Callable[[Fuse], None]] = {
    point.__name__: point
    for point in (
        before_produce, before_commit, after_commit, after_store, in_advance, in_restore, after_restore, in_init,
        in_standby, in_assigned, in_revoked, while_forwarding, slow_store,
    )
}  # fmt: skip


def run(arguments: list[str]) -> None:
    """Point, count, signal, then the product's own arguments."""
    infest()
    point, nth, number, *rest = arguments
    POINTS[point](Fuse(int(nth), signal.Signals[number]))
    main(rest, prog_name="scheduler")


if __name__ == "__main__":
    run(sys.argv[1:])
