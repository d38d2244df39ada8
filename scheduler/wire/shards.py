"""The shard record with its cursor and backlogs, and the zone record beside it: the values of `scheduler.shards`."""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler.core.due import Backlog, due_key, instant_end, instant_of, priority_of, schedule_of
from scheduler.core.model import PRIORITY_BY_NAME, PRIORITY_NAMES
from scheduler.core.record import FORMAT, Move, ShardRecord
from scheduler.core.time import format_instant, parse_instant
from scheduler.core.zone_marks import ZoneMark, ZoneRecord
from scheduler.errors import NewerFormat
from scheduler.wire.text import instant_or_none, instant_text, to_json, unreadable
from topics import messages as m

_shard = msgspec.json.Decoder(m.Shard).decode
_zones = msgspec.json.Decoder(m.Zones).decode


def record_to_bytes(record: ShardRecord, at: int) -> bytes:
    """The value of `scheduler.shards`."""
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
                )
                for b in record.backlogs
            ],
            tz_version=record.tz_version,
            generation=record.generation,
            at=format_instant(at),
            calendars=dict(record.calendars),
            zones_step=record.zones_step,
            forwarded=dict(record.forwarded),
            moved_to=_move_to_wire(record.moved_to),
            moved_from=_move_to_wire(record.moved_from),
        )
    )


def record_from_bytes(value: bytes) -> ShardRecord:
    """The shard record of its bytes. Raises StateCorrupted when they are unreadable, NewerFormat."""
    try:
        record = _shard(value)
    except msgspec.MsgspecError as fault:
        raise unreadable("a shard record", fault, value) from fault
    if record.format > FORMAT:
        raise NewerFormat(
            f"shard {record.shard} was written in record format {record.format}; this version reads up to {FORMAT}: "
            "run the newer version"
        )
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
            )
            for b in record.backlogs
        ),
        token=record.token,
        generation=record.generation,
        tz_version=record.tz_version,
        calendars=record.calendars,
        zones_step=record.zones_step,
        forwarded=record.forwarded,
        moved_to=_move_from_wire(record.moved_to),
        moved_from=_move_from_wire(record.moved_from),
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
