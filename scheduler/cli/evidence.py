"""Collecting what the topics know about one schedule around one instant. Only reads, read-committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from scheduler import wire
from scheduler.cli.looking import calendars
from scheduler.core.time import parse_instant
from scheduler.errors import StateCorrupted
from scheduler.simulator.why import Evidence, Place
from topics import messages as m
from topics.catalog import OCCURRENCES
from topics.codec import Undecodable, decode
from topics.partition import partition_for
from topics.reading import Unreachable, read_compacted
from topics.since import read_since

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.config import Settings
    from scheduler.core.due import Lag
    from scheduler.core.model import Schedule
    from scheduler.core.record import ShardRecord

_CLOCKS_DIFFER_MS: Final = 60_000  # a record's timestamp may be this much before the instant it is about
_Message = TypeVar("_Message")


class Collector:
    """Reads the partitions of one schedule's shard."""

    def __init__(self, settings: Settings, schedule_id: str, *, timeout_s: float) -> None:
        self._kafka = settings.client_config()
        self._catalogue = settings.catalogue()
        self._id = schedule_id
        self._owner = schedule_id.encode()
        self._shard = partition_for(self._owner, self._catalogue.shards)
        self._timeout_s = timeout_s
        self._calendars = calendars(settings, timeout_s=timeout_s)

    def collect(self, at: int, now: int) -> Evidence:
        """Everything about the instant `at`, as known at `now` (ms). Raises Unreachable or TimeoutError."""
        revisions = tuple(self._all(self._catalogue.schedule_history, self._owner, m.Revision))
        return Evidence(
            schedule_id=self._id,
            at=at,
            now=now,
            kept_since=now - self._retention_ms(),
            revisions=revisions,
            current=self._current(),
            dispatches=tuple(self._dispatches(at, [revision for revision, _ in revisions])),
            occurrences=tuple(self._occurrences(at)),
            owed=tuple(self._owed()),
            shard=self._shard_record(),
            calendars=self._calendars,
        )

    def _retention_ms(self) -> int:
        kept = [
            spec.retention_ms
            for spec in self._catalogue.specs()
            if spec.retention_ms is not None and (spec.base == OCCURRENCES or spec.base.startswith("dispatch."))
        ]
        return min(kept)

    def _compacted(self, topic: str, *, changelog: bool = True) -> Iterator[tuple[bytes, bytes | None, Place]]:
        for key, value, partition, offset in read_compacted(
            self._kafka, topic, key=self._owner, written_by_shards=changelog, timeout_s=self._timeout_s
        ):
            if key is not None:
                yield key, value, Place(topic, partition, offset)

    def _all(self, topic: str, wanted: bytes, kind: type[_Message]) -> Iterator[tuple[_Message, Place]]:
        for key, value, place in self._compacted(topic, changelog=False):
            if key == wanted and value is not None:
                try:
                    yield decode(kind, value), place
                except Undecodable:
                    continue

    def _current(self) -> tuple[Schedule, Place] | None:
        found: tuple[Schedule, Place] | None = None
        for key, value, place in self._compacted(self._catalogue.schedules):
            if key != self._owner:
                continue
            try:
                found = None if value is None else (wire.schedule_from_bytes(value), place)
            except StateCorrupted:
                found = None
        return found

    def _shard_record(self) -> tuple[ShardRecord, Place] | None:
        found: tuple[ShardRecord, Place] | None = None
        lags: dict[bytes, Lag] = {}
        for key, value, place in self._compacted(self._catalogue.shard_records):
            queue = wire.lag_queue(self._shard, key)
            if queue is not None and value is not None:
                lags[queue] = wire.lag_from_bytes(value)
            elif queue is not None:
                lags.pop(queue, None)
            elif value is not None and key == b"%d" % self._shard:
                found = wire.record_from_bytes(value), place
        return None if found is None else (found[0].moved(lags=lags), found[1])

    def _owed(self) -> list[tuple[m.Live, Place]]:
        found: dict[bytes, tuple[m.Live, Place]] = {}
        for key, value, place in self._compacted(self._catalogue.live):
            if wire.split_live_key(key)[1] != self._id:
                continue
            found.pop(key, None)
            if value is not None:
                found[key] = wire.live_from_bytes(value), place
        return [(live, place) for live, place in found.values() if live.kind != "floor"]

    def _dispatches(self, at: int, revisions: list[m.Revision]) -> Iterator[tuple[m.Dispatch, Place]]:
        """From the instant on, in the topics that any revision sent to."""
        specs = [revision.spec for revision in revisions if revision.spec is not None]
        partition = self._catalogue.dispatch_partition(self._owner, self._shard)
        for lane, priority in dict.fromkeys((spec.lane, spec.priority) for spec in specs):
            if lane not in self._catalogue.lanes:
                continue
            for dispatch, place in self._since(self._catalogue.dispatch(lane, priority), partition, at, m.Dispatch):
                if dispatch.schedule_id == self._id and parse_instant(dispatch.scheduled_for) >= at:
                    yield dispatch, place

    def _occurrences(self, at: int) -> Iterator[tuple[m.Occurrence, Place]]:
        for occurrence, place in self._since(self._catalogue.occurrences, self._shard, at, m.Occurrence):
            if occurrence.schedule_id == self._id:
                yield occurrence, place

    def _since(self, topic: str, partition: int, at: int, kind: type[_Message]) -> Iterator[tuple[_Message, Place]]:
        """Records that mention this schedule; none can be older than the instant it is about."""
        since = max(0, at - _CLOCKS_DIFFER_MS)
        try:
            for record in read_since(
                self._kafka, topic, partition=partition, since_ms=since, timeout_s=self._timeout_s
            ):
                if record.value is None or self._owner not in record.value:
                    continue  # much cheaper than decoding what is somebody else's
                try:
                    yield decode(kind, record.value), Place(topic, partition, record.offset)
                except Undecodable:
                    continue
        except Unreachable:
            if topic not in (self._catalogue.occurrences, self._catalogue.schedules):
                return  # a dispatch topic that was never made holds nothing
            raise
