"""Steady: so many recurring firings a second, or cron schedules every minute; lateness, and what it costs in cores.

python -m tests.bench.steady --rate 20000 --seconds 60
python -m tests.bench.steady --rate 2315 --seconds 60        (200 million a day)
python -m tests.bench.steady --per-minute 10000 --minutes 3

Every occurrence has a cell of its own in a grid (schedule, nominal): what is lost or doubled is counted by ids.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing as mp
import os
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from scheduler.core.time import format_instant, parse_instant, stamp
from tests.bench.stand import stand
from topics.client import CommandClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.queues import Queue

    from tests.bench.stand import Stand

NAME = "steady/n{:07d}"
ID = slice(len('{"occurrence_id":"steady/n'), len('{"occurrence_id":"steady/n') + 7)
STAMP = slice(ID.stop + len(":1:"), ID.stop + len(":1:") + len("20261129T200000.000Z"))
MINUTE_MS = 60_000
PATIENCE_S = 30.0  # after the last nominal, until everything must have been read


@dataclass(frozen=True)
class Grid:
    """What is expected: `count` schedules, spread over `period_ms` if they are `spread`, each with so many nominals."""

    first_ms: int
    count: int
    period_ms: int
    nominals: int
    spread: bool

    def first_of(self, number: int) -> int:
        return self.first_ms + (number * self.period_ms // self.count if self.spread else 0)

    @property
    def end_ms(self) -> int:
        """After every nominal."""
        return self.first_ms + self.nominals * self.period_ms

    def commands(self) -> Iterator[dict[str, Any]]:
        """The creates."""
        for n in range(self.count):
            trigger: dict[str, Any] = {"every_ms": self.period_ms, "anchor": format_instant(self.first_of(n))}
            if not self.spread:
                trigger = {"cron": "* * * * *", "zone": "Europe/Berlin"}
            yield {
                "command": "create",
                "schedule_id": NAME.format(n),
                "command_id": f"s{n}",
                "spec": {
                    "trigger": trigger, "start": format_instant(self.first_ms), "end": format_instant(self.end_ms),
                    "handler": "send-invoice", "payload": {"pad": "x" * 26},
                },
            }  # fmt: skip


@dataclass
class Found:
    """Lateness in ms with counts, records outside the grid, and cells by how often they were seen."""

    late: Counter[int]
    strange: int
    times_seen: Counter[int]

    def quantile(self, q: float) -> float:
        """Seconds."""
        left = q * self.late.total()
        for ms in sorted(self.late):
            left -= self.late[ms]
            if left <= 0:
                return ms / 1000
        return -1.0


def _read(bootstrap: str, topics: dict[str, int], grid: Grid, out: Queue[Any]) -> None:
    """Body of the reader process: everything from the start, until the grid is full and two seconds more."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": f"steady-{os.getpid()}", "isolation.level": "read_committed",
            "enable.auto.commit": False, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(t, p, 0) for t, n in topics.items() for p in range(n)])
    out.put("ready")
    gc.disable()  # nothing here goes in circles
    cells = bytearray(grid.count * grid.nominals)
    late: Counter[int] = Counter()
    instants: dict[bytes, int] = {}  # of the stamps of this second and the last ones
    strange = seen = 0
    end = grid.end_ms / 1000 + PATIENCE_S
    while time.time() < end:
        for message in consumer.consume(10_000, 0.1):
            value = message.value()
            if message.error() is not None or not value.startswith(b'{"occurrence_id":"steady/'):
                continue
            text = value[STAMP]
            due = instants.get(text)
            if due is None:
                if len(instants) > 100_000:
                    instants.clear()
                due = instants[text] = _instant(text)
            number = int(value[ID])
            nominal, off = divmod(due - grid.first_of(number), grid.period_ms)
            if off or not 0 <= nominal < grid.nominals or number >= grid.count:
                strange += 1
                continue
            cell = number * grid.nominals + nominal
            cells[cell] = min(255, cells[cell] + 1)
            late[message.timestamp()[1] - due] += 1
            seen += 1
            if seen == len(cells):
                end = min(end, time.time() + 2)
    consumer.close()
    out.put(Found(late, strange, Counter(cells)))


