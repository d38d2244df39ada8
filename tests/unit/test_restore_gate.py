"""Long restores of a process go one by one, so that the first shard serves soon."""

from __future__ import annotations

from contextlib import suppress
from threading import Condition, Event, Thread

import pytest

from scheduler.errors import Retriable
from scheduler.runtime.restore import Gate

PATIENCE_S = 30


def test_one_is_inside_at_a_time_and_the_next_follows_whatever_happened_to_it() -> None:
    gate, inside, go_on, second = Gate(Condition()), Event(), Event(), Event()

    def first() -> None:
        with suppress(ValueError), gate.passed(lambda: False):
            inside.set()
            go_on.wait(PATIENCE_S)
            raise ValueError("a bad record")

    def next_one() -> None:
        with gate.passed(lambda: False):
            second.set()

    threads = [Thread(target=first), Thread(target=next_one)]
    threads[0].start()
    assert inside.wait(PATIENCE_S)
    threads[1].start()
    assert not second.wait(0.3)
    go_on.set()
    assert second.wait(PATIENCE_S)
    for thread in threads:
        thread.join(PATIENCE_S)


def test_who_is_told_to_stop_waits_no_longer_and_is_in_nobodys_way() -> None:
    gate, stopped = Gate(Condition()), Event()
    with gate.passed(lambda: False):
        stopped.set()
        with pytest.raises(Retriable, match="stopped"), gate.passed(stopped.is_set):
            pytest.fail("nobody may be inside twice")
    with gate.passed(lambda: False):
        pass
