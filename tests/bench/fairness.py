"""Fairness: small tenants at an instant of their own, then at one where another has nine tenths of what is due.

python -m tests.bench.fairness --count 100000 --processes 2 --shards 8

Compared is the p99 of append - due of the small tenants at the two instants of one run. Beside them a tenant with
schedules of every second and priority `high` (`--punctual`) goes on through both.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from scheduler.core.time import format_instant, stamp
from tests.bench.preload import PLACE, create, names, preload
from tests.bench.stand import Reader, Seen, options, quantile, stand

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

SMALL = tuple(f"small-{n}" for n in range(5))  # tenants who share a tenth
APART_MS = 15_000  # between the two instants: the first is over long before the second
THROUGH_MS = 10_000  # after the second, the punctual ones go on
BURST_MS = 5_000  # of these, what counts as through the burst
MOST_TIMES = 1.1
PUNCTUAL_S = 1.0
LEAST_SPARE_S = 3.0


class Crowd:
    """Who is due when. `alone_ms`: the small ones' own instant; `burst_ms`: everybody's."""

    def __init__(self, count: int, punctual: int, alone_ms: int) -> None:
        self.alone_ms = alone_ms
        self.burst_ms = alone_ms + APART_MS
        self.small = count // 10 // len(SMALL) * len(SMALL)
        self.big = count - self.small
        self.punctual = punctual
        self.seconds = range(alone_ms, self.burst_ms + THROUGH_MS, 1_000)

    def parts(self) -> Iterator[tuple[list[dict[str, Any]], int, range]]:
        """Creates to be copied in turn, how many copies, and the instants at which each is due."""
        for name, at in (("alone", self.alone_ms), ("burst", self.burst_ms)):
            trigger = {"at": format_instant(at)}
            yield [create(f"{t}/{name}-{PLACE}", trigger) for t in SMALL], self.small, range(at, at + 1)
        trigger = {"at": format_instant(self.burst_ms)}
        yield [create(f"big/job-{PLACE}", trigger)], self.big, range(self.burst_ms, self.burst_ms + 1)
        start, end = (format_instant(at) for at in (self.seconds.start, self.seconds.stop))
        every = {"every_ms": 1_000, "anchor": start}
        yield (
            [create(f"punctual/n-{PLACE}", every, start=start, end=end, priority="high")], self.punctual, self.seconds,
        )  # fmt: skip

    def expected(self) -> set[str]:
        """All occurrence ids."""
        return {
            f"{names(commands[n % len(commands)], range(n, n + 1))[0]}:1:{stamp(at)}"
            for commands, count, instants in self.parts()
            for n in range(count)
            for at in instants
        }


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Both instants; the result as the last line shows it."""
    with stand(args.shards) as it:
        lead_s = 30 + args.count / args.assumed_rate
        crowd = Crowd(args.count, args.punctual, (int(time.time() + lead_s) + 1) * 1000)
        for commands, count, _ in crowd.parts():
            if count:
                preload(it, commands, count)
        it.start_node(args.processes)
        spare_s = crowd.alone_ms / 1000 - time.time()
        if spare_s < LEAST_SPARE_S:
            raise RuntimeError(f"loaded only {spare_s:.1f} s before the instant: lower --assumed-rate")
        expected = crowd.expected()
        left_s = (crowd.burst_ms + THROUGH_MS) / 1000 - time.time() + 60
        reader = Reader(it, len(expected), left_s, b'"handler":"send-report"')
        seen = reader.result(left_s + 60)
        rss = max(child.memory_info().rss for child in it.children())
    return judge(args, crowd, expected, seen) | {"rss_mb": round(rss / 1e6)}


def judge(args: argparse.Namespace, crowd: Crowd, expected: set[str], seen: Seen) -> dict[str, Any]:
    """What was seen against what was to be seen."""
    late: dict[str, list[float]] = {"alone": [], "burst": [], "big": [], "punctual": []}
    for name, appended, due in zip(seen.ids, seen.appended, seen.due, strict=True):
        kind = name.split("/")[0]
        if kind in SMALL:
            kind = "alone" if due == crowd.alone_ms else "burst"
        elif kind == "punctual" and not 0 <= due - crowd.burst_ms < BURST_MS:
            continue
        late[kind].append((appended - due) / 1000)
    got = set(seen.ids)
    alone, burst, punctual = (quantile(late[kind], 0.99) for kind in ("alone", "burst", "punctual"))
    wrong = {
        "lost": len(expected - got), "duplicates": len(seen.ids) - len(got), "unexpected": len(got - expected),
        "early": sum(appended < due for appended, due in zip(seen.appended, seen.due, strict=True)),
    }  # fmt: skip
    fair = burst <= MOST_TIMES * alone and (not crowd.punctual or punctual <= PUNCTUAL_S)
    return {
        "bench": "fairness", "count": args.count, "processes": args.processes, "shards": args.shards,
        "small_count": crowd.small, "big_count": crowd.big, "punctual": crowd.punctual,
        "small_alone_p50_s": quantile(late["alone"], 0.5), "small_alone_p99_s": alone,
        "small_burst_p50_s": quantile(late["burst"], 0.5), "small_burst_p99_s": burst,
        "small_times_alone": round(burst / alone, 2) if alone > 0 else -1.0,
        "small_later_s": round(burst - alone, 3),
        "big_p99_s": quantile(late["big"], 0.99),
        "punctual_p99_s": punctual, "punctual_max_s": quantile(late["punctual"], 1),
        **wrong,
        "verdict": "WRONG" if any(wrong.values()) else "ok" if fair else "slow",
    }  # fmt: skip


def main() -> None:
    parser = options(100_000, 2, __doc__)
    parser.add_argument("--punctual", type=int, default=1_000, help="schedules of every second, priority high")
    parser.add_argument("--assumed-rate", type=float, default=3_000, help="preloaded and restored a second")
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
