"""One behaviour for every store: the one on disk and the one in memory are held to the same rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.errors import StateCorrupted, StoreDamaged
from scheduler.shard.rebuild import Identity, sign
from scheduler.state.rocks import RocksStore
from scheduler.state.store import Batch, MemoryStore, Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["memory", "rocks"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else RocksStore(tmp_path / "s")
    yield made
    made.close()


def write(store: Store, changes: dict[bytes, bytes | None]) -> None:
    batch = Batch()
    for key, value in changes.items():
        if value is None:
            batch.delete(key)
        else:
            batch.put(key, value)
    store.write(batch)


def test_get_gives_what_was_put_or_none(store: Store) -> None:
    """An absent key is None, an empty value is a value."""
    write(store, {b"a": b"1", b"e": b""})
    assert (store.get(b"a"), store.get(b"e"), store.get(b"x")) == (b"1", b"", None)


def test_get_many_keeps_the_order_asked(store: Store) -> None:
    """Values come in the order of the keys, unsorted and repeated ones too, None for the absent."""
    write(store, {b"a": b"1", b"b": b"2"})
    assert store.get_many([b"b", b"x", b"a", b"b"]) == [b"2", None, b"1", b"2"]
    assert store.get_many([]) == []


def test_the_later_change_of_a_key_in_a_batch_wins(store: Store) -> None:
    """Put after delete puts, delete after put deletes."""
    write(store, {b"a": b"old", b"b": b"old"})
    batch = Batch()
    batch.delete(b"a")
    batch.put(b"a", b"new")
    batch.put(b"b", b"new")
    batch.delete(b"b")
    store.write(batch)
    assert list(store.items(b"", b"z")) == [(b"a", b"new")]


def test_an_empty_batch_changes_nothing(store: Store) -> None:
    """Steps may have nothing for the store."""
    store.write(Batch())
    assert list(store.keys(b"", b"\xff")) == []


def test_deleting_what_is_not_there_is_fine(store: Store) -> None:
    """A place may be deleted twice."""
    write(store, {b"a": None})
    assert store.get(b"a") is None


def test_a_range_is_half_open_and_ascending(store: Store) -> None:
    """[start, end): the start is in, the end is not, and bytes sort as unsigned numbers."""
    write(store, {key: key for key in (b"b\xff", b"a", b"b\x00", b"c", b"b", b"b\x7f")})
    assert list(store.keys(b"b", b"c")) == [b"b", b"b\x00", b"b\x7f", b"b\xff"]
    assert list(store.items(b"b\x00", b"b\xff")) == [(b"b\x00", b"b\x00"), (b"b\x7f", b"b\x7f")]
    assert list(store.keys(b"x", b"y")) == []
    assert list(store.keys(b"b", b"b")) == []


def test_a_range_does_not_see_what_was_deleted(store: Store) -> None:
    """Deleted keys are gone from ranges at once."""
    write(store, {b"a": b"", b"b": b""})
    write(store, {b"a": None})
    assert list(store.keys(b"", b"z")) == [b"b"]


def test_a_range_may_be_left_early(store: Store) -> None:
    """The first key of a range costs no walk of the rest."""
    write(store, {b"k%d" % n: b"" for n in range(9)})
    assert next(iter(store.keys(b"k", b"l"))) == b"k0"


def test_forget_deletes_a_range_and_nothing_else(store: Store) -> None:
    """[start, end) is gone, its neighbours stay, and it can be written again."""
    write(store, {b"%d" % n: b"" for n in range(6)})
    store.forget(b"1", b"4")
    assert list(store.keys(b"", b"z")) == [b"0", b"4", b"5"]
    store.forget(b"4", b"4")
    assert store.get(b"4") == b""
    write(store, {b"2": b"again"})
    assert store.get(b"2") == b"again"


KEYS = st.binary(min_size=1, max_size=3)


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.dictionaries(KEYS, st.one_of(st.none(), st.binary(max_size=4)), max_size=8), max_size=6),
    start=st.binary(max_size=2),
    end=KEYS,
)
def test_both_stores_agree(
    batches: list[dict[bytes, bytes | None]], start: bytes, end: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever batches are written, every range and every key reads the same from both."""
    memory, rocks = MemoryStore(), RocksStore(tmp_path_factory.mktemp("rocks"))
    try:
        for changes in batches:
            write(memory, changes)
            write(rocks, changes)
        assert list(rocks.items(start, end)) == list(memory.items(start, end))
        keys = [key for changes in batches for key in changes]
        assert rocks.get_many(keys) == memory.get_many(keys)
        if start < end:
            memory.forget(start, end)
            rocks.forget(start, end)
        assert list(rocks.items(b"", b"\xff" * 4)) == list(memory.items(b"", b"\xff" * 4))
    finally:
        rocks.close()


def test_what_was_written_survives_a_reopening(tmp_path: Path) -> None:
    """A closed store opens again with everything in it."""
    first = RocksStore(tmp_path / "s")
    write(first, {b"a": b"1"})
    first.close()
    again = RocksStore(tmp_path / "s")
    assert again.get(b"a") == b"1"
    again.close()


def test_a_directory_that_cannot_be_used_is_a_clear_error(tmp_path: Path) -> None:
    """A file where the directory should be: the error names it and says what to do."""
    (tmp_path / "s").write_text("in the way")
    with pytest.raises(StateCorrupted, match="rebuilt from the topics"):
        RocksStore(tmp_path / "s")


@pytest.mark.parametrize("other", [{"cluster": "d"}, {"namespace": "n."}, {"shards": 16}, {"shard": 2}])
def test_a_store_of_another_owner_is_refused(store: Store, other: dict[str, str | int]) -> None:
    """Of another cluster, namespace, number of shards or shard: never guessed at."""
    mine = Identity("c", "", 8, 1)
    sign(store, mine)
    sign(store, mine)
    with pytest.raises(StateCorrupted, match="belongs to"):
        sign(store, mine._replace(**other))  # type: ignore[arg-type] # fields of the tuple


def test_what_cannot_be_read_ends_no_walk(tmp_path: Path) -> None:
    """The library ends a walk there, in silence: what lies beyond would be taken for not owed, and never fire."""
    written = {b"%06d" % n: b"%06d" % (n * 7919 % 1_000_003) * 9 for n in range(20_000)}
    first = RocksStore(tmp_path / "s")
    write(first, dict(written))
    first.close()
    RocksStore(tmp_path / "s").close()  # puts into a file what was in the log
    (file,) = (tmp_path / "s").glob("*.sst")
    damage(file, file.stat().st_size // 2)
    store = RocksStore(tmp_path / "s")
    try:
        with pytest.raises(StoreDamaged, match="rebuilt"):
            list(store.keys(b"", b"z"))
        with pytest.raises(StoreDamaged, match="rebuilt"):
            list(store.items(b"", b"z"))
        with pytest.raises(StoreDamaged, match="rebuilt"):
            [store.get(key) for key in written]
        with pytest.raises(StoreDamaged, match="rebuilt"):
            store.get_many(list(written))
    finally:
        store.close()


def damage(file: Path, at: int) -> None:
    """A disk that gives back other bytes than it was given."""
    with file.open("r+b") as opened:
        opened.seek(at)
        found = opened.read(64)
        opened.seek(at)
        opened.write(bytes(byte ^ 0xFF for byte in found))
