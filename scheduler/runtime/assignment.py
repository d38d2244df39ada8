"""Partitions come and go: owning partition p of the command topic is owning shard p, of those that there should be.

The group is subscribed to `scheduler.commands` alone. A cooperative assignor does not co-partition topics, so every
other topic of a shard is addressed by partition number and never assigned by the group. Callbacks run inside the poll
loop and only start and stop tasks; nothing in them waits.

A shard that failed (a transactional call with an unknown outcome, a producer fenced, a disk that refused) may own
itself anew only while the partition is ours, or it would fence its legitimate new owner. The group's coordinator says
so: it takes a commit of offsets only from a member of the current generation. The same commits, every few seconds, show
lag tools where the shards are; no shard ever reads them. Partitions that belong to no shard: `strays.py`.

    failed, commit taken     still ours: own it anew
    failed, commit refused   the group has gone on without us: the next poll tells which partitions are lost

A shard that goes to another process, because the group says so or because this one stops, fires on until its new owner
fences it, for that is when the new owner is ready to: until then nothing would. A planned stop with other nodes in the
group leaves it first.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, OFFSET_STORED, KafkaError, KafkaException, TopicPartition

from scheduler.core.time import MAX_MS
from scheduler.runtime.clock import Deadline
from scheduler.runtime.kafka import header
from scheduler.runtime.strays import Strays
from scheduler.runtime.task import Phase, ShardTask
from scheduler.runtime.telemetry import event
from scheduler.shard.commands import Input
from topics.messages import FORWARDED_AFTER_HEADER, FORWARDED_HEADER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import Consumer, Message

    from scheduler.runtime.surroundings import Surroundings

BATCH = 5_000
BUSY = 50  # records of a turn after which the next one gathers
GATHER_S = 0.01  # less than the shards wait to join steps
POLL_S = 0.1
INBOX_HIGH = 20_000  # records waiting for a shard beyond which its partition is paused
INBOX_LOW = 5_000
OFFSETS_S = 5.0  # between commits for lag tools
ANSWER_S = 10.0  # a commit unanswered for so long is forgotten
PROOF_S = 0.2  # between commits asked for as proof
LEAVE_S = 1.0  # for a new owner to get ready in, once it has heard that we left: one and a half heartbeats
LEAVE_MAX_S = 5.0
SETTLED_S = 10.0  # after joining: longer than a rebalance takes
GIVE_UP_S = 15.0  # for a new owner of a revoked shard: the group hears of it in its next rebalance
GIVE_UP_IDLE_S = 0.5  # if nothing of it falls due so soon it closes: the new owner may wait for the store, on this node


class Assignment:
    """The shards of this process and the consumer that feeds them. Used by the poll loop's thread alone."""

    def __init__(self, around: Surroundings, ending: Mapping[int, ShardTask] | None = None) -> None:
        """`ending`: what an assignment before this one left behind; a shard's next task waits for its last one."""
        self._consumer = around.outside.command_consumer(self._committed)
        self._around = around
        self._monotonic = around.outside.monotonic
        self._topic = around.catalogue.commands
        self._strays = Strays(around.outside.plain, self._topic, around.settings.shards, self._monotonic)
        self.tasks: dict[int, ShardTask] = {}
        self._has_heard = False
        self._joined_at = math.inf
        self._closing: dict[int, ShardTask] = dict(ending or {})
        self._paused: set[int] = set()
        self._leaving = False
        self._is_busy = False
        self._asking: list[ShardTask] | None = None  # whom the answer to the commit under way concerns
        self._asked_at = 0.0

    def join(self) -> None:
        """Become a member of the group."""
        self._joined_at = self._monotonic()
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def poll(self) -> None:
        """One turn: hear from the group, feed the shards, serve their wishes."""
        messages: list[Message] = []
        first = self._consumer.poll(POLL_S)
        if first is not None:
            # While many come, wait for some more: each turn costs as much as reading a dozen.
            messages = [first, *self._consumer.consume(BATCH, GATHER_S if self._is_busy else 0)]
        self._is_busy = len(messages) >= BUSY
        self._feed(messages)
        for number, task in self.tasks.items():
            if task.seek_to is not None:
                self._seek(number, task, task.seek_to)
            self._throttle(number, task.waiting)
        if self._strays.partitions:
            self._strays.send()
            self._around.telemetry.strays_waiting.set(self._strays.waiting)
            for number in self._strays.partitions:
                self._throttle(number, self._strays.waiting)
        self._commit_offsets()
        self._closing = {n: t for n, t in self._closing.items() if t.phase is not Phase.CLOSED}

    @property
    def is_settled(self) -> bool:
        """Whether the group has said what is ours. Who gets nothing is not told so: that shows by time alone."""
        return self._has_heard or self._monotonic() - self._joined_at > SETTLED_S

    @property
    def is_outgrown(self) -> bool:
        """Whether a shard of ours was written by a newer version than this."""
        return any(task.is_outgrown for task in self.tasks.values())

    def refused(self, times: int) -> list[int]:
        """The shards of ours that can't serve since their stores were refused, so many times in a row at least."""
        tasks = self.tasks.items()
        return sorted(n for n, task in tasks if task.refusals >= times and task.phase is not Phase.READY)

    @property
    def ending(self) -> dict[int, ShardTask]:
        """Once closed: the tasks that may not have ended in time."""
        return {**self._closing, **self.tasks}

    def close(self, seconds: float) -> bool:
        """Leave the group and stop all shards, such that others take over at once. True if all stopped in time."""
        deadline = Deadline(seconds, self._monotonic)
        if self.tasks and self._around.outside.has_company():
            self._hand_over()
        tasks = [*self.tasks.values(), *self._closing.values()]
        for task in tasks:
            task.close()
        stopped = [task.join(deadline.left()) for task in tasks]
        if not self._leaving:
            self._consumer.close()
        return all(stopped)

    def _hand_over(self) -> None:
        """From here on nothing of ours may fence a new owner: who does not fire stops, and no proof is given."""
        self._leaving = True
        for task in self.tasks.values():
            if task.phase is not Phase.READY:
                task.close()
        self._consumer.close()
        heartbeat_s = self._around.settings.heartbeat_interval_ms / 1000
        deadline = Deadline(min(LEAVE_MAX_S, LEAVE_S + 1.5 * heartbeat_s), self._monotonic)
        for task in self.tasks.values():
            task.leave(deadline.left(), deadline.left())
        for task in self.tasks.values():
            task.join(deadline.left())

    # --- callbacks: start, stop or let go, never wait

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # Read nothing until the shard says from where: its own record holds the position, not the group. Not at a
        # logical offset, which the client would look up, and go to, perhaps after the seek.
        self._has_heard = True
        strays = [p.partition for p in partitions if self._strays.is_stray(p.partition)]
        shards = [p for p in partitions if not self._strays.is_stray(p.partition)]
        consumer.incremental_assign(
            [
                *(TopicPartition(p.topic, p.partition, 0) for p in shards),
                *(TopicPartition(self._topic, number, OFFSET_STORED) for number in strays),
            ]
        )
        consumer.pause(shards)
        self._strays.assigned(strays)
        for partition in shards:
            number = partition.partition
            if number in self.tasks:
                continue
            predecessor = self._closing.pop(number, None)
            if predecessor is not None:
                predecessor.close()
            task = ShardTask(number, self._around, predecessor)
            self.tasks[number] = task
            self._paused.discard(number)
            task.start()
        event("shards_assigned", shards=[p.partition for p in shards])

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for task in self._dropped(partitions):
            task.leave(GIVE_UP_S, GIVE_UP_IDLE_S)
        consumer.incremental_unassign(partitions)
        event("shards_revoked", shards=[p.partition for p in partitions])

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for task in self._dropped(partitions):
            task.close()
        consumer.incremental_unassign(partitions)
        event("shards_lost", logging.WARNING, shards=[p.partition for p in partitions])

    def _dropped(self, partitions: list[TopicPartition]) -> list[ShardTask]:
        """The tasks of partitions that are no longer ours; they are on their way out from now on."""
        self._strays.dropped(p.partition for p in partitions)
        if self._leaving:
            return []  # on their way already
        dropped = {p.partition: self.tasks.pop(p.partition) for p in partitions if p.partition in self.tasks}
        self._closing |= dropped
        return list(dropped.values())

    # --- feeding

    def _feed(self, messages: list[Message]) -> None:
        by_shard: dict[int, list[Input]] = defaultdict(list)
        ended: list[int] = []
        for message in messages:
            error = message.error()
            number = message.partition() or 0
            if error is None:
                if self._strays.is_stray(number):
                    self._strays.take(message)
                    self._around.telemetry.forwarded.inc()
                else:
                    by_shard[number].append(_input(message, number))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka spells it so
                ended.append(number)
            elif error.fatal():
                raise KafkaException(error)
            else:
                event("consumer_error", logging.WARNING, text=error.str())
        for number, inputs in by_shard.items():
            if number in self.tasks:
                self.tasks[number].offer(inputs)
        for number in ended:
            if number in self.tasks:
                self.tasks[number].reached_end()

    def _seek(self, number: int, task: ShardTask, offset: int) -> None:
        partition = TopicPartition(self._topic, number, offset if offset > 0 else OFFSET_BEGINNING)
        try:
            self._consumer.seek(partition)
        except KafkaException as fault:
            # The fetcher of a partition just assigned may not have started yet: the next turn tries again.
            event("seek_postponed", logging.DEBUG, shard=number, text=fault.args[0].str())
            return
        task.sought(offset)
        self._consumer.resume([TopicPartition(self._topic, number)])
        self._paused.discard(number)

    def _throttle(self, number: int, waiting: int) -> None:
        if number in self._paused:
            if waiting < INBOX_LOW:
                self._consumer.resume([TopicPartition(self._topic, number)])
                self._paused.discard(number)
        elif waiting > INBOX_HIGH:
            self._consumer.pause([TopicPartition(self._topic, number)])
            self._paused.add(number)

    # --- offsets

    def _commit_offsets(self) -> None:
        """Ask the coordinator to take our positions; it answers `_committed`."""
        asking = [task for task in self.tasks.values() if task.wants_proof]
        since = self._monotonic() - self._asked_at
        if since < (ANSWER_S if self._asking is not None else PROOF_S if asking else OFFSETS_S):
            return
        offsets = [
            TopicPartition(self._topic, number, task.position)
            for number, task in self.tasks.items()
            if task.position is not None
        ]
        offsets += [TopicPartition(self._topic, number, offset) for number, offset in self._strays.positions().items()]
        self._asked_at = self._monotonic()
        if offsets:
            self._asking = asking
            self._consumer.commit(offsets=offsets, asynchronous=True)
            return
        # None of our shards was ever ready, so there is nothing to commit: as at the first start, that the partitions
        # are assigned has to do.
        for task in asking:
            task.still_assigned()

    def _committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        asking, self._asking = self._asking or [], None
        refused = error or next((p.error for p in partitions if p.error is not None), None)
        if refused is not None:
            # Usual in a rebalance; it matters to those who asked for proof.
            event("offsets_refused", logging.WARNING if asking else logging.DEBUG, text=refused.str())
            return
        for task in asking:
            if self.tasks.get(task.number) is task and not self._leaving:
                task.still_assigned()


def _input(message: Message, number: int) -> Input:
    offset, appended, key, value = message.offset() or 0, message.timestamp()[1], message.key(), message.value()
    appended = min(appended, MAX_MS)
    if not message.headers():
        return Input(number, offset, appended, key, value)
    told = (_told(message, FORWARDED_HEADER), _told(message, FORWARDED_AFTER_HEADER))
    return Input(number, offset, appended, key, value, *told)


def _told(message: Message, name: str) -> str | None:
    value = header(message, name)
    return None if value is None else value.decode(errors="replace")
