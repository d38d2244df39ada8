"""What is measured of a step."""

from __future__ import annotations

import pytest

from scheduler.core.due import due_key, instant_end, queue_of
from scheduler.core.record import ShardRecord
from scheduler.runtime.telemetry import Telemetry
from scheduler.shard.held import Entry, Item, Target
from scheduler.shard.lines import Line
from scheduler.shard.step import Step
from scheduler.state.store import MemoryStore
from topics.catalog import Catalogue

NOW = 1_800_000_000_000


def item(priority: int, available_at: int, scheduled_for: int) -> Item:
    key = due_key(available_at, priority, "acme/a")
    return Item(
        key, b"{}", Entry("acme/a", key, Line(queue_of(key)), Target("dispatch", 0, b"acme/a"), None), scheduled_for
    )


@pytest.mark.parametrize("turns", [[0, 1, 2, 3, 4], [2, 0, 3, 1, 4], [3, 2, 1, 4, 0]])
def test_every_item_counts_by_its_priority_its_lateness_and_its_lag(turns: list[int]) -> None:
    """Items of one instant and priority are counted together, and each once, in whatever order they took turns."""
    step = Step(NOW, ShardRecord(shard=0, cursor=instant_end(NOW)), Catalogue(shards=1), MemoryStore(), {})
    step.items = [
        item(1, NOW - 40, NOW - 200), item(1, NOW - 40, NOW - 40), item(2, NOW - 40, NOW - 200),
        item(2, NOW - 4, NOW - 4), item(2, NOW - 4, NOW - 4),
    ]  # fmt: skip
    if turns != sorted(turns):
        step.items = [step.items[n] for n in turns]
        step.turns = {b"\x01acme": 2, b"\x02acme": 3}
    telemetry = Telemetry()
    telemetry.committed(step, NOW, 0.1)

    def value(name: str, **labels: str) -> float | None:
        return telemetry.registry.get_sample_value(name, {"origin": "schedule", **labels})

    assert value("scheduler_dispatched_total", priority="high") == 2
    assert value("scheduler_dispatched_total", priority="normal") == 3
    assert value("scheduler_lateness_seconds_bucket", priority="high", le="0.025") == 0
    assert value("scheduler_lateness_seconds_bucket", priority="high", le="0.05") == 2
    assert value("scheduler_lateness_seconds_bucket", priority="normal", le="0.005") == 2
    assert value("scheduler_schedule_lag_seconds_bucket", priority="high", le="0.05") == 1
    assert value("scheduler_schedule_lag_seconds_bucket", priority="high", le="0.25") == 2
    assert value("scheduler_schedule_lag_seconds_sum", priority="normal") == pytest.approx(0.208)
