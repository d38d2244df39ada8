"""Millions of schedules put straight on the changelog, for benches that measure something else than accepting them.

What a shard writes for a create is not imitated: a shard is given one create of each shape, and its records are copied
under other names. What is left out is the rest of a load: commands, replies, history. Only before the first node of a
cluster starts, which then restores them as after the loss of its disk.
"""

from __future__ import annotations

import multiprocessing as mp
import time
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec
from confluent_kafka import Producer

from scheduler import wire
from scheduler.core.time import format_instant
from scheduler.shard.commands import Input
from scheduler.shard.shard import Shard, ShardSettings
from scheduler.state.store import MemoryStore
from topics.catalog import Catalogue
from topics.messages import STEP_HEADER
from topics.partition import partition_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.stand import Stand

PLACE = "00000000"  # where the number of a schedule goes, in its id and its command id
EXPRESSIONS = 100
DAY_MS = 86_400_000
QUIET_MS = 60 * DAY_MS  # nothing of what waits fires before
HEADERS = [(STEP_HEADER, b"1")]
EVERY = 20_000


def far_ones(now: int) -> list[dict[str, Any]]:
    """Creates of schedules that fire in two months at the earliest: one-shots, and cron expressions among as many."""
    later = time.gmtime((now + QUIET_MS) / 1000)
    month = later.tm_mon % 12 + 1
    found = []
    for n in range(EXPRESSIONS):
        minute, hour = divmod(n, 20)
        trigger: dict[str, Any] = {"cron": f"{minute * 7} {hour} 5 {month} *", "zone": "Europe/Berlin"}
        if n % 2:
            trigger = {"at": format_instant(now + QUIET_MS + n * 3_600_000)}
        found.append(create(f"far/{n:02d}-{PLACE}", trigger))
    return found


def create(name: str, trigger: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A create whose id has the place of a number; the same ids come from `names`."""
    return {
        "command": "create",
        "schedule_id": name,
        "command_id": f"c{PLACE}",
        "spec": {"trigger": trigger, "handler": "send-report", "payload": {"template": "monthly"}, **spec},
    }


def written(commands: Sequence[dict[str, Any]], now: int) -> list[bytes]:
    """The record of `scheduler.schedules` that a shard writes for each create."""
    catalogue = Catalogue(shards=1)
    shard = Shard(0, catalogue, MemoryStore(), ShardSettings())
    shard.open(now, 0)
    inputs = [
        Input(0, offset, now, str(one["schedule_id"]).encode(), msgspec.json.encode(one))
        for offset, one in enumerate(commands)
    ]
    step = shard.plan(now, inputs)
    found = {r.key: r.value for r in step.records if r.topic == catalogue.schedules} if step else {}
    missing = [one for one in commands if not found.get(str(one["schedule_id"]).encode())]
    if missing:
        raise RuntimeError(f"the shard did not accept {missing[0]}")
    return [found[str(one["schedule_id"]).encode()] or b"" for one in commands]


def names(command: dict[str, Any], numbers: range) -> list[str]:
    """The schedule ids that copies of a create get."""
    return [str(command["schedule_id"]).replace(PLACE, f"{n:08d}") for n in numbers]


def preload(it: Stand, commands: Sequence[dict[str, Any]], number: int, processes: int = 2) -> float:
    """Write `number` schedules, copies of the creates in turn; returns the seconds that took."""
    began = time.monotonic()
    values = written(commands, time.time_ns() // 1_000_000)
    shapes = [(str(one["schedule_id"]).encode(), value) for one, value in zip(commands, values, strict=True)]
    topic = it.settings.catalogue().schedules
    context = mp.get_context("spawn")
    workers = [
        context.Process(target=_produce, args=(it.kafka, topic, shapes, range(k, number, processes)), daemon=True)
        for k in range(processes)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise RuntimeError(f"not all was written: exit codes {[worker.exitcode for worker in workers]}")
    producer = Producer(it.kafka)
    catalogue = it.settings.catalogue()
    for shard in range(catalogue.shards):
        for key, value in _records_of(shard, catalogue, commands[0]):
            producer.produce(catalogue.shard_records, value, key, shard, headers=HEADERS)
    if producer.flush(30):
        raise RuntimeError("the shards' own records could not be written")
    return time.monotonic() - began


def _records_of(shard: int, catalogue: Catalogue, command: dict[str, Any]) -> list[tuple[bytes, bytes | None]]:
    """What a shard writes of itself with its first create; no commands are on the topic, so it has read none."""
    now = time.time_ns() // 1_000_000
    every = (names(command, range(n, n + 1))[0] for n in count())
    name = next(name for name in every if partition_for(name.encode(), catalogue.shards) == shard)
    one = Shard(shard, catalogue, MemoryStore(), ShardSettings())
    one.open(now, 0)
    value = msgspec.json.encode({**command, "schedule_id": name})
    step = one.plan(now, [Input(shard, 0, now, name.encode(), value)])
    found = {r.key: r.value for r in step.records if r.topic == catalogue.shard_records} if step else {}
    own = b"%d" % shard
    found[own] = wire.record_to_bytes(wire.record_from_bytes(found[own] or b"").moved(positions={}), now)
    return [*found.items()]


def _produce(kafka: dict[str, str], topic: str, shapes: list[tuple[bytes, bytes]], numbers: range) -> None:
    config: dict[str, Any] = {
        **kafka, "partitioner": "murmur2_random", "enable.idempotence": True, "linger.ms": 20,
        "compression.type": "lz4", "batch.size": 1_000_000, "queue.buffering.max.messages": 2_000_000,
        "queue.buffering.max.kbytes": 262_144, "log_level": 3,
    }  # fmt: skip
    producer = Producer(config)
    place = PLACE.encode()
    for done, n in enumerate(numbers):
        key, value = shapes[n % len(shapes)]
        number = b"%08d" % n
        while True:
            try:
                producer.produce(topic, value.replace(place, number), key.replace(place, number), headers=HEADERS)
            except BufferError:
                producer.poll(0.1)
            else:
                break
        if done % EVERY == 0:
            producer.poll(0)
    if producer.flush(120):
        raise SystemExit(1)
