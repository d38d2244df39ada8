"""Replies: what they say, what a repeat gets, what counts as a change of what, and every mistake at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.core.time import format_instant
from scheduler.shard.forwarding import MOST_SOURCES
from tests.support.driver import START, Driver
from topics.catalog import Catalogue
from topics.partition import partition_for

HOURLY = {"cron": "0 * * * *", "zone": "UTC"}
MINUTELY = {"cron": "* * * * *", "zone": "UTC"}


def hourly(**spec: Any) -> Driver:
    driver = Driver()
    driver.create(trigger=HOURLY, **spec)
    return driver


# --- versions and revisions -----------------------------------------------------------------------------------------

MEANING = {
    "trigger": {"cron": "30 * * * *", "zone": "UTC"},
    "start": "2026-02-01T00:00:00Z",
    "end": "2026-03-01T00:00:00Z",
    "window_ms": 5000,
    "payload": {"n": 2},
    "handler": "other",
}
ONLY_REVISION = {
    "priority": "high",
    "misfire": "skip",
    "max_lateness_ms": 5000,
    "timeout_ms": 1000,
    "deadline_ms": 1000,
    "labels": {"a": "b"},
    "owner": "me",
    "description": "x",
    "impact": "y",
    "runbook": "z",
}


@pytest.mark.parametrize("field", MEANING)
def test_a_change_of_meaning_bumps_version_and_revision(field: str) -> None:
    """The version is part of every occurrence id, so it grows exactly when an occurrence would mean something else."""
    reply = hourly().do("update", spec={field: MEANING[field]})
    assert (reply["code"], reply["version"], reply["revision"]) == ("updated", 2, 2)


@pytest.mark.parametrize("field", ONLY_REVISION)
def test_any_other_change_bumps_only_the_revision(field: str) -> None:
    """The revision is what `expected_revision` checks: it grows with every change."""
    reply = hourly().do("update", spec={field: ONLY_REVISION[field]})
    assert (reply["code"], reply["version"], reply["revision"]) == ("updated", 1, 2)


def test_null_restores_a_default() -> None:
    """An update names the fields it changes; null takes one back; the others stay."""
    driver = hourly(priority="high", owner="me")
    driver.do("update", spec={"priority": None})
    schedule = driver.schedule()
    assert schedule is not None
    assert schedule["spec"].get("priority", "normal") == "normal"
    assert schedule["spec"]["owner"] == "me"


def test_null_max_lateness_is_unlimited() -> None:
    """Null is a value of this field, not the absence of one."""
    driver = hourly()
    driver.do("update", spec={"max_lateness_ms": None})
    assert (driver.schedule() or {})["spec"]["max_lateness_ms"] is None


@pytest.mark.parametrize(
    "spec",
    [
        {"trigger": HOURLY},
        {"trigger": dict(reversed(HOURLY.items()))},
        {"trigger": HOURLY, "priority": "normal", "window_ms": 0, "misfire": "fire_once", "lane": "default"},
        {"trigger": HOURLY, "max_lateness_ms": 86_400_000, "payload": None, "labels": {}},
    ],
)
def test_the_same_definition_after_defaults_is_unchanged(spec: dict[str, Any]) -> None:
    """Applying what is already so is no change, however it is spelt: no revision, no version, nothing moved."""
    driver = hourly()
    for verb in ("create", "update"):
        reply = driver.do(verb, spec=spec)
        assert (reply["status"], reply["code"], reply["revision"]) == ("accepted", "unchanged", 1), verb


def test_a_rate_without_an_anchor_keeps_its_grid() -> None:
    """P10: the same period applied again, later and without an anchor, is the same rule."""
    driver = Driver()
    driver.create(trigger={"every_ms": 60_000})
    driver.advance(90_000)
    for verb in ("create", "update"):
        assert driver.do(verb, spec={"trigger": {"every_ms": 60_000}})["code"] == "unchanged"
    driver.advance(60_000)
    assert driver.clocks() == ["09:01:00", "09:02:00"]


def test_a_payload_is_compared_as_bytes() -> None:
    """The producer's bytes are never decoded, so another spelling is another payload."""
    driver = Driver()
    spelt = b'{"command":"create","schedule_id":"acme/a","spec":{"trigger":{"every_ms":60000},"payload":{"n":1.0}}}'
    for value in (spelt, spelt, spelt.replace(b"1.0", b"1.00")):
        driver.send(value)
        driver.run_until(driver.now)
    assert [r["code"] for r in driver.topics.values("scheduler.replies")] == ["created", "unchanged", "already_exists"]


