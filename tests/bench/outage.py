"""After an outage: `count` schedules with a backlog beside 100 on time, on a real broker.

python -m tests.bench.outage --count 10000

Reports the lateness of the hundred while the others are caught up, next to their lateness before the outage, and how
long deciding what one schedule missed takes.
"""

from __future__ import annotations

import json
import signal
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from scheduler.core.time import format_instant
from tests.bench.stand import Reader, Seen, options, quantile, stand
from topics.client import CommandClient
from topics.since import read_since
from topics.tables import write_rows

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from tests.bench.stand import Stand

PUNCTUAL = 100
OUTAGE_S = 34  # longer than a rate of 10 s and its grace, and what the readers take to close
BACK_S = 8  # a node is there and has decided everything by then


def late_ones(count: int, first: int) -> Iterator[dict[str, Any]]:
    """Every 10 s, spread over the 10 s."""
    for n in range(count):
        spec = {
            "trigger": {"every_ms": 10_000, "anchor": format_instant(first + n % 10_000)},
            "misfire": {"catch_up": 2},
        }
        yield {"command": "create", "schedule_id": f"late/n{n}", "spec": spec}


def punctual_ones(start: int, seconds: int, name: str) -> Iterator[dict[str, Any]]:
    """Every second from `start` on: 100 beside each other in every second."""
    for n in range(PUNCTUAL):
        trigger = {"every_ms": 1000, "anchor": format_instant(start + n * 10)}
        spec = {"trigger": trigger, "start": format_instant(start), "end": format_instant(start + seconds * 1000)}
        yield {"command": "create", "schedule_id": f"{name}/n{n}", "spec": spec}


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Load, measure the hundred, kill for half a minute, measure them again while the rest is caught up."""
    with stand(args.shards) as it:
        catalogue = it.settings.catalogue()
        row = {"tenant": "late", "version": 1, "catch_up_per_s": args.per_s}
        write_rows(it.kafka, catalogue.tenants, [(b"late@1", json.dumps(row).encode())])
        it.start_node(args.processes)
        now = int(time.time()) * 1000
        before, after = now + 12_000, now + (12 + args.seconds + OUTAGE_S + BACK_S) * 1000
        with CommandClient(it.kafka, timeout_s=120) as client:
            commands = [
                *punctual_ones(before, args.seconds, "before"),
                *punctual_ones(after, args.seconds, "during"),
                *late_ones(args.count, now + 5_000),
            ]
            refused = sum(reply.code != "created" for _, reply in client.send_many(commands))
        usual = _lateness(it, args.seconds, b'"before/')
        began = time.time_ns() // 1_000_000
        for child in it.children():
            child.send_signal(signal.SIGKILL)
        it.node.kill() if it.node else None
        it.node = None
        time.sleep(max(0.0, after / 1000 - BACK_S - time.time()))
        it.start_node(args.processes)
        reader = Reader(it, 1_000_000, 2, b'"catch_up"')
        during = _lateness(it, args.seconds, b'"during/')
        caught_up = len(reader.result(60).ids)
        decided, ms = _decisions(it, began)
        behind = it.metrics("scheduler_overdue")
    p99 = quantile(during, 0.99)
    wrong = refused or len(during) != PUNCTUAL * args.seconds or decided != args.count
    return {
        "bench": "outage", "count": args.count, "processes": args.processes, "shards": args.shards,
        "catch_up_per_s": args.per_s, "on_time_p50_ms": quantile(during, 0.5), "on_time_p99_ms": p99,
        "on_time_max_ms": quantile(during, 1), "before_outage_p99_ms": quantile(usual, 0.99), "decided": decided,
        "ms_per_decided_schedule": round(ms, 3), "caught_up_in_2_s": caught_up, "still_waiting": round(behind),
        "verdict": "WRONG" if wrong else "ok" if p99 <= max(250, 2 * quantile(usual, 0.99)) else "slow",
    }  # fmt: skip


def _lateness(it: Stand, seconds: int, marker: bytes) -> list[float]:
    """Append minus due of all occurrences of the hundred, in ms."""
    seen: Seen = Reader(it, PUNCTUAL * seconds, seconds + 40, marker).result(seconds + 80)
    return [float(append - due) for append, due in zip(seen.appended, seen.due, strict=True)]


def _decisions(it: Stand, since: int) -> tuple[int, float]:
    """How many schedules were decided after the outage, and the mean ms for one, by the records of what they owe."""
    first: dict[int, list[int]] = defaultdict(list)
    for shard in range(it.settings.shards):
        owners: dict[bytes, int] = {}
        for record in read_since(it.kafka, it.settings.catalogue().live, partition=shard, since_ms=since):
            if record.key is not None and record.value is not None and record.key.startswith(b"catchup:"):
                owners.setdefault(record.key, record.append_ms)
        first[shard] = sorted(owners.values())
    count = sum(map(len, first.values()))
    spans = sum(times[-1] - times[0] for times in first.values() if times)
    return count, spans / max(1, count)


def main() -> None:
    parser = options(10_000, 2)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--per-s", type=float, default=500)
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
