"""Who may do what nobody waits for: advance fired entries, complete finished schedules, forget old ones, read ahead.

None of it is urgent, all of it costs a processor that producing, the brokers and the readers want at the instant. So it
rests while any shard of the process has much to fire, and a little longer, until the readers have it; it is done by one
shard at a time, which the interpreter allows to only one anyhow; and it keeps to a share of a processor. The longer it
has waited the larger its share, up to the whole, and in the end it goes before what is due: a load that never ends is
kept up with, a burst is not disturbed.

One shard at a time also reads ahead, a chunk of some 10 ms: they would all do so at once, since what they have read
ends at the same instant, and what is due meanwhile would wait for all of them (ADR 0025). One shard at a time decides
on commands, if they are many: what is due in the others would wait for all of their steps (ADR 0027).

While a shard has much to fire the interpreter also changes threads less often: in its usual 5 ms a shard hands about a
tenth of a large step to its client, which then sends what it has in small batches, and all shards go slowly together
instead of one after the other *(500,000 at one instant: 52 % of what bare producers do, and some 70 % with 30 ms)*.
"""

from __future__ import annotations

from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from scheduler.shard.shard import FEW_COMMANDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHARE = 0.25  # of a processor, at first
WHOLE_AFTER_S = 30.0  # without ever having been done with it: then without rest
PATIENCE_S = 10.0  # so long it gives way to what is due
QUIET_S = 2.0  # after that, for the brokers and the readers
SWITCH_S = 0.005  # the interpreter's own
PRESSED_SWITCH_S = 0.03  # about what handing over a full step takes


class Pace:
    """Shared by the shards of a process, safe to use by their threads. Both clocks are in seconds; `cpu` is the
    calling thread's. `switch` is told after how many seconds another thread may have the interpreter.
    """

    def __init__(self, clock: Callable[[], float], cpu: Callable[[], float], switch: Callable[[float], None]) -> None:
        self._clock = clock
        self._cpu = cpu
        self._switch = switch
        self._lock = Lock()
        self._pressed: set[int] = set()
        self._since: dict[int, float] = {}  # when a shard's chores began to wait
        self._holder: int | None = None
        self._reading = Lock()
        self._deciding = False
        self._decide_next: dict[int, Callable[[], None]] = {}  # who found it taken, and how to call it
        self._began = 0.0
        self._rest_until = 0.0
        self._quiet_until = 0.0

    def press(self, shard: int, *, is_pressed: bool) -> None:
        """Whether this shard has more to fire than it can at once."""
        if is_pressed != (shard in self._pressed):
            with self._lock:
                self._note(shard, is_pressed=is_pressed)
                self._quiet_until = self._clock() + QUIET_S

    def turn(self, shard: int, *, has_chores: bool) -> bool:
        """Whether the shard may do a slice of its chores now; `done` follows the slice."""
        now = self._clock()
        with self._lock:
            if not has_chores:
                self._since.pop(shard, None)
                return not self._pressed
            waited = now - self._since.setdefault(shard, now)
            gives_way = waited < PATIENCE_S and (self._pressed or now < self._quiet_until)
            if gives_way or self._holder is not None or now < self._rest_until:
                return False
            self._holder = shard
            self._began = self._cpu()
            return True

    def done(self, shard: int) -> None:
        """The slice is over, if the shard had one: rest in proportion to what it cost."""
        with self._lock:
            if self._holder == shard:
                now = self._clock()
                share = min(1.0, SHARE + (1 - SHARE) * (now - self._since[shard]) / WHOLE_AFTER_S)
                self._rest_until = now + (self._cpu() - self._began) * (1 / share - 1)
                self._holder = None

    @contextmanager
    def reading(self) -> Iterator[bool]:
        """Whether the shard may read ahead now: not while another one does."""
        is_free = self._reading.acquire(blocking=False)
        try:
            yield is_free
        finally:
            if is_free:
                self._reading.release()

    @contextmanager
    def deciding(self, shard: int, waiting: int, call: Callable[[], None]) -> Iterator[bool]:
        """Whether the shard may decide on commands now, of which so many wait; if not, `call` says when to ask again.

        Whenever a turn ends one is called. If it does not ask, the others must do so by themselves, after a while.
        """
        is_many = waiting > FEW_COMMANDS
        with self._lock:
            decides = not is_many or not self._deciding
            self._deciding = self._deciding or is_many
            if decides:
                self._decide_next.pop(shard, None)
            else:
                self._decide_next.setdefault(shard, call)
        try:
            yield decides
        finally:
            if decides:
                self._call_next(is_over=is_many)

    def _call_next(self, *, is_over: bool) -> None:
        with self._lock:
            self._deciding = self._deciding and not is_over
            following = None if self._deciding else next(iter(self._decide_next), None)
            call = None if following is None else self._decide_next.pop(following)
        if call is not None:
            call()

    def leave(self, shard: int) -> None:
        """The shard is here no more."""
        with self._lock:
            self._note(shard, is_pressed=False)
            self._since.pop(shard, None)
            self._decide_next.pop(shard, None)
            if self._holder == shard:
                self._holder = None
        self._call_next(is_over=False)  # it may have been called, and gone

    def _note(self, shard: int, *, is_pressed: bool) -> None:
        (self._pressed.add if is_pressed else self._pressed.discard)(shard)
        self._switch(PRESSED_SWITCH_S if self._pressed else SWITCH_S)

    @property
    def rest(self) -> float:
        """Seconds until it is worth asking again."""
        return max(0.005, max(self._rest_until, self._quiet_until) - self._clock())