def test_a_create_that_differs_names_the_fields() -> None:
    """`already_exists` says in what the two differ."""
    reply = hourly().do("create", spec={"trigger": MINUTELY, "owner": "me"})
    assert "trigger, owner" in reply["message"]


def test_expected_revision_guards_a_change() -> None:
    """A change that was decided on an older revision is refused and changes nothing."""
    driver = hourly()
    driver.do("update", spec={"owner": "me"})
    refused = driver.do("update", spec={"owner": "you"}, expected_revision=1)
    assert (refused["status"], refused["code"]) == ("rejected", "revision_conflict")
    assert driver.do("update", spec={"owner": "you"}, expected_revision=2)["revision"] == 3


def test_a_recreated_schedule_never_reuses_an_id() -> None:
    """The same nominal before a delete and after the new create has two ids, also after a cold restore."""
    driver = hourly()
    driver.do("update", spec={"payload": 1})
    driver.do("delete")
    driver.restart(wipe=True)
    assert driver.create(trigger=HOURLY)["version"] == 3
    driver.do("delete", "acme/none")
    assert driver.create("acme/b", trigger=HOURLY)["version"] == 3
    driver.advance(3_600_000)
    assert sorted(d["occurrence_id"] for d in driver.dispatched()) == [
        "acme/a:3:20260101T100000.000Z",
        "acme/b:3:20260101T100000.000Z",
    ]


def test_history_says_who_and_why() -> None:
    """Every revision is on the history topic with its actor, reason and command."""
    driver = hourly()
    driver.do("pause", actor="ann", reason="incident 7", command_id="p-1")
    record = driver.topics.values("scheduler.schedule-history")[-1]
    assert {k: record[k] for k in ("change", "state", "revision", "actor", "reason", "command_id")} == {
        "change": "paused", "state": "paused", "revision": 2, "actor": "ann", "reason": "incident 7",
        "command_id": "p-1",
    }  # fmt: skip


# --- idempotence ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "fields"),
    [
        ("create", {"spec": {"trigger": MINUTELY}}),  # rejected: already_exists
        ("create", {"spec": {"trigger": HOURLY}}),  # unchanged
        ("update", {"spec": {"payload": 2}}),
        ("pause", {}),
        ("cancel", {}),
        ("trigger", {}),
        ("update", {"spec": {"owner": "x"}, "expected_revision": 9}),
    ],
)
def test_a_repeat_gets_the_same_answer_and_has_one_effect(verb: str, fields: dict[str, Any]) -> None:
    """P64: the answer was lost and the command comes again, also after a cold restore in between."""
    driver = hourly()
    first = driver.do(verb, command_id="once", **fields)
    stored, sent = driver.schedule(), len(driver.dispatched())
    driver.advance(5_000)
    driver.restart(wipe=True)
    again = driver.do(verb, command_id="once", **fields)
    assert again == first
    assert driver.schedule() == stored
    assert len(driver.dispatched()) == sent


def test_eight_answers_are_remembered_and_older_ones_known_to_be_stale() -> None:
    """After eight newer commands a repeat is refused as stale instead of being carried out a second time."""
    driver = hourly()
    for n in range(9):
        driver.do("update", spec={"payload": n}, command_id=f"u{n}")
    assert driver.do("update", spec={"payload": 1}, command_id="u1")["code"] == "updated"
    stale = driver.do("update", spec={"payload": 0}, command_id="u0")
    assert (stale["status"], stale["code"]) == ("rejected", "stale_command")
    assert (driver.schedule() or {})["spec"]["payload"] == 8


def test_a_bad_command_may_be_repaired_under_its_id() -> None:
    """What was refused for a mistake in itself left no trace, so the id is free for the repaired command."""
    driver = hourly()
    assert driver.do("update", spec={"window_ms": -1}, command_id="x")["code"] == "bad_field"
    assert driver.do("update", spec={"window_ms": 1000}, command_id="x")["code"] == "updated"


def test_a_command_without_an_id_is_named_by_its_place() -> None:
    """`<partition>-<offset>` is as good as any id: the same record read twice is the same command."""
    driver = Driver()
    driver.send(json.dumps({"command": "create", "schedule_id": "acme/a", "spec": {"trigger": HOURLY}}).encode())
    driver.run_until(driver.now)
    assert driver.topics.values("scheduler.replies")[-1]["command_id"] == "0-0"


