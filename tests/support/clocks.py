"""A machine's clocks and a broker's, moved by hand, with the due clock between them."""

from __future__ import annotations

from scheduler.runtime.clock import DueClock

EPOCH = 1_800_000_000_000  # the brokers' time when the machine's monotonic clock says 0


class Machine:
    """`at`: ms of the monotonic clock. `wrong`: how far the wall clock is ahead of the truth."""

    def __init__(self) -> None:
        self.at = 0.0
        self.wrong = 0

    def monotonic_ms(self) -> float:
        return self.at

    def wall_ms(self) -> float:
        return EPOCH + self.at + self.wrong


class BrokerTime:
    """Answers probes; its time is EPOCH plus the machine's, plus `ahead`."""

    def __init__(self, *, wrong: int = 0, ahead: float = 0) -> None:
        self.machine = Machine()
        self.machine.wrong = wrong
        self.clock = DueClock(self.machine)
        self.ahead = ahead

    def probe(self, *, there: float = 1, back: float = 1) -> int | None:
        """One probe that takes `there` ms to the broker and `back` ms home; then what the due clock says."""
        sent = self.machine.at
        appended = int(EPOCH + sent + there + self.ahead)
        self.machine.at += there + back
        self.clock.observe(sent, self.machine.at, appended)
        return self.clock.now()

    def probes(self, count: int, *, apart_ms: float = 1_000) -> int | None:
        """So many ordinary ones; what the due clock says after the last."""
        now = None
        for _ in range(count):
            self.machine.at += apart_ms
            now = self.probe()
        return now

    def true_now(self) -> float:
        """What a record would be stamped with now, if stamps had fractions."""
        return EPOCH + self.machine.at + self.ahead
