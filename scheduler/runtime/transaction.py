"""The only file that commits. Assumes Kafka transactions; see `Transaction.commit` for the order.

After any failure of a transactional call the outcome is unknown: the producer is thrown away, never begun again on, and
the shard is read anew. `init` on a new producer with the same transactional id settles what was open.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from scheduler.errors import Fenced, Retriable
from scheduler.runtime.clock import Deadline
from scheduler.runtime.kafka import BATCH_BYTES, reaction_to
from scheduler.shard.firing import FIRST_STEP
from scheduler.shard.rebuild import mark_applied

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import Message, Producer

    from scheduler.shard.step import Forward, Step

# Beyond these the outcome is unknown and everything is read anew. Longer would only keep a closing shard from ending,
# since the brokers abort after `transaction.timeout.ms` anyhow.
INIT_S = 10.0
COMMIT_S = 10.0
FORWARD_S = 10.0
ASK_S = 0.05  # for the coordinator's answer to an initialisation, before it is asked again
HASTE_S = 0.002  # for the client to begin sending a short step of a rush; a commit first asks another of its threads
LEAST_SHORT = 200  # items: fewer are no rush
PATIENCE_S = 0.05  # for the next of a large step's batches to be acknowledged
SAMPLE = 32  # items of a step whose sizes and partitions stand for all
SLICE_S = 0.5  # a call is resumed so often, and given up at once when the shard is to close


class Transaction:
    """Commits steps of one shard through its transactional producer, made for it and used by it alone.

    `changelogs`: full topic name to base name. `retire` keeps a client that failed for as long as it needs.
    """

    def __init__(
        self,
        producer: Producer,
        retire: Callable[[Producer], None],
        plain: Producer,
        commands_topic: str,
        changelogs: Mapping[str, str],
        stopped: Callable[[], bool],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stopped = stopped
        self._monotonic = monotonic
        self._retire = retire
        self._producer = producer
        self._plain = plain
        self._commands_topic = commands_topic
        self._changelogs = changelogs

    def init(self) -> None:
        """Fence whoever had the transactional id, and abort what it left open. Raises Fenced or Retriable.

        While the coordinator aborts, which takes some ms, it refuses; each call asks it anew. A second client would not
        help: the first goes on asking by itself, and fences the second when it is heard. So one that is given up is not
        retired either; it is destroyed with this object.
        """
        try:
            self._patiently(self._producer.init_transactions, INIT_S, ASK_S)
        except KafkaException as fault:
            if fault.args[0].retriable():
                raise reaction_to(fault, "init_transactions") from fault
            raise self._failed(fault, "init_transactions") from fault

    def commit(self, step: Step) -> float:
        """Commit one step; returns the seconds it took. Raises Fenced or Retriable, after which nothing is known.

        1. Commands for other partitions are copied there and acknowledged: if we die now, they are copied again.
        2. begin; 3. produce changelog, answers, dispatches; 4. wait for full batches; 5. commit.
        6. The changelog positions go into the step's batch: the store will say how far it follows the topics.
        """
        if step.forwards:
            self._forward(step.forwards)
        began = self._monotonic()
        applied: dict[str, int] = {}
        doing = "produce"
        try:
            self._producer.begin_transaction()
            self._produce(step, applied)
            if LEAST_SHORT <= len(step.items) <= FIRST_STEP:
                self._producer.flush(HASTE_S)
            else:
                self._await_batches(step)
            doing = "commit"
            self._patiently(self._producer.commit_transaction, COMMIT_S, SLICE_S)
        except KafkaException as fault:
            raise self._failed(fault, doing) from fault
        except BufferError as fault:
            self._retire(self._producer)
            raise Retriable(f"produce: the client's queue is full ({fault})") from fault
        for topic, offset in applied.items():
            mark_applied(step.batch, self._changelogs[topic], offset + 1)
        return self._monotonic() - began

    def _patiently(self, call: Callable[[float], object], seconds: float, at_a_time: float) -> None:
        """Make a call, and resume it as often as the client allows, until it is done, fails or the shard closes."""
        deadline = Deadline(seconds, self._monotonic)
        while True:
            try:
                call(at_a_time)
            except KafkaException as fault:
                if not fault.args[0].retriable() or not deadline.left() or self._stopped():
                    raise
            else:
                return

    def _failed(self, fault: KafkaException, doing: str) -> Fenced | Retriable:
        self._retire(self._producer)
        return reaction_to(fault, doing)

    def _produce(self, step: Step, applied: dict[str, int]) -> None:
        """The changelogs go first: their partitions then join the transaction together with the first item's.

        In one request, that is, and not in another one that is waited for at the end.
        """
        # Its stubs ask for invariant lists of headers. Arguments by their places save a quarter of the
        # call; the sixth is another name of the fifth, looked at only where the fifth is not given at all.
        produce: Any = self._producer.produce
        now, changelogs = step.now, self._changelogs

        def delivered(_error: object, message: Message) -> None:
            applied[message.topic() or ""] = message.offset() or 0

        # Stamped by the due clock: the wall clock may be wrong, and a stamp an hour ahead would be refused.
        last = {record.topic: record for record in step.records if record.topic in changelogs}
        for record in step.records:
            topic = record.topic
            if topic in last:
                # Only the last record of each is asked for its offset: the store's position is behind it.
                told = delivered if last[topic] is record else None
                produce(topic, record.value, record.key, record.partition, told, None, now, record.headers)
        for _, value, entry, _ in step.items:
            topic, partition, key = entry.target
            produce(topic, value, key, partition)
        for record in step.records:
            if record.topic not in last:
                produce(record.topic, record.value, record.key, record.partition, None, None, now, record.headers)

    def _await_batches(self, step: Step) -> None:
        """Let the full batches of a large step go out before the commit, until what is left may fill none.

        A commit makes the client send whatever waits. But a partition has one request on its way at a time, and while
        it may not send the next, the client's thread asks again without rest, at the cost of all others (ADR 0033). It
        rests if no commit is under way. Where nothing comes back in time, or something else is told, the rest is left
        to the commit. What cannot fill a batch would be waited for in vain: it is rather taken to be more than less.
        """
        sample = step.items[:: 1 + len(step.items) // SAMPLE]
        if not sample:
            return
        least = min(len(item.value) + len(item.entry.target.key) for item in sample)
        partitions = len({item.entry.target[:2] for item in sample})
        fitting = len(step.records) + partitions * (BATCH_BYTES // least)
        left = len(self._producer)
        while left > fitting and not self._stopped():
            self._producer.poll(PATIENCE_S)
            before, left = left, len(self._producer)
            if left >= before:
                return

    def _forward(self, forwards: list[Forward]) -> None:
        failed: list[object] = []
        delivered = 0

        def acknowledged(error: object, _message: Message) -> None:
            nonlocal delivered
            if error is None:
                delivered += 1
            else:
                failed.append(error)

        try:
            for forward in forwards:
                self._plain.produce(
                    self._commands_topic,
                    forward.value,
                    forward.key,
                    forward.partition,
                    on_delivery=acknowledged,
                    headers=[*forward.headers],
                )
        except (BufferError, KafkaException) as fault:
            raise Retriable(f"commands could not be forwarded: {fault}") from fault
        deadline = Deadline(FORWARD_S, self._monotonic)
        while delivered + len(failed) < len(forwards) and deadline.left():
            self._plain.poll(0.05)
        if delivered < len(forwards):
            raise Retriable(f"{len(forwards) - delivered} commands could not be forwarded: {failed[:1]}")