# --- dry run, preview, trigger --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "fields", "code"),
    [
        ("create", {"schedule_id": "acme/new", "spec": {"trigger": HOURLY}}, "created"),
        ("update", {"spec": {"trigger": MINUTELY}}, "updated"),
        ("pause", {}, "paused"),
        ("cancel", {}, "cancelled"),
        ("delete", {}, "deleted"),
        ("trigger", {}, "dispatched"),
    ],
)
def test_a_dry_run_says_what_would_happen_and_does_nothing(verb: str, fields: dict[str, Any], code: str) -> None:
    """Only the answer and the shard's own position are written; nothing about any schedule."""
    driver = hourly(window_ms=1_800_000)
    driver.run_until("2026-01-01T10:00:01Z")
    topics = {t: len(r) for t, r in driver.topics.records.items()}
    reply = driver.do(verb, dry_run=True, **fields)
    assert (reply["code"], reply["dry_run"]) == (code, True)
    grown = {t for t, r in driver.topics.records.items() if len(r) > topics.get(t, 0)}
    assert grown == {"scheduler.replies", "scheduler.shards"}


def test_preview_of_a_new_definition_needs_no_schedule() -> None:
    """Asking what would happen is free of consequences and uses the same calculator."""
    reply = Driver().do("preview", spec={"trigger": HOURLY}, preview=2)
    assert [p["scheduled_for"] for p in reply["preview"]] == ["2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z"]


def test_preview_of_an_existing_schedule_and_with_a_change() -> None:
    """A preview shows the schedule as it is, or as the named fields would make it; neither changes it."""
    driver = hourly()
    assert len(driver.do("preview")["preview"]) == 5
    changed = driver.do("preview", spec={"trigger": MINUTELY}, preview=1)
    assert changed["preview"][0]["scheduled_for"] == "2026-01-01T09:01:00Z"
    assert (driver.schedule() or {})["revision"] == 1


def test_a_change_can_show_what_follows() -> None:
    """`preview` beside any command lists the next occurrences of what it leaves behind."""
    reply = hourly().do("update", spec={"trigger": MINUTELY}, preview=2)
    assert [p["scheduled_for"][11:16] for p in reply["preview"]] == ["09:01", "09:02"]
    assert "preview" not in hourly().do("delete", preview=2)


def test_preview_shows_the_jitter_that_will_be() -> None:
    """`available_at` of a preview is the one of the dispatch."""
    driver = hourly(window_ms=600_000)
    shown = driver.do("preview", preview=1)["preview"][0]["available_at"]
    driver.run_until("2026-01-01T10:30:00Z")
    assert driver.dispatched()[0]["available_at"] == shown
    assert shown != "2026-01-01T10:00:00Z"


def test_trigger_runs_once_with_its_own_payload() -> None:
    """A manual run has an id of its own, counts as manual, and leaves the schedule's next nominal alone."""
    driver = hourly(payload={"usual": 1})
    first = driver.do("trigger", command_id="now", payload={"n": 1})
    driver.do("trigger", command_id="again")
    sent = driver.dispatched()
    assert first["occurrence_id"] == "acme/a:1:m-now" == sent[0]["occurrence_id"]
    assert [(d["origin"], d["payload"]) for d in sent] == [("manual", {"n": 1}), ("manual", {"usual": 1})]
    driver.advance(3_600_000)
    assert driver.clocks()[-1] == "10:00:00"


# --- refusals -------------------------------------------------------------------------------------------------------


def test_every_mistake_is_named_at_once() -> None:
    """Mistakes in the command and in its definition come in one answer, each with its field."""
    reply = hourly().do(
        "update", expected_revision=0, preview=-1, dry_run="yes",
        spec={"window_ms": -1, "priority": "urgent", "lane": "nowhere", "misfire": 3, "trigger": {"cron": "x"}},
    )  # fmt: skip
    fields = {error["field"] for error in reply["errors"]}
    assert {"expected_revision", "preview", "dry_run", "spec.window_ms", "spec.priority", "spec.lane"} <= fields
    assert "spec.misfire" in fields
    assert reply["status"] == "rejected"
    assert len(reply["errors"]) <= 20


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"tracking": "lease"}, "not_supported"),
        ({"overlap": "skip_if_running"}, "not_supported"),
        ({"overlap": "queue_one"}, "not_supported"),
        ({"retry": {"max_attempts": 3}}, "not_supported"),
        ({"calendar": "de"}, "unknown_calendar"),
        ({"trigger": {"at": "2020-01-01T00:00:00Z"}}, "in_past"),
        ({"trigger": {"at": "2026-06-01T00:00:00Z"}, "end": "2026-05-01T00:00:00Z"}, "never_fires"),
        ({"trigger": {"every_ms": 999}}, "bad_field"),
        ({"start": "2026-05-01T00:00:00Z", "end": "2026-05-01T00:00:00Z"}, "bad_field"),
        ({"roll": "next"}, "bad_field"),
        ({"payload": "x" * 70_000}, "bad_field"),
    ],
)
def test_what_cannot_be_is_refused(spec: dict[str, Any], code: str) -> None:
    """P57, P61 and their kind: refused with a code, never accepted and ignored."""
    driver = Driver()
    reply = driver.do("create", spec={"trigger": HOURLY} | spec)
    assert (reply["status"], reply["code"]) == ("rejected", code), reply["message"]
    assert driver.schedule() is None