def _instant(text: bytes) -> int:
    """Of `20261129T200000.000Z`."""
    t = text.decode()
    instant = parse_instant(f"{t[:4]}-{t[4:6]}-{t[6:11]}:{t[11:13]}:{t[13:]}")
    if stamp(instant) != t:
        raise ValueError(f"{t} is no stamp")
    return instant


def create_all(it: Stand, grid: Grid) -> None:
    """Raises RuntimeError unless all are accepted in time."""
    with CommandClient(it.kafka, timeout_s=120) as client:
        accepted = sum(reply.code == "created" for _, reply in client.send_many(grid.commands()))
    spare_s = grid.first_ms / 1000 - time.time()
    if accepted != grid.count or spare_s < 2:
        raise RuntimeError(f"{accepted} of {grid.count} creates accepted, {spare_s:.0f} s before the first nominal")


def plan_of(args: argparse.Namespace) -> Grid:
    """What these arguments ask for, from an instant on by which everything is loaded."""
    count = args.per_minute or args.rate * args.period_ms // 1000
    first = int(time.time() + 15 + count / args.assumed_rate) * 1000
    if args.per_minute:
        first += -first % MINUTE_MS
        return Grid(first, count, MINUTE_MS, args.minutes, spread=False)
    return Grid(first, count, args.period_ms, args.seconds * 1000 // args.period_ms, spread=True)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Load, watch, compare; the result as the last line shows it."""
    with stand(args.shards) as it:
        it.start_node(args.processes)
        grid = plan_of(args)
        create_all(it, grid)
        context = mp.get_context("spawn")
        out = context.Queue()
        topics = dict.fromkeys(it.settings.catalogue().dispatch_topics(), args.shards)
        bootstrap = it.settings.kafka.bootstrap_servers
        reader = context.Process(target=_read, args=(bootstrap, topics, grid, out), daemon=True)
        reader.start()
        if out.get(timeout=60) != "ready":
            raise RuntimeError("the reader did not start")
        time.sleep(max(0.0, grid.first_ms / 1000 - time.time()))
        brokers = [psutil.Process(pid) for pid in it.broker.pids]
        began, before = time.monotonic(), [_cpu(it.children()), _cpu(brokers)]
        memory = 0
        while time.time() < grid.end_ms / 1000:
            time.sleep(min(1.0, max(0.01, grid.end_ms / 1000 - time.time())))
            memory = max(memory, *(child.memory_info().rss for child in it.children()))
        wall = time.monotonic() - began
        after = [_cpu(it.children()), _cpu(brokers)]
        cores = [(b - a) / wall for a, b in zip(before, after, strict=True)]
        found: Found = out.get(timeout=PATIENCE_S + 60)
        reader.join(10)
    expected = grid.count * grid.nominals
    result = {
        "bench": "steady", "schedules": grid.count, "period_ms": grid.period_ms, "nominals": grid.nominals,
        "per_s": round(1000 * grid.count / grid.period_ms), "processes": args.processes, "shards": args.shards,
        "expected": expected, "lost": found.times_seen[0], "strange": found.strange,
        "duplicates": sum((times - 1) * cells for times, cells in found.times_seen.items() if times > 1),
        "early": sum(count for ms, count in found.late.items() if ms < 0),
        "late_p50_s": found.quantile(0.5), "late_p99_s": found.quantile(0.99), "late_max_s": found.quantile(1),
        "cores_node": round(cores[0], 2), "cores_broker": round(cores[1], 2), "rss_mb": round(memory / 1e6),
        "target_p99_s": 0.15 if args.per_minute else 0.25,
    }  # fmt: skip
    wrong = result["lost"] or result["duplicates"] or result["early"] or result["strange"]
    result["verdict"] = "WRONG" if wrong else "ok" if result["late_p99_s"] <= result["target_p99_s"] else "slow"
    return result


def _cpu(processes: list[psutil.Process]) -> float:
    return sum(sum(one.cpu_times()[:2]) for one in processes)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=int, default=20_000, help="firings a second")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--period-ms", type=int, default=1_000, help="of each schedule")
    parser.add_argument("--per-minute", type=int, default=0, help="cron schedules of every minute, instead of a rate")
    parser.add_argument("--minutes", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--assumed-rate", type=float, default=2_000, help="creates/s assumed when choosing the start")
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
