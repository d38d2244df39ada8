"""Dispatch values: written with most of them encoded ahead, and read for what has run."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from scheduler.core.backfill import Ran
from scheduler.core.identity import tenant_of
from scheduler.core.model import PRIORITY_NAMES, Origin
from scheduler.core.time import format_instant, stamp
from scheduler.wire.text import instant_at, to_json

if TYPE_CHECKING:
    from scheduler.core.model import Schedule
    from scheduler.core.record import ShardRecord


class DispatchTemplate:
    """The dispatch values of one definition: everything but the instants encoded once, so that one costs < 1 µs."""

    __slots__ = ("_deadline_ms", "_head", "_middle", "_schedule", "_tail")

    def __init__(self, schedule: Schedule, record: ShardRecord) -> None:
        spec = schedule.spec
        name = schedule.schedule_id
        priority = PRIORITY_NAMES[spec.priority]
        self._head = f'{{"occurrence_id":"{name}:{schedule.version}:'.encode()
        self._middle = (
            f'","schedule_id":"{name}","tenant":"{tenant_of(name)}","version":{schedule.version},'
            f'"shard":{record.shard},"lane":"{spec.lane}","priority":"{priority}","attempt":1,"scheduled_for":"'
        ).encode()
        tail = f',"tz_version":"{record.tz_version}","generation":{record.generation}'.encode()
        handler = b"" if spec.handler is None else b',"handler":' + to_json(spec.handler)
        payload = b"" if spec.payload is None else b',"payload":' + spec.payload
        self._deadline_ms = spec.deadline_ms
        self._tail = (tail, handler, payload)

    def value(
        self,
        scheduled_for: int,
        available_at: int,
        origin: str = "schedule",
        stands_for: int = 1,
        name: str | None = None,
        payload: bytes | None = None,
        attempt: int = 1,
    ) -> bytes:
        """One dispatch value. `name` replaces the instant in the occurrence id (manual runs), `payload` the payload."""
        middle = self._middle if attempt == 1 else self._middle.replace(_FIRST, b'"attempt":%d,' % attempt)
        at, text = _texts(scheduled_for)
        available = text if available_at == scheduled_for else _texts(available_at)[1]
        tail, handler, usual = self._tail
        deadline = b""
        if self._deadline_ms is not None:
            deadline = b',"deadline":"%b"' % _texts(available_at + self._deadline_ms)[1]
        return b'%b%b%b%b","available_at":"%b","origin":"%b","stands_for":%d%b%b%b%b}' % (
            self._head,
            at if name is None else name.encode(),
            middle,
            text,
            available,
            origin.encode(),
            stands_for,
            tail,
            deadline,
            handler,
            usual if payload is None else b',"payload":' + payload,
        )


_FIRST = b'"attempt":1,'


@lru_cache(maxsize=8192)
def _texts(instant: int) -> tuple[bytes, bytes]:
    """(the stamp of occurrence ids, RFC 3339): many occurrences share few instants."""
    return stamp(instant).encode(), format_instant(instant).encode()


class _Sent(msgspec.Struct):
    schedule_id: str
    version: int
    attempt: int
    scheduled_for: str
    origin: str


_sent = msgspec.json.Decoder(_Sent).decode


def ran_of(value: bytes) -> tuple[str, Ran] | None:
    """Whose nominal a dispatch value says to have run; None for a manual run, and for what no scheduler wrote."""
    try:
        sent = _sent(value)
        if sent.origin == Origin.MANUAL:
            return None
        return sent.schedule_id, Ran(instant_at(sent.scheduled_for), sent.version, sent.attempt)
    except (msgspec.MsgspecError, ValueError):
        return None
