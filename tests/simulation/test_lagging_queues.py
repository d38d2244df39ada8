"""More is due than a step takes: whose turn it is, what waits, how much memory that takes, and what becomes of it."""

from __future__ import annotations

import gc
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.core.due import instant_of, queue_name
from scheduler.core.model import Priority
from scheduler.core.time import format_instant
from scheduler.core.turns import AGED_PART, AGING_MS, QUANTUM
from scheduler.shard import firing
from scheduler.shard.held import ITEM_OVERHEAD, Entry, Item
from scheduler.shard.horizon import CHUNK, DEAD_KEPT, KEPT_PART, SHARE, Horizon
from scheduler.shard.keys import SCHEDULE
from scheduler.shard.overdue import lagging
from scheduler.shard.shard import ShardSettings
from scheduler.state.rocks import RocksStore
from scheduler.state.store import MemoryStore
from tests.support.driver import START, Driver

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from scheduler.state.store import Store

DUE = START + 120_000  # further away than the horizon reaches
BEFORE = DUE - 1


def create(driver: Driver, tenant: str, count: int, priority: str = "normal", at: int = DUE, **spec: Any) -> None:
    for n in range(count):
        fields = {"trigger": {"at": format_instant(at)}, "priority": priority, **spec}
        driver.send({"command": "create", "schedule_id": f"{tenant}/{priority}-{n:05d}", "spec": fields})


def read_ahead(driver: Driver) -> None:
    """Up to a millisecond before the instant, everything read that there is room for."""
    driver.run_until(BEFORE)
    driver.now = DUE


def rounds(driver: Driver) -> list[tuple[str, str, int]]:
    """What was dispatched, in the order of commit: priority, tenant, how many in a row."""
    sent = [topic.split(".")[-1] + " " + key.decode() for topic, key, _, _ in driver.topics.log if "dispatch." in topic]
    heads = (one.split("/")[0].split(" ") for one in sent)
    return [(priority, tenant, len(list(run))) for (priority, tenant), run in groupby(heads, tuple)]


def sizes(driver: Driver) -> list[int]:
    """How many occurrences each step takes, until nothing is left."""
    steps = iter(driver.turn, None)
    return [len(step.items) for step in steps if step is not None]


def once_each(driver: Driver, count: int) -> None:
    ids = [one["occurrence_id"] for one in driver.dispatched()]
    assert (len(ids), len(set(ids)), driver.counts()) == (count, count, {})


def test_priorities_in_order_and_tenants_in_turns_by_weight() -> None:
    """The whole of `high` before any `normal`; inside, a round gives each tenant its weight, over steps as in one."""
    driver = Driver(settings=ShardSettings(max_records=50))
    assert driver.shard is not None
    driver.shard.set_weights({"heavy": 2})
    for tenant in ("big", "heavy", "small"):
        create(driver, tenant, 2 * QUANTUM, "high")
    create(driver, "big", 3 * QUANTUM)
    create(driver, "small", 5)
    read_ahead(driver)
    driver.run_until(DUE)
    assert rounds(driver) == [
        ("high", "big", QUANTUM), ("high", "heavy", 2 * QUANTUM), ("high", "small", QUANTUM),
        ("high", "big", QUANTUM), ("high", "small", QUANTUM),
        ("normal", "big", QUANTUM), ("normal", "small", 5), ("normal", "big", 2 * QUANTUM),
    ]  # fmt: skip
    once_each(driver, 9 * QUANTUM + 5)


