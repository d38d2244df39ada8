"""What the machine under a process does to it: a slow disk, one that may not be written, too little memory.

Every test ends with the witness, a process of its own that reads as a careful consumer does
(`tests/support/witness.py`); what it counted is shown at the end of the run.
"""

from __future__ import annotations

import resource
import subprocess
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.support.commands import create
from tests.support.load import Load
from tests.support.node import Cluster, await_ready, wait_until
from tests.support.verifier import Beat, now_ms
from tests.support.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.broker

SLOW_MS = 400
BIG = 400
PAYLOAD = "x" * 60_000  # a shard holds what is due soon in memory, payload included


def test_a_slow_disk(cluster: Cluster) -> None:
    """Each write of a store takes longer than a step should: everything is late, and there once."""
    node = cluster.node().start(crash=("slow_store", SLOW_MS))
    await_ready(node)
    load = Load(cluster, 40, 10, per_s=20).create()
    with Witness(cluster, load.steady, load.held) as witness:
        with load:
            witness.await_more(40 * 8, node.words)
        witness.await_all(node.words)
        assert node.stop() == [0]
        counts = witness.count()
    assert counts.clean, f"{counts}\n{node.words()}"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, to be made read-only."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no file system without the right to mount one: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


def test_a_store_that_may_only_be_read(cluster: Cluster, disk: Path) -> None:
    """The shards say which directory and what to do, and wait; as soon as it may be written again they catch up."""
    node = cluster.node(data_dir=disk / "data").start()
    await_ready(node)
    load = Load(cluster, 40, 10).create()
    with load, Witness(cluster, load.steady) as witness:
        witness.await_more(80, node.words)
        assert node.stop() == [0]
        remount(disk, "ro")
        node.start()

        def refused() -> bool:
            shards = (node.state() or {}).get("shards", {})
            texts = [what.get("trouble", "") for what in shards.values()]
            return len(texts) == cluster.shards and all("mend its permissions" in text for text in texts)

        wait_until(refused, node.words)
        state = node.state()
        assert state is not None
        assert (state["status"], state["live"]) == (503, True)
        remount(disk, "rw")
        await_ready(node)
        witness.await_all(node.words)
        assert node.stop() == [0]
        counts = witness.count()
    assert counts.clean, f"{counts}\n{node.words()}"


def test_a_process_without_memory(cluster: Cluster) -> None:
    """One of two processes may take no more memory and is given much to hold: it ends, is started again, all is there.

    Where the memory of a machine ends, the kernel kills instead: that is any other SIGKILL.
    """
    node = cluster.node(processes=2, supervised=True).start()
    await_ready(node)
    load = Load(cluster, 40, 16).create()
    due = now_ms() + 20_000
    big = [Beat(f"big/{n}", due + 5 * n, due + 5 * n + 1) for n in range(BIG)]
    with Witness(cluster, [*load.steady, *big]) as witness:
        witness.await_more(40, node.words)
        for index in range(2):
            allow_no_more(node.pid(index))
        create(cluster, big, payload=PAYLOAD)
        wait_until(lambda: node.events("process_died"), node.words)
        await_ready(node)
        witness.await_all(node.words)
        assert node.stop() == [0]
        counts = witness.count()
    assert counts.clean, f"{counts}\n{node.words()}"


def allow_no_more(pid: int) -> None:
    """From here on a process may take only so much memory as it has."""
    held = psutil.Process(pid).memory_info().data
    resource.prlimit(pid, resource.RLIMIT_DATA, (held, held))
