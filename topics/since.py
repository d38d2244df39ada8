"""Reading one partition from an instant on: for questions about one moment in a topic that keeps days of records."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from topics.reading import Record, Unreachable, end_of, new_consumer, partitions_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import Consumer


def read_since(
    kafka: Mapping[str, str], topic: str, *, partition: int, since_ms: int, timeout_s: float = 30.0
) -> Iterator[Record]:
    """Committed records of one partition with timestamps from `since_ms` on, up to the end at the time of the call.

    Raises Unreachable, or TimeoutError when nothing came for `timeout_s`.
    """
    consumer = new_consumer(kafka)
    try:
        if partition not in partitions_of(consumer, topic, timeout_s=timeout_s):
            return
        end = end_of(consumer, topic, partition, timeout_s=timeout_s)
        offset = _first_since(consumer, TopicPartition(topic, partition, since_ms), timeout_s)
        if offset < 0 or offset >= end:  # nothing is that young
            return
        consumer.assign([TopicPartition(topic, partition, offset)])
        deadline = time.monotonic() + timeout_s
        while True:
            for message in consumer.consume(5000, 0.1):
                deadline = time.monotonic() + timeout_s
                error = message.error()
                at = message.offset()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own constant
                        return
                    continue
                if at is None or at >= end:
                    return
                yield Record(topic, partition, at, message.key(), message.value(), message.timestamp()[1])
                if at == end - 1:
                    return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}/{partition} gave nothing for {timeout_s:g} s; check the brokers")
    finally:
        consumer.close()


def _first_since(consumer: Consumer, at: TopicPartition, timeout_s: float) -> int:
    """The offset of the first record that young, below 0 if there is none. Raises Unreachable."""
    try:
        (found,) = consumer.offsets_for_times([at], timeout_s)
        refusal = found.error
    except KafkaException as fault:
        refusal = fault.args[0]
    if refusal is not None:
        raise Unreachable(f"{at.topic}/{at.partition} by time: {refusal.str()}; check the brokers")
    return found.offset
