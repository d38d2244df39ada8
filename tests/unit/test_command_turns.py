"""A shard's loop while another shard of its process decides on many commands."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from scheduler.core.tenants import NO_TENANTS
from scheduler.runtime.pace import Pace
from scheduler.runtime.task import QUEUE_MS, ShardTask
from scheduler.shard.shard import FEW_COMMANDS

if TYPE_CHECKING:
    from collections.abc import Callable

MANY = FEW_COMMANDS + 1


class Loop:
    """A shard's loop in which every question for the time takes a ms; it ends after so many looks.

    `plans`: of how many commands, and when (ms).
    """

    def __init__(self, waiting: int, looks: int, at_look: dict[int, Callable[[], None]]) -> None:
        self.pace = Pace(lambda: 0.0, lambda: 0.0, lambda _: None)
        self.plans: list[tuple[int, int]] = []
        self._ms = self._looks = 0
        self._until, self._at_look = looks, at_look
        world: Any = SimpleNamespace(
            monotonic=self._monotonic, event=threading.Event, condition=_Condition, thread=lambda _run, _name: None
        )
        settings = SimpleNamespace(join_ms=50, join_due_ms=20, catch_up_per_s=1.0, shards=1)
        around: Any = SimpleNamespace(
            outside=world,
            pace=self.pace,
            telemetry=None,
            settings=settings,
            clock=SimpleNamespace(jumps=0, now=self._now),
            tables=SimpleNamespace(calendars=None, tenants=NO_TENANTS),
        )
        self._task = ShardTask(1, around)
        self._task._inbox.extend([SimpleNamespace()] * waiting)  # type: ignore[list-item]

    def run(self) -> list[tuple[int, int]]:
        """Something is due at all times."""
        shard: Any = SimpleNamespace(
            max_inputs=1_000,
            has_chores=False,
            waits_ms=lambda _now: 0,
            next_instant=lambda: 0,
            is_pressed=lambda _now: False,
            took=lambda _ms: None,
            questions=list,
            housekeep=lambda _now, **_: False,
            horizon=SimpleNamespace(is_short=lambda _now: False),
            plan=lambda _now, inputs, **_: self.plans.append((len(inputs), self._ms)),
        )
        scanner: Any = SimpleNamespace(answers=list, ask=lambda _: None)
        gauges: Any = SimpleNamespace(show=lambda *_: None)
        self._task._loop(shard, None, scanner, None, gauges)  # type: ignore[arg-type]
        return self.plans

    def _monotonic(self) -> float:
        self._ms += 1
        return self._ms / 1000

    def _now(self) -> int:
        self._looks += 1
        self._at_look.get(self._looks, lambda: None)()
        if self._looks > self._until:
            self._task.close()
        return 1


class _Condition:
    """Waits for nobody."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, _seconds: float) -> None:
        pass

    def notify(self) -> None:
        pass


def test_what_is_due_does_not_wait_for_the_turn() -> None:
    """It is planned without the commands at once, and joined from then on; called, the shard decides on all of them."""
    other = ExitStack()
    loop = Loop(MANY, 20, {12: other.close})
    assert other.enter_context(loop.pace.deciding(2, MANY, lambda: None))
    plans = loop.run()
    assert [count for count, _ in plans][:2] == [0, MANY]
    assert plans[1][1] - plans[0][1] < QUEUE_MS, "it was not called"


def test_a_shard_that_nobody_calls_asks_again() -> None:
    """After a while, and meanwhile it fires."""
    loop = Loop(MANY, 250, {})
    with loop.pace.deciding(2, MANY, lambda: None):
        plans = loop.run()
    assert [count for count, _ in plans] == [0] * len(plans)
    waits = [later - earlier for (_, earlier), (_, later) in pairwise(plans)]
    assert waits
    assert all(QUEUE_MS <= wait <= QUEUE_MS + 10 for wait in waits)


def test_few_commands_are_decided_at_once() -> None:
    """However many another shard has."""
    loop = Loop(FEW_COMMANDS, 1, {})
    with loop.pace.deciding(2, MANY, lambda: None):
        assert loop.run()[0][0] == FEW_COMMANDS
