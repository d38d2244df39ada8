"""Whole nodes die and leave: how long until each of their shards dispatches again, and whether anything shows.

python -m tests.bench.takeover --kills 10 --stops 10
python -m tests.bench.takeover --kills 10 --stops 0 --stock      the broker's own session minimum, six seconds
python -m tests.bench.takeover --kills 10 --stops 0 --standby off

Two nodes of two processes, schedules that fire every second on all shards. The nodes take turns: one is killed with all
its processes, or stopped; when the other serves everything it comes back, and its copies are warm again before the next
turn. Takeover: from the SIGKILL to the broker's stamp on the next dispatch of a shard of the dead node. Hand-over: the
longest time without a dispatch of a shard of the stopped node, its way back included.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scheduler.local import Broker
from tests.bench.stand import quantile
from tests.support.commands import ask
from tests.support.node import Cluster, Node, await_ready, owners, wait_until
from tests.support.verifier import beats, ms_of, now_ms

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Event

P90_S, MAX_S, STOP_S = 4.0, 6.0, 1.0
OWN_MS = 200  # what was on its way when the node died
WATCH_MS = 15_000  # nothing of a takeover takes longer
PATIENCE_S = 120.0
LEAD_MS = 10_000  # from the creates to the first nominal


class Row(NamedTuple):
    """One committed dispatch, or a column of them."""

    ids: list[str]
    shards: list[int]
    appended: list[int]
    due: list[int]


class Turn(NamedTuple):
    """A node went at this instant (ms), and these were its shards."""

    at: int
    shards: list[int]


def read(bootstrap: str, topics: dict[str, int], stop: Event, out: Queue[Any]) -> None:
    """Body of the reader's process: everything committed, from the beginning until told to stop."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": f"bench-{os.getpid()}", "isolation.level": "read_committed",
            "enable.auto.commit": False, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 200,
            "fetch.min.bytes": 100_000, "log_level": 0,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(t, p, 0) for t, n in topics.items() for p in range(n)])
    rows = Row([], [], [], [])
    quiet = 0
    while not stop.is_set() or quiet < 10:
        messages = consumer.consume(5_000, 0.3)
        quiet = quiet + 1 if not messages else 0
        for message in messages:
            if message.error() is None:
                fields = json.loads(message.value())
                rows.ids.append(fields["occurrence_id"])
                rows.shards.append(fields["shard"])
                rows.appended.append(message.timestamp()[1])
                rows.due.append(ms_of(fields["available_at"]))
    consumer.close()
    out.put(rows)


class Bench:
    """Two nodes, one of which goes at each turn."""

    def __init__(self, cluster: Cluster, args: argparse.Namespace) -> None:
        settings: dict[str, Any] = {"standby": args.standby == "on", "catch_up_per_s": 100_000}
        if args.stock:
            settings |= {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_500}
        self._nodes = [cluster.node(name, 2, **settings) for name in ("a", "b")]
        self._warm = args.standby == "on"
        self._shards = cluster.shards

    def start(self) -> None:
        for node in self._nodes:
            node.start()
        self._settle()

    def turn(self, *, kill: bool) -> Turn:
        """The next node goes, and comes back; returns when both are as before."""
        going, staying = self._nodes
        self._nodes = [staying, going]
        shards = sorted(owners([going]))
        at = now_ms()
        if kill:
            going.kill()
        else:
            assert going.stop() == [0, 0], going.words()
        wait_until(lambda: len(owners([staying])) == self._shards, staying.words, PATIENCE_S)
        time.sleep(1.0)
        going.start()
        self._settle()
        return Turn(at, shards)

    def stop(self) -> None:
        for node in self._nodes:
            node.stop()

    def _settle(self) -> None:
        """Both have shards, all are served, and each node's copies of the other's are whole."""

        def settled() -> bool:
            found = await_ready(*self._nodes, seconds=PATIENCE_S)
            spread = {name.split("-")[0] for name in found.values()} == {node.node_id for node in self._nodes}
            return spread and (not self._warm or all(self._is_warm(node) for node in self._nodes))

        wait_until(settled, lambda: "\n".join(str(n.state(i)) for n in self._nodes for i in (0, 1)), PATIENCE_S)

    def _is_warm(self, node: Node) -> bool:
        states = [node.state(index) or {} for index in range(node.processes)]
        served = sum(len(state.get("shards", {})) for state in states)
        copies = [copy for state in states for copy in state.get("standbys", {}).values()]
        return served + len(copies) == self._shards and all(copy.get("behind_ms", 1) < 1_000 for copy in copies)


