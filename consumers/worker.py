"""Dispatch topics -> handler -> ledger -> offset, one occurrence at a time. The only file here that knows Kafka."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException

from topics.codec import Undecodable, decode
from topics.messages import Dispatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from confluent_kafka import Message

    from consumers.handler import Handler
    from consumers.ledger import Ledger

log: Final = logging.getLogger("consumers")

# What the contract rests on; no setting of the user's replaces these.
_CONTRACT: Final[dict[str, Any]] = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "enable.auto.offset.store": False,  # an offset is stored by us, after its effect is committed
    "enable.auto.commit": True,  # stored offsets are committed every few seconds and at the end
    "partition.assignment.strategy": "cooperative-sticky",
}


@dataclass(frozen=True, slots=True)
class Handled:
    """One record of a dispatch topic, after its effect. `repeat`: the ledger knew it, nothing was done.

    `enqueued_ms` is the broker's append time, in ms since the epoch.
    """

    dispatch: Dispatch
    repeat: bool
    topic: str
    partition: int
    offset: int
    enqueued_ms: int


class Worker:
    """Consumes as a member of `group`. `kafka` is plain librdkafka settings, `bootstrap.servers` included."""

    def __init__(self, kafka: Mapping[str, str], *, group: str, handler: Handler, ledger: Ledger) -> None:
        settings = {"reconnect.backoff.max.ms": 2000, **kafka, "group.id": group, **_CONTRACT}
        self._consumer = Consumer(settings, logger=log)
        self._handler = handler
        self._ledger = ledger

    def run(self, topics: Sequence[str], stop: Callable[[], bool] = lambda: False) -> Iterator[Handled]:
        """Handle what comes, each record reported after its effect is committed, until `stop()` says so.

        `stop` is asked at least every 0.2 s. A record that is no dispatch is logged and passed over: its sender broke
        the contract, and no repetition will cure it. Raises what the handler or the ledger raises, without storing the
        offset, and KafkaException on errors that no waiting cures. Closes the consumer in the end.
        """
        try:
            self._consumer.subscribe(list(topics))
            while not stop():
                message = self._consumer.poll(0.2)
                if message is None or self._is_error(message):
                    continue
                handled = self._handle(message)
                self._done(message)
                if handled is not None:
                    yield handled
        finally:
            self._consumer.close()  # commits what is stored, leaves the group

    def _handle(self, message: Message) -> Handled | None:
        place = {"topic": message.topic() or "", "partition": message.partition() or 0, "offset": message.offset() or 0}
        try:
            dispatch = decode(Dispatch, message.value())
        except Undecodable as error:
            log.warning("dispatch_undecodable %s why=%s", place, error.why)
            return None
        fresh = self._ledger.once(dispatch.occurrence_id, lambda effects: self._handler(dispatch, effects))
        return Handled(dispatch, not fresh, enqueued_ms=message.timestamp()[1], **place)  # type: ignore[arg-type] # texts and numbers

    def _done(self, message: Message) -> None:
        try:
            self._consumer.store_offsets(message)
        except KafkaException as error:
            # The partition was taken away meanwhile; its new owner will see the record again, and the ledger too.
            if error.args[0].code() != KafkaError._STATE:  # noqa: SLF001 - the client's own constant
                raise

    def _is_error(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return False
        if error.fatal():
            raise KafkaException(error)
        log.warning("consumer_error topic=%s code=%s text=%s", message.topic(), error.name(), error.str())
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            time.sleep(0.5)  # it may be created later; asked for again and again it would fill the log
        return True
