"""`scheduler repartition`: what it refuses before it asks any broker, and the pure pieces of what it carries over."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from scheduler import wire
from scheduler.cli import main
from scheduler.core.due import Absence, instant_of
from scheduler.core.record import Move, ShardRecord
from scheduler.core.zone_marks import ZoneMark, ZoneRecord
from scheduler.errors import StateCorrupted
from scheduler.shard import keys
from scheduler.shard.forwarding import Origin
from scheduler.shard.repartition import Old, _merged, redirected
from scheduler.state.store import Batch
from tests.support.driver import START, Driver
from topics.catalog import Catalogue
from topics.partition import partition_for


def test_every_mistake_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The namespace it is in already, a number of shards that is none, no reason: one answer, exit code 2."""
    monkeypatch.setenv("SCHEDULER_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("SCHEDULER_NAMESPACE", "a.")
    result = CliRunner().invoke(main, ["repartition", "--namespace", "a.", "--shards", "0", "--reason", " "])
    assert result.exit_code == 2
    for part in ("'a.' is the one to move from", "shards is 0; expected 1 to", "--reason is empty"):
        assert part in result.stderr


@pytest.mark.parametrize(
    ("move", "text"),
    [
        ({"moved_to": Move("v2.", 8, START)}, "moved to namespace 'v2.' (8 shards) at 2026-01-01T09:00:00Z"),
        ({"moved_from": Move("", 2, START, filling=True)}, "being filled from namespace '' and is not whole"),
    ],
)
def test_a_shard_that_moved_or_is_not_whole_is_not_opened(move: dict[str, Any], text: str) -> None:
    """It says where to, or what is missing; a shard that is whole opens, and keeps where it came from."""
    driver = Driver()
    driver.create(trigger={"every_ms": 60_000})
    driver.kill()
    batch = Batch()
    stored = wire.record_from_bytes(driver.store.get(keys.RECORD) or b"")
    batch.put(keys.RECORD, wire.record_to_bytes(stored.moved(**move), START))
    driver.store.write(batch)
    with pytest.raises(StateCorrupted, match="namespace") as refused:
        driver.start()
    assert text in str(refused.value)
    batch.put(keys.RECORD, wire.record_to_bytes(stored.moved(moved_from=Move("", 2, START)), START))
    driver.store.write(batch)
    driver.start()
    driver.advance(120_000)
    assert wire.record_from_bytes(driver.store.get(keys.RECORD) or b"").moved_from == Move("", 2, START)


def test_a_command_without_an_id_keeps_the_one_it_had() -> None:
    """The place it was first read from; what it says otherwise stays as it is, byte for byte where that matters."""
    value = b'{"command":"create","schedule_id":"acme/a","spec":{"trigger":{"every_ms":1000},"payload":{"n":1.50}}}'
    shard, sent = redirected(value, b"acme/a", Origin(3, 17), 8)
    assert shard == partition_for(b"acme/a", 8)
    assert json.loads(sent or b"")["command_id"] == "3-17"
    assert b'"payload":{"n":1.50}' in (sent or b"")
    assert redirected(b'{"command_id":null,"schedule_id":"acme/a"}', b"x", Origin(3, 17), 8) == (
        shard,
        b'{"command_id":"3-17","schedule_id":"acme/a"}',
    )


@pytest.mark.parametrize("value", [None, b"", b"{garbage", b"[1]", b'{"schedule_id":5,"command_id":"c1"}'])
def test_what_is_no_command_goes_as_it_is(value: bytes | None) -> None:
    """By its key, so that the new shard sets it aside with its bytes."""
    assert redirected(value, b"acme/a", Origin(3, 17), 8) == (partition_for(b"acme/a", 8), value)


@pytest.mark.parametrize("value", [None, b"{garbage", b'{"schedule_id":"","command_id":"c1"}'])
@pytest.mark.parametrize("key", [None, b""])
def test_what_names_no_schedule_at_all_goes_somewhere(value: bytes | None, key: bytes | None) -> None:
    """To some shard, which says what is wrong with it; the move goes on."""
    assert redirected(value, key, Origin(9, 17), 8) == (1, value)


def test_a_command_with_an_id_is_not_touched() -> None:
    """Whatever its key says, the schedule it names decides where it goes."""
    value = b'{ "command": "pause", "schedule_id": "acme/a", "command_id": "c1" }'
    assert redirected(value, b"other", Origin(3, 17), 8) == (partition_for(b"acme/a", 8), value)


def test_a_nominal_in_its_window_goes_to_the_new_topics() -> None:
    """Its topic and its shard are the new ones, its payload is untouched."""
    dispatch = b'{"occurrence_id":"acme/a:1:x","shard":3,"payload":{"n":1.50}}'
    stored = msgspec.json.encode(
        {"kind": "owed", "owner": "acme/a", "topic": "v1.dispatch.default.high", "dispatch": msgspec.Raw(dispatch)}
    )
    former, new = Catalogue(namespace="v1."), Catalogue(namespace="v2.")
    moved = wire.readdressed_record(stored, lambda topic: new.namespace + former.base(topic), 11)
    record = wire.live_from_bytes(moved)
    assert record.topic == "v2.dispatch.default.high"
    assert bytes(record.dispatch) == dispatch.replace(b'"shard":3', b'"shard":11')
    floor = wire.floor_record("acme/a", START)
    assert wire.readdressed_record(floor, str.upper, 11) == floor


def test_zones_are_those_of_the_oldest_tables() -> None:
    """What newer tables have planned already is looked at once more, which changes nothing."""
    old, new = ZoneMark("Europe/Berlin", 1, "old", ()), ZoneMark("Europe/Berlin", 2, "new", ())
    other = ZoneMark("UTC", 2, "utc", ())
    merged = _merged(
        [
            ZoneRecord(tz_version="2026b", marks={"Europe/Berlin": new, "UTC": other}),
            ZoneRecord(tz_version="2026a", marks={"Europe/Berlin": old}, since=7),
            ZoneRecord(tz_version="2026a", marks={}, since=9),
        ]
    )
    assert merged == ZoneRecord(tz_version="2026a", marks={"Europe/Berlin": old, "UTC": other}, since=9)
    assert _merged([]) is None


def test_a_backfill_does_not_reach_behind_a_move() -> None:
    """What ran then stands on the topics of another namespace: it would all run again."""
    driver = Driver()
    driver.create(trigger={"every_ms": 60_000})
    driver.advance(600_000)
    driver.kill()
    batch = Batch()
    stored = wire.record_from_bytes(driver.store.get(keys.RECORD) or b"")
    at = START + 300_000
    batch.put(keys.RECORD, wire.record_to_bytes(stored.moved(moved_from=Move("", 2, at)), driver.now))
    driver.store.write(batch)
    driver.start()
    refused = driver.do("backfill", **{"from": "2026-01-01T09:04:00Z", "until": "2026-01-01T09:08:00Z"})
    assert [(error["field"], error["code"]) for error in refused["errors"]] == [("from", "too_old")]
    taken = driver.do("backfill", **{"from": "2026-01-01T09:05:00Z", "until": "2026-01-01T09:08:00Z"})
    assert taken["code"] == "backfilling"


def test_a_record_keeps_its_move() -> None:
    """Round trip; without one nothing stands on the topic."""
    record = ShardRecord(shard=1, moved_to=Move("v2.", 8, START), moved_from=Move("", 2, START, filling=True))
    assert wire.record_from_bytes(wire.record_to_bytes(record, START)) == record
    assert b"moved" not in wire.record_to_bytes(ShardRecord(shard=1), START)


def test_what_an_absence_left_is_owed_since_it_began() -> None:
    """Also by the new shards: nobody looked when that fell due."""
    driver = Driver()
    driver.create(trigger={"every_ms": 60_000})
    stored = wire.record_from_bytes(driver.store.get(keys.RECORD) or b"")
    ahead = instant_of(stored.cursor) + 5_000
    for until, since in ((ahead, START - 5_000), (instant_of(stored.cursor), stored.seen_until)):
        batch = Batch()
        batch.put(keys.RECORD, wire.record_to_bytes(stored.moved(absence=Absence(START - 5_000, until)), START))
        driver.store.write(batch)
        assert Old(0, driver.store).seen_until == since
