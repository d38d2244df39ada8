"""The stand all benches run on: one broker or three, topics, a node, a read-committed reader in its own process."""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing as mp
import os
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

from scheduler.config import Kafka, Settings
from scheduler.local import Broker
from tests.support.node import Cluster, Node, await_ready
from topics.admin import apply, connect, observe, plan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.queues import Queue


@dataclass
class Stand:
    """Everything a bench needs to know about what is running."""

    settings: Settings
    folder: Path
    broker: Broker
    node: Node | None = None

    @property
    def kafka(self) -> dict[str, str]:
        return {"bootstrap.servers": self.settings.kafka.bootstrap_servers}

    def start_node(self, processes: int, patience_s: float = 90) -> float:
        """Start a node and wait until all its shards serve; returns the seconds that took."""
        s = self.settings
        cluster = Cluster(s.kafka.bootstrap_servers, s.namespace, s.shards, self.folder)
        began = time.monotonic()
        self.node = cluster.node(
            "bench", processes, supervised=True, data_dir=s.data_dir, session_timeout_ms=s.session_timeout_ms,
            heartbeat_interval_ms=s.heartbeat_interval_ms, horizon_ms=s.horizon_ms,
        ).start()  # fmt: skip
        await_ready(self.node, seconds=patience_s)
        return time.monotonic() - began

    def metrics(self, name: str) -> float:
        """The sum of a metric over processes and labels."""
        total = 0.0
        if self.node is None:
            return total
        for index in range(self.node.processes):
            for line in self.node.metrics(index).splitlines():
                if line.startswith(name) and line[len(name)] in "{ ":
                    total += float(line.rsplit(" ", 1)[1])
        return total

    def children(self) -> list[psutil.Process]:
        """The processes that own shards."""
        return [psutil.Process(self.node.pid(index)) for index in range(self.node.processes)] if self.node else []

    def cpu_s(self) -> float:
        """Processor seconds those have used so far."""
        return float(sum(sum(child.cpu_times()[:2]) for child in self.children()))

    def store_bytes(self) -> int:
        """What the stores take on the disk."""
        return sum(file.stat().st_size for file in self.settings.data_dir.rglob("*") if file.is_file())

    def log_bytes(self) -> dict[str, int]:
        """What each topic takes on the brokers' disks, all copies of it together."""
        found: dict[str, int] = {}
        for file in self.broker.data_dir.glob("node-*/data/*/*.log"):
            topic = file.parent.name.rsplit("-", 1)[0]
            found[topic] = found.get(topic, 0) + file.stat().st_size
        return found

    def stop_node(self) -> None:
        if self.node is not None:
            self.node.stop()
        self.node = None


@contextmanager
def stand(shards: int = 8, nodes: int = 1, **changes: Any) -> Iterator[Stand]:
    """All of it, and nothing left of it afterwards. Three `nodes`: three copies of everything, two of them in sync."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        broker = stack.enter_context(Broker.start(nodes=nodes, heap_mb=512 if nodes == 1 else 384))
        settings = Settings(
            kafka=Kafka(
                bootstrap_servers=broker.bootstrap_servers,
                replication_factor=nodes,
                min_insync_replicas=1 if nodes == 1 else 2,
            ),
            shards=shards,
            data_dir=folder / "data",
            session_timeout_ms=2_500,
            heartbeat_interval_ms=400,
            **changes,
        )
        admin = connect(settings.client_config())
        wanted = settings.catalogue().specs()
        apply(admin, plan(wanted, observe(admin, wanted)))
        it = Stand(settings, folder, broker)
        stack.callback(it.stop_node)
        yield it


class Memory:
    """Looks at the resident memory of the node's processes once a second while the block runs. Units: MB."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.seen: list[list[int]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            try:
                self.seen.append([round(child.memory_info().rss / 1e6) for child in self._stand.children()])
            except (psutil.Error, IndexError):
                continue  # it is being started or stopped

    @property
    def most(self) -> int:
        """The most that any process had."""
        return max((max(one) for one in self.seen if one), default=-1)

    def over_time(self, points: int = 10) -> list[int]:
        """The larger process, at about so many instants evenly apart: flat is what it should be."""
        series = [max(one) for one in self.seen if one]
        return series[:: max(1, len(series) // points)]


FEW = 100  # records at once: there is time to look at them


@dataclass
class Seen:
    """What the reader saw: per record id, append (ms), visible (ms), due (ms)."""

    ids: list[str]
    appended: list[int]
    visible: list[int]
    due: list[int]


def _read(bootstrap: str, topics: dict[str, int], until: float, expected: int, marker: bytes, out: Queue[Any]) -> None:
    """Body of the reader process: read from the end of all partitions, stop when `expected` were seen or time is up."""
    from confluent_kafka import Consumer, TopicPartition

    from scheduler.core.time import parse_instant

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": f"bench-{os.getpid()}", "isolation.level": "read_committed",
            "enable.auto.commit": False, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20,
            "queued.max.messages.kbytes": 262_144,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(t, p, 0) for t, n in topics.items() for p in range(n)])
    out.put("ready")
    # As little as possible while many records arrive, and no collector walking over them: not to be in the way.
    gc.disable()
    heard: list[tuple[int, list[Any]]] = []  # when visible, records
    looked_at = count = 0
    end = until
    while time.time() < end:
        messages = consumer.consume(10_000, 0.1)
        heard.append((time.time_ns() // 1_000_000, messages))
        if len(messages) < FEW:
            before = count
            for _, some in heard[looked_at:]:
                count += sum(m.error() is None and marker in m.value() for m in some)
            looked_at = len(heard)
            if before < expected <= count:  # linger: a duplicate that follows the last expected record is seen too
                end = min(end, time.time() + 2)
    consumer.close()
    seen = Seen([], [], [], [])
    for visible, messages in heard:
        for message in messages:
            if message.error() is None and marker in message.value():
                fields = json.loads(message.value())
                seen.ids.append(fields["occurrence_id"])
                seen.due.append(parse_instant(fields["available_at"]))
                seen.appended.append(message.timestamp()[1])
                seen.visible.append(visible)
    out.put(seen)


class Reader:
    """A read-committed reader in its own process; `marker` picks the records that count.

    `topics`: names and numbers of partitions; by default those of dispatches.
    """

    def __init__(
        self, stand: Stand, expected: int, seconds: float, marker: bytes, topics: dict[str, int] | None = None
    ) -> None:
        context = mp.get_context("spawn")
        self._out = context.Queue()
        topics = topics or dict.fromkeys(stand.settings.catalogue().dispatch_topics(), stand.settings.shards)
        self._process = context.Process(
            target=_read,
            args=(stand.settings.kafka.bootstrap_servers, topics, time.time() + seconds, expected, marker, self._out),
            daemon=True,
        )
        self._process.start()
        assert self._out.get(timeout=30) == "ready"

    def result(self, timeout: float) -> Seen:
        seen: Seen = self._out.get(timeout=timeout)
        self._process.join(10)
        return seen


def options(count: int, processes: int, description: str | None = None) -> argparse.ArgumentParser:
    """A parser of what most benches can be told: how many, by how many processes of a node, on how many shards."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--processes", type=int, default=processes)
    parser.add_argument("--shards", type=int, default=8)
    return parser


def quantile(values: list[float], q: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * q))], 3) if ordered else -1.0
