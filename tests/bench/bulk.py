"""Bulk commands by selector: pause, resume and delete of everything that was loaded, as the command line does it.

python -m tests.bench.bulk --count 100000 --processes 1
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import psutil

from tests.bench.load import commands
from tests.bench.stand import options, stand
from topics.client import CommandClient

if TYPE_CHECKING:
    import argparse

    from tests.bench.stand import Stand

CHANGED = {"pause": "paused", "resume": "resumed", "delete": "deleted"}


def bulk(it: Stand, verb: str, *more: str) -> tuple[float, float, dict[str, Any]]:
    """(seconds, peak MB, account) of one command line, its start included."""
    assert it.node is not None
    base = [sys.executable, "-m", "scheduler", "--config", str(it.node.config), "schedule", verb]
    began = time.monotonic()
    process = subprocess.Popen(
        [*base, "--tenant", "load", "--json", "--yes", "--timeout", "120", *more], stdout=subprocess.PIPE
    )
    seen = psutil.Process(process.pid)
    peak = 0
    while process.poll() is None:
        try:
            peak = max(peak, seen.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(0.05)
    out, _ = process.communicate()
    return time.monotonic() - began, peak / 1e6, json.loads(out.splitlines()[-1])


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Load, then each verb once; every account must say that everything was changed."""
    with stand(args.shards) as it:
        it.start_node(args.processes)
        with CommandClient(it.kafka, timeout_s=120) as client:
            created = sum(reply.code == "created" for _, reply in client.send_many(commands(args.count)))
        counted, _, dry = bulk(it, "pause", "--dry-run")
        took = {verb: bulk(it, verb) for verb in CHANGED}
    right = created == dry["selected"] == args.count
    right = right and all(account["changed"] == args.count for _, _, account in took.values())
    return {
        "bench": "bulk", "count": args.count, "processes": args.processes, "shards": args.shards,
        "dry_run_s": round(counted, 2),
        **{f"{verb}_s": round(seconds, 2) for verb, (seconds, _, _) in took.items()},
        "peak_rss_mb": round(max(peak for _, peak, _ in took.values())),
        "verdict": "ok" if right else "WRONG",
    }  # fmt: skip


def main() -> None:
    parser = options(100_000, 1)
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
