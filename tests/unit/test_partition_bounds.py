"""Where a partition begins and ends, asked of a client that does not notice by itself who leads it now."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from topics.reading import Unreachable, bounds_of, end_of

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition

AWAY = KafkaError(KafkaError._TRANSPORT, "no broker")
SILENT = KafkaError(KafkaError._TIMED_OUT, "timed out")
NOT_LEADER = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION, "another leader")
NOT_YET = KafkaError(KafkaError.OFFSET_NOT_AVAILABLE, "the leader is new")
LOST = KafkaError(KafkaError._DESTROY, "the connection was given up")
QUEUED = KafkaError(KafkaError._TIMED_OUT_QUEUE, "timed out in queue")
UNKNOWN = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "no such topic")
FORBIDDEN = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not allowed")


class Partition:
    """Stands for a consumer: gives these answers one after the other, the last for ever, and lets time pass."""

    def __init__(
        self, *answers: int | KafkaError | None, away: bool = False, seen: KafkaError | None = None, size: int = 4
    ) -> None:
        self.answers = list(answers)
        self.away = away
        self.topic = SimpleNamespace(error=seen, partitions=dict.fromkeys(range(0 if seen else size)))
        self.looks = 0
        self.now = 0.0

    def list_topics(self, topic: str, timeout: float) -> Any:
        self.looks += 1
        if self.away:
            self.now += timeout
            raise KafkaException(AWAY)
        return SimpleNamespace(topics={topic: self.topic})

    def poll(self, timeout: float) -> None:
        self.now += timeout

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int] | None:
        assert (partition.topic, partition.partition) == ("a", 3)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, int):
            return 1, answer
        if answer is SILENT or answer is None:
            self.now += timeout
        if answer is None:
            return None
        raise KafkaException(answer)


def asked(partition: Any, seconds: float = 5.0, *, stopped: bool = False) -> tuple[int, int]:
    return bounds_of(partition, "a", 3, timeout_s=seconds, stopped=lambda: stopped)


@pytest.mark.parametrize("refusal", [SILENT, NOT_LEADER, NOT_YET, AWAY, LOST, QUEUED, None])
def test_it_is_looked_for_where_its_leader_is_now(refusal: KafkaError | None) -> None:
    """A client asks a dead leader for ever, and one that only was it: a look at the topic shows it another."""
    partition = Partition(refusal, refusal, 7)
    assert asked(partition) == (1, 7)
    assert partition.looks == 2


@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize("refusal", [SILENT, NOT_LEADER, LOST, None])
def test_it_is_asked_for_about_as_long_as_was_said(refusal: KafkaError | None, *, away: bool) -> None:
    """However quickly it is refused, and whether or not the look is answered; no answer is never taken for one."""
    partition = Partition(refusal, away=away)
    with pytest.raises(KafkaException):
        asked(partition)
    assert 2.0 <= partition.now <= 6.0


@pytest.mark.parametrize("refusal", [SILENT, NOT_LEADER])
def test_no_broker_at_all_is_waited_out(refusal: KafkaError) -> None:
    """Once one is there it is answered."""
    assert asked(Partition(refusal, refusal, 7, away=True)) == (1, 7)


def test_what_does_not_pass_is_told_at_once() -> None:
    """Who may not read will not be allowed to in a second."""
    partition = Partition(FORBIDDEN, 7)
    with pytest.raises(Unreachable, match="the end of a/3 cannot be read: not allowed; check the brokers"):
        end_of(partition, "a", 3, timeout_s=30.0)  # type: ignore[arg-type]
    assert partition.looks == 0


@pytest.mark.parametrize(
    ("partition", "text"),
    [
        (Partition(SILENT, seen=FORBIDDEN), "not allowed"),
        (Partition(SILENT, seen=UNKNOWN), "no such topic"),
        (Partition(SILENT, size=3), "no such partition"),
    ],
)
def test_what_a_look_shows_for_good_is_told_at_once(partition: Partition, text: str) -> None:
    """A client that never saw the topic gets no answer of its own."""
    with pytest.raises(KafkaException, match=text):
        asked(partition)
    assert partition.looks == 1


def test_who_is_to_stop_does_not_ask_again() -> None:
    """A shard that closes lets others wait for its store."""
    partition = Partition(SILENT)
    with pytest.raises(KafkaException):
        asked(partition, stopped=True)
    assert partition.now == 1.0
