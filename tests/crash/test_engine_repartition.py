"""A cluster moved to another number of shards: under load, with commands on their way, and cut off at every commit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from scheduler.cli import main
from scheduler.config import Kafka, Settings
from scheduler.runtime.hold import Hold, look
from tests.support.commands import ask, create, send
from tests.support.node import Cluster, Node, await_ready, wait_until
from tests.support.verifier import Dispatches, Reader, beats, judge, now_ms, rfc3339
from topics.admin import connect
from topics.partition import partition_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

pytestmark = pytest.mark.broker

SHARDS = 3


@pytest.fixture
def after(cluster: Cluster) -> Cluster:
    """Where the cluster of two shards moves to; its topics are not made."""
    folder = cluster.folder / "after"
    folder.mkdir()
    made = Cluster(cluster.bootstrap_servers, f"{cluster.namespace}v2.", SHARDS, folder)
    cluster.nodes = made.nodes  # ended with the cluster
    return made


def move(node: Node, after: Cluster, *more: str) -> Result:
    """Run the command."""
    arguments = ["--config", str(node.config), "repartition", "--namespace", after.namespace]
    arguments += ["--shards", str(after.shards), "--reason", "growth", "--actor", "maria", "--yes", "--json", *more]
    return CliRunner().invoke(main, arguments)


def moved(node: Node, after: Cluster) -> dict[str, Any]:
    """Run it to its end; what it says."""
    done = move(node, after)
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout.splitlines()[-1]))


def both(before: Cluster, after: Cluster) -> list[Any]:
    """Everything on the dispatch topics of both sides."""
    seen = []
    for one in (before, after):
        with Dispatches(one) as dispatches:
            seen += dispatches.read_to_end()
    return seen


def await_refusal(node: Node, word: str) -> None:
    """Wait until every shard of a node says so."""

    def refused() -> bool:
        shards = (node.state() or {}).get("shards", {})
        troubles = [shard.get("trouble", "") for shard in shards.values()]
        return len(troubles) == node.cluster.shards and all(word in trouble for trouble in troubles)

    wait_until(refused, lambda: f"{word}: {node.state()}\n{node.words()}", 30)


def test_schedules_fire_through_a_move_each_nominal_once(cluster: Cluster, after: Cluster) -> None:
    """The old node goes on until it is fenced and refuses from then on; what fell due meanwhile runs at the new one."""
    node = cluster.node().start()
    await_ready(node)
    expected = create(cluster, beats(12, now_ms() + 3_000, 40))
    resting = {"command": "create", "schedule_id": "acme/resting", "spec": {"trigger": {"every_ms": 1000}}}
    assert send(cluster, resting, {"command": "pause", "schedule_id": "acme/resting"}) == ["created", "paused"]
    with Dispatches(cluster) as dispatches:
        dispatches.await_count(60, words=node.words)
    planned = move(node, after, "--dry-run")
    assert planned.exit_code == 0, planned.output
    lines = [json.loads(line) for line in planned.stdout.splitlines()]
    assert lines[-1]["schedules"] == 13
    assert len(lines[-1]["new_topics"]) == len(after.catalogue.specs())
    account = moved(node, after)
    assert (account["schedules"], sorted(account["checksums"])) == (13, ["0", "1", "2"])
    await_refusal(node, f"moved to namespace '{after.namespace}' (3 shards)")
    new = after.node("n2").start()
    await_ready(new)
    with Dispatches(after) as dispatches:
        before = {record.fields["occurrence_id"] for record in both(cluster, after) if record.topic in _topics(cluster)}
        rest = {name: at for name, at in expected.items() if name not in before}
        assert before
        assert rest
        dispatches.await_all(rest, 90, words=new.words)
    verdict = judge(both(cluster, after), expected)
    assert (verdict.lost, verdict.doubled, verdict.strange, verdict.early) == ([], [], [], []), new.words(60)
    with Reader(after, [after.catalogue.schedule_history]) as reader:
        told = [r.fields for r in reader.read_to_end() if r.fields["change"] == "repartitioned"]
    assert len(told) == 13
    assert {(line["actor"], line["reason"]) for line in told} == {("maria", "growth")}
    (reply,) = ask(after, {"command": "resume", "schedule_id": "acme/resting"})
    assert (reply.code, reply.version, reply.revision) == ("resumed", 1, 3)


def test_commands_in_added_partitions_move_too(cluster: Cluster, after: Cluster) -> None:
    """Sent when no node ran, to partitions that no shard of the old side has: they are there on the new side, once."""
    node = cluster.node().start()
    await_ready(node)
    assert send(cluster, _far("acme/before")) == ["created"]
    admin = connect(cluster.kafka)
    (added,) = admin.create_partitions([NewPartitions(cluster.catalogue.commands, 5)]).values()
    added.result(10)
    node.stop()
    names = [f"acme/stray-{n}" for n in range(40)]
    producer = Producer({**cluster.kafka, "partitioner": "murmur2_random"})
    for name in names:
        producer.produce(cluster.catalogue.commands, json.dumps(_far(name)), name)
    assert producer.flush(10) == 0
    assert moved(node, after)["commands"] == len(names)
    assert moved(node, after)["commands"] == 0, "carried over a second time"
    new = after.node("n2").start()
    await_ready(new)
    assert send(after, *({"command": "cancel", "schedule_id": name} for name in [*names, "acme/before"])) == [
        "cancelled"
    ] * (len(names) + 1)


def _far(name: str) -> dict[str, Any]:
    return {"command": "create", "schedule_id": name, "spec": {"trigger": {"at": rfc3339(now_ms() + 3_600_000)}}}


def _topics(cluster: Cluster) -> set[str]:
    return set(cluster.catalogue.dispatch_topics())


def test_commands_on_their_way_are_carried_over_with_their_ids(cluster: Cluster, after: Cluster) -> None:
    """Sent and not applied when the old side ended, and sent to it afterwards: each has its one effect at the new one,
    whether it brought an id or not; what nobody can read is set aside there; a repeat at the new side is a repeat."""
    node = cluster.node().start()
    await_ready(node)
    yearly = {"trigger": {"cron": "0 0 1 1 *", "zone": "UTC"}}
    made = [{"command": "create", "schedule_id": f"acme/s{n}", "spec": yearly} for n in range(6)]
    assert set(send(cluster, *made)) == {"created"}
    assert node.stop() == [0]
    late = [
        {"command": "create", "schedule_id": "acme/late", "spec": yearly},
        {"command": "pause", "schedule_id": "acme/s1", "command_id": "stop-1"},
        {"command": "delete", "schedule_id": "acme/s2"},
    ]
    producer = Producer(cluster.kafka)
    for command in late:
        key = str(command["schedule_id"]).encode()
        producer.produce(cluster.catalogue.commands, json.dumps(command), key, partition_for(key, 2))
    producer.produce(cluster.catalogue.commands, b"{garbage", b"x", 1)
    wrong = json.dumps({"command": "pause", "schedule_id": "acme/s3"})
    producer.produce(cluster.catalogue.commands, wrong, b"acme/s3", 1 - partition_for(b"acme/s3", 2))
    assert producer.flush(30) == 0
    assert moved(node, after)["commands"] == 5
    assert moved(node, after) == {**moved(node, after), "commands": 0, "at": None}
    straggler = json.dumps({"command": "cancel", "schedule_id": "acme/s4"})
    producer.produce(cluster.catalogue.commands, straggler, b"acme/s4", partition_for(b"acme/s4", 2))
    assert producer.flush(30) == 0
    assert moved(node, after)["commands"] == 1
    new = after.node("n2").start()
    await_ready(new)
    with Reader(after, [after.catalogue.schedule_history]) as reader:
        reader.read_until(lambda: len(_changes(reader)) == 5, "five changes")
        assert _changes(reader) == {
            ("acme/late", "created"),
            ("acme/s1", "paused"),
            ("acme/s2", "deleted"),
            ("acme/s3", "paused"),
            ("acme/s4", "cancelled"),
        }
    again = ask(after, late[1])[0]
    assert (again.code, again.revision) == ("paused", 2), "the first answer, no second effect"
    with Reader(after, [after.catalogue.rejected]) as reader:
        reader.read_until(lambda: reader.seen, "the garbage")
        assert reader.seen[0].fields["value_text"] == "{garbage"


def _changes(reader: Reader) -> set[tuple[str, str]]:
    found = ((r.fields["schedule_id"], r.fields["change"]) for r in reader.seen)
    return {change for change in found if change[1] != "repartitioned"}


class _Killed(Exception):
    """What a kill leaves: nothing is said, nothing closed."""


@pytest.mark.parametrize("shards", [1, pytest.param(4, marks=pytest.mark.soak)])
def test_a_move_cut_off_anywhere_is_finished_and_never_has_two_sides(
    cluster: Cluster, after: Cluster, monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    """Killed before and after its first commit, its second, and so on: at no time may both sides serve, nor a new
    shard that is not whole; the run that gets through leaves what an undisturbed one leaves."""
    after.shards = shards
    node = cluster.node().start()
    await_ready(node)
    expected = create(cluster, beats(6, now_ms() + 2_000, 4))
    with Dispatches(cluster) as dispatches:
        dispatches.await_count(12, words=node.words)
    assert node.stop() == [0]
    commit = Hold.commit
    runs = 0
    for kills_at in range(100):
        for kills_after in (False, True):
            monkeypatch.setattr(Hold, "commit", _deadly(commit, kills_at, kills_after=kills_after))
            result = move(node, after)
            runs += 1
            _assert_one_side(cluster, after)
        if result.exit_code == 0:
            break
        assert isinstance(result.exception, _Killed), result.output
    assert runs > 2 * (2 + 2 * shards), "it was cut off while it marked, fenced, filled and opened"
    monkeypatch.setattr(Hold, "commit", commit)
    new = after.node("n2").start()
    await_ready(new)
    with Dispatches(after) as dispatches:
        done = {r.fields["occurrence_id"] for r in both(cluster, after) if r.topic in _topics(cluster)}
        dispatches.await_all({name: at for name, at in expected.items() if name not in done}, words=new.words)
    verdict = judge(both(cluster, after), expected)
    assert (verdict.lost, verdict.doubled, verdict.strange) == ([], [], [])


def _deadly(commit: Callable[..., Any], at: int, *, kills_after: bool) -> Callable[..., Any]:
    """A commit that is the end of the process, the `at`-th time it has something to commit."""
    count = 0

    def deadly(self: Hold, build: Callable[[Any], Any]) -> Any:
        nonlocal count
        mine = count
        count += 1
        if mine == at and not kills_after:
            raise _Killed
        result = commit(self, build)
        if mine == at:
            raise _Killed
        return result

    return deadly


def _assert_one_side(cluster: Cluster, after: Cluster) -> None:
    """As a node of either side would find it."""
    old = [look(_settings(cluster), shard) for shard in range(cluster.shards)]
    try:
        new = [look(_settings(after), shard) for shard in range(after.shards)]
    except Exception:  # noqa: BLE001 - there are no topics yet
        new = []
    whole = [r for r in new if r is not None and not (r.moved_from is not None and r.moved_from.filling)]
    if any(record is None or record.moved_to is None for record in old):
        assert not whole


def _settings(cluster: Cluster) -> Settings:
    kafka = Kafka(bootstrap_servers=cluster.bootstrap_servers)
    return Settings(kafka=kafka, namespace=cluster.namespace, shards=cluster.shards)


def test_a_target_in_use_and_a_second_target_are_refused(cluster: Cluster, after: Cluster) -> None:
    """Every obstacle in one answer, and nothing is changed; a cluster that has moved moves nowhere else."""
    node = cluster.node().start()
    other = after.make_topics().node("n2").start()
    await_ready(node)
    await_ready(other)
    assert send(after, {"command": "create", "schedule_id": "a/b", "spec": {"trigger": {"every_ms": 3_600_000}}})
    refused = move(node, after)
    assert refused.exit_code == 1
    assert f"namespace '{after.namespace}' is in use" in refused.stderr
    await_ready(node)
    third = Cluster(cluster.bootstrap_servers, f"{cluster.namespace}v3.", 1, after.folder)
    assert moved(node, third)["schedules"] == 0
    refused = move(node, after)
    assert refused.exit_code == 1
    for shard in range(2):
        assert f"shard {shard} has moved to namespace '{third.namespace}' (1 shards) already" in refused.stderr
