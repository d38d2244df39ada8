"""Deliberate bugs in the shell, and what the stories of `test_shell.py` say of each: they are no use if they pass.

    bug                                                  what gives it away
    the store is written before the commit               a step is missing in a shard's sequence
    transactional ids that are not stable: no fencing    two owners' steps, or an occurrence twice
    a decision's floor is not written                    an occurrence twice after a restore
    positions taken from the group                       a command answered more often than it was sent
    no restore                                           everything from the beginning again
    the cursor ahead of the time                         nominals lost
    an unknown outcome taken for a commit                a gap in the steps, or commands without an answer
    a restore that reads what is not committed           the same
    passed entries not advanced at the start             the store is not what a cold restore gives

What heals by itself, so that no story ends badly: a shard owned anew without proof of ownership fences its legitimate
owner, which fences it in turn until the group says who it is; a task that does not wait for its predecessor on the same
process likewise. Both cost seconds, never an occurrence.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from scheduler.core.due import instant_end, instant_of
from scheduler.errors import Retriable
from scheduler.runtime.assignment import Assignment
from scheduler.runtime.restore import Restore
from scheduler.runtime.transaction import Transaction
from scheduler.shard import outage
from scheduler.shard.firing import Firing
from scheduler.shard.rebuild import Rebuild
from scheduler.shard.shard import Shard
from scheduler.shard.step import Step
from tests.support.world.chaos import FAULTS
from tests.support.world.log import Log
from tests.support.world.machines import FakeOutside
from tests.support.world.producers import TransactionalProducer
from tests.support.world.simulation import Simulation
from topics import catalog

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 60  # stories until one has to end badly

Patch = pytest.MonkeyPatch


def store_before_commit(patch: Patch) -> None:
    commit = Transaction.commit

    def wrong(self: Any, step: Any) -> float:
        step.store.write(step.batch)
        return commit(self, step)

    patch.setattr(Transaction, "commit", wrong)


def ids_not_stable(patch: Patch) -> None:
    def wrong(self: Any, shard: int) -> TransactionalProducer:
        return TransactionalProducer(self.link, f"{self._process.name}-shard-{shard}", 5_000)

    patch.setattr(FakeOutside, "transactional_producer", wrong)


def floor_not_written(patch: Patch) -> None:
    def wrong(self: Any, schedule_id: str, floor: int) -> None:
        self.floors[schedule_id] = floor

    patch.setattr(Step, "put_floor", wrong)
    patch.setattr(outage, "SLICE", 2)  # floors count between two slices of an outage, and most absences are short
    patch.setattr(Shard, "_take_up", lambda self, now: self._decide_outage(now, "downtime"))


def positions_from_the_group(patch: Patch) -> None:
    def wrong(self: Any, number: int, task: Any, offset: int) -> None:
        theirs = self._consumer._group.committed.get(number, 0)
        try:
            self._consumer.seek(TopicPartition(self._topic, number, theirs))
        except KafkaException:
            return
        task.seek_to = theirs
        task.sought(theirs)
        self._consumer.resume([TopicPartition(self._topic, number)])
        self._paused.discard(number)

    patch.setattr(Assignment, "_seek", wrong)


def no_restore(patch: Patch) -> None:
    def wrong(self: Any, store: Any, calendars: Any = None) -> Rebuild:
        with closing(self):
            _, self.commands_end = self._reader.bounds(catalog.COMMANDS)
        return Rebuild(store, self._shard)

    patch.setattr(Restore, "run", wrong)


def cursor_ahead(patch: Patch) -> None:
    fire = Firing.fire

    def wrong(self: Any, step: Any) -> None:
        fire(self, step)
        step.record = step.record.moved(cursor=instant_end(instant_of(step.record.cursor) + 300))

    patch.setattr(Firing, "fire", wrong)


def unknown_taken_for_committed(patch: Patch) -> None:
    commit = Transaction.commit

    def wrong(self: Any, step: Any) -> float:
        try:
            return commit(self, step)
        except Retriable:
            return 0.0

    patch.setattr(Transaction, "commit", wrong)


def uncommitted_read(patch: Patch) -> None:
    def wrong(self: Any, start: int, limit: int) -> tuple[list[Any], int]:
        found = [entry for entry in self._entries if entry.offset >= start and not entry.is_marker][:limit]
        return found, found[-1].offset + 1 if len(found) == limit else max(start, self.end)

    patch.setattr(Log, "read", wrong)


def passed_not_advanced(patch: Patch) -> None:
    patch.setattr(Shard, "advance_passed", lambda self: None)


OUTAGES = {"black_out": 4, "kill": 6, "stop": 2}

BUGS: list[tuple[Callable[[Patch], None], dict[str, float], str]] = [
    (store_before_commit, FAULTS, r"commits step \d+ after step"),
    (ids_not_stable, FAULTS, r"commits step \d+ after step|twice"),
    (floor_not_written, OUTAGES, r"twice|accounted for \d+ times"),
    (positions_from_the_group, FAULTS, r"is answered \d+ times"),
    (no_restore, FAULTS, r"is answered|commits step"),
    (cursor_ahead, FAULTS, "is lost"),
    (unknown_taken_for_committed, FAULTS, "commits step|has no answer"),
    (uncommitted_read, FAULTS, r"commits step|is answered|is lost|twice|list index"),
    (passed_not_advanced, FAULTS, "the store of shard|is lost"),
]


@pytest.mark.parametrize(("bug", "faults", "words"), BUGS, ids=[bug.__name__ for bug, _, _ in BUGS])
def test_a_bug_in_the_shell_is_found(
    bug: Callable[[Patch], None], faults: dict[str, float], words: str, monkeypatch: Patch
) -> None:
    """Within a few stories, and for what it does."""
    bug(monkeypatch)
    with pytest.raises(AssertionError, match=words):
        _stories(range(1, MOST + 1), faults)


def _stories(seeds: range, faults: dict[str, float]) -> None:
    for seed in seeds:
        Simulation(seed, faults).run()