@pytest.mark.parametrize("verb", ["replay", "submit-run", "frobnicate", None, 7])
def test_a_verb_this_version_lacks_is_answered(verb: object) -> None:
    """A known later verb is `not_supported`, anything else a mistake; both are answered by the verbs there are."""
    reply = Driver().do(verb, from_="x")  # type: ignore[arg-type] # hostile on purpose
    assert reply["code"] == ("not_supported" if verb in ("replay", "submit-run") else "bad_field")
    assert "create, update" in reply["message"]


@pytest.mark.parametrize("verb", ["trigger", "preview", "cancel-backfill"])
def test_what_changes_nothing_cannot_begin_later(verb: str) -> None:
    """`effective_from` in the future is refused where it would otherwise be ignored."""
    reply = hourly().do(verb, effective_from="2026-02-01T00:00:00Z", spec={"owner": "x"})
    assert (reply["status"], reply["code"]) == ("rejected", "not_supported")


def test_unknown_fields_are_warnings() -> None:
    """A field nobody knows is tolerated and named, in the command, the spec and the trigger."""
    reply = Driver().do("create", colour="red", spec={"trigger": HOURLY | {"tz": "UTC"}, "prio": 1})
    assert reply["status"] == "accepted"
    assert {w["code"] for w in reply["warnings"]} == {"unknown_field"}
    assert len(reply["warnings"]) == 3


def test_only_the_shards_reply_topic_is_written() -> None:
    """`reply_to` may name an allowed topic; any other is a mistake, answered where answers belong."""
    driver = Driver()
    assert driver.do("create", reply_to="scheduler.schedules", spec={"trigger": HOURLY})["code"] == "bad_field"
    assert driver.do("create", reply_to="scheduler.replies", spec={"trigger": HOURLY})["code"] == "created"


def test_a_missing_default_lane_must_be_named() -> None:
    """A cluster without a lane called default cannot guess one."""
    driver = Driver(catalogue=Catalogue(shards=1, lanes=("fast", "slow")))
    assert driver.do("create", spec={"trigger": HOURLY})["errors"][0]["field"] == "spec.lane"
    assert driver.do("create", spec={"trigger": HOURLY, "lane": "fast"})["code"] == "created"
    assert driver.do("update", spec={"lane": None})["errors"][0]["field"] == "spec.lane"


def test_a_lane_that_is_gone_breaks_its_schedules_and_nothing_else() -> None:
    """A lane taken out of the configuration leaves schedules that cannot be dispatched: broken, until moved."""
    driver = Driver(catalogue=Catalogue(shards=1, lanes=("default", "fast")))
    driver.create(trigger=MINUTELY, lane="fast")
    driver.create("acme/b", trigger=MINUTELY)
    driver.catalogue = Catalogue(shards=1)
    driver.outage("2026-01-01T09:03:00Z")
    driver.advance(60_000)
    assert (driver.schedule() or {})["state"] == "broken"
    assert "fast" in (driver.schedule() or {})["broken_reason"]
    assert driver.clocks("acme/b") == ["09:03:00", "09:04:00"]
    assert driver.do("update", spec={"owner": "x"})["errors"][0]["field"] == "spec.lane"
    assert driver.do("update", spec={"lane": "default"})["code"] in ("updated", "never_fires")


def test_a_mistake_in_a_trigger_names_its_field_once() -> None:
    """The sentence is for a person: no field twice, and the whole range that is allowed."""
    reply = Driver().do("create", spec={"trigger": {"every_ms": 10**18}})
    assert reply["message"].startswith(
        "every_ms: 1000000000000000000 is not a whole number of milliseconds from 1000 to "
    )


def test_a_create_over_a_cancelled_schedule_is_told_what_is_allowed_then() -> None:
    """A cancelled schedule takes no update, so the advice is to delete it, and the advice works."""
    driver = hourly()
    driver.do("cancel")
    refused = driver.do("create", spec={"trigger": HOURLY})
    assert (refused["code"], "use update" in refused["message"]) == ("already_exists", False)
    driver.do("delete")
    assert driver.do("create", spec={"trigger": HOURLY})["code"] == "created"


