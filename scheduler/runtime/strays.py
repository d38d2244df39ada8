"""Commands in partitions that belong to no shard, because somebody added partitions to the command topic.

Every sender's partitioner spreads keys over all partitions there are, so a part of the commands lands behind the last
shard. Whoever the group gives such a partition copies its commands to the shards they are for, which takes them one hop
more. For these partitions alone the group's offsets are positions: a command counts as read once its copy is
acknowledged. A crash in between copies it again, which its command id makes harmless.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import KafkaException

from scheduler.runtime.telemetry import event
from topics.codec import Undecodable, split_command
from topics.messages import FORWARDED_HEADER
from topics.partition import partition_for

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

AT_ONCE = 1_000  # copies under way; the others wait their turn


class Copy(NamedTuple):
    """One command on its way, by the partition and offset where it was read."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Strays:
    """Those of one process. Used by the poll loop's thread; acknowledgements come from another and wait for it."""

    def __init__(self, producer: Producer, topic: str, shards: int) -> None:
        self._producer, self._topic, self._shards = producer, topic, shards
        self._waiting: deque[Copy] = deque()
        self._open: dict[int, dict[int, None]] = {}  # partition -> offsets not acknowledged, in order
        self._read: dict[int, int] = {}  # partition -> the offset behind the last one read
        self._answers: deque[tuple[KafkaError | None, Copy]] = deque()
        self._under_way = 0

    def is_stray(self, partition: int) -> bool:
        """Whether it belongs to no shard."""
        return partition >= self._shards

    def assigned(self, partitions: list[int]) -> None:
        """The group has given us these; a part of the commands will take a detour from now on."""
        for partition in partitions:
            self._open[partition] = {}
        if partitions:
            event(
                "partitions_without_shard",
                logging.ERROR,
                partitions=partitions,
                text=f"{self._topic} has more partitions than the {self._shards} shards: commands in the others are "
                "copied to their shards. Partitions can't be removed; `scheduler repartition` moves to another number",
            )

    def dropped(self, partitions: list[int]) -> None:
        """They are another member's now, which begins where ours were acknowledged."""
        for partition in partitions:
            self._open.pop(partition, None)
            self._read.pop(partition, None)

    def take(self, message: Message) -> None:
        """A command read from one of them."""
        partition, offset = message.partition() or 0, message.offset() or 0
        if partition in self._open:
            self._open[partition][offset] = None
            self._read[partition] = offset + 1
            self._waiting.append(Copy(partition, offset, message.key(), message.value()))

    def send(self) -> None:
        """Put as many copies on their way as may be; called at every turn."""
        while self._answers:
            error, copy = self._answers.popleft()
            self._under_way -= 1
            if error is None:
                self._open.get(copy.partition, {}).pop(copy.offset, None)
            else:
                self._waiting.append(copy)  # whatever of its sender comes behind it may be applied first
        while self._waiting and self._under_way < AT_ONCE:
            copy = self._waiting[0]
            if copy.offset in self._open.get(copy.partition, ()) and not self._sent(copy):
                return
            self._waiting.popleft()

    def positions(self) -> dict[int, int]:
        """Partition -> the offset below which every copy is acknowledged."""
        return {p: next(iter(self._open[p]), behind) for p, behind in self._read.items()}

    @property
    def partitions(self) -> list[int]:
        """Those that we have now."""
        return [*self._open]

    @property
    def waiting(self) -> int:
        """Commands read whose copies are not on their way yet."""
        return len(self._waiting)

    def _sent(self, copy: Copy) -> bool:
        def delivered(error: KafkaError | None, _message: Message) -> None:
            self._answers.append((error, copy))

        headers: list[tuple[str, str | bytes | None]] = [(FORWARDED_HEADER, b"%d-%d" % (copy.partition, copy.offset))]
        try:
            self._producer.produce(
                self._topic, copy.value, copy.key, self._home(copy), on_delivery=delivered, headers=headers
            )
        except BufferError:
            return False
        except KafkaException as fault:
            if fault.args[0].retriable():
                return False
            # Too large by just the header that says where it came from: it stays where it is.
            where = f"{copy.partition}-{copy.offset}"
            event("command_not_copied", logging.ERROR, command=where, text=fault.args[0].str())
            self._open[copy.partition].pop(copy.offset, None)
        else:
            self._under_way += 1
        return True

    def _home(self, copy: Copy) -> int:
        """The shard whose schedule it names, or one to say what is wrong with it."""
        try:
            owner = split_command(copy.value).get("schedule_id")
        except Undecodable:
            owner = None
        key = owner.encode() if isinstance(owner, str) else copy.key
        return partition_for(key, self._shards) if key else copy.partition % self._shards
