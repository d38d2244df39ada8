"""The arithmetic behind ops/capacity.md, by hand for one load, and what must hold for any."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench.capacity import LOADS, Figures, House, Load, measured, need, page

FIGURES = Figures(
    node_us_per_firing=20, node_us_per_transaction=1_000, broker_us_per_firing=30, broker_us_per_transaction=2_000,
    node_us_per_command=150, broker_us_per_command=200, dispatch_bytes_per_firing=100, log_bytes_per_command=100,
    log_bytes_per_schedule=80, log_bytes_per_transaction=1_000, store_bytes_per_schedule=100,
    restored_per_s_and_process=50_000, process_mb=1_000, most_transactions_per_s_and_shard=50,
)  # fmt: skip
HOUSE = House(cores_per_node=4, cores_per_broker=4, used=0.5, copies=3, dispatch_days=7, history_days=30, disk_used=0.5)


def test_one_load_by_hand() -> None:
    """10,000 a second on 8 shards: 400 transactions, 0.2 + 0.4 cores, and so on down the page."""
    load = Load(
        name="x", schedules=1_000_000, per_s=10_000, firings_per_day=1e8, commands_per_s=1_000, commands_per_day=1e6
    )
    found = need(load, FIGURES, HOUSE)
    assert found.node_cores == pytest.approx(0.2 + 0.4 + 0.15)
    assert (found.processes, found.shards, found.nodes) == (2, 8, 2)
    assert found.broker_cores == pytest.approx(3 * (0.3 + 0.8 + 0.2))
    assert found.brokers == 3
    assert found.broker_mb_per_s == pytest.approx(3 * (1.0 + 0.4 + 0.14), abs=0.05)
    assert found.broker_disk_gb == pytest.approx(3 * (70 + 3 + 0.08) / 2 / 0.5, abs=0.1)
    assert found.node_disk_gb == pytest.approx(2 * 0.1 / 1 / 0.5)
    assert found.restore_s == 10
    assert found.first_full == "processors of the brokers"


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_with_one_lost_the_rest_is_not_fuller_than_allowed(load: Load) -> None:
    """A node and a broker may be lost at the same time; each process has two shards or more to be dealt out again."""
    house = House()
    found = need(load, Figures(), house)
    assert found.node_cores <= (found.nodes - 1) * house.cores_per_node * house.used
    assert found.broker_cores <= (found.brokers - 1) * house.cores_per_broker * house.used + 1e-9
    assert found.shards >= 2 * found.processes


def costs(per_s: int, transactions: float) -> dict[str, Any]:
    """A line of `costs` on a machine with the figures above."""
    firing = {
        "transactions": transactions, "node_cpu_us": 20 + 1_000 * transactions,
        "broker_cpu_us": 30 + 2_000 * transactions,
        "kafka_bytes_by_topic": {
            "dispatch.default.normal": 100.0, "scheduler.shards": 600 * transactions,
            "__transaction_state": 400 * transactions, "scheduler.clock": 1.0,
        },
    }  # fmt: skip
    kept = {"scheduler.commands": 40.0, "scheduler.replies": 30.0, "scheduler.schedule-history": 30.0}
    command = {
        "node_cpu_us": 150, "broker_cpu_us": 200, "kafka_bytes_by_topic": {**kept, "scheduler.schedules": 40.0},
    }  # fmt: skip
    return {"bench": "costs", "per_s": per_s, "firing": firing, "command": command}


def test_two_rates_tell_a_firing_from_a_transaction() -> None:
    """What a machine with known figures would print gives these figures back."""
    restart = {
        "bench": "restart", "count": 5, "store_bytes_per_schedule": 100.0, "cold_schedules_per_s_and_process": 50_000,
    }  # fmt: skip
    found = measured([{"bench": "load"}, costs(10_000, 0.002), restart, costs(2_000, 0.1)])
    assert replace(Figures(), **found, process_mb=1_000, most_transactions_per_s_and_shard=50) == FIGURES


def test_the_page_shows_what_the_arithmetic_says() -> None:
    """The table in ops/capacity.md is that of `python -m tests.bench.capacity`."""
    text = (Path(__file__).parents[2] / "ops" / "capacity.md").read_text("utf-8")
    assert page(LOADS, Figures(), House()) in text, "run `python -m tests.bench.capacity` and put its table there"
