"""The state of a shard is its topics: a store is a copy that may be lost, compared, refused and made again."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from scheduler.config import Kafka, Settings
from scheduler.runtime.kafka import changelog_consumer
from scheduler.runtime.restore import Restore
from scheduler.shard import keys
from scheduler.shard.rebuild import mark_applied
from scheduler.shard.shard import Shard, ShardSettings
from scheduler.state.rocks import RocksStore, StoreHeld
from scheduler.state.store import Batch
from tests.support.commands import send
from tests.support.node import Cluster, Node, await_ready, wait_until
from tests.support.verifier import Beat, Dispatches, beats, judge, now_ms, rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.broker import BrokerUnderTest

pytestmark = pytest.mark.broker

HOUR = 3_600_000
IDENTITY = keys.meta("identity")


def settings_of(node: Node) -> Settings:
    cluster = node.cluster
    return Settings(
        kafka=Kafka(bootstrap_servers=cluster.bootstrap_servers),
        namespace=cluster.namespace,
        shards=cluster.shards,
        node_id=node.node_id,
        data_dir=node.data,
        lanes=cluster.lanes,
        log_level="info",
        log_format="json",
    )


def store_path(node: Node, shard: int) -> Path:
    """Where a node keeps a shard's store."""
    return node.data / "stores" / f"{node.cluster.namespace}-{node.node_id}" / str(shard)


def contents(store: RocksStore, *prefixes: bytes) -> dict[bytes, bytes]:
    return {key: value for p in prefixes for key, value in store.items(p, keys.after_prefix(p))}


def a_bit_of_everything(now: int) -> list[dict[str, Any]]:
    """Schedules in every state, with and without something owed."""

    def create(name: str, trigger: dict[str, Any], **spec: Any) -> dict[str, Any]:
        return {"command": "create", "schedule_id": f"acme/{name}", "spec": {"trigger": trigger, **spec}}

    def verb(command: str, name: str, **fields: Any) -> dict[str, Any]:
        return {"command": command, "schedule_id": f"acme/{name}", **fields}

    made = [create(f"cron-{n}", {"cron": f"{n} * * * *", "zone": "Europe/Berlin"}) for n in range(20)]
    made += [create(f"once-{n}", {"at": rfc3339(now + 2_000 + 100 * n)}) for n in range(10)]
    made += [create(f"later-{n}", {"at": rfc3339(now + HOUR + n)}, priority="high") for n in range(10)]
    made += [
        create(f"spread-{n}", {"every_ms": HOUR, "anchor": rfc3339(now + 2_000)}, window_ms=HOUR) for n in range(10)
    ]
    made += [create(f"odd-{n}", {"cron": "0 9 * * mon-fri", "zone": "America/New_York"}) for n in range(12)]
    made += [verb("pause", f"odd-{n}") for n in range(3)]
    made += [verb("cancel", f"odd-{n}") for n in range(3, 6)]
    made += [verb("delete", f"odd-{n}") for n in range(6, 9)]
    made += [verb("update", f"odd-{n}", spec={"payload": {"n": n}, "priority": "critical"}) for n in range(9, 12)]
    made += [verb("pause", f"later-{n}") for n in range(3)] + [verb("resume", f"later-{n}") for n in range(2)]
    return made


def test_a_store_equals_one_restored_from_the_topics_alone(cluster: Cluster, tmp_path: Path) -> None:
    """Every schedule, live and shard record is on the topics, and the due set follows from them, key by key."""
    node = cluster.node().start()
    await_ready(node)
    rhythm = beats(4, now_ms() + 3_000, 3)
    send(cluster, *(beat.create() for beat in rhythm))
    send(cluster, *a_bit_of_everything(now_ms()))
    expected = {name: at for beat in rhythm for name, at in beat.expected().items()}
    with Dispatches(cluster) as dispatches:
        dispatches.await_all(expected, words=node.words)
    # These nominals are reached and wait in their window: a new version leaves them owed beside it.
    spread = [f"acme/spread-{n}" for n in range(10)]
    update = {"command": "update", "spec": {"payload": {"n": 1}}}
    assert send(cluster, *({**update, "schedule_id": name} for name in spread)) == ["updated"] * 10
    assert node.stop() == [0]

    settings = settings_of(node)
    now = now_ms()
    seen: set[bytes] = set()
    for number in range(cluster.shards):
        kept, fresh = RocksStore(store_path(node, number)), RocksStore(tmp_path / f"fresh-{number}")
        try:
            restore = Restore(changelog_consumer(settings), settings.namespace, number, lambda: False)
            restore.run(fresh)
            assert restore.foreign == 0
            primary = contents(kept, *keys.PREFIXES_FROM_TOPICS)
            assert contents(fresh, *keys.PREFIXES_FROM_TOPICS) == primary
            seen |= {key[:1] for key in primary}
            for store in (kept, fresh):  # opening advances what had fired and was not moved on yet
                Shard(number, cluster.catalogue, store, ShardSettings()).open(now, 0)
            assert contents(fresh, *keys.PREFIXES_DERIVED) == contents(kept, *keys.PREFIXES_DERIVED)
            seen |= {key[:1] for key in contents(kept, *keys.PREFIXES_DERIVED)}
        finally:
            kept.close()
            fresh.close()
    # The comparison was about something.
    assert seen >= {keys.SCHEDULE, keys.LIVE, keys.RECORD, keys.DUE, keys.PLACE, keys.TIMER, keys.EXPIRY}


