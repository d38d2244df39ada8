"""What a create costs a shard: processor time from the input record to the store, without a broker.

`python -m tests.bench.accept [--count N]` applies the commands of `tests/bench/load.py` to one shard on a store on
disk, and restores an empty one from what came of them. One JSON line; times are microseconds of processor time each.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from scheduler.core.time import parse_instant
from scheduler.runtime.process import spare_collector
from scheduler.shard.commands import Input
from scheduler.shard.rebuild import ORDER, Change, Rebuild
from scheduler.shard.shard import Shard, ShardSettings
from scheduler.state.rocks import RocksStore
from tests.bench.load import commands
from topics import catalog
from topics.catalog import Catalogue

if TYPE_CHECKING:
    from scheduler.shard.step import Record, Step

START = parse_instant("2026-01-01T09:00:00Z")
PER_STEP = 1_500


def inputs(count: int) -> list[Input]:
    """The commands as records of one partition."""
    values = [(str(one["schedule_id"]).encode(), msgspec.json.encode(one)) for one in commands(count)]
    return [Input(0, offset, START + offset // 10, key, value) for offset, (key, value) in enumerate(values)]


def load(shard: Shard, records: list[Input], per_step: int) -> tuple[list[Record], dict[str, list[float]]]:
    """Plan and apply all of them; what was put on the topics, and the seconds spent on each command, by step."""
    spent: dict[str, list[float]] = {"plan": [], "committed": [], "housekeep": []}
    produced: list[Record] = []
    now = START
    for begin in range(0, len(records), per_step):
        now += 50
        clock = time.thread_time()
        step: Step | None = shard.plan(now, records[begin : begin + per_step])
        planned = time.thread_time()
        assert step is not None
        assert step.consumed == len(records[begin : begin + per_step])
        shard.committed(step)
        committed = time.thread_time()
        shard.housekeep(now)
        spent["plan"].append((planned - clock) / step.consumed)
        spent["committed"].append((committed - planned) / step.consumed)
        spent["housekeep"].append((time.thread_time() - committed) / step.consumed)
        produced += step.records
    return produced, spent


def restore(path: Path, produced: list[Record], catalogue: Catalogue) -> list[float]:
    """Seconds a record, by batch, to apply the changelogs to an empty store."""
    store = RocksStore(path)
    rebuild = Rebuild(store, 0)
    spent = []
    for base in ORDER:
        full = catalogue.namespace + base
        changes = [
            Change(offset, record.key, record.value, int((record.headers or [])[0][1]))
            for offset, record in enumerate(record for record in produced if record.topic == full)
        ]
        for begin in range(0, len(changes), 2_000):
            batch = changes[begin : begin + 2_000]
            clock = time.thread_time()
            rebuild.apply(base, batch, batch[-1].offset + 1)
            if base == catalog.SCHEDULES:
                spent.append((time.thread_time() - clock) / len(batch))
    store.close()
    return spent


def on_disk(path: Path) -> int:
    """The bytes of a store that was closed, once all of it is in its files."""
    RocksStore(path).close()  # what stood in the log alone is written to files
    return sum(file.stat().st_size for file in path.glob("*.sst"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=60_000)
    parser.add_argument("--per-step", type=int, default=PER_STEP)
    args = parser.parse_args()
    catalogue = Catalogue(shards=1)
    spare_collector()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        store = RocksStore(Path(folder) / "loaded")
        shard = Shard(0, catalogue, store, ShardSettings())
        shard.open(START, 0)
        produced, spent = load(shard, inputs(args.count), args.per_step)
        store.close()
        stored = on_disk(Path(folder) / "loaded")
        restored = restore(Path(folder) / "restored", produced, catalogue)
    size = sum(len(r.key) + len(r.value or b"") for r in produced)
    steps = [sum(parts) for parts in zip(*spent.values(), strict=True)]
    print(
        json.dumps(
            {
                "bench": "accept", "count": args.count, "bytes_produced": round(size / args.count),
                "bytes_stored": round(stored / args.count),
                **{name: _usual(found) for name, found in spent.items()},
                "all": _usual(steps), "all_mean": round(sum(steps) / len(steps) * 1e6, 1),
                "restore": _usual(restored), "restore_mean": round(sum(restored) / len(restored) * 1e6, 1),
            }
        )
    )  # fmt: skip


def _usual(seconds: list[float]) -> float:
    """The lower quartile in microseconds: what others do on the machine only adds."""
    return round(sorted(seconds)[len(seconds) // 4] * 1e6, 1)


if __name__ == "__main__":
    main()
