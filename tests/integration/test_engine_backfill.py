"""A backfill, and a change for later, on a real broker through a real node that dies on the way."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.node import await_ready
from tests.support.verifier import Dispatches, ms_of, now_ms, rfc3339
from topics.client import CommandClient

if TYPE_CHECKING:
    from tests.support.node import Cluster
    from topics.messages import Reply

pytestmark = pytest.mark.broker

NAME = "acme/every-second"
BACK = 40


def ask(cluster: Cluster, verb: str, **fields: Any) -> Reply:
    with CommandClient(cluster.kafka, namespace=cluster.namespace) as client:
        return client.send({"command": verb, "schedule_id": NAME, **fields})


def test_a_backfill_runs_what_is_missing_once_over_a_kill(cluster: Cluster) -> None:
    """What ran is left out; a SIGKILL in the middle neither loses nor doubles; a planned change counts to the ms."""
    node = cluster.node().start()
    await_ready(node)
    anchor = now_ms() // 1000 * 1000 - BACK * 1000
    trigger = {"every_ms": 1000, "anchor": rfc3339(anchor)}
    assert ask(cluster, "create", spec={"trigger": trigger, "payload": "early"}).code == "created"
    with Dispatches(cluster) as dispatches:

        def runs() -> Counter[int]:
            return Counter(ms_of(record.fields["scheduled_for"]) for record in dispatches.seen)

        dispatches.await_count(3, words=node.words)
        asked = {"from": rfc3339(anchor), "until": rfc3339(now_ms())}
        counts = ask(cluster, "backfill", **asked, dry_run=True).counts
        assert counts["left_out"] >= 3
        assert counts["remaining"] + counts["left_out"] == counts["nominals"]
        assert ask(cluster, "backfill", **asked, per_s=10).code == "backfilling"
        assert ask(cluster, "backfill", **asked).code == "backfill_running"
        dispatches.read_until(lambda: len(runs()) >= counts["left_out"] + 12, node.words)
        node.sigkill()
        node.start()
        await_ready(node)
        boundary = now_ms() // 1000 * 1000 + 2_000
        planned = ask(cluster, "update", spec={"payload": "late"}, effective_from=rfc3339(boundary))
        assert planned.code == "planned"
        all_of_them = set(range(anchor, boundary + 3_000, 1_000))
        dispatches.read_until(lambda: all_of_them <= runs().keys(), node.words)
        assert node.stop() == [0]
        dispatches.read_to_end()
    assert set(runs().values()) == {1}
    seen = [record.fields for record in dispatches.seen]
    assert sum(one["origin"] == "backfill" for one in seen) == counts["remaining"]
    for one in seen:
        expected = (2, "late") if ms_of(one["scheduled_for"]) > boundary else (1, "early")
        assert (one["version"], one["payload"]) == expected, one
