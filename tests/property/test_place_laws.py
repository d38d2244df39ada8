"""Where schedules stand after a restore: derived once for those that fire alike, as if it were derived for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler import wire
from scheduler.core.due import Backlog, Lag, due_key, instant_end, queue_name
from scheduler.core.model import Schedule, State
from scheduler.core.record import ShardRecord
from scheduler.core.spec import SpecContext, parse_spec
from scheduler.core.time import format_instant, parse_instant
from scheduler.shard.rebuild import Change, Rebuild
from scheduler.state.store import MemoryStore
from topics import catalog

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = parse_instant("2026-01-01T09:00:00Z")
HOUR = 3_600_000
TRIGGERS: list[dict[str, Any]] = [
    {"cron": "0 * * * *", "zone": "UTC"},
    {"cron": "0 9 * * *", "zone": "Europe/Berlin"},
    {"cron": "0 0 9 ? * MON", "zone": "UTC", "dialect": "quartz"},
    {"cron": "H H * * *", "zone": "UTC"},
    {"every_ms": 1_000},
    {"every_ms": HOUR, "anchor": format_instant(NOW)},
    {"at": format_instant(NOW)},
    {"at": format_instant(NOW + HOUR)},
]
DIFFERENCES: list[dict[str, Any]] = [
    {},
    {},
    {"priority": "high"},
    {"start": format_instant(NOW + HOUR)},
    {"end": format_instant(NOW + 1)},
    {"window_ms": 60_000},
    {"payload": b'{"state":"paused","trigger":{"at":1}}'},
    {"misfire": "skip"},
]
INSTANTS = st.sampled_from([NOW - HOUR, NOW - 1, NOW, NOW + 1, NOW + HOUR])
FLOOR = st.sampled_from([*[NOW - HOUR] * 8, NOW - 1, NOW, NOW + 1, NOW + HOUR])
NAMES = [f"{tenant}/{name}" for tenant in ("acme", "zeta") for name in "abc"]
BETWEEN = due_key(NOW, 2, "acme/b")  # a cursor in the midst of an instant
CURSORS = st.one_of(INSTANTS.map(instant_end), INSTANTS.map(instant_end), st.just(BETWEEN))
BACKLOGS = st.sampled_from([*[()] * 5, (Backlog(2, instant_end(NOW - HOUR), instant_end(NOW - 1)),)])
LAGS = st.sampled_from([*[{}] * 5, {queue_name(2, "acme/a"): Lag(1, instant_end(NOW - HOUR))}])
RECORDS = st.builds(
    lambda cursor, backlogs, lags: ShardRecord(shard=0, step=1, cursor=cursor, backlogs=backlogs, lags=lags),
    CURSORS,
    BACKLOGS,
    LAGS,
)


@st.composite
def schedules(draw: st.DrawFn) -> list[Schedule]:
    """One of each name, of one rule, and apart in something or nothing."""
    trigger, different = draw(st.sampled_from(TRIGGERS)), draw(st.sampled_from(DIFFERENCES))
    found = []
    for name in NAMES:
        fields = {"trigger": trigger, **(different if draw(st.booleans()) else {})}
        spec = parse_spec(fields, SpecContext(name, NOW - 2 * HOUR)).spec
        assert spec is not None
        made, floor = NOW - HOUR, draw(FLOOR)
        state = draw(st.sampled_from([State.ACTIVE, State.ACTIVE, State.PAUSED]))
        found.append(
            Schedule(
                schedule_id=name, state=state, version=1, revision=1, created_at=made, updated_at=made,
                effective_at=made, floor=floor, spec=spec,
            )
        )  # fmt: skip
    return found


def restored(records: list[ShardRecord], found: list[Schedule], floors: dict[str, int]) -> dict[bytes, bytes]:
    """The store after a restore; a standby meets a second shard record."""
    store = MemoryStore()
    rebuild = Rebuild(store, 0)
    for step, record in enumerate(records, 1):
        lags = [(wire.lag_key(0, queue), wire.lag_to_bytes(queue, lag, 0)) for queue, lag in record.lags.items()]
        written = [*lags, (b"0", wire.record_to_bytes(record, NOW))]
        rebuild.apply(catalog.SHARDS, [Change(n, key, value, step) for n, (key, value) in enumerate(written)], step)
        live = [
            Change(n, wire.live_key("floor", name), wire.floor_record(name, floor), step)
            for n, (name, floor) in enumerate(floors.items())
        ]
        rebuild.apply(catalog.LIVE, live, step)
        values = [(one.schedule_id.encode(), wire.schedule_to_bytes(one)) for one in found]
        rebuild.apply(catalog.SCHEDULES, [Change(n, key, value, step) for n, (key, value) in enumerate(values)], step)
    return dict(store.items(b"", b"\xff"))


def noting(names: list[str], method: Callable[..., Any]) -> Callable[..., Any]:
    def noted(self: Rebuild, name: str, value: bytes) -> Any:
        names.append(name)
        return method(self, name, value)

    return noted


FLOORS = st.dictionaries(st.sampled_from(NAMES), INSTANTS, max_size=2)


def test_places_are_those_that_deriving_each_gives() -> None:
    """Whatever was decided, and however it is written down."""
    placed: list[str] = []
    derived: list[str] = []

    @settings(max_examples=600, deadline=None)
    @given(st.lists(RECORDS, min_size=1, max_size=2), schedules(), FLOORS)
    def law(records: list[ShardRecord], found: list[Schedule], floors: dict[str, int]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Rebuild, "_standing", noting(placed, Rebuild._standing))
            patch.setattr(Rebuild, "_derived", noting(derived, Rebuild._derived))
            alike = restored(records, found, floors)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wire, "timing_from_bytes", lambda _: None)
            each = restored(records, found, floors)
        assert alike == each

    law()
    assert len(placed) - len(derived) > 300, "nothing was alike"
