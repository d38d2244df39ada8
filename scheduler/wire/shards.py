"""The shard record with its cursor and backlogs, and the records beside it: the values of `scheduler.shards`."""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler.core.due import Absence, Backlog, Lag, due_key, instant_end, instant_of, priority_of, schedule_of
from scheduler.core.model import PRIORITY_BY_NAME, PRIORITY_NAMES
from scheduler.core.record import FORMAT, Move, ShardRecord
from scheduler.core.time import format_instant, parse_instant
from scheduler.core.zone_marks import ZoneMark, ZoneRecord
from scheduler.errors import NewerFormat
from scheduler.wire.text import instant_or_none, instant_text, to_json, unreadable
from topics import messages as m

_shard = msgspec.json.Decoder(m.Shard).decode
_zones = msgspec.json.Decoder(m.Zones).decode
_lag = msgspec.json.Decoder(m.Lag).decode


def record_to_bytes(record: ShardRecord, at: int) -> bytes:
    """The value of `scheduler.shards`, but for the lags, which are records of their own."""
    return to_json(
        m.Shard(
            format=FORMAT,
            shard=record.shard,
            step=record.step,
            positions=dict(record.positions),
            cursor=_cursor_to_wire(record.cursor),
            seen_until=format_instant(record.seen_until),
            token=record.token,
            deleted_version=record.deleted_version,
            backlogs=[
                m.Backlog(
                    priority=PRIORITY_NAMES[b.priority],  # type: ignore[arg-type] # the names are the literal's
                    after=_cursor_to_wire(b.after),
                    until=_cursor_to_wire(b.until),
                    reason=b.reason,
                    seen_until=format_instant(b.seen_until),
                    since=_cursor_to_wire(b.since) if b.since else None,
                )
                for b in record.backlogs
            ],
            tz_version=record.tz_version,
            generation=record.generation,
            at=format_instant(at),
            calendars=dict(record.calendars),
            zones_step=record.zones_step,
            forwarded=dict(record.forwarded),
            absence=_absence_to_wire(record.absence),
            moved_to=_move_to_wire(record.moved_to),
            moved_from=_move_to_wire(record.moved_from),
            queues=len(record.lags),
            queues_step=min((lag.step for lag in record.lags.values()), default=0),
        )
    )


def record_from_bytes(value: bytes) -> ShardRecord:
    """The shard record of its bytes, without its lags.

    Raises StateCorrupted when they are unreadable, NewerFormat.
    """
    record = _read_shard(value)
    return ShardRecord(
        shard=record.shard,
        step=record.step,
        positions=record.positions,
        cursor=_cursor_from_wire(record.cursor),
        seen_until=parse_instant(record.seen_until),
        deleted_version=record.deleted_version,
        backlogs=tuple(
            Backlog(
                PRIORITY_BY_NAME[b.priority],
                _cursor_from_wire(b.after),
                _cursor_from_wire(b.until),
                b.reason,
                parse_instant(b.seen_until),
                b"" if b.since is None else _cursor_from_wire(b.since),
            )
            for b in record.backlogs
        ),
        token=record.token,
        generation=record.generation,
        tz_version=record.tz_version,
        calendars=record.calendars,
        zones_step=record.zones_step,
        forwarded=record.forwarded,
        absence=_absence_from_wire(record.absence),
        moved_to=_move_from_wire(record.moved_to),
        moved_from=_move_from_wire(record.moved_from),
    )


def lags_written(value: bytes) -> tuple[int, int]:
    """How many lags belong to a shard record, and the oldest of the steps that wrote them. Raises StateCorrupted."""
    record = _read_shard(value)
    return record.queues, record.queues_step


def _read_shard(value: bytes) -> m.Shard:
    try:
        record = _shard(value)
    except msgspec.MsgspecError as fault:
        raise unreadable("a shard record", fault, value) from fault
    if record.format > FORMAT:
        raise NewerFormat(
            f"shard {record.shard} was written in record format {record.format}; this version reads up to {FORMAT}: "
            "run the newer version"
        )
    return record


def lag_key(shard: int, queue: bytes) -> bytes:
    """The key of a queue's lag on `scheduler.shards`."""
    return b"%d/queue/%s/%s" % (shard, PRIORITY_NAMES[queue[0]].encode(), queue[1:])


