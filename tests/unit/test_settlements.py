"""What a schedule owes and will not run is written down as it is: nothing that ran in between is in it."""

from __future__ import annotations

import pytest

from scheduler.core.decision import Debt, Situation
from scheduler.core.model import Gone, Schedule, Spec, State
from scheduler.core.policy import DEFAULT_RULES, Look
from scheduler.core.settlements import end_debts
from scheduler.core.trigger import Every


def schedule(version: int, every_ms: int) -> Schedule:
    return Schedule(
        schedule_id="acme/a", state=State.ACTIVE, version=version, revision=1, created_at=0, updated_at=0,
        effective_at=0, floor=0, spec=Spec(trigger=Every(every_ms, 0)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("version", "nominals", "gone"),
    [
        (2, (3000, 1000, 2000), [(3, 1000, 3000)]),
        (2, (1000, 2000, 9000), [(2, 1000, 2000), (1, 9000, 9000)]),
        (1, (5000, 10_000, 20_000), [(2, 5000, 10_000), (1, 20_000, 20_000)]),  # the rule it had then
        (2, (), []),
    ],
)
def test_debts_end_by_stretches(version: int, nominals: tuple[int, ...], gone: list[tuple[int, int, int]]) -> None:
    """Nominals that follow each other by the rule they belong to make one record."""
    now, before = schedule(2, 1000), schedule(1, 5000)
    debt = Debt("catchup:acme/a:1", version, nominals, before if version == 1 else None)
    look = Look(30_000, 30_000, DEFAULT_RULES)
    situation = Situation(schedule=now, position=None, look=look, appended_at=30_000, debts=(debt,))
    ended = end_debts(situation, now, "cancelled", "cancelled")
    found = [one for _, settlement in ended for one in settlement.gone]
    assert found == [Gone("cancelled", "cancelled", *one) for one in gone]
    assert {definition.version for definition, _ in ended} == ({version} if gone else set())
