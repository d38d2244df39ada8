"""Wire values and core values: round trips, and everything written is a readable message of its topic."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler import wire
from scheduler.core.calendars import NO_CALENDARS
from scheduler.core.due import Absence, Backlog, Lag, due_key, instant_end, queue_name
from scheduler.core.model import (
    Answer,
    Gone,
    Misfire,
    MisfireKind,
    Nominal,
    Origin,
    Priority,
    Run,
    Schedule,
    Spec,
    State,
)
from scheduler.core.record import FORMAT, ShardRecord
from scheduler.core.series import Series
from scheduler.core.trigger import Once, Trigger, parse_trigger
from scheduler.core.unplannable import Unplannable
from scheduler.errors import StateCorrupted
from topics import messages
from topics.codec import decode

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = 1_767_268_800_000
INSTANTS = st.integers(0, 4_102_444_800_000)
TEXTS = st.text(alphabet='aZ09 "\\é☃{}:', min_size=1, max_size=8)
MAYBE = st.one_of(st.none(), TEXTS)


def made(kind: type, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values of a class from strategies of its fields; its annotations are for the type checker alone."""
    return st.fixed_dictionaries(fields).map(lambda given: kind(**given))


def trigger(fields: dict[str, Any]) -> Any:
    parsed = parse_trigger(fields, schedule_id="acme/a", effective_at=NOW)
    assert parsed.trigger is not None, parsed
    return parsed.trigger


TRIGGERS = st.one_of(
    st.builds(Once, INSTANTS),
    st.sampled_from(
        [
            {"cron": "*/5 9-17 * * MON-FRI", "zone": "Europe/Berlin"},
            {"cron": "H H * * *", "zone": "UTC"},
            {"cron": "h 3 * * *", "zone": "UTC"},
            {"cron": "0 30 1 * * *", "zone": "America/New_York", "dialect": "seconds", "fold": "both"},
            {"every_ms": 1500, "anchor": "2026-01-01T00:00:00.500Z"},
            {"at_local": "2026-03-08T09:30:00", "zone": "Asia/Tokyo"},
        ]
    ).map(trigger),
)
SPECS = made(
    Spec,
    trigger=TRIGGERS,
    start=st.one_of(st.none(), INSTANTS),
    end=st.one_of(st.none(), INSTANTS),
    priority=st.sampled_from(Priority),
    lane=st.sampled_from(["default", "fast"]),
    window_ms=st.integers(0, 10**9),
    misfire=st.one_of(
        st.just(Misfire()), st.just(Misfire(MisfireKind.SKIP)),
        st.integers(1, 99).map(lambda k: Misfire(MisfireKind.CATCH_UP, k)),
    ),
    max_lateness_ms=st.one_of(st.none(), st.integers(1000, 10**9)),
    lateness_given=st.just(True),
    retry=st.one_of(st.none(), st.just((3, 10, 1000))),
    timeout_ms=st.one_of(st.none(), st.integers(1, 10**6)),
    deadline_ms=st.one_of(st.none(), st.integers(1, 10**6)),
    handler=MAYBE,
    payload=st.sampled_from([None, b"1.0", b'{"a": [1,\n2]}', '"\u00e9"'.encode(), b'"' + b"x" * 3000 + b'"']),
    labels=st.dictionaries(TEXTS, TEXTS, max_size=3).map(lambda found: tuple(sorted(found.items()))),
    owner=MAYBE, description=MAYBE, impact=MAYBE, runbook=MAYBE,
)  # fmt: skip
ANSWERS = made(
    Answer,
    command_id=st.just("c-1"), command=st.just("update"), accepted=st.booleans(), code=TEXTS, message=TEXTS,
    at=INSTANTS, version=st.integers(1, 9), revision=st.integers(1, 9), effective_at=st.one_of(st.none(), INSTANTS),
    occurrence_id=MAYBE, counts=st.sampled_from([(), (("kept", 1),), (("cancelled", 2), ("kept", 1))]),
)  # fmt: skip
SCHEDULES = made(
    Schedule,
    schedule_id=st.just("acme/a"), state=st.sampled_from(State), version=st.integers(1, 10**6),
    revision=st.integers(1, 10**6), created_at=INSTANTS, updated_at=INSTANTS, effective_at=INSTANTS, floor=INSTANTS,
    spec=SPECS, completed_at=st.one_of(st.none(), INSTANTS), broken_reason=MAYBE, actor=MAYBE, reason=MAYBE,
    recent=st.lists(ANSWERS, max_size=3).map(tuple), older=st.sampled_from(["", "0123abcd"]),
)  # fmt: skip


