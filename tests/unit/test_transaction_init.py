"""Becoming the owner: who had the transactional id is fenced, and what it left open costs some ms and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from scheduler.errors import Fenced, Retriable
from scheduler.runtime.retired import REST_S, Retired
from scheduler.runtime.transaction import ASK_S, INIT_S, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable

BUSY = KafkaError(KafkaError.CONCURRENT_TRANSACTIONS, "an abort is under way", retriable=True)
SLOW = KafkaError(KafkaError._TIMED_OUT, "no answer yet", retriable=True)
FENCED = KafkaError(KafkaError.PRODUCER_FENCED, "another owner", fatal=True)


class Coordinator:
    """Answers each initialisation with the next of these; time passes as long as a call says it waits."""

    def __init__(self, *answers: KafkaError | None) -> None:
        self.answers = list(answers)
        self.now = 0.0
        self.retired = Retired(lambda: self.now)

    def init_transactions(self, seconds: float) -> None:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            self.now += seconds
            raise KafkaException(answer)

    def transaction(self, stopped: Callable[[], bool] = lambda: False) -> Transaction:
        plain = cast("Any", None)
        return Transaction(cast("Any", self), self.retired.keep, plain, "commands", {}, stopped, lambda: self.now)


@pytest.mark.parametrize("answer", [BUSY, SLOW])
def test_the_same_client_is_asked_again_at_once(answer: KafkaError) -> None:
    """Refused or not answered: a second client beside the first would be fenced by it, which goes on asking."""
    coordinator = Coordinator(answer, answer, answer, answer, None)
    coordinator.transaction().init()
    assert coordinator.now == pytest.approx(4 * ASK_S)
    assert len(coordinator.retired) == 0


def test_patience_with_a_coordinator_ends() -> None:
    """After that everything is begun anew; a shard that is to close waits for nothing."""
    coordinator = Coordinator(BUSY)
    with pytest.raises(Retriable, match="init_transactions"):
        coordinator.transaction().init()
    assert INIT_S <= coordinator.now < INIT_S + 1
    assert len(coordinator.retired) == 0, "kept, it would go on asking"
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
    began = fenced.now
    fenced.now = began + REST_S - 0.2
    fenced.retired.keep("another")
    assert len(fenced.retired) == 2
    fenced.now = began + REST_S
    fenced.retired.keep("another")
    assert len(fenced.retired) == 2


def test_another_owner_ends_it_at_once() -> None:
    """Fenced is no question of time."""
    coordinator = Coordinator(FENCED)
    with pytest.raises(Fenced):
        coordinator.transaction().init()
    assert coordinator.now <= 0.1
