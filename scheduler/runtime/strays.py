"""Commands in partitions that belong to no shard, because somebody added partitions to the command topic.

Every sender's partitioner spreads keys over all partitions there are, so a part of the commands lands behind the last
shard. Whoever the group gives such a partition copies its commands to the shards they are for, which takes them one hop
more. For these partitions alone the group's offsets are positions: a command counts as read once its copy is
acknowledged. What a crash in between copies again is known by where it came from, as copies of shards are: see
`shard/forwarding.py` for what each copy says.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from scheduler.runtime.telemetry import event
from scheduler.shard.forwarding import home_of, said_of
from topics.codec import Undecodable, split_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from confluent_kafka import Message, Producer

AT_ONCE = 1_000  # copies under way; the others wait their turn
TELL_S = 60.0  # between words about copies that do not arrive


class Source:
    """One such partition while it is ours. `behind`: the offset behind the last command read."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.behind: int | None = None
        self.open: dict[int, None] = {}  # offsets read and not acknowledged, in order
        self.copied: dict[int, int] = {}  # shard -> the offset behind the last command for it

    @property
    def position(self) -> int | None:
        """Everything below is acknowledged; None before anything was read."""
        return next(iter(self.open), self.behind)


class Copy(NamedTuple):
    """One command on its way."""

    source: Source
    offset: int
    key: bytes | None
    value: bytes | None
    home: int
    headers: list[tuple[str, bytes]]


class Strays:
    """Those of one process. Used by the poll loop's thread; acknowledgements come from another and wait for it."""

    def __init__(self, producer: Producer, topic: str, shards: int, monotonic: Callable[[], float]) -> None:
        self._producer, self._topic, self._shards = producer, topic, shards
        self._monotonic = monotonic
        self._sources: dict[int, Source] = {}
        self._waiting: deque[Copy] = deque()
        self._answers: deque[tuple[KafkaError | None, Copy]] = deque()
        self._under_way = 0
        self._tell_at = 0.0

    def is_stray(self, partition: int) -> bool:
        """Whether it belongs to no shard."""
        return partition >= self._shards

    def assigned(self, partitions: list[int]) -> None:
        """The group has given us these; a part of the commands will take a detour from now on."""
        self._sources |= {partition: Source(partition) for partition in partitions}
        if partitions:
            event(
                "partitions_without_shard",
                logging.ERROR,
                partitions=partitions,
                text=f"{self._topic} has more partitions than the {self._shards} shards: commands in the others are "
                "copied to their shards. Partitions can't be removed; `scheduler repartition` moves to another number",
            )

    def dropped(self, partitions: Iterable[int]) -> None:
        """They are another member's now, which begins where ours were acknowledged."""
        for partition in partitions:
            self._sources.pop(partition, None)
        self._waiting = deque(copy for copy in self._waiting if self._is_ours(copy))

    def take(self, message: Message) -> None:
        """A command read from one of them."""
        offset = message.offset() or 0
        source = self._sources.get(message.partition() or 0)
        if source is None:
            return
        settled = offset if source.position is None else source.position
        home = home_of(_named(message.value()), message.key(), source.number, self._shards)
        headers = said_of(source.number, offset, settled, max(settled, source.copied.get(home, 0)))
        source.copied[home] = source.behind = offset + 1
        source.open[offset] = None
        self._waiting.append(Copy(source, offset, message.key(), message.value(), home, headers))

    def send(self) -> None:
        """Put as many copies on their way as may be; called at every turn."""
        failed = []
        while self._answers:
            error, copy = self._answers.popleft()
            self._under_way -= 1
            if error is None or self._is_hopeless(copy, error):
                copy.source.open.pop(copy.offset, None)
            elif self._is_ours(copy):
                failed.append(copy)
        self._waiting.extendleft(sorted(failed, key=lambda copy: copy.offset, reverse=True))
        while self._waiting and self._under_way < AT_ONCE and self._sent(self._waiting[0]):
            self._waiting.popleft()

    def positions(self) -> dict[int, int]:
        """Partition -> the offset below which every copy is acknowledged."""
        found = {source.number: source.position for source in self._sources.values()}
        return {number: position for number, position in found.items() if position is not None}

    @property
    def partitions(self) -> list[int]:
        """Those that we have now."""
        return [*self._sources]

    @property
    def waiting(self) -> int:
        """Commands read whose copies are not on their way yet."""
        return len(self._waiting)

    def _sent(self, copy: Copy) -> bool:
        """Whether the producer has taken it, or never will."""

        def delivered(error: KafkaError | None, _message: Message) -> None:
            self._answers.append((error, copy))

        headers: list[tuple[str, str | bytes | None]] = [*copy.headers]
        try:
            self._producer.produce(self._topic, copy.value, copy.key, copy.home, on_delivery=delivered, headers=headers)
        except BufferError:
            return False
        except KafkaException as fault:
            if not self._is_hopeless(copy, fault.args[0]):
                return False
            copy.source.open.pop(copy.offset, None)
        else:
            self._under_way += 1
        return True

    def _is_hopeless(self, copy: Copy, error: KafkaError) -> bool:
        """Whether a copy that was refused must stay where it is; nobody can answer it. Whatever else, it waits."""
        where = f"{copy.source.number}-{copy.offset}"
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            event("command_not_copied", logging.ERROR, command=where, text=error.str())
            return True
        if self._monotonic() >= self._tell_at:
            self._tell_at = self._monotonic() + TELL_S
            event("commands_wait", logging.ERROR, first=where, waiting=len(self._waiting), text=error.str())
        return False

    def _is_ours(self, copy: Copy) -> bool:
        return self._sources.get(copy.source.number) is copy.source


def _named(value: bytes | None) -> object:
    """The schedule a command says it is for, if it can be read."""
    try:
        return split_command(value).get("schedule_id")
    except Undecodable:
        return None
