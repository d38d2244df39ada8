"""The store's keys: they sort as the work is to be done, and are read back as they were written."""

from __future__ import annotations

from scheduler.shard import keys


def test_catch_up_goes_by_owner_and_then_by_version_as_a_number() -> None:
    """What version 9 owes goes before what version 10 owes, and owners are not mixed."""
    wanted = [("acme/a", 2), ("acme/a", 9), ("acme/a", 10), ("acme/a", 300), ("acme/b", 1), ("acme/b.c", 1)]
    written = [keys.catch_up(2, owner, version) for owner, version in wanted]
    assert [keys.split_catch_up(key) for key in sorted(written)] == wanted


def test_more_urgent_catch_up_goes_first() -> None:
    """Whatever its owner is called."""
    assert keys.catch_up(0, "z/z", 9) < keys.catch_up(1, "a/a", 1)