def simple(**fields: Any) -> Schedule:
    spec = Spec(**({"trigger": Once(NOW)} | fields))
    return Schedule(
        schedule_id="acme/a", state=State.ACTIVE, version=3, revision=4, created_at=NOW, updated_at=NOW,
        effective_at=NOW, floor=NOW, spec=spec,
    )  # fmt: skip


def hashed(name: str) -> Trigger:
    """Once a day, at an instant of the schedule's own."""
    trigger = parse_trigger({"cron": "H H * * *", "zone": "UTC"}, schedule_id=name, effective_at=NOW).trigger
    assert trigger is not None
    return trigger


@settings(max_examples=50, deadline=None)
@given(SCHEDULES)
def test_a_schedule_comes_back_as_it_was(schedule: Schedule) -> None:
    """The public record is the changelog: nothing of a schedule is lost in it, and it is a message of its topic."""
    value = wire.schedule_to_bytes(schedule)
    assert wire.schedule_from_bytes(value) == schedule
    assert decode(messages.Schedule, value).tenant == "acme"
    plan = wire.plan_from_bytes(value)
    assert (plan.spec, plan.state, plan.floor) == (schedule.spec, schedule.state, schedule.floor)
    assert plan.recent == ()


@pytest.mark.parametrize("labels", [(), (("payload", "1"),), (("a", "b"), ("payload", '"payload":1'))])
@pytest.mark.parametrize("description", [None, "x" * 2_000])
def test_what_definitions_share_is_read_once_and_stays_theirs(
    labels: tuple[tuple[str, str], ...], description: str | None
) -> None:
    """Short or long, with a payload or without, and whatever looks like one."""
    for payload in (b'{"n":1}', None, b'{"payload":{"n":1}}', b'{"n":1}'):
        schedule = simple(payload=payload, labels=labels, description=description)
        assert wire.plan_from_bytes(wire.schedule_to_bytes(schedule)).spec == schedule.spec


def test_a_rule_that_depends_on_the_name_is_not_shared() -> None:
    """`H` in an expression is another instant for another schedule, and so are they once read again."""
    made = [replace(simple(trigger=hashed(name)), schedule_id=name) for name in ("acme/a", "acme/b", "acme/c")]
    read = [wire.plan_from_bytes(wire.schedule_to_bytes(schedule)).spec.trigger for schedule in made]
    assert read == [schedule.spec.trigger for schedule in made]
    assert len({trigger.next_after(NOW) for trigger in read}) > 1


def test_defaults_stay_off_the_wire() -> None:
    """A stored definition says no more than its producer did."""
    record = json.loads(wire.schedule_to_bytes(simple()))
    assert record["spec"] == {"trigger": {"at": "2026-01-01T12:00:00Z"}}


def test_a_payload_is_carried_byte_for_byte() -> None:
    """Spelling, spaces and number formats of the producer are kept in the record, the history and the dispatch."""
    payload = b'{ "n" : 1.00, "t":"\xc3\xa9" }'
    schedule = simple(payload=payload)
    dispatch = wire.DispatchTemplate(schedule, ShardRecord(shard=1)).value(NOW, NOW)
    history = wire.revision_to_bytes(schedule, "created", "c", NOW, deleted=False)
    for value in (wire.schedule_to_bytes(schedule), dispatch, history):
        assert payload in value


