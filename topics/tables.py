"""Writing rows of the small tables that operators own, such as `scheduler.calendars`: few records, all acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, Producer

from topics.client import NotDelivered, log
from topics.reading import COMMON

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confluent_kafka import KafkaError, Message


def write_rows(
    kafka: Mapping[str, str], topic: str, rows: Iterable[tuple[bytes, bytes | None]], *, timeout_s: float = 30.0
) -> None:
    """Put the rows (key, value; None deletes) on partition 0, in order. Raises NotDelivered unless all are there."""
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    settings = {**COMMON, **kafka, "enable.idempotence": True, "acks": "all", "on_delivery": delivered}
    producer = Producer({**settings, "message.timeout.ms": int(timeout_s * 1000)}, logger=log)
    try:
        for key, value in rows:
            producer.produce(topic, value, key, 0)
        left = producer.flush(timeout_s)
    except (BufferError, KafkaException) as error:
        raise NotDelivered(f"a row was not taken by {topic}: {error}") from error
    if refused or left:
        why = refused[0].str() if refused else f"no answer within {timeout_s:g} s"
        raise NotDelivered(f"{len(refused) or left} row(s) were not taken by {topic}: {why}; check the brokers")
