"""Contracts: µs for reading a command, decoding it as a struct, and finding a partition.

`python -m tests.bench.contracts` prints one JSON line; `orjson_us` is a bare parse of the same bytes in the same run.
"""

from __future__ import annotations

import json
import timeit
from typing import TYPE_CHECKING

import orjson

from topics import messages
from topics.codec import decode, encode, split_command
from topics.partition import partition_for, self_test

if TYPE_CHECKING:
    from collections.abc import Callable

COMMAND = {
    "command": "create",
    "schedule_id": "acme/nightly-report-00017",
    "command_id": "load-000000017",
    "actor": "ops@acme",
    "spec": {
        "trigger": {"cron": "30 2 * * 1-5", "zone": "America/New_York"},
        "priority": "normal",
        "lane": "default",
        "handler": "report.build",
        "payload": {"report": "nightly", "ids": [1, 2, 3, 4, 5], "note": "x" * 40},
        "labels": {"team": "finance"},
        "description": "Nightly report of acme",
    },
}


def best_us(what: Callable[[], object], times: int = 500) -> float:
    """The best of many short rounds: what the code costs when nobody disturbs it."""
    return round(min(timeit.repeat(what, number=times, repeat=100)) / times * 1e6, 2)


def main() -> None:
    self_test()
    compact = json.dumps(COMMAND, separators=(",", ":")).encode()
    spaced = json.dumps(COMMAND).encode()
    struct = decode(messages.Command, compact)
    keys = [f"tenant-{number % 50}/schedule-{number}".encode() for number in range(1000)]
    figures = {
        "bench": "contracts",
        "command_bytes": len(compact),
        "split_compact_us": best_us(lambda: split_command(compact)),
        "split_spaced_us": best_us(lambda: split_command(spaced), 100),
        "decode_struct_us": best_us(lambda: decode(messages.Command, compact)),
        "encode_struct_us": best_us(lambda: encode(struct)),
        "orjson_us": best_us(lambda: orjson.loads(compact)),
        "partition_us": round(best_us(lambda: [partition_for(key, 16) for key in keys], 1) / 1000, 2),
        "key_bytes": round(sum(map(len, keys)) / len(keys), 1),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
