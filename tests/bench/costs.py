"""What a command, a firing and a quiet second cost: bytes to Kafka and to the disk, offsets, transactions, processor.

python -m tests.bench.costs --count 20000 --seconds 60

Three phases on one cluster: `count` creates; quiet; and schedules that fire `per_s` times a second, 2,315 by default,
which is 200 million a day. Bytes of a topic are those of its log files, all copies, as compressed by the producers.
An offset that no committed record has is a marker of a transaction, one for each transaction and partition it wrote.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil
from confluent_kafka import Consumer, TopicPartition

from scheduler.core.time import format_instant
from tests.bench.load import commands
from tests.bench.stand import Memory, Reader, quantile, stand
from topics.admin import connect
from topics.client import CommandClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.stand import Stand

SETTLE_S = 5
AHEAD_S = 8
BEHIND_S = 60.0
LATE_S = 0.25  # of which one per cent may be more at this rate


@dataclass(frozen=True)
class Reading:
    """All counters at one moment."""

    at: float
    cpu_s: float
    broker_cpu_s: float
    transactions: float
    written: int  # bytes the node's processes gave to the disk
    logs: dict[str, int]  # topic -> bytes
    offsets: dict[str, int]  # topic -> offsets in use

    @staticmethod
    def of(it: Stand) -> Reading:
        brokers = [psutil.Process(pid) for pid in it.broker.pids]
        return Reading(
            at=time.time(),
            cpu_s=it.cpu_s(),
            broker_cpu_s=sum(sum(one.cpu_times()[:2]) for one in brokers),
            transactions=it.metrics("scheduler_transactions_total"),
            written=sum(child.io_counters().write_bytes for child in it.children()),
            logs=it.log_bytes(),
            offsets=_offsets(it),
        )

    def since(self, before: Reading, units: int) -> dict[str, Any]:
        """What was added, per unit: commands, firings, or seconds."""
        logs = {topic: (size - before.logs.get(topic, 0)) / units for topic, size in self.logs.items()}
        return {
            "kafka_bytes": round(sum(logs.values()), 1),
            "kafka_bytes_by_topic": {t: round(size, 1) for t, size in sorted(logs.items()) if size >= 0.1},
            "node_disk_bytes": round((self.written - before.written) / units, 1),
            "node_cpu_us": round((self.cpu_s - before.cpu_s) / units * 1e6, 1),
            "broker_cpu_us": round((self.broker_cpu_s - before.broker_cpu_s) / units * 1e6, 1),
            "transactions": round((self.transactions - before.transactions) / units, 5),
        }


def _offsets(it: Stand) -> dict[str, int]:
    found: dict[str, int] = {}
    consumer = Consumer({**it.kafka, "group.id": "bench-offsets"})
    for name, topic in connect(it.kafka).list_topics(timeout=30).topics.items():
        if name.startswith("__"):
            continue
        for number in topic.partitions:
            _, end = consumer.get_watermark_offsets(TopicPartition(name, number), timeout=10)
            found[name] = found.get(name, 0) + end
    consumer.close()
    return found


def steady(per_s: int, first: int, seconds: int) -> Iterator[dict[str, Any]]:
    """Schedules that fire every second, spread over it, for so many seconds."""
    for n in range(per_s):
        at = first + n * 1000 // per_s
        spec = {
            "trigger": {"every_ms": 1000, "anchor": format_instant(at)},
            "start": format_instant(at),
            "end": format_instant(at + seconds * 1000),
            "handler": "send-invoice",
            "payload": {"pad": "x" * 26},
        }
        yield {"command": "create", "schedule_id": f"steady/job-{n:07d}", "spec": spec}


def _await_fired(it: Stand, count: int) -> None:
    """Until all is dispatched, on a machine that is behind too."""
    end = time.monotonic() + BEHIND_S
    while it.metrics("scheduler_dispatched_total") < count:
        if time.monotonic() > end:
            raise RuntimeError(f"not all of {count} were dispatched {BEHIND_S:.0f} s after their time")
        time.sleep(0.5)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """The three phases; every create must be accepted, every firing seen once."""
    with stand(args.shards) as it, CommandClient(it.kafka, timeout_s=120) as client:
        it.start_node(args.processes)
        with Memory(it) as memory:
            start = Reading.of(it)
            created = sum(reply.code == "created" for _, reply in client.send_many(commands(args.count)))
            time.sleep(SETTLE_S)
            loaded = Reading.of(it)
            time.sleep(args.idle_seconds)
            idle = Reading.of(it)
            first = int(time.time() + AHEAD_S + args.per_s / args.assumed_rate) * 1000
            steadily = list(steady(args.per_s, first, args.seconds))
            made = sum(reply.code == "created" for _, reply in client.send_many(steadily))
            if time.time() * 1000 > first:
                raise RuntimeError("the schedules were not created in time: lower --assumed-rate")
            time.sleep(max(0.0, first / 1000 - 1 - time.time()))
            before = Reading.of(it)
            time.sleep(max(0.0, first / 1000 + args.seconds + 1 - time.time()))
            _await_fired(it, args.per_s * args.seconds)
            after = Reading.of(it)
        firings = args.per_s * args.seconds
        seen = Reader(it, firings, 60, b'"steady/').result(120)
    late = [(append - due) / 1000 for append, due in zip(seen.appended, seen.due, strict=True)]
    dispatched = after.offsets["dispatch.default.normal"] - before.offsets["dispatch.default.normal"]
    offsets = sum(after.offsets.values()) - sum(before.offsets.values())
    span = idle.at - loaded.at
    per_firing, per_command, quiet = (
        after.since(before, firings), loaded.since(start, args.count), idle.since(loaded, 1),
    )  # fmt: skip
    wrong = created != args.count or made != args.per_s or len(seen.ids) != firings or len(set(seen.ids)) != firings
    slow = quantile(late, 0.99) > LATE_S or quiet["transactions"] > 0
    return {
        "bench": "costs", "count": args.count, "processes": args.processes, "shards": args.shards,
        "per_s": args.per_s, "seconds": args.seconds, "lateness_p50_s": quantile(late, 0.5),
        "lateness_p99_s": quantile(late, 0.99), "lateness_max_s": quantile(late, 1),
        "command": per_command, "firing": per_firing,
        "cores_at_rate": round((after.cpu_s - before.cpu_s) / (after.at - before.at), 3),
        "broker_cores_at_rate": round((after.broker_cpu_s - before.broker_cpu_s) / (after.at - before.at), 3),
        "transactions_per_s_at_rate": round((after.transactions - before.transactions) / args.seconds, 1),
        "markers_per_firing": round((dispatched - firings) / firings, 4),
        "offsets_per_firing": round(offsets / firings, 4),
        "idle_transactions_per_s": round(quiet["transactions"] / span, 3),
        "idle_cores": round((idle.cpu_s - loaded.cpu_s) / span, 4),
        "idle_broker_cores": round((idle.broker_cpu_s - loaded.broker_cpu_s) / span, 4),
        "idle_kafka_bytes_per_s": round(quiet["kafka_bytes"] / span, 1), "rss_mb_max": memory.most,
        "verdict": "WRONG" if wrong else "slow" if slow else "ok",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--per-s", type=int, default=2_315)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--idle-seconds", type=float, default=20)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--assumed-rate", type=float, default=1_000, help="creates/s assumed when choosing the start")
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
