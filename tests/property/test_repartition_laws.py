"""The laws of a move to another number of shards, for 1 to 16 old and 1 to 16 new ones.

Old shards live random lives of their own (outages, backlogs cut off half decided, kills between commit and store), are
fenced wherever they stand, and are carried over. Each schedule must then be in one new shard, the one its name says,
and do next what it would have done; and a cluster that moves must end like one that was only away as long.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler import wire
from scheduler.core.record import Move, ShardRecord
from scheduler.core.time import format_instant
from scheduler.shard import keys
from scheduler.shard.forwarding import Origin
from scheduler.shard.repartition import Carried, Cutover, Old, Reasons, Tails, Tally, arrival, carry, cutover
from scheduler.shard.shard import ShardSettings
from scheduler.shard.step import Step
from scheduler.state.store import MemoryStore
from tests.support.driver import START, Driver, Topics, restore
from topics.catalog import Catalogue
from topics.partition import partition_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MINUTE = 60_000
SETTINGS = ShardSettings(max_records=7, max_commands=5, catch_up_per_s=5.0)
NAMES = ("acme/a", "acme/b", "acme/c", "acme/d", "acme/e", "acme/f", "zeta/a", "zeta/b")
SPECS = st.fixed_dictionaries(
    {
        "trigger": st.one_of(
            st.sampled_from([1, 7, 30]).map(lambda n: {"cron": f"*/{n} * * * *", "zone": "Europe/Berlin"}),
            st.sampled_from([7_000, 90_000, 3_600_000]).map(lambda ms: {"every_ms": ms}),
            st.integers(1, 40).map(lambda m: {"at": format_instant(START + m * MINUTE)}),
        )
    },
    optional={
        "window_ms": st.sampled_from([5_000, 600_000]),
        "misfire": st.sampled_from(["fire_once", "skip", {"catch_up": 3}]),
        "max_lateness_ms": st.sampled_from([None, 30_000]),
        "priority": st.sampled_from(["critical", "background"]),
        "end": st.integers(5, 60).map(lambda m: format_instant(START + m * MINUTE)),
    },
)
LIVES = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.integers(0, 10 * MINUTE)),
        st.tuples(st.just("away"), st.integers(0, 20 * MINUTE)),
        st.tuples(st.just("halted"), st.integers(0, 20 * MINUTE)),
        st.tuples(st.sampled_from(["pause", "resume", "delete", "create"]), st.integers(0, len(NAMES) - 1)),
    ),
    max_size=8,
)


def clusters(count: int, specs: Mapping[str, dict[str, Any]]) -> list[Driver]:
    """`count` shards with the schedules, each where its name says."""
    made = [Driver(settings=SETTINGS, catalogue=Catalogue(shards=count), number=number) for number in range(count)]
    for name, spec in specs.items():
        made[partition_for(name.encode(), count)].do("create", name, spec=spec)  # one that never fires is refused
    return made


def live(driver: Driver, life: Sequence[tuple[str, int]], specs: Mapping[str, dict[str, Any]]) -> None:
    """What happens to one shard; what is half done when it is halted stays so."""
    mine = [name for name in specs if partition_for(name.encode(), driver.catalogue.shards) == driver.number]
    for verb, amount in life:
        if driver.shard is None:
            driver.start(run=False)
        if verb == "run":
            driver.advance(amount)
        elif verb == "away":
            driver.outage(driver.now + amount)
        elif verb == "halted":
            driver.kill()
            driver.now += amount
            driver.start(run=False)
            for _ in range(amount % 3):
                driver.turn()
            driver.crash_after_commit()
        elif mine:
            name = mine[amount % len(mine)]
            driver.do(verb, name, **({"spec": specs[name]} if verb == "create" else {}))


def restored(driver: Driver) -> MemoryStore:
    store = MemoryStore()
    restore(driver.topics, store, driver.catalogue, driver.calendars, number=driver.number)
    return store


def fenced(driver: Driver, at: int) -> Old:
    """The old shard as a repartition has it."""
    store = restored(driver)
    record = Old(driver.number, store).record
    ended = record.moved(step=record.step + 1, moved_to=Move("new", 0, max(at, record.seen_until)))
    step = Step(at, ended, driver.catalogue, store, ended.lags)
    step.seal()
    driver.kill()
    driver.publish(step)
    return Old(driver.number, restored(driver), driver.calendars)


def fill(olds: Sequence[Old], cut: Cutover, former: Catalogue, new: Catalogue) -> tuple[list[Topics], list[Tally]]:
    """The topics of the new shards, some records a step, and what was carried to each."""
    topics, tallies = [Topics() for _ in range(new.shards)], [Tally() for _ in range(new.shards)]
    waiting: list[list[Carried]] = [[] for _ in range(new.shards)]
    for old in olds:
        for item in carry(old, cut, former, new):
            tallies[item.shard].carried(item)
            waiting[item.shard].append(item)
    for number, items in enumerate(waiting):
        record = ShardRecord(shard=number)
        for start in range(0, len(items) + 3, 3):
            step = arrival(
                record, items[start : start + 3], cut, new, Reasons("growth"), is_last=start + 3 >= len(items) + 3
            )
            for one in step.records:
                assert one.partition == number
                number_of = dict(one.headers or []).get("step")
                topics[number].append(
                    one.topic, one.key, one.value, cut.at, None if number_of is None else int(number_of)
                )
            record = step.record
    return topics, tallies


def without_floor(value: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.json.decode(value)
    fields.pop("floor", None)
    return fields


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    before=st.integers(1, 16),
    after=st.integers(1, 16),
    specs=st.dictionaries(st.sampled_from(NAMES), SPECS, min_size=1),
    lives=st.lists(LIVES, min_size=1, max_size=4),
    wait=st.integers(0, 5 * MINUTE),
)
def test_every_schedule_goes_on_where_it_was(
    before: int, after: int, specs: dict[str, dict[str, Any]], lives: list[list[tuple[str, int]]], wait: int
) -> None:
    """Key by key: its next nominal, what is owed to it, its record but for the floor; and no version is used again."""
    drivers = clusters(before, specs)
    for driver in drivers:
        live(driver, lives[driver.number % len(lives)], specs)
    at = max(driver.now for driver in drivers) + wait
    olds = [fenced(driver, at) for driver in drivers]
    former, new = Catalogue(shards=before), Catalogue(shards=after)
    cut = cutover(olds, "")
    assert cutover(olds, "") == cut
    topics, tallies = fill(olds, cut, former, new)
    stores = []
    for number, (log, tally) in enumerate(zip(topics, tallies, strict=True)):
        store = MemoryStore()
        restore(log, store, new, number=number)
        stores.append(store)
        found = Tally()
        found.arrived(store)
        assert found == tally
        record = Old(number, store).record
        assert record.moved_from == Move("", before, cut.at)
        assert record.deleted_version >= max(old.record.deleted_version for old in olds)
    seen = 0
    for old in olds:
        for key, value in old.store.items(keys.SCHEDULE, keys.after_prefix(keys.SCHEDULE)):
            there = [number for number, store in enumerate(stores) if store.get(key) is not None]
            assert there == [partition_for(key[1:], after)]
            store = stores[there[0]]
            assert without_floor(store.get(key) or b"") == without_floor(value)
            assert store.get(keys.PLACE + key[1:]) == old.store.get(keys.PLACE + key[1:])
            seen += 1
        for key, value in old.store.items(keys.LIVE, keys.after_prefix(keys.LIVE)):
            owner = wire.split_live_key(keys.live_topic_key(key))[1]
            kept = wire.live_from_bytes(stores[partition_for(owner.encode(), after)].get(key) or b"")
            assert msgspec.structs.replace(kept, dispatch=msgspec.UNSET) == msgspec.structs.replace(
                wire.live_from_bytes(value), dispatch=msgspec.UNSET
            )
    assert seen == sum(tally.schedules for tally in tallies)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    before=st.integers(1, 5),
    after=st.integers(1, 5),
    specs=st.dictionaries(st.sampled_from(NAMES), SPECS, min_size=1),
    lives=st.lists(LIVES, min_size=1, max_size=3),
    gap=st.integers(0, 3 * MINUTE),
    wait=st.integers(0, 3 * MINUTE),
)
def test_a_move_is_no_more_than_an_outage(
    before: int, after: int, specs: dict[str, dict[str, Any]], lives: list[list[tuple[str, int]]], gap: int, wait: int
) -> None:
    """Shards that had nothing overdue when they stopped go on in either cluster, the old after an outage and the new
    after the move: the same occurrences are dispatched, each once, and the same are missed or suppressed. Whether one
    counts as late or as caught up may differ: a new shard has one last look, the earliest of all old ones.
    """
    drivers = clusters(before, specs)
    for driver in drivers:
        live(driver, lives[driver.number % len(lives)], specs)
    end = max(driver.now for driver in drivers)
    stayed = []
    for driver in drivers:
        if driver.shard is None:
            driver.start(run=False)
        driver.run_until(end)
        driver.kill()
        stayed.append(deepcopy(driver.topics))
    known = Counter[tuple[Any, ...]]()
    for driver in drivers:
        known += outcome(driver)
    back = end + gap + wait
    until = back + 90 * MINUTE
    olds = [fenced(driver, end + gap) for driver in drivers]
    former, new = Catalogue(shards=before), Catalogue(shards=after)
    topics, _ = fill(olds, cutover(olds, ""), former, new)
    moved, rested = Counter[tuple[Any, ...]](), Counter[tuple[Any, ...]]()
    for number, log in enumerate(topics):
        moved += outcome(run(log, new, number, back, until))
    for number, log in enumerate(stayed):
        rested += outcome(run(log, former, number, back, until))
    assert moved == rested - known
    assert all(count == 1 for (kind, *_), count in moved.items() if kind == "ran")


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_what_waits_for_its_turn_goes_on_in_the_new_cluster(turns: int) -> None:
    """Fenced in the middle of a burst: what lagging queues had left is dispatched there, the rest is not again."""
    former, new = Catalogue(shards=2), Catalogue(shards=3)
    due = START + 5 * MINUTE
    drivers = [Driver(settings=ShardSettings(max_records=3), catalogue=former, number=number) for number in (0, 1)]
    names = [f"{tenant}/{n}" for tenant in ("acme", "acme-b", "zeta") for n in range(10)]
    for n, name in enumerate(names):
        spec = {"trigger": {"at": format_instant(due)}, "priority": "high" if n % 2 else "background"}
        drivers[partition_for(name.encode(), 2)].do("create", name, spec=spec)
    for driver in drivers:
        driver.run_until(due - 1)
        driver.now = due
        for _ in range(turns):
            driver.turn()
    olds = [fenced(driver, due) for driver in drivers]
    assert all(old.record.lags for old in olds)
    topics, _ = fill(olds, cutover(olds, ""), former, new)
    moved = [run(log, new, number, due + 1_000, due + MINUTE) for number, log in enumerate(topics)]
    ran = Counter(one["schedule_id"] for driver in [*drivers, *moved] for one in driver.dispatched())
    assert ran == dict.fromkeys(names, 1)


def run(log: Topics, catalogue: Catalogue, number: int, since: int, until: int) -> Driver:
    """A shard begun on its topics."""
    driver = Driver(now=since, settings=SETTINGS, catalogue=catalogue, number=number, topics=log)
    driver.run_until(until)
    return driver


def outcome(driver: Driver) -> Counter[tuple[Any, ...]]:
    """What became of nominals: each that ran, and how many did not for what reason.

    A missed one may have two reasons, as it may have come late or been caught up: that there is one will do.
    """
    found = Counter[tuple[Any, ...]]()
    for one in driver.dispatched():
        found["ran", one["occurrence_id"], one["stands_for"]] += 1
    for record in driver.occurrences():
        reason = "" if record["state"] == "missed" else record["reason"]
        found[record["state"], reason, record["schedule_id"]] += record.get("count", 1)
    return found


def test_a_floor_tells_later_what_a_calendar_took_away() -> None:
    """The floor is the last nominal that was decided: a day that the calendar removed behind it has its record."""
    former, new = Catalogue(shards=2), Catalogue(shards=1)
    closed = {"exclude_dates": ["2026-01-03"]}
    names = {partition_for(name.encode(), 2): name for name in NAMES}
    drivers = [Driver(catalogue=former, number=number) for number in (0, 1)]
    for driver in drivers:
        driver.calendar("office", 1, **closed)
        driver.create(names[driver.number], trigger={"cron": "0 12 * * *", "zone": "UTC"}, calendar="office")
    drivers[0].kill()  # owes 1 January since then, so the new cursor lies before everything the other has decided
    drivers[1].leap("2026-01-02T18:00:00Z")
    olds = [fenced(driver, drivers[1].now) for driver in drivers]
    topics, _ = fill(olds, cutover(olds, ""), former, new)
    moved = Driver(now=drivers[1].now, catalogue=new)
    moved.topics, moved.calendars = topics[0], drivers[1].calendars
    moved.restart(wipe=True)
    moved.leap("2026-01-04T18:00:00Z")
    assert moved.clocks(names[1]) == ["12:00:00"], "of 4 January alone"
    gone = [(o["schedule_id"], o["state"], o["reason"]) for o in moved.occurrences("suppressed")]
    assert sorted(gone) == sorted((name, "suppressed", "calendar") for name in names.values())


@settings(max_examples=60, deadline=None)
@given(
    sent=st.lists(st.integers(0, 2), min_size=1, max_size=8),
    copied=st.integers(0, 8),
    applied=st.integers(0, 8),
    order=st.permutations([0, 1, 2]),
)
def test_a_command_on_its_way_between_two_old_shards_is_taken_along_once(
    sent: list[int], copied: int, applied: int, order: list[int]
) -> None:
    """Shard 0 was to forward some of its commands; it has copied the first, and of these the first were applied.

    Whichever old partition is read first: each that was not applied goes on once, those that were do not.
    """
    names = {n: next(f"acme/n{i}" for i in range(99) if partition_for(f"acme/n{i}".encode(), 3) == n) for n in range(3)}
    values = [msgspec.json.encode({"command": "create", "schedule_id": names[home]}) for home in sent]
    partitions: dict[int, list[tuple[Origin, bytes]]] = {0: [], 1: [], 2: []}
    marks: list[dict[int, int]] = [{}, {}, {}]
    for offset, (home, value) in enumerate(zip(sent, values, strict=True)):
        origin = Origin(0, offset)
        partitions[0].append((origin, value))
        if home and offset < applied:
            marks[home][0] = offset + 1
        elif home and offset < copied:
            partitions[home].append((origin, value))
    tails = Tails(marks)
    taken = [(o, v) for shard in order for o, v in partitions[shard] if tails.takes(shard, o, v)]
    expected = [(Origin(0, n), v) for n, v in enumerate(values) if not (sent[n] and n < applied)]
    assert sorted(taken) == expected
    assert tails.takes(0, Origin(0, 99), b"unreadable")