# --- input that is no command ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, b"", b"{", b"[]", b"\xff\xfe", b'{"command":"create"}', b"null", b"7"])
def test_garbage_is_kept_with_its_bytes_and_stops_nothing(value: bytes | None) -> None:
    """Tombstones, bad bytes and commands that name no schedule go to the rejected topic; the next one is answered."""
    driver = Driver()
    driver.send(value, key=b"\xff\x00")
    driver.create(trigger=HOURLY)
    [kept] = driver.topics.values("scheduler.rejected")
    assert kept["offset"] == 0
    assert kept["reason"]
    assert kept["key_base64"] == "/wA="
    assert (kept.get("value_base64") is None) == (value is None)


def _update(spec: dict[str, Any]) -> bytes:
    command = {"command": "update", "schedule_id": "acme/a", "effective_from": "2027-01-01T00:00:00Z", "spec": spec}
    return json.dumps(command).encode()


OVERSIZE = 900_000
LARGEST_RECORD = 1_000_000  # the client's own default; a broker's is a little more


@pytest.mark.parametrize(
    "value",
    [
        b"\xff" * OVERSIZE,
        b"\0" * OVERSIZE,
        b"\0" * (100 * 1024),
        json.dumps({"command": "pause", "schedule_id": "x" * OVERSIZE}).encode(),
        json.dumps({"command": "c" * OVERSIZE, "schedule_id": "acme/a"}).encode(),
        json.dumps({"command": "pause", "schedule_id": "acme/a", "zzz": "z" * OVERSIZE}).encode(),
        json.dumps({"command": "pause", "schedule_id": "acme/a", "z" * OVERSIZE: 1}).encode(),
        json.dumps({"command": "pause", "schedule_id": "acme/a", "command_id": "c" * OVERSIZE}).encode(),
        json.dumps({"command": "pause", "schedule_id": "acme/a", "reply_to": "r" * OVERSIZE}).encode(),
        _update({"trigger": {"at": "t" * OVERSIZE}}),
        _update({"trigger": {"cron": "0 0 * * *", "zone": "Z" * OVERSIZE}}),
        _update({"f" * OVERSIZE: 1}),
    ],
    ids=range(12),
)
@pytest.mark.parametrize(
    "key", [b"acme/a", b"\xff" * OVERSIZE, b"k" * OVERSIZE], ids=["key", "long-bytes", "long-text"]
)
def test_whatever_comes_in_the_shard_can_write_what_it_makes_of_it(value: bytes, key: bytes) -> None:
    """A record no topic takes would fail the step for ever: nothing made of an input is larger than Kafka's limit."""
    driver = hourly()
    driver.send(value, key=key)
    assert driver.do("pause")["code"] in ("paused", "unchanged")
    assert max(len(key) + len(value or b"") for _, key, value, _ in driver.topics.log) < LARGEST_RECORD


def test_a_command_too_large_to_copy_is_answered_at_home_and_kept_elsewhere() -> None:
    """Past 256 KiB the owner's shard refuses it with a reason; another shard keeps its beginning and says why."""
    command = {"command": "pause", "schedule_id": "acme/a", "zzz": "z" * 300_000}
    driver = hourly()
    driver.send(json.dumps(command).encode(), key=b"acme/a")
    driver.run_until(driver.now)
    assert driver.topics.values("scheduler.replies")[-1]["code"] == "too_large"
    other = Driver(catalogue=Catalogue(shards=4))
    command["schedule_id"] = elsewhere(other.catalogue)
    other.send(json.dumps(command).encode(), key=b"acme/a")
    other.run_until(other.now)
    [kept] = other.topics.values("scheduler.rejected")
    assert (kept["code"], other.forwards) == ("too_large", [])
    assert "the first 131072 of" in kept["reason"]


def test_a_tombstone_cancels_nothing() -> None:
    """A null value under a schedule's key is no command."""
    driver = hourly()
    driver.send(None, key=b"acme/a")
    driver.advance(3_600_000)
    assert driver.clocks() == ["10:00:00"]


def test_the_id_in_the_value_decides_not_the_key() -> None:
    """Another key is no error: the command is carried out and the reply says how to spare the forwarding."""
    driver = Driver()
    body = {"command": "create", "schedule_id": "acme/a", "command_id": "x", "spec": {"trigger": HOURLY}}
    driver.send(json.dumps(body).encode(), key=None)
    driver.run_until(driver.now)
    assert driver.reply("x")["status"] == "accepted"
    assert driver.reply("x")["warnings"][0]["code"] == "key"