@pytest.mark.parametrize(
    ("tenants", "priorities", "steps"),
    [
        (("big", "small"), ("normal",), [600, 1_000]),
        (("big",), ("high", "normal"), [1_600]),
        (("big", "small"), ("high", "background"), [600, 1_000]),
        (("big", "small"), ("normal",), [1_200]),
        ([f"t{n:02d}" for n in range(firing.FEW_QUEUES + 1)], ("normal",), [8 * (firing.FEW_QUEUES + 1)]),
    ],
)
def test_a_rush_in_which_tenants_share_begins_with_a_short_step(
    monkeypatch: pytest.MonkeyPatch, tenants: Sequence[str], priorities: Sequence[str], steps: list[int]
) -> None:
    """Only its first step, and only for the sake of tenants that take turns; then the rest in as few as ever."""
    monkeypatch.setattr(firing, "FIRST_STEP", 600)
    driver = Driver()
    lines = [(tenant, priority) for priority in priorities for tenant in tenants]
    for tenant, priority in lines:
        create(driver, tenant, sum(steps) // len(lines), priority)
    read_ahead(driver)
    assert sizes(driver) == steps
    once_each(driver, sum(steps))


@pytest.mark.parametrize(("ahead", "steps"), [(568, [600, 1_168]), (569, [1_769])])
def test_a_short_step_holds_a_round_of_those_who_share(
    monkeypatch: pytest.MonkeyPatch, ahead: int, steps: list[int]
) -> None:
    """Else it would only be a step more: behind a higher priority nobody small would be in it."""
    monkeypatch.setattr(firing, "FIRST_STEP", 600)
    driver = Driver()
    create(driver, "big", ahead, "high")
    for tenant in ("big", "small"):
        create(driver, tenant, 600)
    read_ahead(driver)
    assert sizes(driver) == steps


def test_a_rush_that_goes_on_has_no_more_short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a queue lags a short step would only let it lag the longer."""
    monkeypatch.setattr(firing, "FIRST_STEP", 600)
    driver = Driver(settings=ShardSettings(max_records=1_000))
    for tenant in ("big", "small"):
        create(driver, tenant, 1_600)
    read_ahead(driver)
    assert sizes(driver) == [600, 1_000, 1_000, 600]
    once_each(driver, 3_200)


def test_few_go_out_in_key_order_and_leave_nothing_behind() -> None:
    """While all that is due fits into a step no queue lags, and none is written down."""
    driver = Driver()
    create(driver, "acme", 30)
    create(driver, "beta", 30)
    read_ahead(driver)
    driver.run_until(DUE)
    assert rounds(driver) == [("normal", "acme", 30), ("normal", "beta", 30)]
    assert [key for key, _, _, _ in driver.topics.records["scheduler.shards"] if b"/queue/" in key] == []


def test_what_waits_behind_a_flood_of_higher_priority_ages() -> None:
    """After ten seconds a part of each full step goes to it, whatever else is due."""
    driver = Driver(settings=ShardSettings(max_records=2 * AGED_PART))
    create(driver, "slow", 10, "background")
    create(driver, "flood", 40 * AGED_PART, "critical")
    read_ahead(driver)
    driver.turn()
    assert [one[:2] for one in rounds(driver)] == [("critical", "flood")]
    driver.now += AGING_MS
    driver.turn()
    assert rounds(driver)[1:] == [("background", "slow", 2)]


def test_a_lagging_queue_is_seen_from_outside() -> None:
    """How many lag, and since when the one furthest behind waits; nothing of it stays when all have caught up."""
    driver = Driver(settings=ShardSettings(max_records=20))
    create(driver, "acme", 30, "high")
    create(driver, "acme", 5, "normal")
    create(driver, "beta", 5, "normal")
    read_ahead(driver)
    driver.turn()
    assert driver.shard is not None
    seen = lagging(driver.shard.record)
    assert seen.number == 3
    assert seen.since[Priority.HIGH] == DUE
    assert seen.since[Priority.NORMAL] < DUE
    driver.run_until(DUE)
    assert lagging(driver.shard.record) == (0, {})
    once_each(driver, 40)


def test_a_change_of_what_waits_leaves_its_key_undecided() -> None:
    """The item of the former definition goes first and counts for nothing: a kill right then loses nothing."""
    driver = Driver(settings=ShardSettings(max_records=1))
    for name in "abc":
        driver.create(f"acme/{name}", trigger={"at": format_instant(DUE)}, priority="high")
    read_ahead(driver)
    driver.send({"command": "update", "schedule_id": "acme/b", "spec": {"description": "changed"}})
    for _ in range(6):
        driver.turn()
        queue = queue_name(Priority.HIGH, "acme/a")
        assert driver.shard is not None
        if (lag := driver.shard.record.lags.get(queue)) is not None and lag.after is not None:
            sent = {one["schedule_id"] for one in driver.dispatched()}
            assert {f"acme/{n}" for n in "abc" if f"acme/{n}".encode() <= lag.after[9:]} <= sent
    driver.restart()
    once_each(driver, 3)


@pytest.mark.parametrize("kills", [(), (1,), (1, 3, 4)])
def test_a_kill_while_queues_lag_loses_and_doubles_nothing(kills: tuple[int, ...]) -> None:
    """Before or after the store heard of the step, warm or cold: what waited is decided by who comes next."""
    driver = Driver(settings=ShardSettings(max_records=30, horizon_bytes=20_000))
    for tenant, count in (("big", 90), ("mid", 20), ("small", 3)):
        for priority in ("high", "background"):
            create(driver, tenant, count, priority)
    read_ahead(driver)
    for n in range(6):
        if n in kills:
            driver.crash_after_commit()
            driver.start(wipe=n == 3, run=False)
        else:
            driver.turn()
    driver.run_until(DUE)
    once_each(driver, 226)


PAYLOAD = 16_000
ITEM = PAYLOAD + 1_000  # at most, with all that is counted for it


@pytest.mark.parametrize("real", [False, True], ids=["memory", "rocks"])
def test_memory_is_bounded_whatever_is_due(tmp_path: Path, *, real: bool) -> None:
    """Payloads of 16 KB, queues of all priorities, at one instant and after it: one occurrence above, never more."""
    bound = 40 * ITEM

    def store() -> Store:
        return RocksStore(tmp_path / "store") if real else MemoryStore()

    driver = Driver(settings=ShardSettings(horizon_bytes=bound, max_records=25), new_store=store)
    expected = 0
    for n, (tenant, count) in enumerate((("big", 120), ("mid", 60), ("small", 2), ("tiny", 1), ("late", 30))):
        for priority in ("critical", "normal", "background"):
            create(driver, tenant, count, priority, DUE + 700 * n, payload="x" * PAYLOAD)
            expected += count
    most, turns = 0, 0
    driver.run_until(DUE - 60_000)
    while len(driver.dispatched()) < expected:
        assert turns < 2_000, "it stands still"
        turns += 1
        driver.now = min(driver.now + 5_000, DUE) if driver.now < DUE else driver.now + 20
        driver.turn()
        shard = driver.shard
        assert shard is not None
        for _ in range(5):
            shard.housekeep(driver.now)
            most = max(most, shard.horizon.held.bytes)
    assert bound // 2 < most <= bound + ITEM
    once_each(driver, expected)


def test_what_was_fired_takes_no_more_memory_than_it_left() -> None:
    """It is freed when there is time: before more is read ahead, even if chores have to wait."""
    bound, limit = 40 * ITEM, 10
    driver = Driver(settings=ShardSettings(horizon_bytes=bound, max_records=limit))
    create(driver, "fired", 200, payload="x" * PAYLOAD)
    driver.run_until(BEFORE)
    driver.now = DUE
    held: list[int] = []
    while len(driver.dispatched()) < 200:
        assert len(held) < 500, "it stands still"
        driver.turn()
        assert driver.shard is not None
        driver.shard.housekeep(driver.now, chores=False)
        gc.collect()
        items = [one for one in gc.get_objects() if type(one) is Item and one.entry.schedule_id.startswith("fired/")]
        held.append(sum(len(one.value) + ITEM_OVERHEAD for one in items))
        del items
    assert bound // 2 < max(held) <= bound + limit * ITEM
    once_each(driver, 200)


def test_nobody_takes_all_the_memory() -> None:
    """The first to come takes seven eighths at most; who comes later at the same instant has its own at once."""
    bound = 200_000
    driver = Driver(settings=ShardSettings(horizon_bytes=bound))
    create(driver, "aaa", 1_000)
    create(driver, "zzz", 50)
    read_ahead(driver)
    assert driver.shard is not None
    held = driver.shard.horizon.held
    first, last = (held.line(queue_name(Priority.NORMAL, name)) for name in ("aaa/x", "zzz/x"))
    assert bound // 2 < first.bytes <= bound * SHARE // (SHARE + 1) + 1_000
    assert last.bytes >= bound // KEPT_PART // 2
    driver.run_until(DUE)
    once_each(driver, 1_050)


class CountingStore(MemoryStore):
    """Counts the schedules that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.read += sum(key.startswith(SCHEDULE) for key in keys)
        return super().get_many(keys)


def test_a_steady_load_that_does_not_fit_is_read_by_the_page() -> None:
    """Half of what fires in the horizon's time has room: each schedule is read once in five seconds all the same."""
    store = CountingStore()
    driver = Driver(settings=ShardSettings(horizon_bytes=1_000_000), new_store=lambda: store)
    for n in range(100):
        trigger = {"every_ms": 1_000, "anchor": format_instant(DUE + 10 * n)}
        driver.send({"command": "create", "schedule_id": f"acme/{n}", "spec": {"trigger": trigger}})
    driver.run_until(DUE + 30_000)
    before, fired = store.read, len(driver.dispatched())
    driver.run_until(DUE + 60_000)
    assert len(driver.dispatched()) - fired == 3_000
    assert store.read - before < 3_000 / 5 * 1.5


def test_a_slice_of_reading_is_a_chunk_whatever_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recurring schedules, which stand in the index where they fired last, as one-shots, which stand in the page."""
    store = CountingStore()
    slices = []
    extend = Horizon.extend

    def counted(horizon: Horizon, now: int, chunks: int = 1) -> bool:
        before = store.read
        found = extend(horizon, now, chunks)
        slices.append((store.read - before) / chunks)
        return found

    monkeypatch.setattr(Horizon, "extend", counted)
    driver = Driver(new_store=lambda: store)
    for n in range(2_000):
        trigger: dict[str, Any] = {"every_ms": 2_000, "anchor": format_instant(DUE + n)}
        driver.send({"command": "create", "schedule_id": f"acme/{n}", "spec": {"trigger": trigger}})
    create(driver, "zeta", 2_000, at=DUE + 7_000)
    driver.run_until(DUE + 12_000)
    assert sum(slices) >= 10_000
    assert max(slices) <= 2 * CHUNK


def test_a_schedule_that_has_fired_takes_no_memory_until_it_fires_again() -> None:
    """Ten thousand that fire once a day: when all have, nothing of them is left that grows with their number."""
    gc.collect()
    others = entries()
    driver = Driver()
    for n in range(10_000):
        trigger: dict[str, Any] = {"every_ms": 86_400_000, "anchor": format_instant(DUE + 10 * n)}
        driver.send({"command": "create", "schedule_id": f"acme/{n}", "spec": {"trigger": trigger}})
    driver.run_until(DUE + 100_000)
    assert len(driver.dispatched()) == 10_000
    gc.collect()
    assert entries() - others <= 2 * DEAD_KEPT


def entries() -> int:
    """How many of a horizon's entries there are, reachable or not."""
    return sum(isinstance(one, Entry) for one in gc.get_objects())


def test_a_shard_that_is_closed_keeps_nothing_of_its_horizon() -> None:
    """Although it stands in cycles, and nobody has looked for those."""
    gc.collect()
    others = entries()
    driver = Driver()
    create(driver, "acme", 500)
    read_ahead(driver)
    shard = driver.shard
    assert shard is not None
    gc.disable()
    try:
        assert entries() >= others + 500
        shard.close()
        assert entries() <= others
    finally:
        gc.enable()


def test_out_of_turn_only_what_is_near_is_read() -> None:
    """Another shard of the process reads ahead: what falls due soon does not wait for it, all else does."""
    driver = Driver()
    create(driver, "acme", 10)
    shard = driver.shard
    assert shard is not None

    def reads_up_to(*, ahead: bool) -> int:
        while shard.housekeep(driver.now, ahead=ahead):
            pass
        return instant_of(shard.horizon.end) - driver.now

    shard.drop_horizon()
    assert 2_500 < reads_up_to(ahead=False) <= 5_000
    assert reads_up_to(ahead=True) >= 25_000


def test_out_of_turn_a_queue_that_was_cut_is_read_before_it_is_missed() -> None:
    """Although everything else is read far ahead."""
    driver = Driver(settings=ShardSettings(horizon_bytes=40_000))
    for n in range(400):
        trigger = {"at": format_instant(DUE + 100 * n)}
        driver.send({"command": "create", "schedule_id": f"acme/{n}", "spec": {"trigger": trigger}})
    driver.run_until(DUE)
    shard = driver.shard
    assert shard is not None
    line = shard.horizon.held.line(queue_name(Priority.NORMAL, "acme/0"))

    def fire_until(left_ms: int) -> None:
        assert line.after is not None
        while instant_of(line.after) - driver.now > left_ms:
            driver.now += 100
            driver.turn()

    fire_until(4_000)
    assert not shard.housekeep(driver.now, chores=False, ahead=False)
    fire_until(2_000)
    assert shard.housekeep(driver.now, chores=False, ahead=False)
    driver.run_until(DUE + 40_000)
    once_each(driver, 400)
