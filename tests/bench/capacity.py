"""What a load needs, from what one machine was measured to do: nodes, processes, shards, brokers, disk. Pure.

`python -m tests.bench.capacity` prints the table of `ops/capacity.md`. With a file of result lines, such as
`build/bench/results.jsonl`, it first takes the figures from them: from two `costs` at different rates what a firing and
a transaction take each, from `restart` what a restore does and a schedule takes.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

GB = 1e9


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Measured: processor time in µs, sizes in bytes as the producers' lz4 leaves them; see ops/capacity.md."""

    node_us_per_firing: float = 26.0  # in large batches
    node_us_per_transaction: float = 1_200.0
    broker_us_per_firing: float = 36.0  # all of one broker with one copy, a reader included
    broker_us_per_transaction: float = 3_100.0
    node_us_per_command: float = 79.0
    broker_us_per_command: float = 61.0
    dispatch_bytes_per_firing: float = 91.0  # of some 400 before compression
    log_bytes_per_command: float = 101.0  # commands, replies, history: kept for their retention
    log_bytes_per_schedule: float = 78.0  # `scheduler.schedules`, compacted: twice what the newest records take
    log_bytes_per_transaction: float = 1_100.0  # shard record, transaction state: soon compacted, but written
    store_bytes_per_schedule: float = 70.0
    restored_per_s_and_process: float = 30_500.0  # of an empty store
    process_mb: float = 1_000.0  # the bound, not what is usual
    most_transactions_per_s_and_shard: float = 1_000 / 20  # `join_due_ms`


@dataclass(frozen=True, kw_only=True)
class Load:
    """What there is to do. `per_s` is the rate to be held, `commands_per_s` beside it."""

    name: str
    schedules: int
    per_s: float
    firings_per_day: float
    commands_per_s: float = 100.0
    commands_per_day: float = 1e6


@dataclass(frozen=True, kw_only=True)
class House:
    """What it runs on and how full it may be. One node and one broker may be lost and the rest carries on."""

    cores_per_node: int = 8
    cores_per_broker: int = 8
    used: float = 0.5  # of the processors that are left with one lost
    copies: int = 3
    dispatch_days: float = 7
    history_days: float = 30
    disk_used: float = 0.6


@dataclass(frozen=True, kw_only=True)
class Need:
    """What the load takes on that house."""

    shards: int
    node_cores: float
    processes: int
    nodes: int
    broker_cores: float
    brokers: int
    broker_mb_per_s: float
    broker_disk_gb: float  # of each broker
    node_disk_gb: float  # of each node, when it has taken over a lost one's shards
    memory_gb: float  # of each node
    restore_s: float  # of a node that lost its disk
    first_full: str


def need(load: Load, figures: Figures, house: House) -> Need:
    """The arithmetic, in the order of ops/capacity.md."""
    # A process is one core at most (the interpreter lock), half of it by `used`; two shards or more a process. More
    # shards make more transactions, which cost processor time again.
    shards, processes, cores = 8, 2, 0.0
    while True:
        transactions = min(load.per_s, shards * figures.most_transactions_per_s_and_shard)
        cores = _cores(load, transactions, figures.node_us_per_firing, figures.node_us_per_transaction)
        cores += load.commands_per_s * figures.node_us_per_command / 1e6
        processes = max(2, math.ceil(cores / house.used))
        if shards >= 2 * processes:
            break
        shards *= 2
    nodes = max(2, math.ceil(processes / house.cores_per_node) + 1)
    # Followers fetch and append what leaders have: a copy costs about what the first does, without the readers.
    broker_cores = house.copies * (
        _cores(load, transactions, figures.broker_us_per_firing, figures.broker_us_per_transaction)
        + load.commands_per_s * figures.broker_us_per_command / 1e6
    )
    brokers = max(house.copies, math.ceil(broker_cores / house.used / house.cores_per_broker) + 1)
    per_s = (
        load.per_s * figures.dispatch_bytes_per_firing
        + transactions * figures.log_bytes_per_transaction
        + load.commands_per_s * (figures.log_bytes_per_command + figures.log_bytes_per_schedule / 2)
    )
    kept = (
        load.firings_per_day * house.dispatch_days * figures.dispatch_bytes_per_firing
        + load.commands_per_day * house.history_days * figures.log_bytes_per_command
        + load.schedules * figures.log_bytes_per_schedule
    )
    left = nodes - 1
    shares = {
        "processors of the nodes": cores / (left * house.cores_per_node),
        "processors of the brokers": broker_cores / ((brokers - 1) * house.cores_per_broker),
    }
    return Need(
        shards=shards, node_cores=round(cores, 2), processes=processes, nodes=nodes,
        broker_cores=round(broker_cores, 2), brokers=brokers, broker_mb_per_s=round(house.copies * per_s / 1e6, 1),
        broker_disk_gb=round(house.copies * kept / (brokers - 1) / house.disk_used / GB, 1),
        node_disk_gb=round(2 * load.schedules * figures.store_bytes_per_schedule / left / house.disk_used / GB, 1),
        memory_gb=round(math.ceil(processes / left) * figures.process_mb / 1_000, 1),
        restore_s=round(load.schedules / processes / figures.restored_per_s_and_process),
        first_full=max(shares, key=lambda name: shares[name]),
    )  # fmt: skip


def _cores(load: Load, transactions: float, us_per_firing: float, us_per_transaction: float) -> float:
    return (load.per_s * us_per_firing + transactions * us_per_transaction) / 1e6


