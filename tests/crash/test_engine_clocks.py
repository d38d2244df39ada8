"""Clocks that lie to a running node, on the real broker: what fires, when, and what `/ready` says about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.wrong_clock import Lies
from tests.support.commands import create
from tests.support.node import Cluster, Node, await_ready, wait_until
from tests.support.verifier import Dispatches, Reader, beats, judge, ms_of, now_ms

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.broker

TWO_HOURS_MS = 7_200_000
LATE_MS = 1_500  # on two busy cores


@pytest.fixture
def lies(tmp_path: Path) -> Lies:
    """Clocks that are right until told otherwise."""
    return Lies(tmp_path / "lies.json")


def alarms(node: Node) -> dict[str, str]:
    """What `/ready` says about the time."""
    found: dict[str, str] = (node.state() or {}).get("clock_alarms", {})
    return found


def await_alarm(node: Node, reason: str) -> str:
    """Wait until `/ready` refuses for this reason; returns its sentence."""

    def refused() -> str | None:
        state = node.state()
        return state["clock_alarms"].get(reason) if state is not None and state["status"] == 503 else None

    sentence: str = wait_until(refused, lambda: f"the alarm {reason}: {node.state()}\n{node.words()}")
    return sentence


def await_metric(node: Node, line: str) -> None:
    """Wait for the next look of the poll loop, which sets the metrics."""
    wait_until(lambda: line in node.metrics(), lambda: f"{line}\n{node.metrics()}")


def shard_marks(cluster: Cluster) -> list[tuple[int, int, int]]:
    """Of each shard record: how far it says it is fired, when it was last alive, and its stamp, which is the step's."""
    with Reader(cluster, [cluster.catalogue.shard_records]) as reader:
        records = [record for record in reader.read_to_end() if b"cursor" in (record.value or b"")]
    assert all(record.append_ms == ms_of(record.fields["at"]) for record in records), "no wall clock stamps them"
    return [(ms_of(r.fields["cursor"]["available_at"]), ms_of(r.fields["seen_until"]), r.append_ms) for r in records]


def test_p49_a_wall_clock_that_steps_moves_nothing(cluster: Cluster, lies: Lies) -> None:
    """Two hours ahead and back: an alarm, not ready, and every second fires once, on time; no mark runs ahead."""
    node = cluster.node().start(lies=lies.path)
    await_ready(node)
    with Dispatches(cluster) as dispatches:
        expected = create(cluster, beats(8, now_ms() + 3_000, 6))
        dispatches.await_count(8, words=node.words)
        lies.tell(wall_ms=TWO_HOURS_MS)
        assert "7200.0 s ahead of the brokers' time" in await_alarm(node, "wall")
        await_metric(node, 'scheduler_clock_alarm{reason="wall"} 1.0')
        dispatches.await_count(16, words=node.words)
        lies.tell()
        await_ready(node)
        await_metric(node, 'scheduler_clock_alarm{reason="wall"} 0.0')
        dispatches.await_all(expected, words=node.words)
        assert node.stop() == [0]
        verdict = judge(dispatches.read_to_end(), expected)
        assert verdict.clean, f"{verdict}\n{node.words(60)}"
        late = [record.append_ms - ms_of(record.fields["available_at"]) for record in dispatches.seen]
        assert max(late) <= LATE_MS, sorted(late)[-10:]
        assert {record.fields["origin"] for record in dispatches.seen} == {"schedule"}
    end = now_ms()
    marks = shard_marks(cluster)
    assert marks
    assert max(max(mark) for mark in marks) <= end
    reasons = [event["reason"] for event in node.events("clock_alarm")]
    assert [reason for reason in reasons if reason != "silent"] == ["wall"], "once; at the start it may be silent"


def test_p50_a_boot_with_an_absurd_clock_waits(cluster: Cluster, lies: Lies) -> None:
    """1970, then 2098 for a moment, then right: nothing is opened, fired or stored before; then everything, once."""
    first = cluster.node().start()
    await_ready(first)
    expected = create(cluster, beats(4, now_ms() + 3_000, 8))
    assert first.stop() == [0]
    before = shard_marks(cluster)
    node = cluster.node("n2")
    lies.tell(broker_ms=-now_ms())
    node.start(lies=lies.path)
    assert "1970-01-01T00:00:" in await_alarm(node, "absurd")
    with Dispatches(cluster) as dispatches:
        fired = len(dispatches.read_to_end())
        lies.tell(broker_ms=72 * 365 * 86_400_000)
        assert "nothing fires" in await_alarm(node, "doubt")
        assert {shard["phase"] for shard in (node.state() or {})["shards"].values()} <= {"opening"}
        lies.tell()
        await_ready(node)
        assert alarms(node) == {}
        opened = min(shard["at"] for shard in node.events("shard_ready"))
        assert len([r for r in dispatches.read_to_end() if r.append_ms < ms_of(opened)]) == fired
        dispatches.await_all(expected, words=node.words)
        assert node.stop() == [0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, f"{verdict}\n{node.words(60)}"
    marks = shard_marks(cluster)
    assert len(marks) > len(before)
    assert max(max(mark) for mark in marks) <= now_ms()


@pytest.mark.parametrize("frozen_ms", [17_000, pytest.param(75_000, marks=pytest.mark.soak)])
def test_p51_a_loop_that_slept_is_an_outage(cluster: Cluster, frozen_ms: int) -> None:
    """Frozen while it stays the owner: old ticks are missed with the reason, none is run as a live one."""
    node = cluster.node(session_timeout_ms=90_000, heartbeat_interval_ms=3_000).start()
    await_ready(node)
    with Dispatches(cluster) as dispatches, Reader(cluster, [cluster.catalogue.occurrences]) as occurrences:
        first = now_ms() + 3_000
        schedules = beats(4, first, frozen_ms // 1000 + 5)
        expected = create(cluster, schedules, misfire="fire_once")
        dispatches.await_count(8, words=node.words)
        node.freeze()
        frozen_at = now_ms()
        wait_until(lambda: now_ms() - frozen_at > frozen_ms, "the time to pass", frozen_ms / 1000 + 10)
        node.thaw()
        thawed_at = now_ms()
        last = max(beat.end for beat in schedules) - 1_000
        dispatches.read_until(
            lambda: [r for r in dispatches.seen if ms_of(r.fields["scheduled_for"]) >= last], node.words
        )
        assert node.stop() == [0]
        verdict = judge(dispatches.read_to_end(), expected)
        assert verdict.doubled + verdict.early + verdict.strange == [], f"{verdict}\n{node.words(60)}"
        caught_up = [r.fields for r in dispatches.seen if r.fields["origin"] == "catch_up"]
        assert len(caught_up) == len(schedules), "the newest of each"
        for record in dispatches.seen:
            fields = record.fields
            if fields["origin"] == "schedule":
                assert record.append_ms - ms_of(fields["available_at"]) < frozen_ms / 2, fields
        missed = [record.fields for record in occurrences.read_to_end()]
    assert {(fields["state"], fields["reason"]) for fields in missed} == {("missed", "downtime")}
    assert sum(fields.get("count", 1) for fields in missed) == len(verdict.lost)
    for fields in missed:
        assert frozen_at - 1_500 <= ms_of(fields["first"])
        assert ms_of(fields["last"]) <= thawed_at + 1_500, "the first look after it"
    assert [e for e in node.events("shard_failed") if e["why"] == "unexpected"] == []
