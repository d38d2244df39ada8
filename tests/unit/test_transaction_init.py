"""Becoming the owner: who had the transactional id is fenced, and what it left open costs some ms and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from scheduler.errors import Fenced, Retriable
from scheduler.runtime.retired import REST_S, Retired
from scheduler.runtime.transaction import INIT_S, REFUSALS, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable

BUSY = KafkaError(KafkaError.CONCURRENT_TRANSACTIONS, "an abort is under way", retriable=True)
SLOW = KafkaError(KafkaError._TIMED_OUT, "no answer yet", retriable=True)
FENCED = KafkaError(KafkaError.PRODUCER_FENCED, "another owner", fatal=True)


class Coordinator:
    """Answers each initialisation with the next of these; time passes as long as a call says it waits."""

    def __init__(self, *answers: KafkaError | None) -> None:
        self.answers = list(answers)
        self.producers = 0
        self.now = 0.0
        self.retired = Retired(lambda: self.now)

    def producer(self) -> Any:
        self.producers += 1
        return self

    def init_transactions(self, seconds: float) -> None:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            self.now += seconds
            raise KafkaException(answer)

    def transaction(self, stopped: Callable[[], bool] = lambda: False) -> Transaction:
        plain = cast("Any", None)
        return Transaction(self.producer, self.retired.keep, plain, "commands", {}, stopped, lambda: self.now)


def test_refused_while_the_coordinator_aborts_a_new_client_asks_at_once() -> None:
    """A refused client would ask again only after half a second."""
    coordinator = Coordinator(BUSY, BUSY, BUSY, BUSY, None)
    coordinator.transaction().init()
    assert coordinator.producers == 5
    assert coordinator.now < 0.5


def test_a_coordinator_that_does_not_answer_is_waited_for_by_the_same_client() -> None:
    """To give up on it would only begin anew what is under way."""
    coordinator = Coordinator(SLOW, SLOW, SLOW, None)
    coordinator.transaction().init()
    assert coordinator.producers == 1


def test_patience_with_a_coordinator_ends() -> None:
    """After that everything is begun anew; a shard that is to close waits for nothing."""
    coordinator = Coordinator(BUSY)
    with pytest.raises(Retriable, match="init_transactions"):
        coordinator.transaction().init()
    assert INIT_S <= coordinator.now < INIT_S + 1
    assert coordinator.producers <= REFUSALS + 1
    closing = Coordinator(BUSY)
    with pytest.raises(Retriable):
        closing.transaction(lambda: True).init()
    assert closing.now <= 1


def test_a_client_that_failed_is_kept_until_it_is_at_rest() -> None:
    """Destroyed while its threads deal with the failure, it takes the process with it."""
    fenced = Coordinator(FENCED)
    with pytest.raises(Fenced):
        fenced.transaction().init()
    assert len(fenced.retired) == 1
    refused = Coordinator(BUSY, BUSY, None)
    refused.transaction().init()
    assert len(refused.retired) == 2, "those that were refused"
    began = refused.now
    refused.now = began + REST_S - 0.2
    refused.retired.keep("another")
    assert len(refused.retired) == 3
    refused.now = began + REST_S
    refused.retired.keep("another")
    assert len(refused.retired) == 2


def test_another_owner_ends_it_at_once() -> None:
    """Fenced is no question of time."""
    coordinator = Coordinator(FENCED)
    with pytest.raises(Fenced):
        coordinator.transaction().init()
    assert coordinator.now <= 0.1
