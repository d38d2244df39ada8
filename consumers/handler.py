"""What a handler is: the business effect of one occurrence, written through the ledger's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import sqlite3

    from topics.messages import Dispatch


class Handler(Protocol):
    """Called once for each occurrence that is not in the ledger yet.

    `effects` is the open transaction that also holds the occurrence's id: what is written through it happens together
    with that id or not at all. The handler neither commits nor rolls back. If it raises, nothing is written, the worker
    stops with that exception and the occurrence comes again when the worker is started again.
    """

    def __call__(self, dispatch: Dispatch, effects: sqlite3.Connection) -> None: ...


def nothing(dispatch: Dispatch, effects: sqlite3.Connection) -> None:
    """The handler of the demonstration: the ledger's own entry is all the effect there is."""
