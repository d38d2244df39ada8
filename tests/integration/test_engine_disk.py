"""A disk that refuses: the shard says so and is not ready, the others serve; nothing is lost, and it mends itself."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.commands import create
from tests.support.node import Cluster, Node, await_ready, wait_until
from tests.support.verifier import Beat, Dispatches, beats, judge, now_ms
from topics.client import CommandClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.broker

MIB = 1024 * 1024
DAMAGE = ("shard_failed", "store_damaged")


def troubles(node: Node) -> dict[int, str]:
    """What `/ready` says is wrong, by shard."""
    shards = (node.state() or {}).get("shards", {})
    return {int(number): what["trouble"] for number, what in shards.items() if what.get("trouble")}


def test_a_store_that_cannot_be_opened(cluster: Cluster) -> None:
    """A file in place of the directory: one shard is down and says why; the other fires on; then all is caught up."""
    node = cluster.node().start()
    await_ready(node)
    expected = create(cluster, beats(8, now_ms() + 3_000, 7))
    with Dispatches(cluster) as dispatches:
        dispatches.await_count(8, words=node.words)
        node.stop()
        path = node.data / "stores" / f"{cluster.namespace}-n1" / "0"
        shutil.rmtree(path)
        path.write_text("in the way")
        node.start()
        wait_until(lambda: 0 in troubles(node), node.words)
        state = node.state()
        assert state is not None
        assert (state["ready"], state["status"], state["live"]) == (False, 503, True)
        assert str(path) in troubles(node)[0]
        assert "could not be opened" in troubles(node)[0]
        wait_until(lambda: phase(node, 1) == "ready", node.words)
        path.unlink()
        await_ready(node)
        dispatches.await_all(expected, words=node.words)
        assert node.stop() == [0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, f"{verdict}\n{node.words(60)}"


@pytest.mark.parametrize("what", ["a block that cannot be read", "files cut to nothing"])
def test_a_store_that_is_damaged(cluster: Cluster, what: str) -> None:
    """It is only a copy: the shards throw it away by themselves and restore it, and nothing is lost."""
    node = cluster.node().start()
    await_ready(node)
    expected = create(cluster, beats(8, now_ms() + 4_000, 12))
    for _ in range(2):  # opened again, a store puts into files what was in its log
        node.stop()
        node.start()
        await_ready(node)
    node.sigkill()
    stores = node.data / "stores" / f"{cluster.namespace}-n1"
    tables = list(stores.glob("*/*.sst"))
    assert tables
    for path in tables if what.startswith("a block") else [path for path in stores.rglob("*") if path.is_file()]:
        content = path.read_bytes()
        path.write_bytes(
            bytes(byte ^ 0xFF for byte in content[:64]) + content[64:] if what.startswith("a block") else b""
        )
    node.start()
    await_ready(node)
    with Dispatches(cluster) as dispatches:
        dispatches.await_all(expected, words=node.words)
        assert node.stop() == [0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, f"{verdict}\n{node.words(60)}"
    assert any("damaged" in event["text"] for event in node.events() if event["event"] in DAMAGE), node.words()


def phase(node: Node, shard: int) -> str | None:
    what = (node.state() or {}).get("shards", {}).get(str(shard))
    return None if what is None else str(what["phase"])


def await_share(one: Node, other: Node) -> int:
    """Wait until each serves one of the two shards; the other's."""

    def share() -> list[int]:
        return [shard for shard, name in await_ready(one, other).items() if name == f"{other.node_id}-0"]

    (shard,) = wait_until(share, other.words)
    return int(shard)


def test_a_node_without_a_disk_leaves_its_shards_to_others(cluster: Cluster, tmp_path: Path) -> None:
    """It does not join, so it silences nobody; when stores can be kept there it takes its share again."""
    healthy = cluster.node("n1", data_dir=tmp_path / "one").start()
    other = cluster.node("n2", data_dir=tmp_path / "two").start()
    await_ready(healthy, other)
    other.stop()
    await_ready(healthy)
    expected = create(cluster, beats(8, now_ms() + 4_000, 15))
    stores = other.data / "stores"
    shutil.rmtree(stores)
    stores.write_text("in the way")
    with Dispatches(cluster) as dispatches:
        other.start()
        told = wait_until(lambda: (other.state() or {}).get("aside"), other.words)
        assert str(stores) in told
        assert (other.state() or {})["status"] == 503
        await_ready(healthy)
        stores.unlink()
        await_share(healthy, other)
        dispatches.await_all(expected, words=healthy.words)
        assert not other.events("shard_failed"), other.words()
        assert [*healthy.stop(), *other.stop()] == [0, 0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, f"{verdict}\n{healthy.words(60)}\n{other.words(60)}"


def test_a_node_that_loses_a_store_leaves_its_shards_to_others(cluster: Cluster, tmp_path: Path) -> None:
    """It tries some times, leaves the group, and comes back once the store can be opened; nobody waits for it."""
    healthy = cluster.node("n1", data_dir=tmp_path / "one").start()
    await_ready(healthy)
    other = cluster.node("n2", data_dir=tmp_path / "two").start()
    shard = await_share(healthy, other)
    expected = create(cluster, beats(8, now_ms() + 4_000, 20))
    other.stop()
    path = other.data / "stores" / f"{cluster.namespace}-n2" / str(shard)
    shutil.rmtree(path)
    path.write_text("in the way")
    with Dispatches(cluster) as dispatches:
        other.start()
        told = wait_until(lambda: (other.state() or {}).get("aside"), other.words)
        assert str(path) in told
        await_ready(healthy)
        path.unlink()
        await_share(healthy, other)
        dispatches.await_all(expected, words=healthy.words)
        assert [*healthy.stop(), *other.stop()] == [0, 0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, f"{verdict}\n{healthy.words(60)}\n{other.words(60)}"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no small file system without the right to mount one: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave no room; returns the file that takes it."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (MIB, 4096):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return filler


def test_a_disk_that_fills_up_while_firing(cluster: Cluster, small_disk: Path) -> None:
    """Committed, and the store cannot follow: not ready, the text says no space; with room again, nothing was lost."""
    node = cluster.node(data_dir=small_disk / "data").start()
    await_ready(node)
    expected = create(cluster, beats(8, now_ms() + 3_000, 7))
    with Dispatches(cluster) as dispatches:
        dispatches.await_count(8, words=node.words)
        filler = fill(small_disk)
        # Schedules of a few KB each, so that the log in memory has to reach the disk.
        bulk = [
            Beat(f"bulk/{n}", now_ms() + 3_600_000, now_ms() + 7_200_000).create(description="x" * 900)
            for n in range(200)
        ]
        with CommandClient(cluster.kafka, namespace=cluster.namespace) as client:
            replies = client.send_many(bulk)
            wait_until(lambda: next(replies, None) is None or troubles(node), node.words)
            wait_until(lambda: any("space" in text.lower() for text in troubles(node).values()), node.words)
        state = node.state()
        assert state is not None
        assert (state["ready"], state["status"]) == (False, 503)
        filler.unlink()
        await_ready(node)
        dispatches.await_all(expected, words=node.words)
        assert node.stop() == [0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, f"{verdict}\n{node.words(60)}"
