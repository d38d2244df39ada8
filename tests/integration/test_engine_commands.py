"""Commands against firing, and against everything that is no command: on a real broker, through a real node."""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.support.commands import create, send
from tests.support.node import Cluster, await_ready, wait_until
from tests.support.verifier import Beat, Dispatches, Reader, Seen, beats, judge, now_ms, rfc3339, stamped
from topics.admin import connect
from topics.partition import partition_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.broker

GARBAGE = 10_000
VALID = 200
TRIALS = 200


def test_a_pause_acknowledged_before_the_instant_holds(cluster: Cluster) -> None:
    """One-shots and repeated ones that were paused in time never start, also when the shard is opened anew."""
    node = cluster.node().start()
    await_ready(node)
    due = now_ms() + 4_000
    once = [f"acme/once-{n}" for n in range(20)]
    held = beats(10, due, 6, tenant="held")
    free = beats(4, due, 6)
    made = [{"command": "create", "schedule_id": n, "spec": {"trigger": {"at": rfc3339(due)}}} for n in once]
    send(cluster, *made, *(beat.create() for beat in [*held, *free]))
    names = [*once, *(beat.schedule_id for beat in held)]
    paused = send(cluster, *({"command": "pause", "schedule_id": name} for name in names))
    assert paused == ["paused"] * len(names)
    assert now_ms() < due, "the machine was too slow to ask the question"
    expected = {name: at for beat in free for name, at in beat.expected().items()}
    with Dispatches(cluster) as dispatches:
        dispatches.await_count(4, words=node.words)
        node.sigkill()
        node.start()
        dispatches.await_all(expected, words=node.words)
        assert node.stop() == [0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, verdict


def test_partitions_added_to_the_command_topic(cluster: Cluster) -> None:
    """Commands in them come to their shards by a detour, copied twice they count once; a node may start again."""
    node = cluster.node().start()
    await_ready(node)
    expected = create(cluster, beats(6, now_ms() + 3_000, 12, "before"))
    admin = connect(cluster.kafka)
    (added,) = admin.create_partitions([NewPartitions(cluster.catalogue.commands, 5)]).values()
    added.result(10)
    assert node.stop() == [0]
    node.start()  # and has the new number at once; a running one hears of it within minutes
    await_ready(node)
    assert node.events("partitions_without_shard"), node.words()
    stray = [f"acme/stray-{n}" for n in range(60)]
    assert {partition_for(name.encode(), 5) for name in stray} == {0, 1, 2, 3, 4}
    far = rfc3339(now_ms() + 3_600_000)
    made = [{"command": "create", "schedule_id": n, "spec": {"trigger": {"at": far}}} for n in stray]
    assert send(cluster, *made) == ["created"] * len(stray)
    odd = Producer({**cluster.kafka, "partitioner": "murmur2_random"})
    odd.produce(cluster.catalogue.commands, b"no command", b"k", 4)
    odd.produce(cluster.catalogue.commands, b"no command, no key", None, 3)
    assert odd.flush(10) == 0
    with Reader(cluster, [cluster.catalogue.rejected]) as reader:
        reader.read_until(lambda: len(reader.seen) == 2, node.words)
    by_home = Producer(cluster.kafka)
    gone = [name for name in stray if partition_for(name.encode(), 5) >= cluster.shards]
    for name in gone:
        delete = json.dumps({"command": "delete", "schedule_id": name})
        by_home.produce(cluster.catalogue.commands, delete, name, partition_for(name.encode(), cluster.shards))
    assert by_home.flush(10) == 0
    node.sigkill()
    # As if the group had not heard of what was copied: all of it is copied again.
    again = ConsumerGroupTopicPartitions(
        f"{cluster.namespace}scheduler", [TopicPartition(cluster.catalogue.commands, p, 0) for p in (2, 3, 4)]
    )
    wait_until(lambda: altered(admin, again), "the group to be empty")
    node.start()
    await_ready(node)
    with Reader(cluster, [cluster.catalogue.rejected]) as reader:
        reader.read_until(lambda: codes(reader)["repeated"] >= len(gone), node.words)
    kept = [name for name in stray if name not in gone]
    assert send(cluster, *({"command": "cancel", "schedule_id": n} for n in kept)) == ["cancelled"] * len(kept)
    assert send(cluster, *({"command": "cancel", "schedule_id": n} for n in gone)) == ["not_found"] * len(gone)
    with Dispatches(cluster) as dispatches:
        dispatches.await_all(expected, words=node.words)
        assert node.stop() == [0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, f"{verdict}\n{node.words(60)}"


def altered(admin: AdminClient, offsets: ConsumerGroupTopicPartitions) -> bool:
    """Whether a group without members has these offsets now."""
    try:
        admin.alter_consumer_group_offsets([offsets])[offsets.group_id].result(10)
    except KafkaException:
        return False  # it has members still
    return True


def codes(reader: Reader) -> Counter[str]:
    return Counter(seen.fields["code"] for seen in reader.seen)


def test_an_update_at_the_instant_leaves_one_occurrence(cluster: Cluster) -> None:
    """200 trials around the instant: the old version's or the new one's, never both, never none."""
    node = cluster.node().start()
    await_ready(node)
    start = now_ms() + 5_000
    due = {f"acme/trial-{n}": start + 20 * n for n in range(TRIALS)}
    made = [
        {"command": "create", "schedule_id": name, "spec": {"trigger": {"at": rfc3339(at)}, "payload": "old"}}
        for name, at in due.items()
    ]
    assert send(cluster, *made) == ["created"] * TRIALS
    assert now_ms() < start
    chance = random.Random(7)
    # A command needs a few ms to be read, so the spread is around that; some are far enough off on any machine.
    far = {name: (-2_000, 2_000)[n // 10 % 2] for n, name in enumerate(due) if n % 10 == 0}
    at = sorted((when + far.get(name, chance.randint(-60, 20)), name) for name, when in due.items())
    producer = Producer({**cluster.kafka, "linger.ms": 0, "partitioner": "murmur2_random"})
    for when, name in at:
        while (ahead := when - time.time() * 1000) > 0:
            time.sleep(ahead / 1000)
        update = {"command": "update", "schedule_id": name, "command_id": "at-it", "spec": {"payload": "new"}}
        producer.produce(cluster.catalogue.commands, json.dumps(update).encode(), name.encode())
    assert producer.flush(30) == 0
    with Reader(cluster, [cluster.catalogue.replies]) as replies:

        def codes() -> list[str]:
            return [seen.fields["code"] for seen in replies.seen if seen.fields["command_id"] == "at-it"]

        replies.read_until(lambda: len(codes()) == TRIALS, node.words)
    with Dispatches(cluster) as dispatches:
        dispatches.await_count(TRIALS, words=node.words)
        assert node.stop() == [0]
        seen = [record.fields for record in dispatches.read_to_end()]
    assert sorted(one["schedule_id"] for one in seen) == sorted(due)
    assert all(one["occurrence_id"].endswith(stamped(due[one["schedule_id"]])) for one in seen)
    assert all(one["payload"] == ("old" if one["version"] == 1 else "new") for one in seen)
    assert {one["version"] for one in seen} == {1, 2}, "the updates did not straddle the instants"


def test_a_command_in_the_wrong_partition_is_applied_once_with_advice(cluster: Cluster) -> None:
    """It is copied to where it belongs, answered there once, and the answer names the setting that cures it."""
    node = cluster.node().start()
    await_ready(node)
    producer = Producer(cluster.kafka)
    names = [f"acme/astray-{n}" for n in range(20)]
    for name in names:
        wrong = (partition_for(name.encode(), cluster.shards) + 1) % cluster.shards
        command = {"command": "create", "schedule_id": name, "spec": {"trigger": {"at": rfc3339(now_ms() + 10**7)}}}
        producer.produce(cluster.catalogue.commands, json.dumps(command).encode(), b"any key", wrong)
    assert producer.flush(30) == 0
    with Reader(cluster, [cluster.catalogue.replies]) as replies:
        replies.read_until(lambda: len(replies.seen) >= len(names), node.words)
        node.stop()
        answers = [seen.fields for seen in replies.read_to_end()]
    assert sorted(answer["schedule_id"] for answer in answers) == sorted(names)
    assert {answer["code"] for answer in answers} == {"created"}
    for answer in answers:
        assert any("partitioner=murmur2_random" in warning["message"] for warning in answer["warnings"])


def test_garbage_is_accounted_for_and_stops_nothing(cluster: Cluster) -> None:
    """10,000 random and mutated records, tombstones among them: each answered, forwarded or kept; valid ones obeyed.

    Schedules fire on meanwhile. Whatever the garbage did, all that the shards write is readable text.
    """
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed {seed}")
    chance = random.Random(seed)
    node = cluster.node().start()
    await_ready(node)
    rhythm = beats(4, now_ms() + 3_000, 8, tenant="quiet")
    send(cluster, *(beat.create() for beat in rhythm))
    catalogue = cluster.catalogue
    producer = Producer({**cluster.kafka, "queue.buffering.max.messages": 200_000})
    valid = [Beat(f"valid/{n}", now_ms() + 3_600_000, now_ms() + 7_200_000).create() for n in range(VALID)]
    records: list[tuple[bytes | None, bytes | None, Any]] = [garbage(chance) for _ in range(GARBAGE)]
    records += [(one["schedule_id"].encode(), json.dumps(one).encode(), []) for one in valid]
    chance.shuffle(records)
    for key, value, headers in records:
        home = partition_for(key, cluster.shards) if key else None
        partition = chance.randrange(cluster.shards) if home is None or chance.random() < 0.2 else home
        producer.produce(catalogue.commands, value, key, partition, headers=headers)
        if chance.random() < 0.1:
            topic = chance.choice([catalogue.attempts, catalogue.clock])
            producer.produce(topic, value, key, 0, headers=headers)
        producer.poll(0)
    assert producer.flush(60) == 0
    expected = {name: at for beat in rhythm for name, at in beat.expected().items()}
    # One more in each partition, answered after everything before it.
    last = [next(f"last/{n}" for n in range(99) if partition_for(b"last/%d" % n, cluster.shards) == shard)
            for shard in range(cluster.shards)]  # fmt: skip
    for _ in range(2):  # a forwarded copy comes behind the first
        assert send(cluster, *({"command": "pause", "schedule_id": name} for name in last)) == ["not_found"] * len(last)
    with Dispatches(cluster) as dispatches:
        dispatches.await_all(expected, words=node.words)
        assert node.stop() == [0], node.words()
        garbled = {r.fields["occurrence_id"] for r in dispatches.read_to_end() if r.fields["tenant"] != "quiet"}
        seen = [r for r in dispatches.seen if r.fields["occurrence_id"] not in garbled]
        assert judge(seen, expected).clean
    assert node.events("shard_failed") == []
    with Reader(cluster, [catalogue.commands, catalogue.replies, catalogue.rejected]) as reader:
        everything = reader.read_to_end()
    counts = Counter(record.topic.removeprefix(cluster.namespace) for record in everything)
    copies = sum(1 for r in everything if r.topic == catalogue.commands and forwarded_from(r))
    print(f"{dict(counts)}, {copies} of the commands forwarded")
    assert min(counts["scheduler.replies"], counts["scheduler.rejected"], copies) > 100, "each way out was taken"
    unaccounted, answered = account(cluster, everything)
    assert unaccounted == [], f"{len(unaccounted)} of {GARBAGE}, seed {seed}"
    assert [one["schedule_id"] for one in valid if answered.get(one["schedule_id"]) != "created"] == []
    unreadable = [record for record in readable_topics(cluster) if (why := unreadable_for(record)) and why]
    assert unreadable == []


def account(cluster: Cluster, records: Sequence[Seen]) -> tuple[list[Seen], dict[str, str]]:
    """Input records that were neither answered, kept nor forwarded; and the first code of each schedule's answers."""
    catalogue = cluster.catalogue
    by_topic: dict[str, list[Seen]] = {}
    for record in records:
        by_topic.setdefault(record.topic, []).append(record)
    kept = {(r.fields["partition"], r.fields["offset"]) for r in by_topic[catalogue.rejected]}
    forwarded = {forwarded_from(r) for r in by_topic[catalogue.commands]}
    answers: dict[str, str] = {}
    ids: set[str] = set()
    for record in by_topic[catalogue.replies]:
        answers.setdefault(record.fields["schedule_id"], record.fields["code"])
        ids.add(record.fields["command_id"])
    left = []
    for record in by_topic[catalogue.commands]:
        own = f"{record.partition}-{record.offset}"
        known = own in ids or own in forwarded or (record.partition, record.offset) in kept
        if not known and forwarded_from(record) not in ids and not any(i in ids for i in command_ids(record.value)):
            left.append(record)
    return left, answers


def forwarded_from(record: Seen) -> str | None:
    """Where a copy comes from, as the scheduler says it; None for what it did not copy."""
    text = dict(record.headers).get("fwd", b"").decode(errors="replace")
    return text if re.fullmatch(r"\d+-\d+", text) else None


def command_ids(value: bytes | None) -> list[str]:
    try:
        fields = json.loads(value or b"")
    except ValueError:
        return []
    return [fields["command_id"]] if isinstance(fields, dict) and isinstance(fields.get("command_id"), str) else []


def garbage(chance: random.Random) -> tuple[bytes | None, bytes | None, Any]:
    """A record (key, value, headers) that nobody should send."""
    kind = chance.randrange(10)
    tenant = chance.choice(["acme", "acme", "a-b", "ACME", "", "x" * 41])
    name = f"{tenant}/{chance.choice(['g', 'g', 'G~1', '-', 'n' * 151])}"
    command: dict[str, Any] = {
        "command": chance.choice(
            ["create", "update", "pause", "resume", "cancel", "delete", "trigger", "preview", "no"]
        ),
        "schedule_id": name + str(chance.randrange(300)),
        "spec": {
            "trigger": chance.choice(
                [
                    {"at": "2099-01-01T00:00:00Z"},
                    {"cron": "*/5 * * * *", "zone": "Mars/Base"},
                    {"every_ms": -1},
                    {},
                    None,
                ]
            ),
            chance.choice(["priority", "lane", "window_ms", "misfire", "payload"]): chance.choice(
                ["normal", -1, 10**30, None, {"catch_up": "many"}, [[]], "\ud800", 1e308]
            ),
        },
    }
    value: bytes | None = json.dumps(command).encode()
    if kind == 0:
        value = None
    elif kind == 1:
        value = chance.randbytes(chance.randrange(300))
    elif kind == 2:
        value = chance.choice(
            [b"", b"null", b"[]", b"1", b'"x"', b"{}", b"[" * 50_000, b'{"a":' * 5_000, b"\xff\xfe", b"NaN"]
        )
    elif kind in (3, 4, 5):
        value = bytes(mutated(chance, bytearray(value or b"")))
    elif kind == 6:
        del command[chance.choice(["command", "schedule_id", "spec"])]
        value = json.dumps(command).encode()
    key = chance.choice([None, b"", chance.randbytes(8), name.encode(), str(command.get("schedule_id")).encode()])
    headers = chance.choice([[], [], [("fwd", b"\xff")], [("fwd", b"0-1-2")], [("x", None)], [("step", b"9")]])
    return key, value, headers


def mutated(chance: random.Random, value: bytearray) -> bytearray:
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(value) or 1)
        what = chance.randrange(4)
        if what == 0:
            value[at : at + 1] = chance.randbytes(1)
        elif what == 1:
            del value[at : at + chance.randrange(1, 9)]
        elif what == 2:
            value[at:at] = value[at : at + chance.randrange(1, 20)]
        else:
            value[at:at] = chance.choice([b"\x00", b"\\ud800", b'"', b"{", b"9" * 40, b"\xc3\x28"])
    return value


def readable_topics(cluster: Cluster) -> Iterator[Seen]:
    """Every record that the shards write, on every topic."""
    catalogue = cluster.catalogue
    ours = [spec.name for spec in catalogue.specs() if spec.name not in (catalogue.commands, catalogue.attempts)]
    # The garbage on the clock topic is ours, too; the probes among it are the scheduler's.
    with Reader(cluster, [name for name in ours if name != catalogue.clock]) as reader:
        yield from reader.read_to_end()


def unreadable_for(record: Seen) -> str | None:
    """Why a record does not read well in a viewer; None if it does."""
    try:
        (record.key or b"").decode()
        for _, value in record.headers:
            (value or b"").decode()
        if record.value is not None and not isinstance(json.loads(record.value.decode()), dict):
            return "no object"
    except ValueError as error:
        return str(error)
    return None
