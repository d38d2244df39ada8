"""Burst: `count` occurrences due at one instant, next to bare transactional producers with the same bytes.

The bare ones run afterwards, alone but for the same kind of reader: as many processes, threads and transactions, with
records of the same size that differ from each other in the same places. They also run once before all else, uncounted:
a broker that has just started compiles its code while it serves, and the first burst on it takes twice as long as the
second, whoever it comes from.

python -m tests.bench.burst --count 100000 --processes 2 --shards 8 --json

`--preload` puts the schedules on the changelog instead of creating them one by one, which takes a tenth of the time.
`--changes 1000` pauses, moves and cancels so many each, acknowledged a second before the instant at the latest; what is
expected follows from them. `--kill` kills one of the processes in the middle.
"""

from __future__ import annotations

import json
import multiprocessing as mp
import signal
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from scheduler.core.time import format_instant, stamp
from scheduler.runtime.kafka import FILL_MS
from tests.bench.preload import PLACE, preload
from tests.bench.stand import Reader, Stand, options, quantile, stand
from topics.client import CommandClient

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from multiprocessing.sharedctypes import Synchronized
    from multiprocessing.synchronize import Barrier

TXN = 20_000
NAME = "burst/job-{:08d}"
KINDS = ("at", "every", "cron")
LEAST_RATIO = 0.7
LEAST_SPARE_S = 6.0  # from everything loaded to the instant
ACKNOWLEDGED_S = 1.0  # so long before the instant a change has its answer
KILLED_S = 0.4  # after the instant
LEAD_S = 2  # at most, from the last bare producer's being ready to the instant at which all begin
BARE = "bare"  # the topic of the bare producers
WARM_UP = "warm-up"  # theirs before all else


class Start(NamedTuple):
    """What bare producers wait for: that all are ready, and then an instant (Unix s), told by whoever comes last."""

    barrier: Barrier
    at: Synchronized[float]


def commands(count: int, due_ms: int, payload: str, kind: str) -> Iterator[dict[str, Any]]:
    spec = definition(due_ms, payload, kind)
    for i in range(count):
        yield {"command": "create", "schedule_id": NAME.format(i), "command_id": f"b{i}", "spec": spec}


def definition(due_ms: int, payload: str, kind: str) -> dict[str, Any]:
    """A one-shot, an hourly rate or an hourly cron expression due at that instant."""
    trigger: dict[str, Any] = {"at": format_instant(due_ms)}
    if kind == "every":
        trigger = {"every_ms": 3_600_000, "anchor": format_instant(due_ms)}
    if kind == "cron":
        trigger = {"cron": f"{due_ms // 60_000 % 60} * * * *", "zone": "UTC"}
    return {"trigger": trigger, "handler": "send-invoice", "payload": {"pad": payload}}


def change(it: Stand, each: int, due_ms: int) -> set[str]:
    """Pause, move and cancel `each` of them shortly before the instant; returns the ids that must not start then.

    Raises RuntimeError when not all were accepted in time.
    """
    later = {"trigger": {"at": format_instant(due_ms + 3_600_000)}}
    verbs: list[dict[str, Any]] = [{"command": "pause"}, {"command": "update", "spec": later}, {"command": "cancel"}]
    sent = [{**verbs[n % 3], "schedule_id": NAME.format(n), "command_id": f"c{n}"} for n in range(3 * each)]
    with CommandClient(it.kafka, timeout_s=60) as client:
        refused = sum(reply.status != "accepted" for _, reply in client.send_many(sent))
    spare_s = due_ms / 1000 - time.time()
    if refused or spare_s < ACKNOWLEDGED_S:
        raise RuntimeError(f"{refused} changes refused, the last answered {spare_s:.2f} s before the instant")
    return {NAME.format(n) for n in range(3 * each)}


def load(it: Stand, count: int, due_ms: int, payload: str, kind: str) -> float:
    """Creates through the command topic; returns accepted commands per second."""
    began = time.monotonic()
    accepted = 0
    with CommandClient(it.kafka, timeout_s=120) as client:
        for _, reply in client.send_many(commands(count, due_ms, payload, kind)):
            accepted += reply.code == "created"
    if accepted != count:
        raise RuntimeError(f"{accepted} of {count} creates accepted")
    return count / (time.monotonic() - began)


