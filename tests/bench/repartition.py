"""Moving a cluster to another number of shards: how long nothing fires, from the fence to the first new node's service.

python -m tests.bench.repartition --count 100000 --shards 8 --to 16
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from tests.bench.load import commands
from tests.bench.stand import options, stand
from tests.support.node import Cluster, await_ready
from topics.client import CommandClient

if TYPE_CHECKING:
    import argparse


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Load, stop, move, start; every schedule must have arrived."""
    with stand(args.shards) as it:
        it.start_node(args.processes)
        with CommandClient(it.kafka, timeout_s=120) as client:
            created = sum(reply.code == "created" for _, reply in client.send_many(commands(args.count)))
        assert it.node is not None
        config = it.node.config
        it.stop_node()
        base = [sys.executable, "-m", "scheduler", "--config", str(config), "repartition", "--namespace", "v2."]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.monotonic()
        moved = subprocess.run(
            [*base, "--shards", str(args.to), "--reason", "bench", "--yes", "--json"],
            check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        seconds = time.monotonic() - began
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        account = json.loads(moved.stdout.splitlines()[-1])
        folder = it.folder / "v2"
        folder.mkdir()
        node = Cluster(it.settings.kafka.bootstrap_servers, "v2.", args.to, folder).node("v2", args.processes)
        try:
            began = time.monotonic()
            await_ready(node.start(), seconds=120)
            ready = time.monotonic() - began
        finally:
            node.kill()
    return {
        "bench": "repartition", "count": args.count, "shards": args.shards, "to": args.to,
        "move_s": round(seconds, 1), "schedules_per_s": round(args.count / seconds),
        "move_cpu_s": round(used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime, 1),
        "new_node_ready_s": round(ready, 1),
        "verdict": "ok" if created == account["schedules"] == args.count else "WRONG",
    }  # fmt: skip


def main() -> None:
    parser = options(100_000, 1)
    parser.add_argument("--to", type=int, default=16)
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
