"""Questions to the brokers by one client: connected before it is asked, and another one when its answer was a fault."""

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
    from collections.abc import Callable, Iterable

AWAY = KafkaError(KafkaError._TRANSPORT, "no broker")
NOT_COORDINATOR = KafkaError(KafkaError.NOT_COORDINATOR, "another coordinator")
NOT_LEADER = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION, "another leader")


def done(answer: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(answer, KafkaError):
        future.set_exception(KafkaException(answer))
    else:
        future.set_result(answer)
    return future


class Clients:
    """Stands for `AdminClient`: each new one gives the next of these answers to all that it is asked.

    `meanwhile` happens in the middle of a question.
    """

    def __init__(self, *answers: int | KafkaError, away: bool = False) -> None:
        self.answers = list(answers)
        self.away = away
        self.made = 0
        self.asked: list[str] = []  # number of the client and question
        self.meanwhile: Callable[[], object] = lambda: None

    def __call__(self, config: dict[str, Any]) -> Any:
        assert config["bootstrap.servers"] == "localhost:1"
        number, answer = self.made, self.answers.pop(0)
        self.made += 1

        def list_topics(timeout: float) -> None:
            assert timeout > 0
            self.asked.append(f"{number} topics")
            if self.away:
                raise KafkaException(AWAY)

        def list_offsets(partitions: Iterable[Any], **_: Any) -> dict[Any, Future[Any]]:
            self.asked.append(f"{number} ends")
            self.meanwhile()
            found = answer if isinstance(answer, KafkaError) else SimpleNamespace(offset=answer)
            return {partition: done(found) for partition in partitions}

        def describe_consumer_groups(groups: list[str], **_: Any) -> dict[str, Future[Any]]:
            self.asked.append(f"{number} group")
            members = [SimpleNamespace(client_id="another")]
            found = answer if isinstance(answer, KafkaError) else SimpleNamespace(members=members)
            return {group: done(found) for group in groups}

        return SimpleNamespace(
            list_topics=list_topics, list_offsets=list_offsets, describe_consumer_groups=describe_consumer_groups
        )


@pytest.fixture
def inquiry() -> Inquiry:
    return Inquiry(Settings(kafka=Kafka(bootstrap_servers="localhost:1")))


def clients(monkeypatch: pytest.MonkeyPatch, *answers: int | KafkaError, away: bool = False) -> Clients:
    made = Clients(*answers, away=away)
    monkeypatch.setattr(kafka, "AdminClient", made)
    return made


def test_one_client_is_connected_once_and_asked_everything(monkeypatch: pytest.MonkeyPatch, inquiry: Inquiry) -> None:
    """What a client is asked before it stands by the brokers can be lost for seconds."""
    made = clients(monkeypatch, 7)
    assert inquiry.ends(["a", "b"], 3) == {"a": 7, "b": 7}
    assert inquiry.ends(["a"], 4) == {"a": 7}
    assert inquiry.has_company()
    assert made.asked == ["0 topics", "0 ends", "0 ends", "0 group"]


def test_a_refused_client_is_replaced_for_good(monkeypatch: pytest.MonkeyPatch, inquiry: Inquiry) -> None:
    """It goes on asking the former leader of a partition, and the former coordinator of the group."""
    made = clients(monkeypatch, NOT_LEADER, 7)
    assert inquiry.ends(["a"], 0) == {"a": 7}
    assert inquiry.ends(["a"], 0) == {"a": 7}
    assert made.asked == ["0 topics", "0 ends", "1 topics", "1 ends", "1 ends"]


def test_company_is_looked_for_where_the_coordinator_is_now(monkeypatch: pytest.MonkeyPatch, inquiry: Inquiry) -> None:
    """Who takes itself for alone serves with a disk that refuses, and stops without handing over."""
    made = clients(monkeypatch, NOT_COORDINATOR, 7)
    assert inquiry.has_company()
    assert made.asked == ["0 topics", "0 group", "1 topics", "1 group"]


def test_of_two_that_are_refused_at_once_one_finds_the_others_client(
    monkeypatch: pytest.MonkeyPatch, inquiry: Inquiry
) -> None:
    """All shards of a process ask at the same time."""
    made = clients(monkeypatch, NOT_LEADER, 7, 8)

    def another() -> None:
        made.meanwhile = lambda: None
        assert inquiry.ends(["a"], 1) == {"a": 7}

    made.meanwhile = another
    assert inquiry.ends(["a"], 0) == {"a": 7}
    assert inquiry.ends(["a"], 2) == {"a": 7}


def test_brokers_that_refuse_a_new_client_too_are_asked_again_later(
    monkeypatch: pytest.MonkeyPatch, inquiry: Inquiry
) -> None:
    """The shard is owned anew after a pause, and says for what it waits."""
    made = clients(monkeypatch, NOT_LEADER, NOT_LEADER, 7)
    with pytest.raises(Retriable, match="ends of partition 5 of a, b: another leader"):
        inquiry.ends(["a", "b"], 5)
    assert made.made == 2
    assert inquiry.ends(["a"], 5) == {"a": 7}


def test_brokers_that_are_away_are_not_waited_for_twice(monkeypatch: pytest.MonkeyPatch, inquiry: Inquiry) -> None:
    """Nor is a client kept that never reached them."""
    made = clients(monkeypatch, 7, 7, 7, away=True)
    assert not inquiry.has_company()
    with pytest.raises(Retriable, match="ends of partition 0 of a: no broker"):
        inquiry.ends(["a"], 0)
    assert made.asked == ["0 topics", "1 topics"]
    made.away = False
    assert inquiry.has_company()
