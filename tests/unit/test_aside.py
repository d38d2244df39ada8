"""When a node whose disk refuses leaves its shards to others, and when it comes back."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import pytest

from scheduler.errors import StateCorrupted, StoreUnusable
from scheduler.runtime.aside import LOOK_S, PAUSE_MAX_S, PAUSE_S, REFUSALS, Aside
from scheduler.state.rocks import StoreHeld

if TYPE_CHECKING:
    from collections.abc import Iterator

REFUSED = [3]


class Node:
    """What the shell takes from outside, and what shards share: the disk, the company, time that passes in waits."""

    def __init__(self) -> None:
        self.now = 100.0
        self.company = True
        self.disk: str | None = None
        self.store: StateCorrupted | None = None
        self.told: list[str] = []
        self.stops_at = 10_000.0
        self.outside = self
        self.clock = SimpleNamespace(now=lambda: int(self.now * 1000))
        self.changes: Iterator[tuple[float, str, Any]] = iter(())
        self._next: tuple[float, str, Any] | None = None

    def will(self, *changes: tuple[float, str, Any]) -> Self:
        """At these times these attributes change."""
        self.changes = iter(changes)
        self._next = next(self.changes, None)
        return self

    def aside(self) -> Aside:
        around: Any = self
        return Aside(around, self.tell)

    def tell(self, why: str) -> bool:
        self.told += [why] if why not in self.told[-1:] else []
        return self.now >= self.stops_at

    def monotonic(self) -> float:
        return self.now

    def event(self) -> Any:
        return self

    def wait(self, seconds: float) -> None:
        self.now += seconds
        while self._next is not None and self.now >= self._next[0]:
            setattr(self, self._next[1], self._next[2])
            self._next = next(self.changes, None)

    def has_company(self) -> bool:
        return self.company

    def refusal(self, _folder: Path) -> str | None:
        return self.disk

    stores = Path("stores")

    def store_path(self, shard: int) -> Path:
        return Path("stores") / str(shard)

    def identity(self, shard: int) -> int:
        return shard

    def open_standby(self, _path: Path, _shard: int, _now: int) -> Node:
        if self.store is not None:
            raise self.store
        return self

    def close(self) -> None:
        pass


@pytest.fixture
def node() -> Node:
    return Node()


def gone(node: Node, aside: Aside) -> float:
    """How long it stays aside."""
    began = node.now
    aside.wait()
    return node.now - began


def test_a_node_with_a_good_disk_joins_at_once(node: Node) -> None:
    assert gone(node, node.aside()) == 0
    assert node.told == [""]


def test_a_disk_that_refuses_at_the_start_keeps_a_node_out_until_it_works(node: Node) -> None:
    node.disk = "read-only"
    assert 60 <= gone(node, node.will((160.0, "disk", None)).aside()) <= 60 + LOOK_S
    assert node.told == ["", "read-only", ""]


def test_who_is_alone_joins_whatever_its_disk_does(node: Node) -> None:
    node.disk, node.company = "read-only", False
    assert gone(node, node.aside()) == 0


def test_who_is_left_alone_joins(node: Node) -> None:
    node.disk = "read-only"
    assert 30 <= gone(node, node.will((130.0, "company", False)).aside()) <= 30 + LOOK_S


def test_a_stop_ends_it(node: Node) -> None:
    node.disk, node.stops_at = "read-only", 150.0
    assert gone(node, node.aside()) == pytest.approx(50, abs=1)


def test_nothing_refused_is_no_reason_to_leave(node: Node) -> None:
    assert not node.aside().leaves([])


def test_refused_shards_are_left_to_others_if_there_are_any(node: Node) -> None:
    aside = node.aside()
    node.company = False
    assert not aside.leaves(REFUSED)
    node.company = True
    assert not aside.leaves(REFUSED), "asked the group again at once"
    node.now += LOOK_S
    assert aside.leaves(REFUSED)


def test_a_store_that_refused_is_tried_before_the_node_comes_back(node: Node) -> None:
    aside = node.aside()
    assert aside.leaves(REFUSED)
    node.store = StoreUnusable("still no space")
    node.will((190.0, "store", None))
    assert 90 <= gone(node, aside) <= 90 + LOOK_S
    assert node.told == ["", "still no space", ""], "not ready all the time"


def test_a_store_that_a_copy_of_ours_holds_can_be_opened(node: Node) -> None:
    aside = node.aside()
    assert aside.leaves(REFUSED)
    node.store = StoreHeld("by a standby")
    assert gone(node, aside) == pytest.approx(PAUSE_S, abs=LOOK_S)


def test_who_was_aside_not_long_ago_leaves_at_the_first_refusal(node: Node) -> None:
    aside = node.aside()
    assert aside.patience == REFUSALS
    assert aside.leaves(REFUSED)
    aside.wait()
    assert aside.patience == 1
    node.now += PAUSE_MAX_S
    assert aside.patience == REFUSALS


def test_a_disk_that_refuses_again_and_again_keeps_a_node_out_longer_and_longer(node: Node) -> None:
    """Each way back silences the shards that it takes along."""
    aside, stays = node.aside(), []
    for _ in range(9):
        node.now += 30
        assert aside.leaves(REFUSED)
        stays.append(gone(node, aside))
    assert stays == sorted(stays)
    assert stays[0] == pytest.approx(PAUSE_S, abs=LOOK_S)
    assert stays[-1] == pytest.approx(PAUSE_MAX_S, abs=LOOK_S)
    node.now += PAUSE_MAX_S + 1
    assert aside.leaves(REFUSED)
    assert gone(node, aside) == pytest.approx(PAUSE_S, abs=LOOK_S)
