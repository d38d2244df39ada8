"""Coming back with `count` schedules: a warm restart, a restart after a kill, and a cold one that reads the changelogs.

python -m tests.bench.restart --count 5000000

The first start is the cold one: the schedules are put on the changelog (`preload.py`) before any node has run. Some
fire every second, so that a dispatch shows when a shard works again; how early each shard serves is part of it.
"""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any

from scheduler.core.time import format_instant, parse_instant
from scheduler.shard.keys import SCHEDULE, after_prefix
from scheduler.state.rocks import RocksStore
from tests.bench.preload import PLACE, create, far_ones, names, preload
from tests.bench.stand import Memory, Reader, options, quantile, stand
from topics.partition import partition_for

if TYPE_CHECKING:
    import argparse

    from tests.bench.stand import Stand

TICKS = 4  # schedules a shard, about, that fire every second
COLD_PER_S = 60_000  # schedules a second and process
PATIENCE_S = 900
WATCH_S = 6  # after all shards serve


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Preload, then start: without a store, with the store of a planned stop, with that of a kill."""
    with stand(args.shards) as it:
        now = time.time_ns() // 1_000_000
        tick = create(f"tick/t-{PLACE}", {"every_ms": 1000, "anchor": format_instant(now // 1000 * 1000)})
        loaded_s = preload(it, [tick], TICKS * args.shards, 1) + preload(it, far_ones(now), args.count)
        with Memory(it) as memory:
            cold = _start(it, args, tick)
            it.stop_node()
            warm = _start(it, args, tick)
            for child in it.children():
                child.send_signal(signal.SIGKILL)
            it.node.kill() if it.node else None
            it.node = None
            killed = _start(it, args, tick)
            store = it.store_bytes()
        it.stop_node()
        stored = _stored(it)
    rate = args.count / args.processes / max(cold["restored_s"], 0.001)
    target_s = args.warm_target_s or (1.0 if args.count <= 100_000 else 5.0)
    served = cold["shards"] == warm["shards"] == killed["shards"] == args.shards
    right = served and stored == args.count + TICKS * args.shards
    fast = warm["first_dispatch_s"] <= target_s and rate >= COLD_PER_S
    return {
        "bench": "restart", "count": args.count, "processes": args.processes, "shards": args.shards,
        "preload_per_s": round(args.count / loaded_s), "stored": stored,
        "store_bytes_per_schedule": round(store / args.count, 1),
        **{f"warm_{k}": v for k, v in warm.items()}, "warm_target_s": target_s,
        **{f"killed_{k}": v for k, v in killed.items()},
        **{f"cold_{k}": v for k, v in cold.items()},
        "cold_schedules_per_s_and_process": round(rate), "cold_target": COLD_PER_S,
        "cold_cpu_us_per_schedule": round((cold["cpu_s"] - warm["cpu_s"]) / args.count * 1e6, 1),
        "rss_mb_max": memory.most, "rss_mb_over_time": memory.over_time(),
        "verdict": "ok" if right and fast else "slow" if right else "WRONG",
    }  # fmt: skip


def _start(it: Stand, args: argparse.Namespace, tick: dict[str, Any]) -> dict[str, Any]:
    """Start the node; what its log and the dispatches say. Seconds from the start of the node's first process."""
    before = len(it.node.events()) if it.node else _logged(it)
    began = time.time_ns() // 1_000_000
    it.start_node(args.processes, PATIENCE_S)
    assert it.node is not None
    ready_all, cpu_s = time.time_ns() // 1_000_000, it.cpu_s()
    time.sleep(WATCH_S)
    seen = Reader(it, 10_000_000, 3, b'"tick/').result(60)
    events = it.node.events()[before:]
    at = {name: [_at(e) for e in events if e["event"] == name] for name in ("shards_assigned", "shard_ready")}
    shard_of = {name: partition_for(name.encode(), args.shards) for name in names(tick, range(TICKS * args.shards))}
    first: dict[int, int] = {}
    late: list[float] = []
    for occurrence, append, due in zip(seen.ids, seen.appended, seen.due, strict=True):
        if append < began:
            continue
        shard = shard_of[occurrence.split(":", 1)[0]]
        first[shard] = min(append, first.get(shard, append))
        if append < at["shard_ready"][-1]:
            late.append((append - due) / 1000)
    progress = [e for e in events if e["event"] == "restore_progress"]
    return {
        "first_dispatch_s": _since(began, min(first.values())),
        "last_shards_first_dispatch_s": _since(began, max(first.values())),
        "first_ready_s": _since(began, at["shard_ready"][0]), "all_ready_s": _since(began, at["shard_ready"][-1]),
        "answers_s": _since(began, ready_all), "cpu_s": round(cpu_s, 2),
        "restored_s": _since(at["shards_assigned"][0], at["shard_ready"][-1]),
        "restored": sum(e["applied"] for e in events if e["event"] == "shard_ready"),
        "progress_events": len(progress), "shards": len({e["shard"] for e in events if e["event"] == "shard_ready"}),
        "fired_while_others_opened": len(late), "their_lateness_p99_s": quantile(late, 0.99),
    }  # fmt: skip


def _stored(it: Stand) -> int:
    """How many schedules the stores of the stopped node hold; of a shard that has two, the fuller one counts."""
    found: dict[str, int] = {}
    for file in it.settings.data_dir.rglob("CURRENT"):
        store = RocksStore(file.parent)
        number = sum(1 for _ in store.keys(SCHEDULE, after_prefix(SCHEDULE)))
        store.close()
        shard = file.parent.name.split(".")[0]
        found[shard] = max(number, found.get(shard, 0))
    return sum(found.values())


def _logged(it: Stand) -> int:
    """How many events the log of an earlier run of the node holds."""
    log = it.folder / "bench.log"
    return sum('"event"' in line for line in log.read_text().splitlines()) if log.exists() else 0


def _at(event: dict[str, Any]) -> int:
    return parse_instant(event["at"])


def _since(began: int, instant: int) -> float:
    return round((instant - began) / 1000, 3)


def main() -> None:
    parser = options(100_000, 2, __doc__)
    parser.add_argument("--warm-target-s", type=float, help="default: 1 with up to 100,000 schedules, else 5")
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
