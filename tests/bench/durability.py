"""What three copies cost, and what the death of a broker costs: bursts on one broker, on three, and with one killed.

python -m tests.bench.durability --count 100000

On the same cores in one run: replication 1 on one broker; replication 3 with two in sync on three brokers; the same
with a broker killed (SIGKILL) in the middle of the load, and with another killed as the instant comes. Ratios are to
replication 1 and are no target: here all copies share two cores and a disk. What must hold is that nothing is lost or
doubled.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from tests.bench.instant import Outcome, one_instant
from tests.bench.stand import Memory, Stand, options, stand
from topics.admin import connect

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

IN_SYNC_S = 60.0
UNDER_WAY_S = 0.2  # after the instant: the burst is on its way


def run(args: argparse.Namespace) -> dict[str, Any]:
    """The four bursts; all replicas are in sync again before the next."""
    found: dict[str, Outcome] = {}
    most = []
    with stand(args.shards) as it:
        it.start_node(args.processes)
        with Memory(it) as memory:
            found["one"] = one_instant(it, "one", args.count)
        most.append(memory.most)
    with stand(args.shards, nodes=3) as it:
        it.start_node(args.processes)
        with Memory(it) as memory:
            found["three"] = one_instant(it, "three", args.count)
            found["killed_in_load"] = one_instant(it, "load", args.count, while_loading=_killer(it, 1))
            it.broker.restart(1)
            back_s = [_in_sync(it)]
            found["killed_in_burst"] = one_instant(it, "burst", args.count, at_instant=_killer(it, 2, UNDER_WAY_S))
            it.broker.restart(2)
            back_s.append(_in_sync(it))
        most.append(memory.most)
    one = found["one"].figures()
    ratios = {
        f"{name}_{figure}_ratio": round(outcome.figures()[figure] / max(one[figure], 0.001), 2)
        for name, outcome in found.items()
        for figure in ("append_p99_s", "visible_p99_s", "load_per_s")
        if name != "one"
    }
    return {
        "bench": "durability", "count": args.count, "processes": args.processes, "shards": args.shards,
        **{f"{name}_{key}": value for name, outcome in found.items() for key, value in outcome.figures().items()},
        **ratios, "in_sync_again_s": back_s, "rss_mb_max": max(most),
        "lost": sum(o.lost for o in found.values()), "duplicates": sum(o.doubled for o in found.values()),
        "early": sum(o.early for o in found.values()),
        "verdict": "ok" if all(o.right for o in found.values()) else "WRONG",
    }  # fmt: skip


def _killer(it: Stand, node: int, after_s: float = 0.0) -> Callable[[], None]:
    def kill() -> None:
        time.sleep(after_s)
        it.broker.kill(node)

    return kill


def _in_sync(it: Stand) -> float:
    """Seconds until all copies of all partitions are in sync."""
    began = time.monotonic()
    admin = connect(it.kafka)
    while time.monotonic() < began + IN_SYNC_S:
        topics = admin.list_topics(timeout=30).topics
        if all(len(p.isrs) == len(p.replicas) for one in topics.values() for p in one.partitions.values()):
            return round(time.monotonic() - began, 1)
        time.sleep(0.1)
    raise RuntimeError(f"not all copies are in sync after {IN_SYNC_S:.0f} s")


def main() -> None:
    parser = options(100_000, 2, __doc__)
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