def lag_queue(shard: int, key: bytes) -> bytes | None:
    """The queue whose lag a key of `scheduler.shards` names; None if it names something else."""
    head, _, rest = key.partition(b"/queue/")
    if not rest or head != b"%d" % shard:
        return None
    priority, _, tenant = rest.partition(b"/")
    number = PRIORITY_BY_NAME.get(priority.decode())
    return None if number is None else bytes([number]) + tenant


def lag_to_bytes(queue: bytes, lag: Lag, shard: int) -> bytes:
    """The value beside the shard record that says what of a queue is undecided behind the cursor."""
    name: Any = PRIORITY_NAMES[queue[0]]
    return to_json(
        m.Lag(
            shard=shard,
            step=lag.step,
            priority=name,
            tenant=queue[1:].decode(),
            after=None if lag.after is None else _cursor_to_wire(lag.after),
            closed=[m.KeyRange(_cursor_to_wire(after), _cursor_to_wire(until)) for after, until in lag.closed],
        )
    )


def lag_from_bytes(value: bytes) -> Lag:
    """The lag of its bytes. Raises StateCorrupted."""
    try:
        record = _lag(value)
    except msgspec.MsgspecError as fault:
        raise unreadable("the lag of a queue", fault, value) from fault
    return Lag(
        record.step,
        None if record.after is None else _cursor_from_wire(record.after),
        tuple((_cursor_from_wire(s.after), _cursor_from_wire(s.until)) for s in record.closed),
    )


def zones_key(shard: int) -> bytes:
    """The key of the zone record on `scheduler.shards`."""
    return b"%d/zones" % shard


def zones_to_bytes(record: ZoneRecord, shard: int, step: int) -> bytes:
    """The value beside the shard record that says by which tables the shard's schedules are planned."""
    return to_json(
        m.Zones(
            shard=shard,
            step=step,
            tz_version=record.tz_version,
            zones=[
                m.ZoneMark(
                    zone=mark.zone,
                    taken_at=format_instant(mark.taken_at),
                    fingerprint=mark.fingerprint,
                    offsets={format_instant(instant): offset for instant, offset in mark.offsets},
                )
                for _, mark in sorted(record.marks.items())
            ],
            replan_since=instant_text(record.since),
        )
    )


def zones_from_bytes(value: bytes) -> ZoneRecord:
    """The zone record of its bytes. Raises StateCorrupted."""
    record = _read_zones(value)
    marks = [
        ZoneMark(
            mark.zone,
            parse_instant(mark.taken_at),
            mark.fingerprint,
            tuple((parse_instant(instant), offset) for instant, offset in mark.offsets.items()),
        )
        for mark in record.zones
    ]
    return ZoneRecord(
        tz_version=record.tz_version,
        marks={mark.zone: mark for mark in marks},
        since=instant_or_none(record.replan_since),
    )


def zones_step(value: bytes) -> int:
    """The step that wrote a zone record. Raises StateCorrupted."""
    return _read_zones(value).step


def _read_zones(value: bytes) -> m.Zones:
    try:
        return _zones(value)
    except msgspec.MsgspecError as fault:
        raise unreadable("a zone record", fault, value) from fault


def _absence_to_wire(absence: Absence | None) -> m.Absence | None:
    if absence is None:
        return None
    return m.Absence(since=format_instant(absence.since), until=format_instant(absence.until))


def _absence_from_wire(absence: m.Absence | None) -> Absence | None:
    return None if absence is None else Absence(parse_instant(absence.since), parse_instant(absence.until))


def _move_to_wire(move: Move | None) -> m.Move | None:
    if move is None:
        return None
    return m.Move(namespace=move.namespace, shards=move.shards, at=format_instant(move.at), filling=move.filling)


def _move_from_wire(move: m.Move | None) -> Move | None:
    return None if move is None else Move(move.namespace, move.shards, parse_instant(move.at), move.filling)


def _cursor_to_wire(key: bytes) -> m.Cursor:
    priority = priority_of(key)
    if priority is None:
        return m.Cursor(available_at=format_instant(instant_of(key)))
    name: Any = PRIORITY_NAMES[priority]
    return m.Cursor(available_at=format_instant(instant_of(key)), priority=name, schedule_id=schedule_of(key))


def _cursor_from_wire(cursor: m.Cursor) -> bytes:
    instant = parse_instant(cursor.available_at)
    if cursor.priority is None or cursor.schedule_id is None:
        return instant_end(instant)
    return due_key(instant, PRIORITY_BY_NAME[cursor.priority], cursor.schedule_id)