def test_positions_are_kept_in_the_store_and_shown_to_the_group(cluster: Cluster) -> None:
    """A restart reads no changelog again; lag tools see that all commands are read."""
    node = cluster.node().start()
    await_ready(node)
    send(cluster, *a_bit_of_everything(now_ms()))
    assert node.stop() == [0]
    node.start()
    await_ready(node)
    ready = node.events("shard_ready")[-cluster.shards :]
    assert [event["applied"] for event in ready] == [0] * cluster.shards
    commands = [TopicPartition(cluster.catalogue.commands, number) for number in range(cluster.shards)]
    group = Consumer({**cluster.kafka, "group.id": f"{cluster.namespace}scheduler"})
    try:
        ends = [group.get_watermark_offsets(one, timeout=30)[1] for one in commands]
        wait_until(lambda: [p.offset for p in group.committed(commands, timeout=30)] == ends, node.words)
    finally:
        group.close()
    node.stop()


def test_a_topic_that_lost_records_is_noticed(cluster: Cluster) -> None:
    """A store ahead of its changelog would mix two truths: refused with both positions, until one of them goes."""
    node = cluster.node().start()
    await_ready(node)
    assert node.stop() == [0]
    store = RocksStore(store_path(node, 0))
    batch = Batch()
    mark_applied(batch, "scheduler.live", 1_000)
    store.write(batch)
    store.close()
    node.start()
    wait_until(lambda: "up to 1000, but the topic ends at 0" in str(node.state()), node.words)
    shutil.rmtree(store_path(node, 0))
    await_ready(node)
    node.stop()


def test_a_wiped_store_goes_on_where_it_was(cluster: Cluster) -> None:
    """Without its stores a node fires on: nothing lost, nothing twice, and the pause of before still holds."""
    node = cluster.node().start()
    await_ready(node)
    rhythm = beats(8, now_ms() + 3_000, 6)
    silent = Beat("acme/silent", now_ms() + 2_000, now_ms() + 60_000)
    send(cluster, *(beat.create() for beat in rhythm), silent.create())
    assert send(cluster, {"command": "pause", "schedule_id": silent.schedule_id}) == ["paused"]
    expected = {name: at for beat in rhythm for name, at in beat.expected().items()}
    with Dispatches(cluster) as dispatches:
        dispatches.await_count(16, words=node.words)
        assert node.stop() == [0]
        shutil.rmtree(node.data)
        node.start()
        dispatches.await_all(expected, words=node.words)
        assert node.stop() == [0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, verdict


def test_a_store_of_something_else_is_refused_by_name(
    make_cluster: Callable[..., Cluster], broker: BrokerUnderTest
) -> None:
    """Of another cluster, namespace or shard count: not served, not ready, the text says whose it is; then mended."""
    cluster = make_cluster(broker, shards=3)
    node = cluster.node().start()
    await_ready(node)
    assert node.stop() == [0]
    wrong = {
        0: (b"cluster=", b"cluster=other-"),
        1: (b"namespace=", b"namespace=other."),
        2: (b"shards=3", b"shards=8"),
    }
    right: dict[int, bytes] = {}
    for number, change in wrong.items():
        right[number] = identity_of(node, number)
        set_identity(node, number, right[number].replace(*change))
    node.start()

    def refused() -> dict[int, str]:
        shards = (node.state() or {}).get("shards", {})
        return {int(n): what["trouble"] for n, what in shards.items() if what.get("trouble")}

    said = wait_until(lambda: found if len(found := refused()) == 3 else None, node.words)
    state = node.state()
    assert state is not None
    assert (state["ready"], state["live"], state["status"]) == (False, True, 503)
    for number, (_, new) in wrong.items():
        assert f"belongs to {right[number].replace(*wrong[number]).decode()}" in said[number]
        assert new.decode() in said[number]
        assert "delete the store" in said[number]
    for number, text in right.items():
        wait_until(partial(set_identity, node, number, text), node.words)
    await_ready(node)
    node.stop()


def identity_of(node: Node, number: int) -> bytes:
    """Whose the store says it is."""
    store = RocksStore(store_path(node, number))
    try:
        found = store.get(IDENTITY)
        assert found is not None
        return found
    finally:
        store.close()


def set_identity(node: Node, number: int, text: bytes) -> bool:
    """Make the store another one's; False if the shard is just trying it."""
    try:
        store = RocksStore(store_path(node, number))
    except StoreHeld:
        return False
    try:
        batch = Batch()
        batch.put(IDENTITY, text)
        store.write(batch)
        return True
    finally:
        store.close()