def takeovers(rows: Row, turns: list[Turn]) -> list[float]:
    """Seconds from each kill to the next dispatch of each of the dead node's shards."""
    found = []
    for turn in turns:
        first: dict[int, int] = {}
        for shard, appended in zip(rows.shards, rows.appended, strict=True):
            if turn.at + OWN_MS < appended < turn.at + WATCH_MS:
                first[shard] = min(first.get(shard, appended), appended)
        found += [(first.get(shard, turn.at + WATCH_MS) - turn.at) / 1000 for shard in turn.shards]
    return found


def hand_overs(rows: Row, turns: list[Turn], until: int) -> list[float]:
    """The longest silence, in seconds, of each shard of a node after it was asked to stop, up to `until`."""
    found = []
    for turn in turns:
        end = min(turn.at + WATCH_MS, until)
        times: dict[int, list[int]] = {shard: [turn.at] for shard in turn.shards}
        for shard, appended in zip(rows.shards, rows.appended, strict=True):
            if shard in times and turn.at < appended < end:
                times[shard].append(appended)
        for at in times.values():
            at.sort()
            found.append(max(b - a for a, b in zip(at, [*at[1:], end], strict=True)) / 1000)
    return found


def run(args: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        broker = stack.enter_context(Broker.start())
        cluster = Cluster(broker.bootstrap_servers, "", args.shards, folder).make_topics()
        stack.callback(cluster.close)
        bench = Bench(cluster, args)
        bench.start()
        longest_s = 60 + 120 * (args.kills + args.stops)
        schedules = beats(args.count, now_ms() + LEAD_MS, longest_s)
        replies = ask(cluster, *(beat.create() for beat in schedules))
        assert all(ms_of(r.effective_at or "") < b.first for r, b in zip(replies, schedules, strict=True)), replies[0]
        context = mp.get_context("spawn")
        out, stop = context.Queue(), context.Event()
        topics = dict.fromkeys(cluster.catalogue.dispatch_topics(), args.shards)
        reader = context.Process(target=read, args=(broker.bootstrap_servers, topics, stop, out), daemon=True)
        reader.start()
        time.sleep(max(0.0, (schedules[0].first - now_ms()) / 1000) + 3.0)
        kills = [bench.turn(kill=True) for _ in range(args.kills)]
        stops = [bench.turn(kill=False) for _ in range(args.stops)]
        time.sleep(3.0)
        until = now_ms() - 2_000  # what fell due before is out
        over = now_ms() + 60_000  # nothing fires any more by then
        bench.stop()
        stop.set()
        rows: Row = out.get(timeout=120)
    counts = Counter(rows.ids)
    expected = {name: at for beat in schedules for name, at in replace(beat, end=over).expected().items()}
    lost = [name for name, at in expected.items() if at <= until and name not in counts]
    doubled = sum(count - 1 for count in counts.values())
    early = sum(appended < due for appended, due in zip(rows.appended, rows.due, strict=True))
    strange = sum(name not in expected for name in counts)
    took, gaps = takeovers(rows, kills), hand_overs(rows, stops, until)
    right = not lost and not doubled and not early and not strange
    fast = quantile(took, 0.9) <= P90_S and max(took, default=0.0) <= MAX_S and max(gaps, default=0.0) < STOP_S
    return {
        "bench": "takeover", "kills": args.kills, "stops": args.stops, "shards": args.shards, "schedules": args.count,
        "standby": args.standby, "broker_minimum": "stock" if args.stock else "lowered",
        "takeover_p50_s": quantile(took, 0.5), "takeover_p90_s": quantile(took, 0.9),
        "takeover_max_s": max(took, default=-1.0), "hand_over_p50_s": quantile(gaps, 0.5),
        "hand_over_max_s": max(gaps, default=-1.0), "seen": len(rows.ids), "lost": len(lost), "duplicates": doubled,
        "early": early, "strange": strange, "targets_s": {"p90": P90_S, "max": MAX_S, "hand_over": STOP_S},
        "verdict": "ok" if right and (fast or args.stock) else "slow" if right else "WRONG",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--stops", type=int, default=10)
    parser.add_argument("--count", type=int, default=1_000, help="schedules, each firing every second")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--stock", action="store_true", help="the shortest session that stock brokers take")
    parser.add_argument("--standby", choices=["on", "off"], default="on")
    parser.add_argument("--json", action="store_true", help="as always")
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
