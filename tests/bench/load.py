"""Accepting commands: creates through the command topic, validated, stored and answered, with one process.

python -m tests.bench.load --count 200000 --processes 1 [--preloaded]

The client that sends and reads the replies is a Python program on the same cores. With `--preloaded` the commands are
on the topic before the node starts, and the time is that from the first reply's stamp to the last's.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.bench.stand import options, stand
from topics.client import CommandClient
from topics.messages import Reply

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from tests.bench.stand import Stand

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


def client(it: Stand, count: int) -> tuple[int, float]:
    """Send and hear the replies; how many were created, and the seconds that took."""
    began = time.monotonic()
    created = 0
    with CommandClient(it.kafka, timeout_s=120) as sender:
        for _, reply in sender.send_many(commands(count)):
            created += reply.code == "created"
    return created, time.monotonic() - began


def write(it: Stand, count: int) -> None:
    """Put all commands on the topic."""
    producer = Producer(
        {**it.kafka, "partitioner": "murmur2_random", "linger.ms": 20, "compression.type": "lz4",
         "enable.idempotence": True, "queue.buffering.max.messages": 2_000_000}
    )  # fmt: skip
    topic = it.settings.catalogue().commands
    for command in commands(count):
        producer.produce(topic, msgspec.json.encode(command), str(command["schedule_id"]))
        producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("not all commands were written")


def replies(it: Stand, count: int) -> tuple[int, float]:
    """Read all replies: how many say created, and the seconds from the first one's append to the last one's."""
    consumer = Consumer(
        {**it.kafka, "group.id": "bench", "isolation.level": "read_committed", "enable.auto.commit": False}
    )
    topic = it.settings.catalogue().replies
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(it.settings.shards)])
    codes: list[str] = []
    appended: list[int] = []
    deadline = time.monotonic() + 300
    while len(codes) < count and time.monotonic() < deadline:
        for message in consumer.consume(5_000, 1.0):
            if message.error() is None:
                codes.append(msgspec.json.decode(message.value() or b"", type=Reply).code)
                appended.append(message.timestamp()[1])
    consumer.close()
    return codes.count("created"), (max(appended) - min(appended)) / 1000


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Load and count; every reply must say created."""
    with stand(args.shards) as it:
        if args.preloaded:
            write(it, args.count)
            it.start_node(args.processes)
            before = [0.0] * args.processes
            created, seconds = replies(it, args.count)
        else:
            it.start_node(args.processes)
            before = [sum(child.cpu_times()[:2]) for child in it.children()]
            created, seconds = client(it, args.count)
        cpu = [sum(child.cpu_times()[:2]) - spent for child, spent in zip(it.children(), before, strict=True)]
        rss = [round(child.memory_info().rss / 1e6) for child in it.children()]
        transactions = it.metrics("scheduler_transactions_total")
    rate = args.count / seconds
    verdict = "WRONG" if created != args.count else "ok" if rate >= args.target else "slow"
    return {
        "bench": "load", "count": args.count, "processes": args.processes, "shards": args.shards,
        "preloaded": args.preloaded, "accepted_per_s": round(rate), "node_cpu_s": [round(spent, 1) for spent in cpu],
        "node_cpu_us_per_command": round(sum(cpu) / args.count * 1e6), "transactions": round(transactions),
        "rss_mb": rss, "created": created, "verdict": verdict,
    }  # fmt: skip


def main() -> None:
    parser = options(100_000, 1)
    parser.add_argument("--preloaded", action="store_true")
    parser.add_argument("--target", type=float, default=20_000)
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
