"""Laws of the due clock, whatever the network and the clocks do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.time import FIRST_BELIEVED, LAST_BELIEVED
from scheduler.runtime.clock import AGREE_MS, AGREEING, JUMP_MS, SLEW
from tests.support.clocks import BrokerTime

WAYS = st.tuples(
    st.floats(0, 3_000, allow_nan=False), st.floats(0, 3_000, allow_nan=False), st.floats(0, 120_000, allow_nan=False)
)
SLEEPS = st.floats(0, 10_000, allow_nan=False)


@given(st.lists(WAYS, max_size=40))
def test_never_ahead_of_a_steady_broker(ways: list[tuple[float, float, float]]) -> None:
    """Whatever each way there and back takes, the clock is at or behind what a record would be stamped with."""
    broker = BrokerTime()
    for there, back, pause in ways:
        broker.probe(there=there, back=back)
        for _ in range(2):
            now = broker.clock.now()
            assert now is None or now <= broker.true_now()
            broker.machine.at += pause
    assert broker.clock.jumps == 0


@given(st.lists(st.tuples(WAYS, st.integers(1 - JUMP_MS // 2, JUMP_MS // 2 - 1)), max_size=40))
def test_small_changes_neither_stop_nor_leap(steps: list[tuple[tuple[float, float, float], int]]) -> None:
    """While the brokers' time stays within two seconds, ours goes on between 99.5 and 100.5 % of real, never back."""
    broker = BrokerTime()
    last = broker.probe()
    last_at = broker.machine.at
    assert last is not None
    for (there, back, pause), ahead in steps:
        broker.ahead = ahead
        broker.probe(there=there, back=back)
        broker.machine.at += pause
        now = broker.clock.now()
        assert now is not None
        passed = broker.machine.at - last_at
        assert now >= last
        assert passed * (1 - SLEW) - 1.01 <= now - last <= passed * (1 + SLEW) + 1.01
        last, last_at = now, broker.machine.at
    assert broker.clock.jumps == 0


@given(st.lists(st.tuples(st.integers(-(10**11), 10**11), st.integers(1, 7), SLEEPS), max_size=12))
def test_now_goes_back_only_by_a_believed_jump(world: list[tuple[int, int, float]]) -> None:
    """However the brokers' time is thrown about: without a jump counted, no look is before an earlier one."""
    broker = BrokerTime()
    broker.probe()
    last, jumps = broker.clock.now(), 0
    for ahead, probes, pause in world:
        broker.ahead = ahead
        for _ in range(probes):
            now = broker.probe()
            if now is not None and last is not None and broker.clock.jumps == jumps:
                assert now >= last
            last = last if now is None else now
            jumps = broker.clock.jumps
            broker.machine.at += pause


@given(st.lists(st.tuples(st.integers(-(10**13), 10**13), st.integers(1, 7)), max_size=12), st.integers(-5_000, 5_000))
def test_no_time_outside_of_what_is_believed_and_none_by_fewer_than_five(
    world: list[tuple[int, int]], wrong: int
) -> None:
    """Never a year outside 2020-2100; and a time far from the last one only after five probes that said so."""
    broker = BrokerTime(wrong=wrong)
    said: list[int] = []
    agreed: float | None = None
    for ahead, probes in world:
        broker.ahead = ahead
        for _ in range(probes):
            said.append(ahead)
            now = broker.probe()
            broker.machine.at += 10
            if now is None:
                continue
            assert FIRST_BELIEVED - JUMP_MS <= now <= LAST_BELIEVED
            offset = now - broker.machine.at
            if agreed is not None and abs(offset - agreed) > 2 * JUMP_MS:
                recent = said[-AGREEING:]
                assert len(recent) == AGREEING
                assert max(recent) - min(recent) <= AGREE_MS + 1
            agreed = offset
