"""The design's table of interleavings on a real broker: real processes die, and what committed readers see is counted.

"Cold" is a restart after the data directory was removed. Row of the table -> test here, unless another file has it:

- 31,250 equal instants, the transaction stops, crash -> `test_a_burst_cut_by_the_record_limit_and_two_crashes`, with
  fewer records in a transaction (the row itself, with its numbers, is in `tests/simulation/test_interleavings.py`)
- a fire commits, an update arrives before the advance -> `test_changes_before_a_cold_restore`; and an update at the
  instant: `test_an_update_at_the_instant_leaves_one_occurrence` of `tests/integration/test_engine_commands.py`
- `fire_once` is decided, crash before the store batch; cold restore -> `test_an_outage_is_decided_once`
- `catch_up 3`, crash after one of three -> `test_an_outage_is_decided_once`
- a one-shot accepted 300 ms after its instant, cold restore -> `test_changes_before_a_cold_restore`
- priority or lane changed just before or after the instant, cold restore -> `test_changes_before_a_cold_restore`
- paused, resumed, cold restore -> `test_changes_before_a_cold_restore`, for seconds instead of two weeks
- a throttled tenant ten minutes behind; a change while throttled -> none: nothing throttles what is on time in this
  version, there are no quotas. A shard that is behind is simulated.
- update, pause, cancel while waiting in the window -> `test_a_pause_after_an_abort_and_changes_in_the_window`
- an aborted step redone after a pause was read -> `test_a_pause_after_an_abort_and_changes_in_the_window`
- A cut off during a commit, B takes over, A returns -> `test_cut_off_during_a_commit_and_back_again` of
  `tests/crash/test_engine_broker.py`
- delete, re-create, same nominal -> `test_changes_before_a_cold_restore`
"""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from tests.support.commands import create, send
from tests.support.node import Cluster, Node, await_ready, wait_until
from tests.support.verifier import Beat, Dispatches, Reader, beats, judge, ms_of, now_ms, rfc3339, stamped
from topics.partition import partition_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.broker import BrokerUnderTest

pytestmark = pytest.mark.broker

NEVER_MS = 365 * 86_400_000  # so far apart that a window of this length does not end within a test
FAR_MS = 3_600_000


def one_shot(schedule_id: str, at: int, **spec: Any) -> dict[str, Any]:
    return {"command": "create", "schedule_id": schedule_id, "spec": {"trigger": {"at": rfc3339(at)}, **spec}}


def to_all(verb: str, schedules: list[Beat], **fields: Any) -> list[dict[str, Any]]:
    return [{"command": verb, "schedule_id": beat.schedule_id, **fields} for beat in schedules]


def named(name: str, count: int, at: int, every_ms: int = FAR_MS) -> list[Beat]:
    """Schedules of which one nominal each falls into the test."""
    return [Beat(f"acme/{name}-{n}", at, at + 1, every_ms) for n in range(count)]


def expectation(schedules: list[Beat]) -> dict[str, int]:
    return {name: at for beat in schedules for name, at in beat.expected().items()}


def until(instant: int) -> None:
    """Wait for an instant of the wall clock."""
    wait_until(lambda: now_ms() >= instant, f"{rfc3339(instant)} to come")


def put(cluster: Cluster, commands: list[dict[str, Any]]) -> None:
    """Commands into the log while nobody is there to answer."""
    producer = Producer(cluster.kafka)
    for command in commands:
        key = command["schedule_id"].encode()
        partition = partition_for(key, cluster.shards)
        producer.produce(cluster.catalogue.commands, json.dumps(command).encode(), key, partition)
    assert producer.flush(30) == 0


def restart_cold(node: Node, crash: tuple[str, int] | None = None) -> None:
    """Killed if it still runs, and restored from the topics alone."""
    node.kill()
    shutil.rmtree(node.data)
    node.start(crash=crash)


