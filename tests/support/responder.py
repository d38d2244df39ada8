"""A stand-in for the shards: answers every command on `scheduler.commands`, in transactions, decides nothing."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from topics.codec import encode, split_command
from topics.messages import Reply

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from topics.catalog import Catalogue

AT = "2026-11-29T12:00:00Z"


def accept(command: dict[str, object]) -> tuple[str, str]:
    """Status and code of a friendly reply."""
    return "accepted", f"{command['command']}d"


class Responder:
    """Answers in a thread of its own until left. `before_commit` is called in every open transaction."""

    def __init__(
        self,
        bootstrap_servers: str,
        catalogue: Catalogue,
        *,
        answer: Callable[[dict[str, object]], tuple[str, str] | None] = accept,
        before_commit: Callable[[], object] = lambda: None,
    ) -> None:
        self._bootstrap = bootstrap_servers
        self._catalogue = catalogue
        self._answer = answer
        self._before_commit = before_commit
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self.run, name="responder")
        self.seen: list[tuple[int, dict[str, Any]]] = []  # (partition, command)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def run(self) -> None:
        """Answer everything there ever was and comes, until left."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "responder",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
            }
        )
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": f"{self._catalogue.namespace}responder",
                "linger.ms": 5,
                "retry.backoff.ms": 10,
                "queue.buffering.max.messages": 500_000,
                "compression.type": "lz4",
            }
        )
        try:
            producer.init_transactions(30)
            consumer.assign(
                [
                    TopicPartition(self._catalogue.commands, number, OFFSET_BEGINNING)
                    for number in range(self._catalogue.shards)
                ]
            )
            while not self._stopping.is_set():
                batch = consumer.consume(10_000, 0.02)
                records = [message for message in batch if message.error() is None]
                if records:
                    producer.begin_transaction()
                    for message in records:
                        self._reply(producer, message)
                    self._before_commit()
                    producer.commit_transaction(30)
        finally:
            consumer.close()

    def _reply(self, producer: Producer, message: Any) -> None:
        command = split_command(message.value())
        self.seen.append((message.partition(), command))
        answer = self._answer(command)
        if answer is None:
            return
        status, code = answer
        command_id, schedule_id = str(command["command_id"]), str(command["schedule_id"])
        reply = Reply(
            command=str(command["command"]),
            schedule_id=schedule_id,
            command_id=command_id,
            status=status,  # type: ignore[arg-type] # what the test says
            code=code,
            message=f"{schedule_id} is {code}",
            at=AT,
        )
        producer.produce(
            self._catalogue.replies,
            encode(reply),
            schedule_id.encode(),
            message.partition(),
            headers=[("command_id", command_id.encode())],
        )
