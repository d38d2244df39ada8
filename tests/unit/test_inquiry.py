"""Questions to the brokers by clients that are kept: connected before they are asked, and led to where answers are."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from scheduler.config import Kafka, Settings
from scheduler.errors import Retriable
from scheduler.runtime import kafka
from scheduler.runtime.kafka import Inquiry

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import TopicPartition

AWAY = KafkaError(KafkaError._TRANSPORT, "no broker")
SILENT = KafkaError(KafkaError._TIMED_OUT, "timed out")
NOT_COORDINATOR = KafkaError(KafkaError.NOT_COORDINATOR, "another coordinator")


def done(answer: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(answer, KafkaError):
        future.set_exception(KafkaException(answer))
    else:
        future.set_result(answer)
    return future


class Clients:
    """Stands for `AdminClient`: each new one gives the next of these answers to all that it is asked.

    An answer is who is in the group. `meanwhile` happens in the middle of a question.
    """

    def __init__(self, *answers: list[str] | KafkaError, away: bool = False) -> None:
        self.answers = list(answers)
        self.away = away
        self.asked: list[str] = []  # number of the client and question
        self.meanwhile: Callable[[], object] = lambda: None
        self._made = 0

    def __call__(self, config: dict[str, Any]) -> Any:
        assert config["bootstrap.servers"] == "localhost:1"
        number, answer = self._made, self.answers.pop(0)
        self._made += 1

        def list_topics(timeout: float) -> None:
            assert timeout > 0
            self.asked.append(f"{number} topics")
            if self.away:
                raise KafkaException(AWAY)

        def describe_consumer_groups(groups: list[str], **_: Any) -> dict[str, Future[Any]]:
            self.asked.append(f"{number} group")
            self.meanwhile()
            if isinstance(answer, KafkaError):
                return {group: done(answer) for group in groups}
            members = [SimpleNamespace(client_id=name) for name in answer]
            return {group: done(SimpleNamespace(members=members)) for group in groups}

        return SimpleNamespace(list_topics=list_topics, describe_consumer_groups=describe_consumer_groups)


class Partitions:
    """Stands for a consumer that is asked for offsets: `end` of every partition, or what it is refused with."""

    def __init__(self, end: int | KafkaError) -> None:
        self.end = end
        self.asked: list[str] = []
        self.config: dict[str, Any] = {}

    def __call__(self, config: dict[str, Any]) -> Any:
        assert not self.config, "one is kept"
        self.config = config
        return self

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:
        assert timeout > 0
        self.asked.append(f"{partition.topic}/{partition.partition}")
        if isinstance(self.end, KafkaError):
            raise KafkaException(self.end)
        return 1, self.end


@pytest.fixture
def inquiry() -> Inquiry:
    return Inquiry(Settings(kafka=Kafka(bootstrap_servers="localhost:1"), namespace="blue."))


def clients(monkeypatch: pytest.MonkeyPatch, *answers: list[str] | KafkaError, away: bool = False) -> Clients:
    made = Clients(*answers, away=away)
    monkeypatch.setattr(kafka, "AdminClient", made)
    return made


def test_one_client_is_connected_once_and_asked_everything(monkeypatch: pytest.MonkeyPatch, inquiry: Inquiry) -> None:
    """What a client is asked before it stands by the brokers can be lost for seconds."""
    made = clients(monkeypatch, ["another"])
    assert inquiry.client(1.0) is inquiry.client(1.0)
    assert inquiry.has_company()
    assert inquiry.has_company()
    assert made.asked == ["0 topics", "0 group", "0 group"]


def test_company_is_looked_for_where_the_coordinator_is_now(monkeypatch: pytest.MonkeyPatch, inquiry: Inquiry) -> None:
    """Who takes itself for alone serves with a disk that refuses, and stops without handing over."""
    made = clients(monkeypatch, NOT_COORDINATOR, ["another"])
    assert inquiry.has_company()
    assert inquiry.has_company()
    assert made.asked == ["0 topics", "0 group", "1 topics", "1 group", "1 group"]


def test_of_two_that_are_refused_at_once_one_finds_the_others_client(
    monkeypatch: pytest.MonkeyPatch, inquiry: Inquiry
) -> None:
    """Two threads of a process may ask at the same time."""
    made = clients(monkeypatch, NOT_COORDINATOR, ["another"])

    def another() -> None:
        made.meanwhile = lambda: None
        assert inquiry.has_company()

    made.meanwhile = another
    assert inquiry.has_company()
    assert made.asked == ["0 topics", "0 group", "0 group", "1 topics", "1 group", "1 group"]


def test_brokers_that_are_away_are_not_waited_for_twice(monkeypatch: pytest.MonkeyPatch, inquiry: Inquiry) -> None:
    """Nor is a client kept that never reached them."""
    made = clients(monkeypatch, ["another"], ["another"], away=True)
    assert not inquiry.has_company()
    assert made.asked == ["0 topics"]
    made.away = False
    assert inquiry.has_company()


def test_company_is_unknown_when_a_new_client_is_refused_too(monkeypatch: pytest.MonkeyPatch, inquiry: Inquiry) -> None:
    """It is not asked a third time."""
    made = clients(monkeypatch, NOT_COORDINATOR, NOT_COORDINATOR, ["another"])
    assert not inquiry.has_company()
    assert made.asked == ["0 topics", "0 group", "1 topics", "1 group"]


def test_ends_are_those_of_a_reader_of_everything(monkeypatch: pytest.MonkeyPatch, inquiry: Inquiry) -> None:
    """What a transaction holds open counts, or it would be decided again; one consumer asks for all shards."""
    made = Partitions(7)
    monkeypatch.setattr(kafka, "Consumer", made)
    assert inquiry.ends(["a", "b"], 3, lambda: False) == {"a": 7, "b": 7}
    assert inquiry.ends(["a"], 4, lambda: False) == {"a": 7}
    assert made.asked == ["a/3", "b/3", "a/4"]
    assert made.config["isolation.level"] == "read_uncommitted"
    assert made.config["group.id"].startswith("blue.")


def test_brokers_that_do_not_answer_are_asked_again_later(monkeypatch: pytest.MonkeyPatch, inquiry: Inquiry) -> None:
    """By the same client: the shard is owned anew after a pause, and says for what it waits."""
    made = Partitions(SILENT)
    monkeypatch.setattr(kafka, "Consumer", made)
    with pytest.raises(Retriable, match="ends of partition 5 of a, b: timed out"):
        inquiry.ends(["a", "b"], 5, lambda: True)
    made.end = 7
    assert inquiry.ends(["a"], 5, lambda: False) == {"a": 7}
