"""The consumer's ledger: an effect and its occurrence id happen together, once, or not at all."""

from __future__ import annotations

import sqlite3
import threading
from typing import TYPE_CHECKING

import pytest

from consumers.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path

ID = "acme/nightly:3:20260308T073000.000Z"


def paid(path: Path) -> list[str]:
    """The effects as somebody else sees them."""
    with sqlite3.connect(path) as db:
        rows = [row[0] for row in db.execute("select what from paid")]
    db.close()
    return rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "ledger.sqlite"
    db = sqlite3.connect(made)
    db.execute("create table paid (what text)")
    db.commit()
    db.close()
    return made


def pay(effects: sqlite3.Connection) -> None:
    effects.execute("insert into paid values ('invoice 7')")


def test_an_effect_happens_once_however_often_its_occurrence_comes(path: Path) -> None:
    """Also after a restart: the ids are in the file."""
    with Ledger(path) as ledger:
        assert ledger.once(ID, pay)
        assert not ledger.once(ID, pay)
    with Ledger(path) as ledger:
        assert ledger.knows(ID)
        assert not ledger.once(ID, pay)
    assert paid(path) == ["invoice 7"]


def test_a_failed_handler_leaves_neither_effect_nor_id(path: Path) -> None:
    """Half an effect would be worse than none; the occurrence may come again."""

    def fails(effects: sqlite3.Connection) -> None:
        pay(effects)
        raise ValueError("the bank is closed")

    with Ledger(path) as ledger:
        with pytest.raises(ValueError, match="the bank is closed"):
            ledger.once(ID, fails)
        assert not ledger.knows(ID)
        assert paid(path) == []
        assert ledger.once(ID, pay)


def test_two_workers_never_both_handle_one_occurrence(path: Path) -> None:
    """After a rebalance two processes may hold the same record; the second waits and then sees it is done."""
    inside, leave = threading.Event(), threading.Event()
    results: dict[str, bool] = {}

    def slowly(effects: sqlite3.Connection) -> None:
        pay(effects)
        inside.set()
        assert leave.wait(30)

    def first() -> None:
        with Ledger(path) as ledger:
            results["first"] = ledger.once(ID, slowly)

    def second() -> None:
        with Ledger(path) as ledger:
            results["second"] = ledger.once(ID, pay)

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(30)
    threads[1].start()
    assert "second" not in results
    leave.set()
    for thread in threads:
        thread.join()
    assert results == {"first": True, "second": False}
    assert paid(path) == ["invoice 7"]


def test_old_ids_can_be_forgotten(path: Path) -> None:
    """The ledger need not grow for ever; what is forgotten would be handled again."""
    with Ledger(path) as ledger:
        ledger.once(ID, pay)
        assert ledger.forget(before_ms=0) == 0
        assert ledger.forget(before_ms=2**50) == 1
        assert not ledger.knows(ID)


def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path) -> None:
    """Better no start than effects without a memory."""
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"this is no database, but long enough to be looked at" * 40)
    with pytest.raises(sqlite3.DatabaseError):
        Ledger(broken)
