"""Readers that are assigned anew are never at a logical offset before, and old commands are never fed again.

The client looks a logical offset (the end, the beginning) up in the background, half a second later if it does not know
the leader yet, and then goes there, although the partition was assigned or sought elsewhere meanwhile: a restore that
takes longer skips what it should read *(seen: 4,761 of 300,000 records)*.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from scheduler.config import Settings
from scheduler.errors import Retriable
from scheduler.runtime import courier
from scheduler.runtime.assignment import Assignment
from scheduler.runtime.outside import Outside
from scheduler.runtime.reading import PartitionReader
from scheduler.runtime.restore import change_of
from scheduler.runtime.strays import Strays
from scheduler.runtime.task import ShardTask
from scheduler.shard.commands import Input
from scheduler.shard.repartition import Tails

if TYPE_CHECKING:
    from collections.abc import Sequence


class Calls:
    """A consumer that notes what is asked of it, and a world in which nothing else happens."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.paused: set[str] = set()

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.offsets += [partition.offset for partition in partitions]

    incremental_assign = assign

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused |= {partition.topic for partition in partitions}

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self


def test_a_restore_reads_from_definite_offsets_and_never_after_a_pause() -> None:
    """After a resume the client waits for a second: most of a takeover."""
    consumer = Calls()
    with pytest.raises(Retriable):
        list(PartitionReader(consumer, "", 0, "x", lambda: True).read({"scheduler.live": (3, 9)}, change_of))  # type: ignore[arg-type]
    assert consumer.offsets == [3]
    assert consumer.paused == set()


def test_shards_that_come_are_assigned_at_a_definite_offset() -> None:
    """Until the shard says from where its commands are read."""
    consumer: Any = Calls()
    assignment = object.__new__(Assignment)
    assignment.tasks = {0: consumer}
    assignment._strays = Strays(consumer, "scheduler.commands", 1, lambda: 0.0)
    assignment._assigned(consumer, [TopicPartition("scheduler.commands", 0)])
    assert consumer.offsets == [0]
    assert consumer.paused == {"scheduler.commands"}


def test_commands_before_the_position_are_not_taken() -> None:
    """Nor one twice, whatever the reader brings: each would be obeyed again."""
    world = SimpleNamespace(outside=Outside(Settings()))
    task = ShardTask(0, world)  # type: ignore[arg-type]
    task.seek_to = 5
    task.sought(5)
    inputs = [Input(0, offset, 0, b"k", b"v") for offset in range(9)]
    task.offer(inputs[:7])
    task.offer(inputs[3:])
    assert [one.offset for one in task._inbox] == [5, 6, 7, 8]


class Refusing(Calls):
    """A consumer whose partition exists, with an end, and which then hears an error that does not pass."""

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        return 0, 3

    def poll(self, _seconds: float) -> Any:
        error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        return SimpleNamespace(error=lambda: error, topic=lambda: "scheduler.commands")

    def consume(self, *_: object) -> list[Any]:
        return []


def test_every_topic_that_was_not_read_is_named_as_it_is_called() -> None:
    """With its namespace: an operator looks for it among the topics of the cluster."""
    reader = PartitionReader(Calls(), "blue.", 0, "restore of", lambda: True)  # type: ignore[arg-type]
    with pytest.raises(Retriable, match=r"^restore of blue\.scheduler\.live, blue\.scheduler\.shards: stopped$"):
        list(reader.read({"scheduler.live": (3, 9), "scheduler.shards": (0, 1)}, change_of))


def test_what_a_move_cannot_read_is_to_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says of which topic, and its kind that running the command once more is right."""
    monkeypatch.setattr(courier, "changelog_consumer", lambda _: Refusing())
    settings = Settings()
    with pytest.raises(Retriable, match=r"commands of scheduler\.commands: .*uthoriz"):
        courier.Courier(settings, settings, Calls()).commands(0, 0, Tails([{}]))  # type: ignore[arg-type]
