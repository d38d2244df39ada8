"""Accepting commands: creates through the command topic, validated, stored and answered, with one process.

python -m tests.bench.load --count 200000 --processes 1
"""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

from tests.bench.stand import stand
from topics.client import CommandClient

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPRESSIONS = 100


def commands(count: int) -> Iterator[dict[str, Any]]:
    """Cron schedules that share 100 expressions, each with a payload of its own."""
    for i in range(count):
        minute, hour = divmod(i % EXPRESSIONS, 20)
        yield {
            "command": "create",
            "schedule_id": f"load/job-{i:07d}",
            "command_id": f"l{i}",
            "spec": {
                "trigger": {"cron": f"{minute * 7} {hour} * * 1-5", "zone": "Europe/Berlin"},
                "handler": "send-report",
                "payload": {"customer": i, "template": "monthly"},
            },
        }


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Load and count; every reply must say created."""
    with stand(args.shards) as it:
        it.start_node(args.processes)
        began = time.monotonic()
        created = 0
        with CommandClient(it.kafka, timeout_s=120) as client:
            for _, reply in client.send_many(commands(args.count)):
                created += reply.code == "created"
        seconds = time.monotonic() - began
        cpu = [round(sum(child.cpu_times()[:2]), 1) for child in it.children()]
        rss = [round(child.memory_info().rss / 1e6) for child in it.children()]
    rate = args.count / seconds
    verdict = "WRONG" if created != args.count else "ok" if rate >= args.target else "slow"
    return {
        "bench": "load", "count": args.count, "processes": args.processes, "shards": args.shards,
        "accepted_per_s": round(rate), "node_cpu_s": cpu, "node_cpu_us_per_command": round(sum(cpu) / args.count * 1e6),
        "rss_mb": rss, "created": created, "verdict": verdict,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--target", type=float, default=20_000)
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