def dies(node: Node) -> None:
    assert node.await_death() == -signal.SIGKILL, node.words()


def gone(cluster: Cluster) -> dict[str, Counter[str]]:
    """Schedule id -> nominals by what became of those that did not run."""
    found: dict[str, Counter[str]] = {}
    for record in records_of(cluster, cluster.catalogue.occurrences):
        found.setdefault(record["schedule_id"], Counter())[record["state"]] += record.get("count", 1)
    return found


def records_of(cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    with Reader(cluster, [topic]) as reader:
        return [seen.fields for seen in reader.read_to_end()]


def ms_of_replies(cluster: Cluster, code: str) -> dict[str, int]:
    """Schedule id -> when the command was obeyed."""
    replies = records_of(cluster, cluster.catalogue.replies)
    return {reply["schedule_id"]: ms_of(reply["at"]) for reply in replies if reply["code"] == code}


@pytest.fixture
def one_shard(make_cluster: Callable[..., Cluster], broker: BrokerUnderTest) -> Cluster:
    """Every command and every schedule in one order; two lanes to move between."""
    return make_cluster(broker, shards=1, lanes=("default", "other"))


def test_a_burst_cut_by_the_record_limit_and_two_crashes(one_shard: Cluster) -> None:
    """Equal instants, 100 in a transaction: dead behind the second commit, cold, dead before the third: each once."""
    node = one_shard.node(max_transaction_records=100).start(crash=("after_commit", 2))
    await_ready(node)
    due = now_ms() + 3_000
    names = [f"acme/n{n:03}" for n in range(350)]
    expected = {f"{name}:1:{stamped(due)}": due for name in names}
    assert send(one_shard, *(one_shot(name, due) for name in names)) == ["created"] * len(names)
    assert now_ms() < due, "the machine was too slow to make a burst"
    with Dispatches(one_shard) as dispatches:
        dies(node)
        assert len(dispatches.read_to_end()) == 200
        restart_cold(node, crash=("before_commit", 1))
        dies(node)
        node.start()
        dispatches.await_all(expected, words=node.words)
        assert node.stop() == [0]
        verdict = judge(dispatches.read_to_end(), expected)
    assert verdict.clean, f"{verdict}\n{node.words(60)}"
    assert gone(one_shard) == {}


def test_an_outage_is_decided_once(one_shard: Cluster) -> None:
    """An outage for `fire_once` and `catch_up 3` at one run a second: dead behind the first commit of what was missed,
    cold, dead before the commit of the next: the newest one, exactly the newest three, and each missed one counted.
    """
    node = one_shard.node(catch_up_per_s=1).start()
    await_ready(node)
    first = now_ms() + 4_000  # two clients come up before, a second each while other tests run
    once, thrice = (Beat(name, first, first + 11_000) for name in ("acme/once", "other/thrice"))
    # Older than the grace is then whatever fell due before the kill; the newest three are not too late to run.
    create(one_shard, [once], misfire="fire_once", max_lateness_ms=8_000)
    create(one_shard, [thrice], misfire={"catch_up": 3}, max_lateness_ms=8_000)
    with Dispatches(one_shard) as dispatches:
        dispatches.await_count(2, words=node.words)
        node.sigkill()
        before = {beat: [i for i in dispatches.ids() if i.startswith(beat.schedule_id)] for beat in (once, thrice)}
        until(once.end)
        node.start(crash=("after_commit", 1))
        dies(node)
        caught_up = [s.fields["schedule_id"] for s in dispatches.read_to_end() if s.fields["origin"] == "catch_up"]
        assert 0 < caught_up.count("other/thrice") < 3
        restart_cold(node, crash=("before_commit", 1))
        dies(node)
        node.start()
        expected: dict[str, int] = {}
        for beat, newest in ((once, 1), (thrice, 3)):
            nominals = beat.expected()
            assert sorted(before[beat]) == sorted(nominals)[: len(before[beat])]
            chosen = sorted(nominals)[-newest:]
            expected |= {name: nominals[name] for name in [*before[beat], *chosen]}
        dispatches.await_all(expected, words=node.words)
        assert node.stop() == [0]
        seen = dispatches.read_to_end()
        verdict = judge(seen, expected)
    assert verdict.clean, f"{verdict}\n{node.words(60)}"
    missed = {beat.schedule_id: 11 - len(before[beat]) for beat in (once, thrice)}
    assert gone(one_shard) == {
        "acme/once": Counter(missed=missed["acme/once"] - 1),
        "other/thrice": Counter(missed=missed["other/thrice"] - 3),
    }
    fields = [s.fields for s in seen if s.fields["origin"] == "catch_up"]
    stood_for = Counter((one["schedule_id"], one.get("stands_for", 1)) for one in fields)
    assert stood_for == {("acme/once", missed["acme/once"]): 1, ("other/thrice", 1): 3}


def test_changes_before_a_cold_restore(one_shard: Cluster) -> None:
    """An update between fire and advance, other keys at the instant, one-shots that came late, a pause that ended,
    a nominal made twice: all of it is restored from the topics, and each nominal has run once.
    """
    node = one_shard.node().start(crash=("after_store", 1))
    await_ready(node)
    first = now_ms() + 1_500
    old = [Beat(f"acme/old-{n}", first, first + 60_000) for n in range(3)]
    create(one_shard, old)
    dies(node)  # fired and stored, not advanced
    instant = now_ms() + 9_000
    put(one_shard, to_all("update", old, spec={"trigger": {"at": rfc3339(instant)}}))
    node.start()
    await_ready(node)

    moved = [Beat(f"acme/moved-{n}", instant + 40 * n, instant + 40 * n + 1, FAR_MS) for n in range(24)]
    held = beats(3, now_ms() + 1_500, 11, tenant="held")
    twice = ["acme/twice-before", "acme/twice-after"]
    everything = create(one_shard, held)
    assert now_ms() < held[0].first, "the machine was too slow: what precedes the create is no nominal"
    expected = create(one_shard, moved, end=None)
    assert send(one_shard, *(one_shot(name, instant) for name in twice)) == ["created"] * 2
    early = {"command": "delete", "schedule_id": twice[0]}
    assert send(one_shard, *to_all("pause", held)) == ["paused"] * 3
    assert send(one_shard, early) == ["deleted"]
    assert send(one_shard, one_shot(twice[0], instant)) == ["created"]
    assert now_ms() < instant - 100, "the machine was too slow to be there at the instant"

    changes: list[dict[str, Any]] = [{"priority": "critical"}, {"lane": "other"}, {"priority": "background"}]
    for n in range(0, len(moved), 2):  # the first of a pair after its instant, the second before
        until(moved[n].first + 10)
        put(one_shard, to_all("update", moved[n : n + 2], spec=changes[n // 2 % 3]))
    assert send(one_shard, *to_all("resume", held)) == ["resumed"] * 3
    assert send(one_shard, {"command": "delete", "schedule_id": twice[1]}) == ["deleted"]
    late = now_ms() - 300
    lates = [f"acme/late-{n}" for n in range(5)]
    again = one_shot(twice[1], instant)
    assert send(one_shard, *(one_shot(name, late) for name in lates), again) == ["created"] * 6
    restart_cold(node)

    # What a shard makes after a delete begins above every version that was deleted there.
    expected |= {f"{name}:2:{stamped(late)}": late for name in lates}
    expected |= {f"{twice[0]}:2:{stamped(instant)}": instant}
    expected |= {f"{twice[1]}:{version}:{stamped(instant)}": instant for version in (1, 2)}
    expected |= {f"{beat.schedule_id}:2:{stamped(instant)}": instant for beat in old}
    with Dispatches(one_shard) as dispatches:
        lasts = {max(beat.expected()): max(beat.expected().values()) for beat in held}
        dispatches.await_all(expected | lasts, words=node.words)
        assert node.stop() == [0]
        seen = dispatches.read_to_end()
    ran = {record.fields["occurrence_id"] for record in seen}
    updated_at = ms_of_replies(one_shard, "updated")
    for beat in old:  # up to the update, not beyond
        expected |= {name: at for name, at in beat.expected().items() if at <= updated_at[beat.schedule_id]}
    lost = gone(one_shard)
    assert lost.keys() == {beat.schedule_id for beat in held}
    for beat in held:
        suppressed = lost[beat.schedule_id].pop("suppressed")
        assert suppressed >= 2
        assert not lost[beat.schedule_id]
        # What was due before the pause ran, then comes one gap, exactly as long as is told.
        nominals = sorted(beat.expected())
        fired_before = next(n for n, name in enumerate(nominals) if name not in ran)
        kept = nominals[:fired_before] + nominals[fired_before + suppressed :]
        expected |= {name: everything[name] for name in kept}
    verdict = judge(seen, expected)
    assert verdict.clean, f"{verdict}\n{node.words(60)}"


def test_a_pause_after_an_abort_and_changes_in_the_window(one_shard: Cluster) -> None:
    """Starts on the brokers, never committed, and a pause before the step is done again: no start is seen.

    Then changes of what waits in its window, and a cold restore: each nominal has run or has one record.
    """
    node = one_shard.node().start(crash=("before_commit", 1))
    await_ready(node)
    due, opens = now_ms() + 2_500, now_ms() + 10_000
    free, paused = named("free", 4, due), named("paused", 4, due)
    kept = named("kept", 8, opens)
    ended = {verb: named(verb, 3, opens, NEVER_MS) for verb in ("pause", "cancel", "delete", "supersede")}
    made = [beat.create(end=None) for beat in [*free, *paused]]
    made += [beat.create(end=None, window_ms=5_000) for beat in kept]
    made += [beat.create(end=None, window_ms=NEVER_MS) for schedules in ended.values() for beat in schedules]
    assert send(one_shard, *made) == ["created"] * len(made)
    expected = expectation([*free, *kept])
    assert now_ms() < due, "the machine was too slow to be there at the instant"
    dies(node)
    put(one_shard, to_all("pause", paused))
    node.start()
    await_ready(node)
    assert now_ms() < opens, "the machine was too slow to be there when the window opens"
    until(opens + 300)
    verbs = [one for verb in ("pause", "cancel", "delete") for one in to_all(verb, ended[verb])]
    payload = {"payload": "another"}
    updates = to_all("update", ended["supersede"], spec=payload, supersede=True) + to_all("update", kept, spec=payload)
    assert send(one_shard, *verbs) == ["paused"] * 3 + ["cancelled"] * 3 + ["deleted"] * 3
    assert send(one_shard, *updates) == ["updated"] * 11
    restart_cold(node)
    with Dispatches(one_shard) as dispatches:
        dispatches.await_all(expected, words=node.words)
        assert node.stop() == [0]
        seen = dispatches.read_to_end()
        verdict = judge(seen, expected)
    assert verdict.clean, f"{verdict}\n{node.words(60)}"
    assert any(one.fields["available_at"] > rfc3339(opens + 2_000) for one in seen), "none waited in its window"
    suppressed = [*paused, *ended["pause"]]
    cancelled = [*ended["cancel"], *ended["delete"], *ended["supersede"]]
    assert gone(one_shard) == {
        **{beat.schedule_id: Counter(suppressed=1) for beat in suppressed},
        **{beat.schedule_id: Counter(cancelled=1) for beat in cancelled},
    }
    pauses = [r["schedule_id"] for r in records_of(one_shard, one_shard.catalogue.replies) if r["code"] == "paused"]
    assert sorted(pauses) == sorted(beat.schedule_id for beat in suppressed)
