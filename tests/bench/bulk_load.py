"""Loading millions through the command topic: rate, memory over time, what a schedule takes, and who else suffers.

python -m tests.bench.bulk_load --count 5000000

A hundred schedules fire every second meanwhile; their lateness is that of a tenant who has nothing to do with the load.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from scheduler.core.time import format_instant
from tests.bench.load import commands
from tests.bench.stand import Memory, Reader, options, quantile, stand
from topics.client import CommandClient

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from tests.bench.stand import Stand

PUNCTUAL = 100
AHEAD_S = 8
AFTER_S = 3  # by then the gauges of what is overdue are those of after the load
BEHIND_S = 60.0
LATE_S = 1.0
READ_S = 6.0  # to read what the hundred did, and
READ_PER_S = 4_000  # this many a second: few to a transaction
MEMORY_MB = 1_000
STORE_BYTES = 200
MANY = 1_000_000  # schedules from which on the stores are more than their logs of what was written last


def punctual(first: int) -> Iterator[dict[str, Any]]:
    """A hundred beside each other in every second, of a priority and a tenant of their own."""
    for n in range(PUNCTUAL):
        trigger = {"every_ms": 1000, "anchor": format_instant(first + n * 10)}
        spec = {"trigger": trigger, "start": format_instant(first), "priority": "high"}
        yield {"command": "create", "schedule_id": f"punctual/n{n}", "spec": spec}


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Load while the hundred fire; then ask their occurrences of the topics."""
    with stand(args.shards) as it:
        it.start_node(args.processes)
        first = (int(time.time()) + AHEAD_S) * 1000
        with CommandClient(it.kafka, timeout_s=120) as client:
            refused = sum(reply.code != "created" for _, reply in client.send_many(punctual(first)))
            time.sleep(max(0.0, first / 1000 - time.time()))
            before, cpu = it.log_bytes(), it.cpu_s()
            began = time.time()
            with Memory(it) as memory:
                created = 0
                for _, reply in client.send_many(commands(args.count)):
                    created += reply.code == "created"
            ended = time.time()
        cpu = it.cpu_s() - cpu
        _await_punctual(it)
        expected = (int(ended * 1000) // 1000 - (int(began * 1000) + 999) // 1000) * PUNCTUAL
        late, seen = _lateness(it, int(began * 1000), int(ended * 1000), READ_S + expected / READ_PER_S)
        store = it.store_bytes()
        sst = sum(file.stat().st_size for file in it.settings.data_dir.rglob("*.sst"))
        log = {topic: size - before.get(topic, 0) for topic, size in it.log_bytes().items()}
    seconds = ended - began
    missing = max(0, expected - seen)
    p99 = quantile(late, 0.99)
    small = args.count < MANY or store / args.count <= STORE_BYTES
    fast = p99 <= LATE_S and memory.most <= MEMORY_MB and small and args.count / seconds >= args.target
    return {
        "bench": "bulk_load", "count": args.count, "processes": args.processes, "shards": args.shards,
        "accepted_per_s": round(args.count / seconds), "target_per_s": args.target, "seconds": round(seconds, 1),
        "node_cpu_us_per_command": round(cpu / args.count * 1e6),
        "punctual_p50_s": quantile(late, 0.5), "punctual_p99_s": p99, "punctual_max_s": quantile(late, 1),
        "punctual_seen": seen, "punctual_missing": missing, "rss_mb_max": memory.most,
        "rss_mb_over_time": memory.over_time(20), "store_bytes_per_schedule": round(store / args.count, 1),
        "sst_bytes_per_schedule": round(sst / args.count, 1),
        "log_bytes_per_schedule": {t: round(s / args.count, 1) for t, s in sorted(log.items()) if s >= args.count},
        "verdict": "WRONG" if refused or missing or created != args.count else "ok" if fast else "slow",
    }  # fmt: skip


def _await_punctual(it: Stand) -> None:
    """Until nothing of the time of the load is owed any more, however late it comes."""
    end = time.monotonic() + BEHIND_S
    time.sleep(AFTER_S)
    while it.metrics("scheduler_oldest_overdue_seconds") > 0.5 and time.monotonic() < end:
        time.sleep(0.5)


def _lateness(it: Stand, since: int, until: int, seconds: float) -> tuple[list[float], int]:
    """Seconds of lateness of the hundred's occurrences due between two instants, and how many were read so long."""
    seen = Reader(it, 1 << 40, seconds, b'"punctual/').result(seconds + 200)
    within = {
        name: (append - due) / 1000
        for name, append, due in zip(seen.ids, seen.appended, seen.due, strict=True)
        if since <= due < until
    }
    return list(within.values()), len(within)


def main() -> None:
    parser = options(200_000, 1, __doc__)
    parser.add_argument("--target", type=float, default=20_000, help="accepted a second")
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