def test_a_trigger_that_todays_tables_refuse_is_kept_and_plans_nothing() -> None:
    """It names no nominal, says why, and is written back as it stood."""
    value = wire.schedule_to_bytes(simple(trigger=trigger({"cron": "0 9 * * *", "zone": "UTC"})))
    value = value.replace(b"UTC", b"US/Pacific-New")
    schedule = wire.schedule_from_bytes(value)
    lost = schedule.spec.trigger
    assert isinstance(lost, Unplannable)
    assert "US/Pacific-New" in lost.why
    assert (lost.next_after(0), lost.prev_before(NOW), lost.count_between(0, NOW)) == (None, None, 0)
    assert (lost.between(0, NOW, 5), lost.newest_before(NOW, 5, 0)) == ([], [])
    assert wire.schedule_to_bytes(schedule) == value


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"schedule_id":1}', b"\xff"])
def test_bytes_this_service_did_not_write_are_corruption(value: bytes) -> None:
    """A changelog record that cannot be read stops the shard with its first bytes in the error."""
    for read in (wire.schedule_from_bytes, wire.plan_from_bytes, wire.record_from_bytes, wire.live_from_bytes):
        with pytest.raises(StateCorrupted, match="cannot be read"):
            read(value)


@pytest.mark.parametrize(("old", "new"), [(b'"active"', b'"dancing"'), (b"2026-01-01", b"2026-13-01")])
def test_values_out_of_range_are_corruption(old: bytes, new: bytes) -> None:
    """A state nobody knows, an instant that does not exist."""
    value = wire.schedule_to_bytes(simple()).replace(old, new)
    with pytest.raises(StateCorrupted):
        wire.schedule_from_bytes(value)


KEYS = st.one_of(
    INSTANTS.map(instant_end),
    st.tuples(INSTANTS, st.sampled_from(Priority)).map(lambda t: due_key(t[0], t[1], "acme/a~b.c/d")),
)


@settings(max_examples=30, deadline=None)
@given(
    made(
        ShardRecord,
        shard=st.integers(0, 99), step=st.integers(0, 10**9), positions=st.just({"scheduler.commands": 7}), cursor=KEYS,
        seen_until=INSTANTS, deleted_version=st.integers(0, 99), token=st.integers(0, 99),
        generation=st.integers(0, 9), tz_version=st.just("2026f"),
        forwarded=st.dictionaries(st.integers(0, 99), st.integers(0, 10**12), max_size=3),
        absence=st.none() | st.builds(Absence, INSTANTS, INSTANTS),
        backlogs=st.lists(
            st.builds(
                Backlog, st.sampled_from(Priority), KEYS, KEYS, st.just("downtime"), INSTANTS, KEYS | st.just(b"")
            ),
            max_size=4,
        ).map(tuple),
    )
)  # fmt: skip
def test_a_shard_record_comes_back_as_it_was(record: ShardRecord) -> None:
    """Where a shard stands, its cursor and backlogs to the key."""
    assert wire.record_from_bytes(wire.record_to_bytes(record, NOW)) == record


LAGS = st.builds(Lag, st.integers(0, 10**9), st.none() | KEYS, st.lists(st.tuples(KEYS, KEYS), max_size=2).map(tuple))


@settings(max_examples=30, deadline=None)
@given(lag=LAGS, priority=st.sampled_from(Priority), tenant=st.sampled_from(["a", "a-b", "0"]))
def test_the_lag_of_a_queue_comes_back_under_its_own_name(lag: Lag, priority: Priority, tenant: str) -> None:
    """What of a queue is undecided, to the key; the records beside it are not taken for it."""
    queue = queue_name(priority, f"{tenant}/x")
    value = wire.lag_to_bytes(queue, lag, 7)
    assert wire.lag_from_bytes(value) == lag
    assert wire.lag_queue(7, wire.lag_key(7, queue)) == queue
    others = [wire.lag_key(77, queue), wire.zones_key(7), b"7", b"7/repair", b"7/queue/urgent/acme"]
    assert [wire.lag_queue(7, key) for key in others] == [None] * 5


