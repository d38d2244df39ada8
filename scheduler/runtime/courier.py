"""What a move copies outside of transactions: tables, and commands that no old shard has applied.

Copied twice, after a crash between the copy and its note, both are harmless: a table's record replaces itself, a
command has its id. A command that an old shard was about to copy to another, or had copied and could not say so, is
taken along once: not at all if that one has applied it, and otherwise where it is met first.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from scheduler.errors import Retriable
from scheduler.runtime.hold import never
from scheduler.runtime.kafka import changelog_consumer, group_id, header
from scheduler.runtime.reading import PartitionReader
from scheduler.shard.forwarding import Origin, origin_of
from scheduler.shard.repartition import redirected
from topics import catalog
from topics.admin import connect
from topics.messages import FORWARDED_HEADER
from topics.reading import Unreachable, read_compacted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import KafkaError, Message, Producer

    from scheduler.config import Settings
    from scheduler.shard.repartition import Tails

ANSWER_S = 30.0


class Sent(NamedTuple):
    """A command as it was read; `origin`: where it was read first."""

    offset: int
    key: bytes | None
    value: bytes | None
    origin: Origin


class Courier:
    """From the topics of one cluster to those of another on the same brokers."""

    def __init__(self, old: Settings, new: Settings, plain: Producer) -> None:
        self._old = old
        self._former = old.catalogue()
        self._new = new.catalogue()
        self._plain = plain

    def tables(self) -> None:
        """Calendars and tenants, every version. Raises Retriable."""
        for former, new in (
            (self._former.calendars, self._new.calendars),
            (self._former.tenants, self._new.tenants),
        ):
            try:
                newest = {key: value for key, value, _, _ in read_compacted(self._old.client_config(), former)}
            except (Unreachable, TimeoutError) as fault:
                raise Retriable(f"{fault}; run the same command again") from fault
            for key, value in newest.items():
                self._send(new, key, value, 0)
        self._flush()

    def commands(self, shard: int, start: int, tails: Tails) -> tuple[int, int]:
        """The commands of an old partition from `start` on: how many, and the offset behind them. Raises Retriable."""
        count, end = 0, start
        for sent in self._read(shard, start):
            end = sent.offset + 1
            if not tails.takes(shard, sent.origin, sent.value):
                continue
            home, value = redirected(sent.value, sent.key, sent.origin, self._new.shards)
            self._send(self._new.commands, sent.key, value, home)
            count += 1
        self._flush()
        return count, end

    def strays(self, tails: Tails) -> int:
        """The commands in partitions that belong to no shard, from where nodes have copied them: how many.

        0 while nodes of the old cluster run, which copy them themselves. Raises Retriable.
        """
        admin = connect(self._old.client_config())
        group = group_id(self._old.namespace)
        try:
            found = admin.list_topics(self._former.commands, timeout=ANSWER_S).topics[self._former.commands].partitions
            added = [TopicPartition(self._former.commands, p) for p in found if p >= self._old.shards]
            if not added or admin.describe_consumer_groups([group])[group].result(ANSWER_S).members:
                return 0
            asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, added)])
            stand = {p.partition: max(p.offset, 0) for p in asked[group].result(ANSWER_S).topic_partitions}
            count = 0
            for partition, start in sorted(stand.items()):
                copied, end = self.commands(partition, start, tails)
                count += copied
                ends = ConsumerGroupTopicPartitions(group, [TopicPartition(self._former.commands, partition, end)])
                admin.alter_consumer_group_offsets([ends])[group].result(ANSWER_S)
        except (KafkaException, TimeoutError) as fault:
            raise Retriable(
                f"partitions added to {self._former.commands}: {fault}; run the same command again"
            ) from fault
        return count

    def _read(self, shard: int, start: int) -> Iterator[Sent]:
        consumer = changelog_consumer(self._old)
        with closing(PartitionReader(consumer, self._old.namespace, shard, "commands of", never)) as reader:
            low, high = reader.bounds(catalog.COMMANDS)
            for _, found in reader.read({catalog.COMMANDS: (max(start, low), high)}, _sent):
                yield from found

    def _send(self, topic: str, key: bytes | None, value: bytes | None, partition: int) -> None:
        while True:
            try:
                self._plain.produce(topic, value, key, partition, on_delivery=_delivered)
            except BufferError:
                self._plain.poll(0.1)
            else:
                return

    def _flush(self) -> None:
        if self._plain.flush(ANSWER_S):
            raise Retriable(f"the brokers did not take everything within {ANSWER_S:.0f} s; run the same command again")


def _sent(message: Message) -> Sent:
    offset = message.offset() or 0
    forwarded = header(message, FORWARDED_HEADER)
    told = None if forwarded is None else origin_of(forwarded.decode(errors="replace"), None)
    return Sent(offset, message.key(), message.value(), told or Origin(message.partition() or 0, offset))


def _delivered(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        raise Retriable(f"{message.topic()}: {error.str()}; run the same command again")