def elsewhere(catalogue: Catalogue) -> str:
    """A schedule that does not live in shard 0."""
    return next(f"acme/n{n}" for n in range(99) if partition_for(f"acme/n{n}".encode(), catalogue.shards) != 0)


def test_a_command_in_the_wrong_partition_is_forwarded_once() -> None:
    """It is copied to the partition of its id with a mark, and not answered here."""
    driver = Driver(catalogue=Catalogue(shards=4))
    name = elsewhere(driver.catalogue)
    driver.send({"command": "create", "schedule_id": name, "spec": {"trigger": HOURLY}})
    driver.run_until(driver.now)
    [copy] = driver.forwards
    assert copy.partition == partition_for(name.encode(), 4)
    assert dict(copy.headers) == {"fwd": b"0-0", "fwd-after": b"0-0"}
    assert driver.topics.values("scheduler.replies") == []
    assert driver.shard is not None
    assert driver.shard.position("scheduler.commands") == 1


def test_a_forwarded_command_is_named_by_its_first_place_and_says_the_cure() -> None:
    """Copied a second time by an older release, which does not say what came before: the id makes that harmless."""
    driver = Driver()
    body = json.dumps({"command": "create", "schedule_id": "acme/a", "spec": {"trigger": HOURLY}}).encode()
    for _ in range(2):
        driver.send(body, key=b"acme/a", forwarded_from="0-17")
    driver.run_until(driver.now)
    replies = driver.topics.values("scheduler.replies")
    assert [(r["command_id"], r["code"]) for r in replies] == [("0-17", "created"), ("0-17", "created")]
    assert "partitioner=murmur2_random" in replies[0]["warnings"][0]["message"]
    assert len(driver.topics.values("scheduler.schedule-history")) == 1


def test_who_sent_to_an_added_partition_is_told_whose_mistake_that_is() -> None:
    """The sender did everything right: its topic has more partitions than there are shards."""
    driver = Driver(catalogue=Catalogue(shards=4))
    mine = next(f"acme/n{n}" for n in range(99) if partition_for(f"acme/n{n}".encode(), 4) == 0)
    body = json.dumps({"command": "create", "schedule_id": mine, "spec": {"trigger": HOURLY}}).encode()
    driver.send(body, key=mine.encode(), forwarded_from="5-17", forwarded_after="9-9")
    driver.run_until(driver.now)
    [reply] = driver.topics.values("scheduler.replies")
    assert "more partitions than the 4 shards" in reply["warnings"][0]["message"]


def test_a_forwarded_command_is_not_forwarded_again() -> None:
    """One hop: what still does not belong here is set aside."""
    driver = Driver(catalogue=Catalogue(shards=4))
    driver.send({"command": "pause", "schedule_id": elsewhere(driver.catalogue)}, forwarded_from="2-5")
    driver.run_until(driver.now)
    assert driver.forwards == []
    assert driver.topics.values("scheduler.rejected")[0]["code"] == "misrouted"


def test_a_second_copy_of_a_forwarded_command_does_not_bring_back_what_was_deleted() -> None:
    """The shard knows it by where it came from, whatever the schedule has forgotten; it is set aside, not answered."""
    driver = Driver(catalogue=Catalogue(shards=4))
    mine = next(f"acme/n{n}" for n in range(99) if partition_for(f"acme/n{n}".encode(), 4) == 0)
    body = json.dumps({"command": "create", "schedule_id": mine, "spec": {"trigger": HOURLY}}).encode()
    copy = {"key": mine.encode(), "forwarded_from": "3-17", "forwarded_after": "9-9"}
    driver.send(body, **copy)
    driver.run_until(driver.now)
    assert driver.do("delete", mine)["code"] == "deleted"
    driver.restart(wipe=True)
    driver.send(body, **copy)
    driver.run_until(driver.now)
    assert driver.schedule(mine) is None
    assert [reply["command"] for reply in driver.topics.values("scheduler.replies")] == ["create", "delete"]
    [kept] = driver.topics.values("scheduler.rejected")
    assert (kept["code"], kept["reason"]) == ("repeated", "a second copy of 3-17, which was answered before")