LOADS = (
    Load(name="200 M a day, evenly", schedules=20_000_000, per_s=2_315, firings_per_day=200e6),
    Load(name="the same, ten times the rate at its peak", schedules=20_000_000, per_s=23_150, firings_per_day=200e6),
    Load(name="the same, 100,000 a second at its peak", schedules=20_000_000, per_s=100_000, firings_per_day=200e6),
)


def measured(lines: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Fields of `Figures` out of result lines of benches; those that no line tells are left out."""
    found: dict[str, float] = {}
    costs = sorted((one for one in lines if one["bench"] == "costs"), key=lambda one: float(one["per_s"]))
    if len(costs) > 1 and costs[0]["per_s"] < costs[-1]["per_s"]:
        few, many = costs[0]["firing"], costs[-1]["firing"]
        # us(rate) = per firing + transactions a firing * per transaction: two rates, two unknowns.
        for who in ("node", "broker"):
            slope = (few[f"{who}_cpu_us"] - many[f"{who}_cpu_us"]) / (few["transactions"] - many["transactions"])
            found[f"{who}_us_per_transaction"] = round(slope)
            found[f"{who}_us_per_firing"] = round(many[f"{who}_cpu_us"] - slope * many["transactions"], 1)
            found[f"{who}_us_per_command"] = round(costs[-1]["command"][f"{who}_cpu_us"])
        sizes, kept = few["kafka_bytes_by_topic"], costs[-1]["command"]["kafka_bytes_by_topic"]
        found["dispatch_bytes_per_firing"] = round(sum(v for k, v in sizes.items() if k.startswith("dispatch.")))
        spent = sum(sizes.get(topic, 0) for topic in ("scheduler.shards", "__transaction_state"))
        found["log_bytes_per_transaction"] = round(spent / few["transactions"])
        found["log_bytes_per_command"] = round(sum(kept.get(topic, 0) for topic in KEPT))
        found["log_bytes_per_schedule"] = round(2 * kept["scheduler.schedules"])
    restarts = sorted((one for one in lines if one["bench"] == "restart"), key=lambda one: int(one["count"]))
    if restarts:
        found["store_bytes_per_schedule"] = float(restarts[-1]["store_bytes_per_schedule"])
        found["restored_per_s_and_process"] = float(restarts[-1]["cold_schedules_per_s_and_process"])
    return found


KEPT = ("scheduler.commands", "scheduler.replies", "scheduler.schedule-history")


def page(loads: Sequence[Load], figures: Figures, house: House) -> str:
    """Two Markdown tables: what each load needs, and the figures that follows from."""
    needs = [asdict(need(load, figures, house)) for load in loads]
    lines = [f"| | {' | '.join(load.name for load in loads)} |", f"|---|{'---|' * len(loads)}"]
    for key, words in WORDS.items():
        lines.append(f"| {words} | {' | '.join(_text(one[key]) for one in needs)} |")
    lines += ["", "| figure | value | bench |", "|---|---|---|"]
    for key, value in asdict(figures).items():
        words, bench = MEANINGS[key]
        lines.append(f"| {words} | {_text(value)} | {bench} |")
    return "\n".join(lines) + "\n"


WORDS = {
    "node_cores": "cores the scheduler uses",
    "processes": "processes, each half used",
    "nodes": "nodes of 8 cores, one of which may be lost",
    "shards": "shards",
    "memory_gb": "memory of a node at most, GB",
    "node_disk_gb": "local disk of a node, GB",
    "restore_s": "a whole cold restore on what is left, s",
    "broker_cores": "cores the brokers use, three copies",
    "brokers": "brokers of 8 cores, one of which may be lost",
    "broker_mb_per_s": "written by all brokers, MB/s",
    "broker_disk_gb": "disk of a broker, GB",
    "first_full": "full first",
}

MEANINGS = {
    "node_us_per_firing": ("processor time of a node for a firing in a large batch, µs", "costs, two rates"),
    "node_us_per_transaction": ("the same for a transaction, µs", "costs, two rates"),
    "broker_us_per_firing": ("processor time of a broker for a firing, one copy and a reader, µs", "costs, two rates"),
    "broker_us_per_transaction": ("the same for a transaction, µs", "costs, two rates"),
    "node_us_per_command": ("processor time of a node for a create, µs", "costs"),
    "broker_us_per_command": ("the same of a broker, µs", "costs"),
    "dispatch_bytes_per_firing": ("a dispatch in its log, compressed, bytes", "costs"),
    "log_bytes_per_command": ("a create in the logs of commands, replies and history, bytes", "costs"),
    "log_bytes_per_schedule": ("a schedule in its changelog, with as much again not compacted yet, bytes", "costs"),
    "log_bytes_per_transaction": ("shard record and transaction state, bytes", "costs"),
    "store_bytes_per_schedule": ("a schedule in a store, bytes", "restart"),
    "restored_per_s_and_process": ("schedules restored into an empty store, a second and process", "restart"),
    "process_mb": ("memory of a process at most, MB", "the bound; bulk_load, restart"),
    "most_transactions_per_s_and_shard": ("transactions a second of a busy shard at most", "`join_due_ms` = 20"),
}


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)


def main() -> None:
    figures = Figures()
    if len(sys.argv) > 1:
        lines = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines() if line.startswith("{")]
        figures = replace(figures, **measured(lines))
        print(*(f"{name} = {value}" for name, value in asdict(figures).items()), sep="\n", end="\n\n")
    print(page(LOADS, figures, House()), end="")


if __name__ == "__main__":
    main()