def test_a_shard_record_says_how_many_lags_belong_to_it() -> None:
    """And in which format all of it is written, so that a version that would misread it refuses."""
    record = ShardRecord(shard=1)
    lagging = record.moved(lags={b"\x02acme": Lag(5, b"k"), b"\x02zeta": Lag(3, b"k")})
    written = [json.loads(wire.record_to_bytes(r, NOW)) for r in (record, lagging)]
    assert [w["format"] for w in written] == [FORMAT, FORMAT]
    assert [(w.get("queues", 0), w.get("queues_step", 0)) for w in written] == [(0, 0), (2, 3)]
    assert wire.lags_written(wire.record_to_bytes(lagging, NOW)) == (2, 3)


def test_a_shard_record_of_a_newer_format_is_refused() -> None:
    """An older version must not guess at what a newer one wrote."""
    value = wire.record_to_bytes(ShardRecord(shard=1), NOW).replace(
        b'"format":%d' % FORMAT, b'"format":%d' % (FORMAT + 1)
    )
    with pytest.raises(StateCorrupted, match="run the newer version"):
        wire.record_from_bytes(value)


@settings(max_examples=30, deadline=None)
@given(schedule=SCHEDULES, at=INSTANTS, wait=st.integers(0, 10**6), origin=st.sampled_from(Origin))
def test_a_dispatch_is_a_dispatch(schedule: Schedule, at: int, wait: int, origin: Origin) -> None:
    """The quickly made bytes are what the message type says, field by field."""
    template = wire.DispatchTemplate(schedule, ShardRecord(shard=5, tz_version="2026f", generation=2))
    value = decode(messages.Dispatch, template.value(at, at + wait, origin, 7))
    spec = schedule.spec
    assert (value.schedule_id, value.tenant, value.version) == ("acme/a", "acme", schedule.version)
    assert (value.shard, value.lane, value.attempt, value.generation) == (5, spec.lane, 1, 2)
    assert (value.origin, value.stands_for, value.handler) == (origin, 7, spec.handler)
    assert value.occurrence_id.startswith(f"acme/a:{schedule.version}:")
    assert (value.deadline is None) == (spec.deadline_ms is None)
    assert (bytes(value.payload) if value.payload is not messages.UNSET else None) == spec.payload


def test_a_manual_dispatch_is_named_after_its_command() -> None:
    """Its id is derived from the command, its payload is the command's."""
    template = wire.DispatchTemplate(simple(payload=b"1"), ShardRecord(shard=0))
    value = decode(messages.Dispatch, template.value(NOW, NOW, "manual", name="m-x", payload=b"2"))
    assert (value.occurrence_id, value.origin, bytes(value.payload)) == ("acme/a:3:m-x", "manual", b"2")


def test_what_is_owed_comes_back() -> None:
    """A nominal in its window and a catch-up list, with the old definition once a newer version took over."""
    one = simple(window_ms=5000)
    record = wire.live_from_bytes(wire.owed_record(one, Nominal(NOW, NOW + 9), "t", b'{"a":1}', frozen=False))
    assert wire.owed_nominal(record) == Nominal(NOW, NOW + 9)
    assert record.definition is messages.UNSET
    owed = [Series(Run(NOW + n, NOW + n, Origin.CATCH_UP, n + 1), 5 + n, 1000 + n) for n in range(3)]
    stored = wire.catch_up_record(owed, one, NOW, frozen=False)
    assert wire.catch_up_series(wire.live_from_bytes(stored)) == owed
    rest = wire.live_from_bytes(wire.catch_up_rest(wire.live_from_bytes(wire.frozen_record(stored, one)), owed[2:]))
    assert wire.catch_up_series(rest) == owed[2:]
    assert wire.schedule_from_bytes(bytes(rest.definition)) == one  # type: ignore[arg-type] # it was just frozen


