"""Many benches, one after the other, each in a process of its own: one JSON line each, and a table of all of them.

    make bench                       the short set, ten minutes at most
    python -m tests.bench --long     the figures of ops/benchmarks.md: millions of schedules, more than an hour
    python -m tests.bench burst load the named ones of the short set

Lines and table go to `build/bench/` too. The exit code is the number of benches that were wrong or gave no result; a
slow one is no failure of the run.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.table import Row, table

SHORT_S = 600.0
LONG_S = 14_400.0
END_S = 60.0
FOLDER = Path("build/bench")


class Bench(NamedTuple):
    """A module of this package with its arguments, and how long it may take."""

    module: str
    arguments: str = ""
    seconds: float = 150


SHORT = (
    Bench("next_after"),
    Bench("load", "--count 100000"),
    Bench("burst", "--count 100000"),
    Bench("burst", "--count 100000 --kind every"),
    Bench("peers.nats", "--count 100000"),
    Bench("restart", "--count 100000"),
    Bench("costs", "--count 10000 --seconds 20 --idle-seconds 10"),
    Bench("bulk_load", "--count 100000"),
    Bench("independence", "--few 20000 --many 200000 --count 20000 --repeats 1 --idle-seconds 10"),
    Bench("durability", "--count 5000"),
)
LONG = (
    Bench("burst", "--count 500000", 900),
    Bench("burst", "--count 500000 --kind cron", 900),
    Bench("burst", "--count 500000 --preload --kill", 900),
    Bench("burst", "--count 100000 --changes 1000", 600),
    Bench("burst", "--count 20000 --pad 16000 --preload", 600),
    Bench("fairness", "--count 100000", 600),
    Bench("fairness", "--count 500000", 1200),
    Bench("steady", "--rate 20000 --seconds 300", 900),
    Bench("steady", "--rate 2315 --seconds 120", 600),
    Bench("steady", "--per-minute 10000", 600),
    Bench("peers.nats", "--count 100000", 600),
    Bench("restart", "--count 100000", 600),
    Bench("restart", "--count 5000000", 1800),
    Bench("independence", "--few 500000 --many 5000000 --count 100000", 3600),
    Bench("bulk_load", "--count 5000000", 3600),
    Bench("costs", "--count 100000 --seconds 120", 900),
    Bench("costs", "--count 100000 --seconds 60 --per-s 10000", 900),
    Bench("durability", "--count 100000", 1800),
    Bench("bulk", "--count 100000", 600),
    Bench("repartition", "--count 100000", 900),
    Bench("takeover", "--kills 50 --stops 10", 3600),
)


def run(bench: Bench, seconds: float) -> tuple[dict[str, Any], float]:
    """The result line of a bench, or why there is none, and the seconds it took."""
    began = time.monotonic()
    command = [sys.executable, "-m", f"tests.bench.{bench.module}", *bench.arguments.split()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # so that it ends what it started
        try:
            process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        return _none(bench, f"not within {seconds:.0f} s"), time.monotonic() - began
    lines = out.strip().splitlines()
    try:
        result = dict(json.loads(lines[-1]))
    except (IndexError, ValueError):
        result = _none(bench, f"no result, exit code {process.returncode}")
    return result, time.monotonic() - began


def _none(bench: Bench, why: str) -> dict[str, Any]:
    return {"bench": bench.module, "verdict": why}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="modules; all of the set unless given")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--within-s", type=float, help="begin no bench that may not end in time")
    args = parser.parse_args()
    chosen = [one for one in (LONG if args.long else SHORT) if not args.names or one.module in args.names]
    end = time.monotonic() + (args.within_s or (LONG_S if args.long else SHORT_S))
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows = []
    with (FOLDER / "results.jsonl").open("w") as file:
        for bench in chosen:
            left = end - time.monotonic()
            result, took = _none(bench, "not run: no time left"), 0.0
            if left > END_S:
                result, took = run(bench, min(bench.seconds, left))
            print(json.dumps(result), flush=True)
            file.write(json.dumps(result) + "\n")
            file.flush()
            rows.append(Row(bench.module, bench.arguments, result, took))
            (FOLDER / "results.md").write_text(table(rows))  # each time: a run cut short leaves what it has
    print(f"\n{table(rows)}")
    return sum(row.failed for row in rows)


if __name__ == "__main__":
    sys.exit(main())