@pytest.mark.parametrize("after", ["18-18", "12-9", "9-", "x", "9-12-13", "-1-12", None])
def test_what_a_stranger_says_of_the_copies_before_is_not_believed(after: str | None) -> None:
    """Only what can be: no copy is had before it has come."""
    driver = Driver(catalogue=Catalogue(shards=4))
    body = b'{"command":"preview","schedule_id":"acme/n1","spec":{"trigger":{"every_ms":60000}}}'
    assert partition_for(b"acme/n1", 4) == 0
    driver.send(body, key=b"acme/n1", forwarded_from="3-17", forwarded_after=after)
    driver.run_until(driver.now)
    assert driver.shard is not None
    assert driver.shard.record.forwarded == {}
    assert driver.topics.values("scheduler.rejected") == []


def test_what_strangers_can_make_a_shard_remember_has_a_bound() -> None:
    """Each source takes some bytes of a record that every step writes."""
    driver = Driver(catalogue=Catalogue(shards=4))
    body = b'{"command":"preview","schedule_id":"acme/n1","spec":{"trigger":{"every_ms":60000}}}'
    for partition in range(100, 100 + 5 * MOST_SOURCES):
        driver.send(body, key=b"acme/n1", forwarded_from=f"{partition}-17", forwarded_after="17-17")
    driver.run_until(driver.now)
    assert driver.shard is not None
    assert len(driver.shard.record.forwarded) == 4 * MOST_SOURCES


def test_a_mark_that_is_not_ours_names_nothing() -> None:
    """Anyone may write a header: only `<partition>-<offset>` is believed, since it becomes part of ids."""
    driver = Driver()
    driver.create(trigger=HOURLY)
    driver.send(b'{"command":"trigger","schedule_id":"acme/a"}', key=b"acme/a", forwarded_from='x","payload":"evil')
    driver.run_until(driver.now)
    assert driver.dispatched()[0]["occurrence_id"] == "acme/a:1:m-0-1"


# --- when a definition begins ---------------------------------------------------------------------------------------


def test_a_create_may_begin_later() -> None:
    """`effective_from`: nominals strictly after it count; a rate is anchored there."""
    driver = Driver()
    driver.do("create", effective_from="2026-01-01T10:30:00Z", spec={"trigger": {"every_ms": 3_600_000}})
    driver.do("create", "acme/b", effective_from="2026-01-01T10:00:00Z", spec={"trigger": HOURLY})
    driver.run_until("2026-01-01T12:00:00Z")
    assert driver.clocks() == ["11:30:00"]
    assert driver.clocks("acme/b") == ["11:00:00", "12:00:00"]


def test_start_is_inclusive_and_end_exclusive() -> None:
    """Both bound nominals; after the last one the schedule is completed."""
    driver = Driver()
    driver.create(trigger=HOURLY, start="2026-01-01T11:00:00Z", end="2026-01-01T13:00:00Z")
    driver.run_until("2026-01-01T14:00:00Z")
    assert driver.clocks() == ["11:00:00", "12:00:00"]
    assert (driver.schedule() or {})["state"] == "completed"


def test_a_start_in_the_past_reaches_back_nowhere() -> None:
    """P15: created with a start a year ago, the first start is the first nominal after creation."""
    driver = Driver()
    driver.create(trigger=HOURLY, start="2025-01-01T00:00:00Z", misfire={"catch_up": 100})
    driver.advance(3_600_000)
    assert driver.clocks() == ["10:00:00"]
    assert driver.occurrences() == []


def test_a_completed_schedule_is_forgotten_a_day_later() -> None:
    """The tombstone comes a day after completion, and the next create gets a version above."""
    driver = Driver()
    driver.create(trigger={"at": "2026-01-01T09:10:00Z"})
    driver.run_until("2026-01-02T09:09:00Z")
    assert driver.schedule() is not None
    driver.run_until("2026-01-02T09:12:00Z")
    assert driver.schedule() is None
    assert driver.create(trigger=HOURLY)["version"] == 2


def test_a_change_and_a_repeat_in_one_step_see_each_other() -> None:
    """Commands read together are applied one after the other, each to what the last one left."""
    driver = Driver()
    spec = {"trigger": HOURLY}
    ids = [
        driver.send({"command": verb, "schedule_id": "acme/a", **fields})
        for verb, fields in [
            ("create", {"spec": spec}), ("update", {"spec": {"payload": 1}}), ("pause", {}), ("delete", {}),
            ("create", {"spec": spec}),
        ]
    ]  # fmt: skip
    driver.turn()
    answers = [(driver.reply(i)["code"], driver.reply(i)["version"]) for i in ids]
    assert answers == [("created", 1), ("updated", 2), ("paused", 2), ("deleted", 2), ("created", 3)]
    assert driver.contents() == driver.cold_contents()


