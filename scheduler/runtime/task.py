"""One shard at work: a thread, a store, a transactional producer.

    own    init_transactions, restore, open, seek          any failure: thrown away and owned anew, after the group's
    loop   look at the clock and the inbox, plan, commit,  coordinator has confirmed that the partition is still ours
           apply, housekeep, wait

The thread decides nothing by itself: `Shard` does. It never runs two steps at once, so everything about one partition
happens in one order.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import closing
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING

from scheduler.core.tenants import NO_TENANTS
from scheduler.errors import Fenced, NewerFormat, Retriable, StateCorrupted, StoreDamaged, StoreUnusable
from scheduler.runtime.gauges import Gauges
from scheduler.runtime.ran import Scanner
from scheduler.runtime.restore import Outlived, Restore
from scheduler.runtime.telemetry import event
from scheduler.runtime.transaction import INIT_S, Transaction
from scheduler.shard.rebuild import ORDER
from scheduler.shard.shard import COMMANDS_INPUT, Shard

if TYPE_CHECKING:
    from scheduler.core.calendars import Calendars
    from scheduler.runtime.surroundings import Surroundings
    from scheduler.shard.commands import Input
    from scheduler.state.store import Store

WAIT_S = 1.0  # at most, between looks
SHORT_WAIT_MS = 1_000  # the clocks of two nodes may differ by some ms; longer is worth telling
LOOK_MS = 5.0  # between looks whether something has fallen due, at least
QUEUE_MS = 100.0  # to join what is due, while commands wait for their turn: the brokers have enough to do
BUDGET_S = 0.02  # between looks while work waits for a budget
READ_S = 0.02  # between looks whether another shard still reads ahead
RETRY_S = 0.05  # the first; a kept shard goes on at once
RETRY_GROWTH = 4
RETRY_MAX_S = 5.0
SERVED_S = 30.0  # a shard that served so long begins again with quick retries
PREDECESSOR_S = INIT_S + 2.0  # longer than a call of the old thread that would fence the new one


class Phase(StrEnum):
    """Where a task is; `ready` is the only one in which the shard serves."""

    OPENING = "opening"
    READY = "ready"
    FAILED = "failed"  # can't serve; tries again
    CLOSED = "closed"


class ShardTask:
    """Owns one shard while its partition is assigned to this process. The poll loop feeds it and never waits for it."""

    def __init__(self, number: int, around: Surroundings, predecessor: ShardTask | None = None) -> None:
        self.number = number
        self.phase = Phase.OPENING
        self.trouble: str | None = None
        self.seek_to: int | None = None  # set by the thread, cleared by the poll loop once it feeds from there
        self.position: int | None = None  # the next command to read; None until it was ready once
        self.wants_proof = False
        self.is_outgrown = False  # it can't serve because a newer version wrote the shard
        self._around = around
        self._monotonic = around.outside.monotonic
        self._predecessor = predecessor
        self._inbox: deque[Input] = deque()
        self._feeding = False
        self._next = 0  # the lowest offset not fed yet
        self._caught_up = False
        self._closing = False
        self._leaves_at: float | None = None
        self._idle_ms = 0.0  # with nothing due within this, a shard that leaves is gone
        self._called = False  # to take commands
        self._wipe = False  # the store was of no use
        self.refusals = 0  # of its store in a row, since it served for a while
        self._ready_at: float | None = None
        self._proof = around.outside.event()
        self._wake = around.outside.condition()
        self._thread = around.outside.thread(self._run, f"shard-{number}")

    # --- called by the poll loop

    def start(self) -> None:
        self._thread.start()

    def offer(self, inputs: list[Input]) -> None:
        """Hand over records read after the last seek. Older ones, by whatever way they came, are not applied again."""
        with self._wake:
            if self._feeding:
                if not self._inbox:  # or it knows that there is something, and rests until the next step may begin
                    self._wake.notify()
                self._inbox.extend(one for one in inputs if one.offset >= self._next)
                self._next = max(self._next, inputs[-1].offset + 1)

    def sought(self, offset: int) -> None:
        """The consumer now reads from `offset`; of no use if the shard has begun anew meanwhile."""
        with self._wake:
            if self.seek_to == offset:
                self.seek_to = None
                self._next = offset
                self._feeding = True

    def reached_end(self) -> None:
        """The command partition holds nothing more for now."""
        with self._wake:
            if self._feeding and not self._caught_up:
                self._caught_up = True
                self._wake.notify()

    def still_assigned(self) -> None:
        """Proof, asked for by `wants_proof`, that the partition is ours."""
        self._proof.set()

    def close(self) -> None:
        """Stop after the step at hand; does not wait."""
        with self._wake:
            self._closing = True
            self._proof.set()
            self._wake.notify()

    def leave(self, seconds: float, idle_s: float) -> None:
        """Fire on until another owner has taken over, so long at most, and only while something is due in `idle_s`."""
        with self._wake:
            self._idle_ms = idle_s * 1000
            self._leaves_at = self._monotonic() + seconds
            self._wake.notify()
        if self.phase is not Phase.READY:
            self.close()

    def join(self, seconds: float) -> bool:
        """Wait for the thread to end; False if it has not."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """Commands read and not answered."""
        return len(self._inbox)

    # --- the thread

    def _run(self) -> None:
        if self._predecessor is not None:
            self._predecessor.join(PREDECESSOR_S)
            self._predecessor = None
        with self._around.outside.mark(self._around.store_path(self.number)):
            self._own_until_closed()
        self.phase = Phase.CLOSED
        self._around.telemetry.ready.labels(str(self.number)).set(0)
        event("shard_closed", shard=self.number)

    def _own_until_closed(self) -> None:
        pause = RETRY_S
        while not self._ends:
            self._ready_at = None
            try:
                self._own()
            except Fenced as fault:
                self._failed("fenced", fault)
            except Retriable as fault:
                self._failed("retriable", fault)
            except StateCorrupted as fault:
                self._wipe = self._wipe or isinstance(fault, StoreDamaged)
                self._failed("state", fault)
            except Exception as fault:  # noqa: BLE001 - a shard is never left without an owner: report, and own it anew
                self._failed("unexpected", fault)
            if not self._ends:
                pause = RETRY_S if self._has_served else pause
                self._await_proof(pause)
                pause = min(RETRY_MAX_S, pause * RETRY_GROWTH)

    @property
    def _has_served(self) -> bool:
        """Whether it was ready, and for a while."""
        return self._ready_at is not None and self._monotonic() - self._ready_at > SERVED_S

    @property
    def _ends(self) -> bool:
        return self._closing or self._leaves_at is not None

    def _has_left(self, due: int | None, now: int) -> bool:
        """Whether a shard that leaves has nothing to stay for: its time is over, or nothing falls due soon."""
        if self._leaves_at is None:
            return False
        left_ms = (self._leaves_at - self._monotonic()) * 1000
        return left_ms <= 0 or due is None or due > now + min(left_ms, self._idle_ms)

    def _failed(self, why: str, fault: Exception) -> None:
        if self._ends:
            return  # cut off on the way out: the new owner goes on from what is committed
        self.phase = Phase.FAILED
        self.trouble = str(fault)
        self.is_outgrown = isinstance(fault, NewerFormat)
        before = 0 if self._has_served else self.refusals
        self.refusals = before + 1 if isinstance(fault, StoreUnusable) else 0
        self._around.telemetry.ready.labels(str(self.number)).set(0)
        self._around.telemetry.failures.labels(why).inc()
        unexpected = why == "unexpected"
        event("shard_failed", logging.ERROR, shard=self.number, why=why, text=str(fault))
        if unexpected:
            logging.getLogger("scheduler").error("shard_error", exc_info=fault)

    def _await_proof(self, seconds: float) -> None:
        """A re-created producer would fence a legitimate new owner: be sure first that we still are the owner."""
        end = self._monotonic() + seconds
        while (left := end - self._monotonic()) > 0 and not self._closing:
            self._wait(left)
        self._proof.clear()
        self.wants_proof = True
        if not self._closing:
            self._proof.wait()
        self.wants_proof = False

    def _own(self) -> None:
        """Be the shard until closed or something fails; on the way out nothing of it is left open."""
        around, outside = self._around, self._around.outside
        self.phase = Phase.OPENING
        with self._wake:
            self.seek_to = None
            self._feeding = False
            self._caught_up = False
            self._inbox.clear()
        began = self._monotonic()
        changelogs = {around.settings.namespace + base: base for base in ORDER}
        transaction = Transaction(
            outside.transactional_producer(self.number),
            outside.retire,
            outside.plain,
            around.catalogue.commands,
            changelogs,
            lambda: self._closing,
            self._monotonic,
        )
        consumer = outside.changelog_consumer()
        with closing(
            Restore(consumer, around.settings.namespace, self.number, lambda: self._closing, gate=around.gate)
        ) as restore:
            transaction.init()
            timeout_ms = around.settings.transaction_timeout_ms
            restore.await_settled(outside.ends, timeout_ms, self._monotonic, outside.event().wait)
            inited = self._monotonic()
            now = self._time()
            calendars = around.tables.wait(lambda: self._closing)
            if now is None or calendars is None:
                return
            store = self._restored(restore, now, calendars)
            restored = self._monotonic()
        scanner = Scanner(around.settings, around.catalogue, self.number, self._notify)
        gauges = Gauges(around.telemetry, self.number, self._monotonic)
        try:
            around.telemetry.restores.inc()
            around.telemetry.restored.inc(restore.applied)
            around.telemetry.foreign.inc(restore.foreign)
            shard = Shard(self.number, around.catalogue, store, around.shard_settings())
            now = self._time()
            if now is None:
                return
            shard.use(calendars)
            shard.open(now, restore.commands_end)
            around.telemetry.zones_missing.labels(str(self.number)).set(shard.zones.missing())
            with self._wake:
                self.position = self.seek_to = shard.position(COMMANDS_INPUT)
            self.phase = Phase.READY
            self._ready_at = self._monotonic()
            self.trouble = None
            around.telemetry.ready.labels(str(self.number)).set(1)
            event(
                "shard_ready",
                shard=self.number,
                seconds=round(self._monotonic() - began, 3),
                init_s=round(inited - began, 3),
                restore_s=round(restored - inited, 3),
                applied=restore.applied,
            )
            with closing(shard):
                self._loop(shard, transaction, scanner, calendars, gauges)
        finally:
            gauges.forget()
            around.pace.leave(self.number)
            scanner.stop()
            store.close()

    def _restored(self, restore: Restore, now: int, calendars: Calendars) -> Store:
        """The store with all that was committed."""
        around = self._around
        path, identity = around.store_path(self.number), around.identity(self.number)
        store = around.outside.open_store(path, identity, now, lambda: self._closing, wipe=self._wipe)
        self._wipe = False
        try:
            restore.run(store, calendars)
        except BaseException as fault:
            self._wipe = isinstance(fault, Outlived)
            store.close()
            raise
        return store

    def _time(self) -> int | None:
        """The due clock's time, as soon as it may be believed; None when closing."""
        while not self._closing:
            now = self._around.clock.now()
            if now is not None:
                return now
            with self._wake:
                self._wake.wait(0.02)
        return None

    def _loop(
        self, shard: Shard, transaction: Transaction, scanner: Scanner, calendars: Calendars, gauges: Gauges
    ) -> None:
        settings, clock, pace = self._around.settings, self._around.clock, self._around.pace
        tenants = NO_TENANTS
        jumps = clock.jumps  # a look that is late after one is late because of it
        rest_ms = 0.0  # until the next step may begin
        due_rest_ms = 0.0  # the same, once something is due
        stepped = self._monotonic()
        while not self._closing:
            if self._around.tables.calendars is not calendars:
                calendars = self._around.tables.calendars
                shard.use(calendars)
            if self._around.tables.tenants is not tenants:
                tenants = self._around.tables.tenants
                shard.set_catch_up(*tenants.catch_up(settings.catch_up_per_s, settings.shards))
                shard.set_weights(tenants.weights())
            now = self._around.clock.now()
            if now is None:
                if self._has_left(None, 0):
                    return
                self._wait(0.02)
                continue
            waits_ms = shard.waits_ms(now)
            self.trouble = f"waits {waits_ms} ms: the clock went back" if waits_ms > SHORT_WAIT_MS else None
            if waits_ms:
                if self._has_left(None, now):  # what waits can't fire
                    return
                self._wait(min(WAIT_S, waits_ms / 1000))
                continue
            due = shard.next_instant()
            if self._has_left(due, now):
                return
            is_due = due is not None and due <= now
            elapsed_ms = (self._monotonic() - stepped) * 1000
            if elapsed_ms < rest_ms and not self._called and not (is_due and elapsed_ms >= due_rest_ms):
                if not self._housekeep(shard, now, chores=False):
                    self._rest(min(rest_ms - elapsed_ms, max(LOOK_MS, settings.join_due_ms)) / 1000)
                continue
            stepped = self._monotonic()
            self._called = False
            pace.press(self.number, is_pressed=shard.is_pressed(now))
            chores = pace.turn(self.number, has_chores=shard.has_chores)
            with self._wake:
                waiting = len(self._inbox)
                inputs = list(islice(self._inbox, shard.max_inputs))
                if self._caught_up and not inputs:
                    shard.commands_read()
            for question, ran in scanner.answers():
                shard.answer(question, ran)
            away = "clock" if jumps != clock.jumps else "downtime"
            with pace.deciding(self.number, waiting, self._call) as decides:
                step = shard.plan(now, inputs if decides else (), away=away, chores=chores)
            shard.took((self._monotonic() - stepped) * 1000)
            jumps = clock.jumps
            if step is not None:
                seconds = transaction.commit(step)
                shard.committed(step)
                for _ in range(step.consumed):
                    self._inbox.popleft()
                self.position = shard.position(COMMANDS_INPUT)
                self._around.telemetry.committed(step, self._around.clock.now() or now, seconds)
                rest_ms = settings.join_due_ms if len(self._inbox) >= shard.max_inputs else settings.join_ms
                due_rest_ms = settings.join_due_ms
            if not decides:
                rest_ms = due_rest_ms = max(QUEUE_MS, settings.join_due_ms)  # or until called
            scanner.ask(shard.questions())
            more = self._housekeep(shard, now, chores=chores)
            pace.done(self.number)
            gauges.show(shard, now, len(self._inbox))
            if decides and step is None and not more:
                self._wait_for_work(shard)

    def _housekeep(self, shard: Shard, now: int, *, chores: bool) -> bool:
        with self._around.pace.reading() as ahead:
            return shard.housekeep(now, chores=chores, ahead=ahead)

    def _wait_for_work(self, shard: Shard) -> None:
        due, now = shard.next_instant(), self._around.clock.now()
        ahead = WAIT_S if due is None or now is None else (due - now) / 1000
        # What is due and still gave nothing to commit waits for a budget.
        seconds = BUDGET_S if ahead <= 0 else min(WAIT_S, ahead)
        if shard.has_chores:
            seconds = min(seconds, self._around.pace.rest)
        if now is not None and shard.horizon.is_short(now):
            seconds = min(seconds, READ_S)
        with self._wake:
            if not self._inbox and not self._closing:
                self._wake.wait(seconds)

    def _call(self) -> None:
        """Another shard has decided on its commands: it may be our turn."""
        with self._wake:
            self._called = True
            self._wake.notify()

    def _rest(self, seconds: float) -> None:
        with self._wake:
            if not self._closing and not self._called:
                self._wake.wait(seconds)

    def _notify(self) -> None:
        with self._wake:
            self._wake.notify()

    def _wait(self, seconds: float) -> None:
        with self._wake:
            if not self._closing:
                self._wake.wait(seconds)
