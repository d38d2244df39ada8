"""What the client hands out: records, and errors as librdkafka words them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException

if TYPE_CHECKING:
    from tests.support.world.log import Entry, Log


class Message:
    """As `confluent_kafka.Message`."""

    def __init__(self, log: Log, entry: Entry | None, offset: int, error: KafkaError | None = None) -> None:
        self._log, self._entry, self._offset, self._error = log, entry, offset, error

    def topic(self) -> str:
        return self._log.topic

    def partition(self) -> int:
        return self._log.number

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._entry.key if self._entry else None

    def value(self) -> bytes | None:
        return self._entry.value if self._entry else None

    def headers(self) -> list[tuple[str, bytes]] | None:
        return self._entry.headers if self._entry else None

    def timestamp(self) -> tuple[int, int]:
        kind = TIMESTAMP_LOG_APPEND_TIME if self._log.append_time else TIMESTAMP_CREATE_TIME
        return (kind, self._entry.timestamp) if self._entry else (0, -1)

    def error(self) -> KafkaError | None:
        return self._error


def record(log: Log, entry: Entry) -> Message:
    return Message(log, entry, entry.offset)


def end_of(log: Log, offset: int) -> Message:
    """The end of the partition, as far as it is committed, was reached."""
    return Message(log, None, offset, KafkaError(KafkaError._PARTITION_EOF))


def fenced() -> KafkaException:
    text = "This instance has been fenced by a newer instance"
    return KafkaException(KafkaError(KafkaError._FENCED, text, fatal=True))


def timed_out() -> KafkaException:
    """The call may be made again, to wait on."""
    text = "Timed out waiting for operation to finish, retry call to resume"
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, text, retriable=True))


def undelivered(count: int) -> KafkaException:
    text = f"{count} message(s) failed delivery (see individual delivery reports)"
    return KafkaException(KafkaError(KafkaError._INCONSISTENT, text, txn_requires_abort=True))


def wrong_state(text: str) -> KafkaException:
    return KafkaException(KafkaError(KafkaError._STATE, text))


def unreachable() -> KafkaException:
    return KafkaException(
        KafkaError(KafkaError._TRANSPORT, "Failed to get watermark offsets: Local: Broker transport failure")
    )