def _bare(bootstrap: str, topic: str, shards: list[int], each: int, example: bytes, start: Start) -> None:
    """The fastest that could be: as many records, as large and as different from each other, by as many producers.

    They all begin at one instant, as ours do.
    """
    from confluent_kafka import Producer

    def run(shard: int) -> None:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{shard}", "linger.ms": FILL_MS,
                "compression.type": "lz4", "retry.backoff.ms": 10, "queue.buffering.max.messages": 2_000_000,
                "queue.buffering.max.kbytes": 2_097_151, "batch.size": 1_000_000,
            }
        )  # fmt: skip
        producer.init_transactions(30)
        names = [NAME.format(shard * each + i) for i in range(each)]
        first = NAME.format(0)
        records = [(name.encode(), example.replace(first.encode(), name.encode())) for name in names]
        start.barrier.wait()
        time.sleep(max(0.0, start.at.value - time.time()))
        produce = producer.produce
        for at in range(0, each, TXN):
            producer.begin_transaction()
            for key, value in records[at : at + TXN]:
                produce(topic, value, key, shard)
            producer.commit_transaction(60)

    threads = [threading.Thread(target=run, args=(s,)) for s in shards]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def _tell(at: Synchronized[float]) -> None:
    at.value = int(time.time()) + LEAD_S


