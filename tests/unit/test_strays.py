"""Commands in partitions that belong to no shard: copied in order, and not forgotten before they arrived."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from scheduler.runtime.strays import AT_ONCE, Strays
from topics.partition import partition_for

if TYPE_CHECKING:
    from collections.abc import Callable

SHARDS = 4
STRAY = 6


class Producer:
    """Keeps what is produced; the test answers."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes | None, int, list[tuple[str, bytes]]]] = []
        self.answers: list[Callable[[KafkaError | None, None], None]] = []
        self.refuses: Exception | None = None

    def produce(
        self, _topic: str, value: bytes, _key: bytes, partition: int, *, on_delivery: Any, headers: Any
    ) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.sent.append((value, partition, headers))
        self.answers.append(on_delivery)


def command(offset: int, value: bytes = b"", key: bytes | None = b"acme/a", partition: int = STRAY) -> Any:
    value = value or b'{"command":"pause","schedule_id":"acme/s-%d"}' % offset
    return SimpleNamespace(partition=lambda: partition, offset=lambda: offset, key=lambda: key, value=lambda: value)


def strays(count: int = 0) -> tuple[Producer, Strays]:
    producer: Any = Producer()
    found = Strays(producer, "scheduler.commands", SHARDS, lambda: 0.0)
    found.assigned([STRAY])
    for offset in range(count):
        found.take(command(offset))
    found.send()
    return producer, found


def test_a_partition_is_stray_behind_the_last_shard() -> None:
    _, found = strays()
    assert [found.is_stray(n) for n in (0, SHARDS - 1, SHARDS)] == [False, False, True]


def test_a_command_goes_to_the_shard_of_its_schedule_and_says_where_it_was() -> None:
    producer, _ = strays(3)
    homes = [partition_for(b"acme/s-%d" % n, SHARDS) for n in range(3)]
    assert [(home, dict(headers)["fwd"]) for _, home, headers in producer.sent] == [
        (home, b"6-%d" % n) for n, home in enumerate(homes)
    ]


@pytest.mark.parametrize(("value", "key", "home"), [(b"x", b"k", partition_for(b"k", SHARDS)), (b"x", None, 2)])
def test_what_is_no_command_goes_where_it_will_be_set_aside(value: bytes, key: bytes | None, home: int) -> None:
    producer, found = strays()
    found.take(command(0, value, key))
    found.send()
    assert producer.sent[0][:2] == (value, home)


def test_a_position_waits_for_the_copies_before_it() -> None:
    producer, found = strays(3)
    assert found.positions() == {STRAY: 0}
    producer.answers[1](None, None)
    found.send()
    assert found.positions() == {STRAY: 0}
    producer.answers[0](None, None)
    found.send()
    assert found.positions() == {STRAY: 2}
    producer.answers[2](None, None)
    found.send()
    assert found.positions() == {STRAY: 3}


def test_a_copy_that_failed_is_sent_again() -> None:
    producer, found = strays(1)
    producer.answers[0](KafkaError(KafkaError._MSG_TIMED_OUT), None)
    assert found.positions() == {STRAY: 0}
    found.send()
    assert [value for value, _, _ in producer.sent] == [command(0).value()] * 2
    producer.answers[1](None, None)
    found.send()
    assert found.positions() == {STRAY: 1}


@pytest.mark.parametrize("fault", [BufferError("full"), KafkaException(KafkaError(KafkaError._FATAL))])
def test_a_producer_that_can_take_no_more_is_asked_later(fault: Exception) -> None:
    producer, found = strays()
    producer.refuses = fault
    found.take(command(0))
    found.send()
    assert (found.waiting, found.positions()) == (1, {STRAY: 0})
    producer.refuses = None
    found.send()
    assert (found.waiting, len(producer.sent)) == (0, 1)


def test_one_that_cannot_be_copied_keeps_nobody_waiting() -> None:
    producer, found = strays()
    producer.refuses = KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
    found.take(command(0))
    found.send()
    assert (found.waiting, found.positions()) == (0, {STRAY: 1})


def test_only_so_many_are_under_way_at_once() -> None:
    producer, found = strays(AT_ONCE + 5)
    assert (len(producer.sent), found.waiting) == (AT_ONCE, 5)
    producer.answers[0](None, None)
    found.send()
    assert found.waiting == 4


def test_a_copy_says_what_is_there_before_it() -> None:
    """Below the first offset all was acknowledged; from the second on there is none for the same shard."""
    producer, found = strays()
    same = [b'{"schedule_id":"acme/a"}', b'{"schedule_id":"acme/a"}']
    for offset, value in enumerate(same, 10):
        found.take(command(offset, value))
    found.send()
    producer.answers[0](None, None)
    found.send()
    found.take(command(12, same[0]))
    found.send()
    assert [dict(headers)["fwd-after"] for _, _, headers in producer.sent] == [b"10-10", b"10-11", b"11-12"]


def test_a_copy_that_failed_goes_before_what_came_behind_it() -> None:
    producer, found = strays(AT_ONCE + 2)
    for answer in reversed(producer.answers[:2]):
        answer(KafkaError(KafkaError._MSG_TIMED_OUT), None)
    found.send()
    assert [value for value, _, _ in producer.sent[-2:]] == [command(0).value(), command(1).value()]


def test_a_partition_that_comes_back_is_read_anew() -> None:
    """What was read before and not sent is read again, and goes once."""
    producer, found = strays(AT_ONCE + 1)
    found.dropped([STRAY])
    found.assigned([STRAY])
    found.take(command(AT_ONCE))
    for answer in producer.answers[:AT_ONCE]:
        answer(None, None)
    found.send()
    assert len(producer.sent) == AT_ONCE + 1
    assert found.positions() == {STRAY: AT_ONCE}


def test_a_partition_that_is_another_member_s_is_let_go() -> None:
    producer, found = strays(2)
    found.take(command(2))
    found.dropped([STRAY])
    found.send()
    producer.answers[0](None, None)
    found.send()
    assert (found.positions(), found.partitions, found.waiting) == ({}, [], 0)
    assert len(producer.sent) == 2