@pytest.mark.parametrize(
    ("read", "fields", "why"),
    [
        (wire.owed_nominal, {"kind": "owed"}, "owed without scheduled_for"),
        (wire.owed_nominal, {"kind": "owed", "scheduled_for": "2026-02-30T00:00:00Z"}, "owed scheduled_for: "),
        (wire.owed_instants, {"kind": "catchup"}, "catchup without scheduled_for"),
        (
            wire.catch_up_series,
            {"kind": "catchup", "runs": [messages.OwedRun("soon", "late", 1)]},
            "catchup runs: 'soon'",
        ),
        (
            wire.catch_up_series,
            {"kind": "catchup", "runs": [messages.OwedRun("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", 1, 0)]},
            "catchup runs: 0 every 0 ms",
        ),
        (
            wire.owed_instants,
            {
                "kind": "catchup",
                "runs": [messages.OwedRun("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", 1, 10**9, 1)],
            },
            "catchup runs: 1000000000 every 1 ms",
        ),
        (wire.version_of, {"kind": "catchup"}, "catchup without version"),
        (wire.available_at, {"kind": "change"}, "change without available_at"),
        (wire.accepted_at, {"kind": "change", "seen_at": ""}, "change seen_at: "),
        (wire.change_key, {"kind": "change"}, "change without command_id"),
        (wire.floor_of, {"kind": "floor", "floor": "never"}, "floor floor: 'never'"),
        (lambda live: wire.backfill_of(live, NO_CALENDARS), {"kind": "backfill"}, "backfill without a definition"),
    ],
)
def test_a_damaged_live_record_is_corruption(read: Callable[[messages.Live], object], fields: Any, why: str) -> None:
    """What its kind always has is lacking, or is no instant: never a ValueError, never an empty value instead."""
    with pytest.raises(StateCorrupted, match=f"of acme/a is damaged: {why}"):
        read(messages.Live(owner="acme/a", **fields))


def test_live_keys_split_as_they_were_made() -> None:
    """`<kind>:<owner>:<id>`, where an id may hold colons."""
    key = wire.live_key("owed", "acme/a~b", "3:20260101T100000.000Z")
    assert wire.split_live_key(key) == ("owed", "acme/a~b", "3:20260101T100000.000Z")


def test_one_nominal_or_a_summary() -> None:
    """A single one is named by its id, a run of them by its ends and count; the key is the newest one's id."""
    single = decode(
        messages.Occurrence, wire.occurrence_to_bytes(simple(), Gone("missed", "downtime", 1, NOW, NOW), NOW)
    )
    assert single.occurrence_id == "acme/a:3:20260101T120000.000Z"
    assert (single.first, single.last, single.count) == (None, None, 1)
    gone = Gone("suppressed", "paused", 3, NOW, NOW + 2000)
    summary = decode(messages.Occurrence, wire.occurrence_to_bytes(simple(), gone, NOW))
    assert (summary.occurrence_id, summary.count) == (None, 3)
    assert (summary.first, summary.last) == ("2026-01-01T12:00:00Z", "2026-01-01T12:00:02Z")
    assert wire.occurrence_key(simple(), gone) == b"acme/a:3:20260101T120002.000Z"


@pytest.mark.parametrize(("key", "readable"), [(None, b"none"), (b"k", b"k"), (b"\xff", b"base64:/w==")])
def test_every_key_reads_as_text(key: bytes | None, readable: bytes) -> None:
    """Also the key of a rejected record."""
    assert wire.readable_key(key) == readable


@given(st.one_of(st.none(), st.binary(max_size=50)))
def test_rejected_bytes_are_kept(value: bytes | None) -> None:
    """Whatever came in can be had back, and is shown as text where it is text."""
    kept = decode(
        messages.Rejected, wire.rejected_to_bytes(wire.Source("t", 1, 2), None, value, "undecodable", "why", NOW)
    )
    assert (kept.partition, kept.offset, kept.code) == (1, 2, "undecodable")
    assert (kept.value_base64 is None) == (value is None)
    if kept.value_text is not None:
        assert kept.value_text.encode() == value


def test_a_deleted_revision_has_no_definition() -> None:
    """The last history record of a schedule says that it went, by whom, and not what it was."""
    record = decode(messages.Revision, wire.revision_to_bytes(simple(), "deleted", "c", NOW, deleted=True))
    assert (record.state, record.spec, record.command_id) == ("deleted", None, "c")
