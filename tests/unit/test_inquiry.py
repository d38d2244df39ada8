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
    from collections.abc import Iterable

NOT_LEADER = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION, "another leader")


def done(answer: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(answer, KafkaError):
        future.set_exception(KafkaException(answer))
    else:
        future.set_result(answer)
    return future


class Clients:
    """Stands for `AdminClient`: each new one gives the next of these answers to all that it is asked."""

    def __init__(self, *answers: int | KafkaError) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []  # number of the client and question

    def __call__(self, *_: Any, **__: Any) -> Any:
        number, answer = len(self.asked), self.answers.pop(0)

        def list_topics(timeout: float) -> None:
            assert timeout > 0
            self.asked.append(f"{number} topics")

        def list_offsets(partitions: Iterable[Any], **_: Any) -> dict[Any, Future[Any]]:
            self.asked.append(f"{number} ends")
            found = answer if isinstance(answer, KafkaError) else SimpleNamespace(offset=answer)
            return {partition: done(found) for partition in partitions}

        def describe_consumer_groups(groups: list[str], **_: Any) -> dict[str, Future[Any]]:
            self.asked.append(f"{number} group")
            found = answer if isinstance(answer, KafkaError) else SimpleNamespace(members=[])
            return {group: done(found) for group in groups}

        return SimpleNamespace(
            list_topics=list_topics, list_offsets=list_offsets, describe_consumer_groups=describe_consumer_groups
        )


@pytest.fixture
def inquiry() -> Inquiry:
    return Inquiry(Settings(kafka=Kafka(bootstrap_servers="localhost:1")))


def clients(monkeypatch: pytest.MonkeyPatch, *answers: int | KafkaError) -> Clients:
    made = Clients(*answers)
    monkeypatch.setattr(kafka, "AdminClient", made)
    return made


def test_one_client_is_connected_once_and_asked_everything(monkeypatch: pytest.MonkeyPatch, inquiry: Inquiry) -> None:
    """What a client is asked before it stands by the brokers can be lost for seconds."""
    made = clients(monkeypatch, 7)
    assert inquiry.ends(["a", "b"], 3) == {"a": 7, "b": 7}
    assert inquiry.ends(["a"], 4) == {"a": 7}
    assert not inquiry.has_company()
    assert made.asked == ["0 topics", "0 ends", "0 ends", "0 group"]


def test_a_refused_client_is_replaced_for_good(monkeypatch: pytest.MonkeyPatch, inquiry: Inquiry) -> None:
    """It goes on asking the former leader of a partition."""
    made = clients(monkeypatch, NOT_LEADER, 7)
    assert inquiry.ends(["a"], 0) == {"a": 7}
    assert inquiry.ends(["a"], 0) == {"a": 7}
    assert made.asked == ["0 topics", "0 ends", "2 topics", "2 ends", "2 ends"]


def test_brokers_that_refuse_a_new_client_too_are_asked_again_later(
    monkeypatch: pytest.MonkeyPatch, inquiry: Inquiry
) -> None:
    """The shard is owned anew after a pause, and says for what it waits."""
    clients(monkeypatch, NOT_LEADER, NOT_LEADER, 7)
    with pytest.raises(Retriable, match="ends of partition 5 of a, b: another leader"):
        inquiry.ends(["a", "b"], 5)
    assert inquiry.ends(["a"], 5) == {"a": 7}
