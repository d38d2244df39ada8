"""`scheduler repartition` against the brokers: a cluster moves to another namespace with another number of shards.

    1 look      topics, shard records and clocks of both sides: every obstacle is told, nothing is changed
    2 prepare   the new topics; each new shard's record says `filling`, so no node opens it
    3 fence     each old shard's record says `moved_to`: nobody opens it again        from here on there is no way back
    4 restore   the old shards into temporary stores; where the new ones begin follows from them
    5 fill      calendars, tenants, schedules and what is owed, in transactions of the new shards
    6 verify    each new shard, restored from its topics, against what was carried: counts and checksums
    7 commands  that no old shard has applied go to the new command topic, with their ids; the old positions follow
    8 open      each new shard's record says that it is whole

Killed anywhere, it is run again with the same target: what is fenced stays fenced and does not change, filling writes
the same values once more, a shard that is whole is not touched. Before 3 the old side serves and the new one does not,
after it the old one does not; the new one serves shard by shard from 8 on. Never both: a shard is opened only with a
record that allows it, and only by who holds its transactional id.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler import wire
from scheduler.core.due import instant_end, instant_of
from scheduler.core.record import Move, ShardRecord
from scheduler.errors import SchedulerError, StateCorrupted
from scheduler.runtime.courier import Courier
from scheduler.runtime.hold import Hold, look, never
from scheduler.runtime.kafka import Inquiry, changelog_consumer, plain_producer
from scheduler.runtime.probe import brokers_time, refuse_wrong_clocks
from scheduler.runtime.process import check_topics
from scheduler.runtime.restore import Restore
from scheduler.runtime.tables import read_calendars
from scheduler.shard import keys
from scheduler.shard.repartition import Carried, Cutover, Old, Reasons, Tails, Tally, arrival, carry, cutover
from scheduler.shard.shard import COMMANDS_INPUT
from scheduler.shard.step import Step
from scheduler.state.rocks import RocksStore
from scheduler.state.store import MemoryStore
from topics.admin import apply, connect, observe, plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from scheduler.config import Settings
    from scheduler.core.calendars import Calendars
    from topics.catalog import Catalogue

    Bar = Callable[[int | None, str], AbstractContextManager[Callable[..., None]]]

ENOUGH = 4_000  # records of a new shard in one transaction
HELD = 100_000  # records in memory that wait for their transaction, of all new shards


@dataclass(slots=True)
class Census:
    """One old shard as a dry run finds it. `behind`: entries of its due index that should have fired by now."""

    shard: int
    schedules: Counter[str] = field(default_factory=Counter)
    live: Counter[str] = field(default_factory=Counter)
    behind: int = 0
    commands: int = 0
    moved: bool = False


@dataclass(slots=True)
class Outcome:
    """What a run did. Without `cut` everything had been moved before, and it carried over commands only."""

    cut: Cutover | None = None
    schedules: int = 0
    live: int = 0
    commands: int = 0
    checksums: dict[int, str] = field(default_factory=dict)


class Repartition:
    """Moves the cluster of `old` settings to that of `new`, which differ in namespace and shards alone."""

    def __init__(self, old: Settings, new: Settings, why: Reasons, bar: Bar) -> None:
        self._old = old
        self._new = new
        self._former = old.catalogue()
        self._catalogue = new.catalogue()
        self._why = why
        self._bar = bar
        self._plain = plain_producer(old)
        self._inquiry = Inquiry(old)
        self._courier = Courier(old, new, self._plain)
        self._here = Move(new.namespace, new.shards, 0)

    # --- 1 look

    def check(self) -> None:
        """Raises with every obstacle there is: topics, clocks, a target that is in use, another move."""
        check_topics(self._old, self._former, self._inquiry)
        refuse_wrong_clocks(self._now)
        problems = []
        for shard in range(self._old.shards):
            record = look(self._old, shard)
            to = None if record is None else record.moved_to
            if record is not None and record.moved_from is not None and record.moved_from.filling:
                problems.append(f"shard {shard} is itself being filled from namespace {record.moved_from.namespace!r}")
            if to is not None and not _same(to, self._here):
                problems.append(f"shard {shard} has moved to namespace {to.namespace!r} ({to.shards} shards) already")
        problems += self._target_problems()
        if problems:
            raise SchedulerError("nothing was moved, because\n  " + "\n  ".join(problems))

    def _target_problems(self) -> Iterator[str]:
        wanted = self._catalogue.specs()
        proposal = plan(wanted, observe(connect(self._new.client_config()), wanted))
        yield from (str(drift) for drift in proposal.drift if drift.blocking)
        if self._catalogue.shard_records in self.new_topics or any(drift.blocking for drift in proposal.drift):
            return
        for shard in range(self._new.shards):
            record = look(self._new, shard)
            if record is not None and not self._is_ours(record):
                yield f"namespace {self._new.namespace!r} is in use: its shard {shard} has a record of its own"

    def _is_ours(self, record: ShardRecord) -> bool:
        origin = record.moved_from
        return origin is not None and _same(origin, Move(self._old.namespace, self._old.shards, 0))

    @cached_property
    def new_topics(self) -> list[str]:
        """The topics of the target that are not there yet."""
        wanted = self._catalogue.specs()
        found = observe(connect(self._new.client_config()), wanted)
        return [spec.name for spec in wanted if spec.name not in found]

    @cached_property
    def _now(self) -> int:
        return brokers_time(self._plain, self._former.clock, "repartition")

    @cached_property
    def _calendars(self) -> Calendars:
        return read_calendars(self._old, self._former)

    def census(self) -> Iterator[Census]:
        """What there is to move, shard by shard; the shards go on firing meanwhile."""
        with self._restored() as olds:
            for old, commands_end in olds:
                found = Census(old.record.shard, moved=old.record.moved_to is not None)
                for _, value in old.store.items(keys.SCHEDULE, keys.after_prefix(keys.SCHEDULE)):
                    found.schedules[wire.plan_from_bytes(value).state.value] += 1
                for key in old.store.keys(keys.LIVE, keys.after_prefix(keys.LIVE)):
                    found.live[wire.split_live_key(keys.live_topic_key(key))[0]] += 1
                until = keys.DUE + instant_end(self._now)
                found.behind = sum(1 for _ in old.store.keys(keys.DUE + instant_end(0), until))
                found.commands = max(0, commands_end - old.record.positions.get(COMMANDS_INPUT, 0))
                yield found

    # --- the move

    def run(self) -> Outcome:
        """Everything from 2 on; `check` has been called. Raises Retriable when nodes interrupt it again and again."""
        self._prepare_topics()
        arrivals = [Hold(self._new, self._plain, self._inquiry, shard) for shard in range(self._new.shards)]
        filling = [hold for hold in arrivals if not self._is_whole(hold.shard)]
        for hold in filling:
            hold.commit(self._marked(hold.shard))
        departures = [Hold(self._old, self._plain, self._inquiry, shard) for shard in range(self._old.shards)]
        with self._bar(len(departures), "fencing") as done:
            for hold in departures:
                hold.commit(self._fenced(hold.shard))
                done()
        outcome = Outcome()
        if filling:
            with self._restored() as olds:
                outcome.cut = cutover([old for old, _ in olds], self._old.namespace)
                self._courier.tables()
                tallies = self._fill(filling, [old for old, _ in olds], outcome.cut)
            self._verify(filling, tallies, outcome)
        records = [look(self._old, hold.shard) or ShardRecord(shard=hold.shard) for hold in departures]
        tails = Tails([record.forwarded for record in records])
        outcome.commands = sum(self._carry_commands(*each, tails) for each in zip(departures, records, strict=True))
        outcome.commands += self._courier.strays(tails)
        cut = outcome.cut
        if cut is not None:
            for hold in filling:
                hold.commit(lambda record: None if record is None else self._opened(record, cut))
        return outcome

    def _prepare_topics(self) -> None:
        wanted = self._catalogue.specs()
        admin = connect(self._new.client_config())
        apply(admin, plan(wanted, observe(admin, wanted)))
        check_topics(self._new, self._catalogue, self._inquiry)

    def _is_whole(self, shard: int) -> bool:
        record = look(self._new, shard)
        return record is not None and record.moved_from is not None and not record.moved_from.filling

    def _marked(self, shard: int) -> Callable[[ShardRecord | None], Step | None]:
        """2: not to be opened."""

        def build(record: ShardRecord | None) -> Step | None:
            if record is not None:
                if not self._is_ours(record):
                    raise SchedulerError(f"a node with namespace {self._new.namespace!r} was started: stop it")
                return None
            origin = Move(self._old.namespace, self._old.shards, self._now, filling=True)
            begun = ShardRecord(shard=shard, step=1, cursor=instant_end(self._now), seen_until=self._now)
            return _only(begun.moved(moved_from=origin), self._catalogue, self._now)

        return build

    def _fenced(self, shard: int) -> Callable[[ShardRecord | None], Step | None]:
        """3: not to be opened any more."""

        def build(record: ShardRecord | None) -> Step | None:
            record = record or ShardRecord(shard=shard)
            if record.moved_to is not None:
                return None
            at = max(self._now, record.seen_until, instant_of(record.cursor))
            fenced = record.moved(step=record.step + 1, moved_to=self._here._replace(at=at))
            return _only(fenced, self._former, at)

        return build

    # --- 4 restore

    @contextmanager
    def _restored(self) -> Iterator[list[tuple[Old, int]]]:
        """The old shards, each with the end of its commands, for as long as they are looked at."""
        with tempfile.TemporaryDirectory(prefix="repartition-") as folder:
            stores = []
            try:
                olds = []
                with self._bar(self._old.shards, "restoring") as done:
                    for shard in range(self._old.shards):
                        store = RocksStore(Path(folder) / str(shard))
                        stores.append(store)
                        restore = Restore(changelog_consumer(self._old), self._old.namespace, shard, never)
                        restore.run(store, self._calendars)
                        olds.append((Old(shard, store, self._calendars), restore.commands_end))
                        done()
                yield olds
            finally:
                for store in stores:
                    store.close()

    # --- 5 fill

    def _fill(self, filling: list[Hold], olds: list[Old], cut: Cutover) -> dict[int, Tally]:
        tallies = {hold.shard: Tally() for hold in filling}
        waiting: dict[int, list[Carried]] = {hold.shard: [] for hold in filling}
        holds = {hold.shard: hold for hold in filling}
        enough = max(1, min(ENOUGH, HELD // len(holds)))

        def write(shard: int) -> None:
            items, waiting[shard] = waiting[shard], []
            holds[shard].commit(lambda record: self._arrived(record, items, cut))

        with self._bar(None, "filling") as done:
            for old in olds:
                for item in carry(old, cut, self._former, self._catalogue):
                    if item.shard not in waiting:
                        continue  # whole already
                    tallies[item.shard].carried(item)
                    waiting[item.shard].append(item)
                    if len(waiting[item.shard]) == enough:
                        write(item.shard)
                        done(enough)
            for shard in waiting:
                write(shard)
        return tallies

    def _arrived(self, record: ShardRecord | None, items: list[Carried], cut: Cutover) -> Step | None:
        if record is None:
            raise StateCorrupted(f"a shard of namespace {self._new.namespace!r} lost its record while it was filled")
        return arrival(record, items, cut, self._catalogue, self._why, is_last=False)

    def _opened(self, record: ShardRecord, cut: Cutover) -> Step | None:
        if record.moved_from is not None and not record.moved_from.filling:
            return None
        return arrival(record, [], cut, self._catalogue, self._why, is_last=True)

    # --- 6 verify

    def _verify(self, filling: list[Hold], tallies: dict[int, Tally], outcome: Outcome) -> None:
        with self._bar(len(filling), "verifying") as done:
            for hold in filling:
                found = Tally()
                with tempfile.TemporaryDirectory(prefix="repartition-") as folder:
                    store = RocksStore(Path(folder) / str(hold.shard))
                    try:
                        restore = Restore(changelog_consumer(self._new), self._new.namespace, hold.shard, never)
                        restore.run(store, self._calendars)
                        found.arrived(store)
                    finally:
                        store.close()
                wanted = tallies[hold.shard]
                if found != wanted:
                    raise StateCorrupted(
                        f"new shard {hold.shard} has {found.schedules} schedules and {found.live} live records with "
                        f"checksum {found.checksum}; carried were {wanted.schedules} and {wanted.live} with "
                        f"{wanted.checksum}: it is not served. Delete the new namespace's topics and run this again"
                    )
                outcome.schedules += found.schedules
                outcome.live += found.live
                outcome.checksums[hold.shard] = found.checksum
                done()

    # --- 7 commands

    def _carry_commands(self, hold: Hold, found: ShardRecord, tails: Tails) -> int:
        """Commands that the old shard has not applied, to their new shards; then its position follows."""
        start = found.positions.get(COMMANDS_INPUT, 0)
        count, end = self._courier.commands(hold.shard, start, tails)
        if end > start:

            def build(record: ShardRecord | None) -> Step | None:
                if record is None or record.positions.get(COMMANDS_INPUT, 0) >= end:
                    return None
                positions = {**record.positions, COMMANDS_INPUT: end}
                return _only(record.moved(step=record.step + 1, positions=positions), self._former, self._now)

            hold.commit(build)
        return count


def _same(one: Move, other: Move) -> bool:
    return (one.namespace, one.shards) == (other.namespace, other.shards)


def _only(record: ShardRecord, catalogue: Catalogue, now: int) -> Step:
    """A step that writes the shard record and nothing else."""
    step = Step(now, record, catalogue, MemoryStore(), record.lags)
    step.seal()
    return step
