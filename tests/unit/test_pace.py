"""What nobody waits for keeps out of the way, and is done all the same."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

from scheduler.runtime.pace import (
    PATIENCE_S,
    PRESSED_SWITCH_S,
    QUIET_S,
    SHARE,
    SWITCH_S,
    WHOLE_AFTER_S,
    Pace,
)  # fmt: skip
from scheduler.shard.shard import FEW_COMMANDS

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

MANY = FEW_COMMANDS + 1


class Machine:
    """Wall and processor time moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cpu = 0.0
        self.switched: list[float] = []
        self.pace = Pace(lambda: self.now, lambda: self.cpu, self.switched.append)

    def slice(self, shard: int, seconds: float) -> bool:
        """A slice of chores that takes a processor for so long, if the shard gets its turn."""
        if not self.pace.turn(shard, has_chores=True):
            return False
        self.now += seconds
        self.cpu += seconds
        self.pace.done(shard)
        return True


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_threads_change_less_often_while_any_shard_has_much_to_fire(machine: Machine) -> None:
    """Also when the last one that had is gone, it is as before."""
    machine.pace.press(1, is_pressed=True)
    machine.pace.press(2, is_pressed=True)
    machine.pace.press(1, is_pressed=False)
    assert set(machine.switched) == {PRESSED_SWITCH_S}
    machine.pace.leave(2)
    assert machine.switched[-1] == SWITCH_S


def test_chores_wait_while_any_shard_of_the_process_has_much_to_fire(machine: Machine) -> None:
    """A shard that is done with its part of a burst takes no time from its siblings that are not."""
    machine.pace.press(1, is_pressed=True)
    assert not machine.slice(2, 0.01)
    assert not machine.pace.turn(3, has_chores=False)
    machine.pace.press(1, is_pressed=False)
    assert not machine.slice(2, 0.01)  # the readers come first
    machine.now += QUIET_S
    assert machine.slice(2, 0.01)


def test_a_shard_that_is_gone_presses_nobody(machine: Machine) -> None:
    """A shard that failed in a burst does not keep its siblings from their chores, nor does its slice."""
    machine.pace.press(1, is_pressed=True)
    machine.pace.leave(1)
    machine.now += QUIET_S
    assert machine.pace.turn(2, has_chores=True)
    machine.pace.leave(2)
    assert machine.slice(3, 0.01)


def test_chores_are_done_by_one_shard_at_a_time(machine: Machine) -> None:
    """Two threads would only wait for each other."""
    assert machine.pace.turn(1, has_chores=True)
    assert not machine.pace.turn(2, has_chores=True)
    machine.pace.done(2)
    assert not machine.pace.turn(2, has_chores=True)
    machine.pace.done(1)
    assert machine.pace.turn(2, has_chores=True)


def test_chores_keep_to_their_share(machine: Machine) -> None:
    """After a slice all shards rest, so that on the whole a share of a processor is used."""
    assert machine.slice(1, 0.01)
    assert not machine.slice(2, 0.01)
    machine.now += machine.pace.rest + 1e-9
    assert machine.slice(2, 0.01)
    assert machine.pace.rest == pytest.approx(0.01 * (1 / SHARE - 1), rel=0.01)


def test_the_share_grows_until_the_chores_are_done(machine: Machine) -> None:
    """Work that comes faster than the first share does is kept up with, without rest in the end."""
    machine.pace.turn(1, has_chores=True)
    machine.pace.done(1)
    machine.now += WHOLE_AFTER_S
    assert machine.slice(1, 1.0)
    assert machine.slice(1, 1.0)
    machine.pace.turn(1, has_chores=False)  # done with everything: it begins anew
    assert machine.slice(1, 1.0)
    assert not machine.slice(1, 1.0)


def test_chores_that_have_waited_long_go_before_what_is_due(machine: Machine) -> None:
    """A load that never ends does not let them pile up."""
    machine.pace.press(1, is_pressed=True)
    assert not machine.slice(2, 0.01)
    machine.now += PATIENCE_S
    assert machine.slice(2, 0.01)


def test_one_shard_at_a_time_reads_ahead(machine: Machine) -> None:
    """Whatever becomes of its slice, the next one may."""
    pace = machine.pace
    with suppress(ValueError), pace.reading() as first, pace.reading() as second:
        assert (first, second) == (True, False)
        raise ValueError("a store that refuses")
    with pace.reading() as third:
        assert third


class Deciding:
    """Shards that ask for turns to decide on commands, and who was called."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self.called: list[int] = []

    def asks(self, shard: int, commands: int = MANY) -> AbstractContextManager[bool]:
        return self._pace.deciding(shard, commands, partial(self.called.append, shard))

    def gets(self, shard: int, commands: int = MANY) -> bool:
        """Whether it gets the turn, which is over at once."""
        with self.asks(shard, commands) as decides:
            return decides


def test_one_shard_at_a_time_decides_on_many_commands(machine: Machine) -> None:
    """Those that found it taken are called one after the other, in their order and once each; also if a plan fails."""
    shards = Deciding(machine.pace)
    with suppress(ValueError), shards.asks(1) as first:
        assert first
        assert [shards.gets(shard) for shard in (2, 3, 2)] == [False] * 3
        raise ValueError("a plan that fails")
    assert shards.called == [2]
    assert shards.gets(2)
    assert shards.called == [2, 3]
    assert shards.gets(3)
    assert shards.called == [2, 3]


def test_few_commands_wait_for_nobody(machine: Machine) -> None:
    """A command or two is decided on while another shard has thousands, which are still alone then."""
    shards = Deciding(machine.pace)
    with shards.asks(1):
        assert shards.gets(2, FEW_COMMANDS)
        assert shards.gets(3, 0)
        assert not shards.gets(4)
        assert shards.called == []
    assert shards.called == [4]


def test_a_shard_that_got_its_turn_otherwise_is_not_called_for_it(machine: Machine) -> None:
    """It asked by itself, or has few commands left, or is gone: the next one is called."""
    for end in (lambda s: s.gets(2), lambda s: s.gets(2, FEW_COMMANDS), lambda _: machine.pace.leave(2)):
        shards = Deciding(machine.pace)
        with shards.asks(1):
            assert [shards.gets(shard) for shard in (4, 2, 3)] == [False] * 3
        assert shards.called == [4]
        end(shards)
        shards.gets(4)
        assert shards.called == [4, 3]


def test_a_shard_that_was_called_for_little_calls_the_next(machine: Machine) -> None:
    """What waited for it may have been taken back meanwhile."""
    shards = Deciding(machine.pace)
    with shards.asks(1):
        assert [shards.gets(shard) for shard in (2, 3)] == [False] * 2
    assert shards.gets(2, 0)
    assert shards.called == [2, 3]


def test_a_shard_that_was_called_and_is_gone_calls_the_next(machine: Machine) -> None:
    """It was closed, or failed, before it could ask."""
    shards = Deciding(machine.pace)
    with shards.asks(1):
        assert [shards.gets(shard) for shard in (2, 3)] == [False] * 2
        machine.pace.leave(4)
        assert shards.called == []
    machine.pace.leave(2)
    assert shards.called == [2, 3]
