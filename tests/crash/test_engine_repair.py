"""A real shard driven into the future by a wrong clock, and `scheduler repair-cursor` beside a running node."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from scheduler.cli import main
from tests.crash.wrong_clock import Lies
from tests.support.node import ROOT, Cluster, Node, await_ready, wait_until
from tests.support.verifier import Dispatches, Reader, beats, judge, ms_of, now_ms
from topics.client import CommandClient
from topics.partition import partition_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.verifier import Beat

pytestmark = pytest.mark.broker

AHEAD_MS = 50 * 60_000  # less than the hour that brokers let a record's stamp lie ahead


def create(cluster: Cluster, schedules: Sequence[Beat], **spec: Any) -> dict[str, int]:
    """Create the schedules; returns what is expected of them."""
    with CommandClient(cluster.kafka, namespace=cluster.namespace) as client:
        for _, reply in client.send_many([beat.create(**spec) for beat in schedules]):
            assert reply.status == "accepted", reply
    return {name: at for beat in schedules for name, at in beat.expected().items()}


def repair(node: Node, *more: str) -> list[dict[str, Any]]:
    """Run the command on all shards; its lines."""
    command = ["--config", str(node.config), "repair-cursor", "--all", "--json"]
    done = CliRunner().invoke(main, [*command, "--reason", "a clock was wrong", "--actor", "maria", *more])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def await_refusal(node: Node) -> dict[str, str]:
    """Wait until every shard says why it does not serve."""

    def refused() -> dict[str, str] | None:
        shards = (node.state() or {}).get("shards", {})
        troubles = {number: shard.get("trouble", "") for number, shard in shards.items()}
        return troubles if len(troubles) == node.cluster.shards and all(troubles.values()) else None

    found: dict[str, str] = wait_until(refused, lambda: f"a refusal: {node.state()}\n{node.words()}", 20)
    return found


def test_a_shard_in_the_future_is_repaired_beside_its_node(cluster: Cluster, tmp_path: Path) -> None:
    """It says what to type, that is typed, it serves again: what was fired stays fired, what is new fires on time."""
    lies = Lies(tmp_path / "lies.json")
    lies.tell(wall_ms=AHEAD_MS, broker_ms=AHEAD_MS)
    node = cluster.node().start(lies=lies.path)
    await_ready(node)
    with Dispatches(cluster) as dispatches:
        misled = beats(8, now_ms() + AHEAD_MS + 1_000, 600)
        assert {partition_for(beat.schedule_id.encode(), cluster.shards) for beat in misled} == {0, 1}
        old = create(cluster, misled, misfire="fire_once")
        dispatches.await_count(16, words=node.words)
        assert node.stop() == [0]
        lies.tell()
        node.start(lies=lies.path)
        for number, trouble in await_refusal(node).items():
            assert f"`scheduler repair-cursor --shard {number} --reason TEXT`" in trouble
        state = node.state()
        assert state is not None
        assert state["status"] == 503
        by_the_wrong_clock = {record.fields["occurrence_id"] for record in dispatches.read_to_end()}
        planned = repair(node, "--dry-run")
        assert {line["result"] for line in planned} == {"would_repair"}
        assert len(await_refusal(node)) == cluster.shards, "a dry run changes nothing"
        done = repair(node)
        assert {line["result"] for line in done} == {"repaired"}
        assert sum(line["schedules"] for line in done) == len(misled)
        await_ready(node)
        # The tool may have held a shard after its node had initialised: that is fenced once more then, and owned anew
        # after a back-off of up to 5 s. What is created meanwhile must not be due before.
        new = create(cluster, beats(4, now_ms() + 8_000, 3, tenant="new"))
        dispatches.await_all(new, words=node.words)
        assert node.stop() == [0]
        verdict = judge(dispatches.read_to_end(), {**old, **new})
        assert (verdict.doubled, verdict.strange) == ([], []), node.words(60)
        assert set(verdict.early) == by_the_wrong_clock
        assert dispatches.ids() == by_the_wrong_clock | new.keys()
    with Reader(cluster, [cluster.catalogue.shard_records]) as reader:
        records = [r.fields for r in reader.read_to_end() if (r.key or b"").endswith(b"/repair")]
    assert {record["shard"] for record in records} == set(range(cluster.shards))
    assert {(record["actor"], record["reason"]) for record in records} == {("maria", "a clock was wrong")}
    assert all(ms_of(record["was"]["available_at"]) > ms_of(record["now"]["available_at"]) for record in records)


def test_a_repair_waits_for_right_clocks(cluster: Cluster, tmp_path: Path) -> None:
    """While the brokers and this machine disagree nobody knows what to set the cursor back to: nothing is done."""
    lies = Lies(tmp_path / "lies.json")
    lies.tell(wall_ms=AHEAD_MS)
    node = cluster.node()
    done = subprocess.run(
        [
            sys.executable, "-m", "tests.crash.wrong_clock", str(lies.path), "--config", str(node.config),
            "repair-cursor", "--all", "--reason", "x",
        ],
        capture_output=True, text=True, timeout=60, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 1
    # How long the answer took counts as well.
    assert re.search(r"30\d\d\.\d s behind this machine's clock: put the clocks right first", done.stderr)
