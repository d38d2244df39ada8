"""The due clock: never ahead of the brokers, moved slowly, and not fooled by one strange probe."""

from __future__ import annotations

from scheduler.runtime.clock import AGREEING, JUMP_MS, SLEW, DueClock

EPOCH = 1_800_000_000_000  # the brokers' time when the machine's monotonic clock says 0


class Machine:
    """Clocks moved by hand."""

    def __init__(self) -> None:
        self.at = 0.0

    def monotonic_ms(self) -> float:
        return self.at

    def wall_ms(self) -> float:
        return EPOCH + self.at


class Broker:
    """Answers probes; its time is EPOCH plus the machine's, plus `ahead`."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.clock = DueClock(self.machine)
        self.ahead = 0

    def probe(self, *, there: int = 1, back: int = 1) -> None:
        """One probe that takes `there` ms to the broker and `back` ms home."""
        sent = self.machine.at
        appended = int(EPOCH + sent + there + self.ahead)
        self.machine.at += there + back
        self.clock.observe(sent, self.machine.at, appended)

    def true_now(self) -> float:
        return EPOCH + self.machine.at + self.ahead


def test_no_time_before_the_first_probe() -> None:
    """Nothing is emitted by a guess."""
    assert DueClock(Machine()).now() is None


def test_never_ahead_of_the_broker() -> None:
    """Whatever the way there and back takes, the clock is at or behind the time a record would be stamped with."""
    broker = Broker()
    for there, back in [(1, 9), (9, 1), (5, 5), (0, 700), (700, 0), (1, 1)]:
        broker.probe(there=there, back=back)
        now = broker.clock.now()
        assert now is not None
        assert now <= broker.true_now()
        broker.machine.at += 1_000


def test_a_better_bound_is_approached_slowly() -> None:
    """A first probe that took long is made good at half a percent, so no second is much shorter than another."""
    broker = Broker()
    broker.probe(back=500)
    before = broker.clock.now()
    broker.probe(back=1)
    at = broker.machine.at
    broker.machine.at += 10_000
    after = broker.clock.now()
    assert before is not None
    assert after is not None
    gained = (after - before) - (broker.machine.at - at) - 2  # the second probe took 2 ms
    assert 0 < gained <= (10_002) * SLEW + 1
    broker.machine.at += 100_000
    now = broker.clock.now()
    assert now is not None
    assert broker.true_now() - now <= 2


def test_a_probe_that_took_long_is_no_jump() -> None:
    """A frozen process gets its answer minutes late: that says little, and contradicts nothing."""
    broker = Broker()
    broker.probe()
    broker.probe(back=60_000)
    assert broker.clock.now() is not None
    broker.probe(there=60_000)
    assert broker.clock.now() is not None
    assert broker.clock.jumps == 0


def test_one_strange_probe_stops_the_clock_until_it_is_disproved() -> None:
    """In doubt nothing is emitted; the next ordinary probe ends the doubt."""
    broker = Broker()
    broker.probe()
    broker.ahead = 2 * JUMP_MS
    broker.probe()
    assert broker.clock.now() is None
    broker.ahead = 0
    broker.probe()
    assert broker.clock.now() is not None
    assert broker.clock.jumps == 0


def test_a_jump_is_believed_when_five_probes_agree() -> None:
    """Forwards or backwards, the clock then shows the brokers' new time."""
    for jump in (3_600_000, -3_600_000):
        broker = Broker()
        broker.probe()
        broker.ahead = jump
        for _ in range(AGREEING):
            assert broker.clock.jumps == 0
            broker.probe()
        now = broker.clock.now()
        assert broker.clock.jumps == 1
        assert now is not None
        assert 0 <= broker.true_now() - now <= 2


def test_probes_that_disagree_are_not_believed() -> None:
    """A clock that is all over the place gives no time at all."""
    broker = Broker()
    broker.probe()
    for number in range(3 * AGREEING):
        broker.ahead = 10_000 * (number % 2 + 1)
        broker.probe()
    assert broker.clock.now() is None
    assert broker.clock.jumps == 0


def test_the_wall_clock_is_only_compared() -> None:
    """Its difference from the brokers' time raises an alarm and moves nothing."""
    broker = Broker()
    broker.ahead = -5_000
    broker.probe()
    difference = broker.clock.wall_difference_ms()
    assert difference is not None
    assert abs(difference - 5_000) <= 2