def bare(
    it: Stand, count: int, processes: int, due_ms: int, pad: str, topic: str = BARE
) -> tuple[list[float], list[float]]:
    """Seconds from their instant to each append, by the broker's clock, and until the same kind of reader has each."""
    from confluent_kafka.admin import NewTopic

    from topics.admin import connect

    shards = it.settings.shards
    admin = connect(it.kafka)
    new = NewTopic(topic, shards, 1, config={"message.timestamp.type": "LogAppendTime"})
    for future in admin.create_topics([new]).values():
        future.result()
    context = mp.get_context("spawn")
    at = context.Value("d", 0.0)
    start = Start(context.Barrier(shards + 1, partial(_tell, at)), at)
    workers = [
        context.Process(
            target=_bare,
            args=(
                it.settings.kafka.bootstrap_servers, topic, [s for s in range(shards) if s % processes == k],
                count // shards, _value(due_ms, pad), start,
            ),
            daemon=True,
        )
        for k in range(processes)
    ]  # fmt: skip
    for worker in workers:
        worker.start()
    reader = Reader(it, count // shards * shards, 180, b"burst/", {topic: shards})
    start.barrier.wait(60)
    began = round(at.value * 1000)
    for worker in workers:
        worker.join(120)
    seen = reader.result(240)
    return [(a - began) / 1000 for a in seen.appended], [(v - began) / 1000 for v in seen.visible]


def run(args: argparse.Namespace) -> dict[str, Any]:
    """One burst; the result as the last line shows it."""
    with stand(args.shards) as it:
        pad = "x" * args.pad
        bare(it, args.count, args.processes, 0, pad, WARM_UP)
        lead_s = max(20.0, args.count / args.assumed_rate + 15.0)
        due_ms = (int(time.time() + lead_s) + 1) * 1000
        due_ms += -due_ms % 60_000 if args.kind == "cron" else 0
        if args.preload:
            spec = definition(due_ms, pad, args.kind)
            create = {"command": "create", "schedule_id": f"burst/job-{PLACE}", "command_id": f"b{PLACE}", "spec": spec}
            rate = args.count / preload(it, [create], args.count)
            ready_s = it.start_node(args.processes)
        else:
            ready_s = it.start_node(args.processes)
            rate = load(it, args.count, due_ms, pad, args.kind)
        spare_s = due_ms / 1000 - time.time()
        if spare_s < LEAST_SPARE_S:
            raise RuntimeError(f"loaded only {spare_s:.1f} s before the instant: lower --assumed-rate")
        time.sleep(max(0.0, spare_s - LEAST_SPARE_S))
        changed = change(it, args.changes, due_ms) if args.changes else set()
        reader = Reader(it, args.count - len(changed), LEAST_SPARE_S + 90, b"burst/")
        ahead = round(it.metrics("scheduler_horizon_bytes") / 1e6)
        memory = [child.memory_info().rss for child in it.children()]
        if args.kill:
            time.sleep(max(0.0, due_ms / 1000 + KILLED_S - time.time()))
            it.children()[0].send_signal(signal.SIGKILL)
        seen = reader.result(LEAST_SPARE_S + 120)
        memory = [max(a, c.memory_info().rss) for a, c in zip(memory, it.children(), strict=False)]
        names = {NAME.format(i) for i in range(args.count)} - changed
        expected = {f"{name}:1:{stamp(due_ms)}" for name in names}
        got = set(seen.ids)
        append = [(a - due_ms) / 1000 for a in seen.appended]
        visible = [(v - due_ms) / 1000 for v in seen.visible]
        example = _value(due_ms, pad)
        it.stop_node()  # it would complete half a million one-shots beside the bare producers
        bare_append, bare_visible = bare(it, args.count, args.processes, due_ms, pad)
        result = {
            "bench": "burst", "kind": args.kind, "count": args.count, "processes": args.processes,
            "shards": args.shards, "value_bytes": len(example), "load_per_s": round(rate), "preloaded": args.preload,
            "changed": len(changed), "killed": args.kill, "horizon_mb": ahead,
            "start_s": round(ready_s, 2),
            "append_p50_s": quantile(append, 0.5), "append_p99_s": quantile(append, 0.99),
            "append_max_s": quantile(append, 1), "visible_p50_s": quantile(visible, 0.5),
            "visible_p99_s": quantile(visible, 0.99), "bare_append_p99_s": quantile(bare_append, 0.99),
            "bare_wall_s": quantile(bare_append, 1),
            "bare_visible_p99_s": quantile(bare_visible, 0.99),
            "ratio_to_bare_producer": round(max(bare_append) / max(append), 3) if append else 0,
            "lost": len(expected - got), "duplicates": len(seen.ids) - len(got), "unexpected": len(got - expected),
            "early": sum(1 for a, d in zip(seen.appended, seen.due, strict=True) if a < d),
            "rss_mb": [round(m / 1e6) for m in memory],
        }  # fmt: skip
    right = result["lost"] == result["duplicates"] == result["early"] == result["unexpected"] == 0
    fast = (
        result["append_p99_s"] <= args.target_s
        and result["visible_p99_s"] <= args.visible_target_s
        and result["ratio_to_bare_producer"] >= LEAST_RATIO
    )
    result["verdict"] = "ok" if right and fast else "slow" if right else "WRONG"
    return result


def _value(due_ms: int, pad: str) -> bytes:
    name = NAME.format(0)
    at = format_instant(due_ms)
    fields = {
        "occurrence_id": f"{name}:1:{stamp(due_ms)}", "schedule_id": name, "tenant": "burst", "version": 1, "shard": 0,
        "lane": "default", "priority": "normal", "attempt": 1, "scheduled_for": at, "available_at": at,
        "origin": "schedule", "stands_for": 1, "tz_version": "2026f", "generation": 0, "handler": "send-invoice",
        "payload": {"pad": pad},
    }  # fmt: skip
    return json.dumps(fields, separators=(",", ":")).encode()


def main() -> None:
    parser = options(100_000, 2)
    parser.add_argument("--pad", type=int, default=24, help="bytes of payload: 24 make a value of 400 B")
    parser.add_argument("--kind", choices=KINDS, default="at", help="one-shots or recurring schedules")
    parser.add_argument("--preload", action="store_true", help="put the schedules on the changelog beforehand")
    parser.add_argument("--changes", type=int, default=0, help="pause, move and cancel so many each just before")
    parser.add_argument("--kill", action="store_true", help="SIGKILL one of the processes in the middle")
    parser.add_argument("--assumed-rate", type=float, default=6_000, help="creates/s assumed when choosing the instant")
    parser.add_argument("--target-s", type=float, default=1.5)
    parser.add_argument("--visible-target-s", type=float, default=3.5)
    parser.add_argument("--json", action="store_true", help="the result is always one JSON line; kept for scripts")
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
