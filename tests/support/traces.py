"""What a simulated shard writes, kept as topics: evidence for `why`, and records to put on a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from scheduler import wire
from scheduler.simulator.scenario import parse_scenario
from scheduler.simulator.why import Evidence, Place
from scheduler.simulator.world import World
from topics import messages as m
from topics.codec import decode

if TYPE_CHECKING:
    from collections.abc import Iterator


class Written(NamedTuple):
    """One record as the shard wrote it."""

    topic: str
    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes]]
    at: int


def traces(scenario: dict[str, Any]) -> list[Written]:
    """Everything one scenario's shard writes to its topics, in order."""
    world = World(parse_scenario(scenario))
    return [record for happened in world.run() if happened.step is not None for record in _of(happened)]


def _of(happened: Any) -> Iterator[Written]:
    for item in happened.step.items:
        yield Written(item.entry.target.topic, item.entry.target.key, item.value, [], happened.at)
    for r in happened.step.records:
        yield Written(r.topic, r.key, r.value, r.headers or [], happened.at)


def evidence(
    scenario: dict[str, Any], schedule_id: str, at: int, now: int, *, kept_ms: int = 7 * 86_400_000
) -> Evidence:
    """What a reader of those topics would collect; offsets count from 0 in each topic."""
    found: dict[str, list[tuple[Any, Place]]] = {"h": [], "d": [], "o": [], "s": []}
    owed: dict[bytes, tuple[m.Live, Place]] = {}
    current, shard = None, None
    offsets: dict[str, int] = {}
    for topic, key, value, _, _ in traces(scenario):
        place = Place(topic, 0, offsets.get(topic, 0))
        offsets[topic] = place.offset + 1
        if topic == "scheduler.shards" and value is not None and b"/" not in key:
            shard = wire.record_from_bytes(value), place
        elif topic == "scheduler.schedules" and key.decode() == schedule_id:
            current = None if value is None else (wire.schedule_from_bytes(value), place)
        elif topic == "scheduler.live" and wire.split_live_key(key)[1] == schedule_id:
            owed.pop(key, None)
            if value is not None and not key.startswith(b"floor"):
                owed[key] = wire.live_from_bytes(value), place
        elif value is not None and topic == "scheduler.schedule-history" and key.decode() == schedule_id:
            found["h"].append((decode(m.Revision, value), place))
        elif value is not None and topic == "scheduler.occurrences":
            found["o"].append((decode(m.Occurrence, value), place))
        elif value is not None and topic.startswith("dispatch."):
            found["d"].append((decode(m.Dispatch, value), place))
    mine = {name: tuple((r, p) for r, p in records if r.schedule_id == schedule_id) for name, records in found.items()}
    return Evidence(
        schedule_id=schedule_id, at=at, now=now, kept_since=now - kept_ms, revisions=mine["h"], current=current,
        dispatches=mine["d"], occurrences=mine["o"], owed=tuple(owed.values()), shard=shard,
    )  # fmt: skip
