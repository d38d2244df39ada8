"""An owner reads nothing before its changelogs are committed to their ends, and does not wait for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from scheduler.errors import Retriable
from scheduler.runtime.restore import Hanging, Restore

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition

PATIENCE_S = 6.0  # a transaction's time-out of one second, and what its markers may take


class Brokers:
    """A changelog consumer that sees up to `seen[0]` of one topic at first, then up to the next ones."""

    def __init__(self, *seen: int) -> None:
        self.seen = [*seen]
        self.now = 0.0

    def get_watermark_offsets(self, partition: TopicPartition, **_: object) -> tuple[int, int]:
        if partition.topic != "ns.scheduler.live":
            return 0, 7
        return 0, self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]

    def pause(self, seconds: float) -> None:
        self.now += seconds


def settled(brokers: Brokers, *, stopped: bool = False) -> None:
    restore = Restore(cast("Any", brokers), "ns.", 3, lambda: stopped)

    def ends(topics: list[str], number: int, _stopped: object) -> dict[str, int]:
        return dict.fromkeys(topics, 7 if number == 3 else 0)

    restore.await_settled(ends, 1_000, lambda: brokers.now, brokers.pause)


def test_nothing_is_waited_for_when_all_is_committed() -> None:
    """The usual case."""
    brokers = Brokers(7)
    settled(brokers)
    assert brokers.now == 0.0


def test_a_step_of_another_owner_ends_by_itself() -> None:
    """Who is fenced already sees its successor's open step; later ones do not matter, so nobody waits for those."""
    brokers = Brokers(4, 4, 9)
    settled(brokers)
    assert 0.0 < brokers.now < 1.0


def test_what_stays_open_is_told() -> None:
    """With what there is to do, for the one topic it is about."""
    brokers = Brokers(4)
    with pytest.raises(Hanging, match=r"--topic ns\.scheduler\.live --partition 3 --start-offset 4\. What") as caught:
        settled(brokers)
    assert brokers.now >= PATIENCE_S
    assert "scheduler.shards" not in str(caught.value)


def test_a_shard_that_closes_waits_no_longer() -> None:
    """Whatever is open."""
    brokers = Brokers(4)
    with pytest.raises(Retriable):
        settled(brokers, stopped=True)
    assert brokers.now == 0.0
