"""No minute is missed: schedules by the clock, while their owners are killed at any second.

`MINUTES` is for how many real minutes the long form runs (20).
"""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.commands import ask
from tests.support.node import Cluster, Node, await_ready
from tests.support.verifier import Beat, now_ms
from tests.support.witness import Witness

if TYPE_CHECKING:
    from tests.support.ledger import Counts

pytestmark = pytest.mark.broker

MINUTES = int(os.environ.get("MINUTES", "20"))
SCHEDULES = 20


def ticks(cron: str, every_ms: int, count: int, wait_ms: int) -> list[Beat]:
    """Schedules of an expression, from the first of its instants that is far enough to create them before."""
    first = (now_ms() + wait_ms + every_ms) // every_ms * every_ms
    return [Beat(f"acme/tick-{n}", first, first + count * every_ms, every_ms, cron=cron) for n in range(SCHEDULES)]


def killed_all_the_time(cluster: Cluster, schedules: list[Beat], pauses_s: tuple[float, float]) -> tuple[Counts, Node]:
    """Processes of one node are killed in turn until the last nominal has passed."""
    chance = random.Random(schedules[0].first)
    node = cluster.node(processes=2, supervised=True).start()
    await_ready(node)
    replies = ask(cluster, *(beat.create() for beat in schedules))
    assert {reply.code for reply in replies} == {"created"}, replies
    assert now_ms() < schedules[0].first, "the machine was too slow to begin in time"
    with Witness(cluster, schedules) as witness:
        while now_ms() < schedules[0].end:
            time.sleep(chance.uniform(*pauses_s))
            try:
                psutil.Process(node.pid(chance.randrange(2))).kill()
            except psutil.NoSuchProcess:
                continue  # the supervisor has not started it again yet
        witness.await_all(node.words)
        assert node.stop() == [0]
        return witness.count(), node


def test_no_second_is_missed(cluster: Cluster) -> None:
    """`* * * * * *` for twenty seconds, a kill every few: each second of each schedule once."""
    counts, node = killed_all_the_time(cluster, ticks("* * * * * *", 1_000, 20, 12_000), (2.0, 4.0))
    assert counts.clean, f"{counts}\n{node.words()}"
    assert counts.expected == 20 * SCHEDULES
    assert node.events("process_died")


@pytest.mark.soak
@pytest.mark.timeout(MINUTES * 60 + 600)
def test_no_minute_is_missed(cluster: Cluster) -> None:
    """`* * * * *` over real minutes, a kill at any second of them: each minute of each schedule once."""
    counts, node = killed_all_the_time(cluster, ticks("* * * * *", 60_000, MINUTES, 12_000), (3.0, 25.0))
    assert counts.clean, f"{counts}\n{node.words()}"
    assert counts.expected == MINUTES * SCHEDULES
    assert node.events("process_died")
