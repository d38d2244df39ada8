"""What a move copies outside of transactions: tables, and commands that no old shard has applied.

Copied twice, after a crash between the copy and its note, both are harmless: a table's record replaces itself, a
command has its id.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from scheduler.errors import Retriable
from scheduler.runtime.kafka import changelog_consumer, header
from scheduler.shard.repartition import redirected
from topics.messages import FORWARDED_HEADER
from topics.reading import read_compacted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message, Producer

    from scheduler.config import Settings

ANSWER_S = 30.0
POLL_S = 0.2


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
            newest = {key: value for key, value, _, _ in read_compacted(self._old.client_config(), former)}
            for key, value in newest.items():
                self._send(new, key, value, 0)
        self._flush()

    def commands(self, shard: int, start: int) -> tuple[int, int]:
        """The commands of an old partition from `start` on: how many, and the offset behind them. Raises Retriable."""
        count, end = 0, start
        for message in self._read(shard, start):
            source = f"{shard}-{message.offset()}"
            forwarded = header(message, FORWARDED_HEADER)
            source = source if forwarded is None else forwarded.decode(errors="replace")
            home, value = redirected(message.value(), message.key(), source, self._new.shards)
            self._send(self._new.commands, message.key(), value, home)
            count, end = count + 1, (message.offset() or 0) + 1
        self._flush()
        return count, end

    def _read(self, shard: int, start: int) -> Iterator[Message]:
        partition = TopicPartition(self._former.commands, shard)
        with closing(changelog_consumer(self._old)) as consumer:
            low, high = consumer.get_watermark_offsets(partition, timeout=ANSWER_S) or (0, 0)
            if max(start, low) >= high:
                return
            consumer.assign([TopicPartition(self._former.commands, shard, max(start, low))])
            silent = 0.0
            while silent < ANSWER_S:
                messages = consumer.consume(1_000, POLL_S)
                silent = 0.0 if messages else silent + POLL_S
                for message in messages:
                    error = message.error()
                    if error is None:
                        yield message
                    elif error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka spells it so
                        raise KafkaException(error)
                    elif (message.offset() or 0) >= high:
                        return
            raise Retriable(f"{self._former.commands}/{shard}: no answer from the brokers for {ANSWER_S:.0f} s")

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


def _delivered(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        raise Retriable(f"{message.topic()}: {error.str()}; run the same command again")
