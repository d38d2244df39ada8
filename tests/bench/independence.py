"""What else is pending must not matter: the same burst, and the same quiet, with a few and with many schedules waiting.

python -m tests.bench.independence --few 500000 --many 5000000 --count 100000

What waits is put on the changelog beforehand (`preload.py`) and fires in two months; the bursts are created through the
command topic. Each pending count has a cluster of its own, in one run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

from tests.bench.instant import Outcome, one_instant
from tests.bench.preload import far_ones, preload
from tests.bench.stand import Memory, Stand, stand

PATIENCE_S = 900
SETTLE_S = 5  # after a start or a burst the stores tidy up
TIMES = 1.2
PLUS_S = 0.2
IDLE_PLUS = 0.01  # of a core, that idle may differ: what one look at the process times can resolve


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Both pending counts, the few first."""
    result: dict[str, Any] = {
        "bench": "independence", "count": args.count, "processes": args.processes, "shards": args.shards,
        "few": args.few, "many": args.many, "repeats": args.repeats,
    }  # fmt: skip
    bursts: list[Outcome] = []
    for name, pending in (("few", args.few), ("many", args.many)):
        with stand(args.shards) as it:
            preload(it, far_ones(time.time_ns() // 1_000_000), pending)
            with Memory(it) as memory:
                result[f"{name}_start_s"] = round(it.start_node(args.processes, PATIENCE_S), 1)
                idle = _idle(it, args.idle_seconds)
                found = [one_instant(it, f"burst{n}", args.count) for n in range(args.repeats)]
            bursts += found
            p99s = [outcome.figures()["append_p99_s"] for outcome in found]
            result |= {f"{name}_{key}": value for key, value in idle.items()}
            result |= {
                f"{name}_append_p99_s": p99s, f"{name}_append_p99_median_s": statistics.median(p99s),
                f"{name}_load_per_s": round(statistics.median(o.load_per_s for o in found)),
                f"{name}_rss_mb_max": memory.most,
            }  # fmt: skip
    few, many = result["few_append_p99_median_s"], result["many_append_p99_median_s"]
    fast = many <= TIMES * few + PLUS_S
    quiet = result["many_idle_cores"] <= result["few_idle_cores"] + IDLE_PLUS and not result["many_idle_transactions"]
    return result | {
        "ratio": round(many / few, 2), "allowed_s": round(TIMES * few + PLUS_S, 3),
        "lost": sum(o.lost for o in bursts), "duplicates": sum(o.doubled for o in bursts),
        "early": sum(o.early for o in bursts),
        "verdict": "WRONG" if not all(o.right for o in bursts) else "ok" if fast and quiet else "slow",
    }  # fmt: skip


def _idle(it: Stand, seconds: float) -> dict[str, Any]:
    """Processor time and transactions while nothing is due."""
    time.sleep(SETTLE_S)
    cpu, transactions, began = it.cpu_s(), it.metrics("scheduler_transactions_total"), time.monotonic()
    time.sleep(seconds)
    return {
        "idle_cores": round((it.cpu_s() - cpu) / (time.monotonic() - began), 4),
        "idle_transactions": round(it.metrics("scheduler_transactions_total") - transactions),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--few", type=int, default=500_000)
    parser.add_argument("--many", type=int, default=5_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--idle-seconds", type=float, default=20)
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
