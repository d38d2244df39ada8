"""What a node costs when nothing is due, and how fast it comes back: `count` schedules far in the future.

python -m tests.bench.idle --count 100000 --seconds 30
"""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

from tests.bench.burst import load
from tests.bench.stand import Reader, stand
from topics.client import CommandClient

if TYPE_CHECKING:
    import psutil

DAY_MS = 86_400_000


def _cpu(children: list[psutil.Process]) -> float:
    return sum(sum(child.cpu_times()[:2]) for child in children)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Load, watch the node idle, restart it warm and cold, and see a schedule fire after each."""
    with stand(args.shards) as it:
        it.start_node(args.processes)
        far = int(time.time() + 30 * 86_400) * 1000
        rate = load(it, args.count, far, "x" * 26, "at")
        time.sleep(10)  # what the load left behind is written: this bench watches the quiet after it
        before, began = _cpu(it.children()), time.monotonic()
        transactions = it.metrics("scheduler_transactions_total")
        time.sleep(args.seconds)
        idle = (_cpu(it.children()) - before) / (time.monotonic() - began)
        idle_transactions = it.metrics("scheduler_transactions_total") - transactions
        rss = [round(child.memory_info().rss / 1e6) for child in it.children()]
        store = sum(f.stat().st_size for f in it.settings.data_dir.rglob("*.sst"))
        warm = _first_dispatch(it, args.processes)
        it.stop_node()
        for file in sorted(it.settings.data_dir.rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
        cold = _first_dispatch(it, args.processes)
    return {
        "bench": "idle", "count": args.count, "processes": args.processes, "shards": args.shards,
        "load_per_s": round(rate), "idle_core_percent": round(100 * idle, 2),
        "idle_transactions": round(idle_transactions), "rss_mb": rss,
        "sst_bytes_per_schedule": round(store / args.count, 1), "warm_first_dispatch_s": warm,
        "cold_first_dispatch_s": cold, "verdict": "ok" if idle <= 0.03 else "slow",
    }  # fmt: skip


def _first_dispatch(it: Any, processes: int) -> float:
    """Seconds from the start of the node's process to the first append of a per-second schedule loaded before."""
    if it.node is None:
        it.start_node(processes)
    with CommandClient(it.kafka) as client:
        for n in range(it.settings.shards * 4):
            spec = {"trigger": {"every_ms": 1000}}
            client.send({"command": "create", "schedule_id": f"tick/t{n}", "spec": spec})
    it.stop_node()
    began = time.time_ns() // 1_000_000
    reader = Reader(it, 1_000_000, 15, b'"tick/')
    it.start_node(processes)
    seen = reader.result(60)
    return (min(a for a in seen.appended if a >= began) - began) / 1000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30)
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