def test_a_pause_overtakes_commands_about_other_schedules() -> None:
    """In one step pauses and cancels come first, except behind an earlier command about the same schedule."""
    driver = hourly()
    driver.send({"command": "create", "schedule_id": "acme/b", "spec": {"trigger": HOURLY}})
    driver.send({"command": "pause", "schedule_id": "acme/a"})
    driver.send({"command": "pause", "schedule_id": "acme/b"})
    driver.turn()
    codes = [(r["schedule_id"], r["code"]) for r in driver.topics.values("scheduler.replies")][1:]
    assert codes == [("acme/a", "paused"), ("acme/b", "created"), ("acme/b", "paused")]


def test_counts_say_what_a_change_settled() -> None:
    """An update keeps what waits in its window; a pause suppresses it; the reply counts both."""
    driver = Driver()
    driver.create(trigger=HOURLY, window_ms=3_000_000)
    driver.run_until("2026-01-01T10:00:00Z")
    assert driver.dispatched() == []
    assert driver.do("update", spec={"payload": 1})["counts"] == {"kept": 1}
    assert driver.do("pause")["counts"] == {"suppressed": 1}
    assert driver.counts() == {"suppressed": 1}
    record = driver.occurrences()[0]
    assert record["occurrence_id"] == "acme/a:1:20260101T100000.000Z"


# --- one-shots ------------------------------------------------------------------------------------------------------


def late(driver: Driver, by_ms: int, **spec: Any) -> dict[str, Any]:
    """A one-shot that is decided `by_ms` after its instant, sent just before it."""
    at = driver.now
    name = driver.send(
        {"command": "create", "schedule_id": "acme/a", "spec": {"trigger": {"at": format_instant(at)}, **spec}},
        at=at - 300,
    )
    driver.kill()
    driver.now += by_ms
    driver.start()
    return driver.reply(name)


def test_a_one_shot_that_passed_on_its_way_runs_at_once() -> None:
    """P58: at now + 1 s, read 2 s later: it starts, once, and is completed; also after a cold restore."""
    driver = Driver()
    reply = late(driver, 300)
    assert (reply["code"], reply["state"], reply["counts"]) == ("created", "completed", {"dispatched": 1})
    driver.restart(wipe=True)
    driver.advance(60_000)
    assert len(driver.dispatched()) == 1


@pytest.mark.parametrize(
    ("spec", "fired", "gone"),
    [
        ({}, 1, {}),
        ({"misfire": "skip"}, 0, {"missed": 1}),
        ({"max_lateness_ms": 60_000}, 0, {"missed": 1}),
        ({"max_lateness_ms": None, "misfire": {"catch_up": 2}}, 1, {}),
    ],
)
def test_a_one_shot_that_passed_long_ago_is_a_misfire(spec: dict[str, Any], fired: int, gone: dict[str, int]) -> None:
    """P43: sent in time and read two hours late, the policy decides, and the same after a restart."""
    driver = Driver()
    reply = late(driver, 7_200_000, **spec)
    assert reply["status"] == "accepted"
    driver.advance(60_000)
    driver.restart(wipe=True)
    assert (len(driver.dispatched()), driver.counts()) == (fired, gone)
    assert (driver.schedule() or {})["state"] == "completed"


def test_a_late_one_shot_still_waits_for_its_window() -> None:
    """Nothing starts before its available_at, however it came in."""
    driver = Driver(START)
    late(driver, 300, window_ms=3_600_000)
    driver.restart(wipe=True)
    driver.advance(3_600_000)
    [sent] = driver.dispatched()
    assert sent["at"] == sent["available_at"] > "2026-01-01T09:00:00.300Z"


def test_a_one_shot_beyond_the_grace_of_its_sending_is_refused() -> None:
    """`at` may lie the grace before the command's append time, and not 1 ms more."""
    driver = Driver()
    for back, code in ((60_000, "created"), (60_001, "in_past")):
        spec = {"trigger": {"at": format_instant(driver.now - back)}}
        assert driver.do("create", f"acme/x{back}", spec=spec)["code"] == code


def test_a_new_payload_for_a_one_shot_in_its_window_does_not_run_it_twice() -> None:
    """What is reached belongs to the old version; the new one would have nothing left, so it is refused."""
    driver = Driver()
    driver.create(trigger={"at": "2026-01-01T09:01:00Z"}, window_ms=3_600_000)
    driver.run_until("2026-01-01T09:01:01Z")
    assert driver.do("update", spec={"payload": 2})["code"] == "never_fires"
    driver.advance(3_600_000)
    assert len(driver.dispatched()) == 1
