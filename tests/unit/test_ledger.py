"""The ledger of the crash tests sees what it is there to see: each kind of fault is counted as that kind."""

from __future__ import annotations

from typing import Any

from tests.support.ledger import Ledger
from tests.support.verifier import Beat, rfc3339, stamped

FIRST = 1_800_000_000_000
STEADY = Beat("steady/one", FIRST, FIRST + 3_000)
HELD = Beat("held/one", FIRST, FIRST + 4_000)


def dispatch(beat: Beat, at: int, **more: Any) -> dict[str, Any]:
    name = f"{beat.schedule_id}:1:{stamped(at)}"
    text = rfc3339(at)
    fields = {"occurrence_id": name, "schedule_id": beat.schedule_id, "scheduled_for": text, "available_at": text}
    return {**fields, "origin": "schedule", **more}


def reply(code: str, at: int, **more: Any) -> dict[str, Any]:
    return {"code": code, "schedule_id": "held/one", "command_id": code, "effective_at": rfc3339(at), **more}


def fired(ledger: Ledger, beat: Beat, *seconds: int, late_ms: int = 5) -> Ledger:
    for second in seconds:
        at = beat.first + second * 1000
        ledger.dispatched(dispatch(beat, at), 0, at + late_ms)
    return ledger


def test_exactly_once_is_clean() -> None:
    """With the longest time to a dispatch and between two."""
    counts = fired(Ledger([STEADY]), STEADY, 0, 1, 2).result()
    assert counts.clean
    assert (counts.expected, counts.seen, counts.latest_ms, counts.silence_ms) == (3, 3, 5, {0: 1000})


def test_lost_doubled_and_early_are_told_apart() -> None:
    """One of each."""
    ledger = fired(Ledger([STEADY]), STEADY, 0, 0)
    counts = fired(ledger, STEADY, 1, late_ms=-1).result()
    assert not counts.clean
    assert (counts.lost, counts.doubled, counts.early) == (1, 1, 1)


def test_what_nobody_asked_for_is_strange() -> None:
    """Another schedule, an instant off the grid, an id that does not follow from its nominal, a trigger of nobody."""
    ledger = Ledger([STEADY])
    ledger.dispatched(dispatch(Beat("other/one", FIRST, FIRST + 1), FIRST), 0, FIRST)
    ledger.dispatched(dispatch(STEADY, FIRST + 500), 0, FIRST + 500)
    ledger.dispatched(dispatch(STEADY, FIRST, occurrence_id="steady/one:2:x"), 0, FIRST)
    ledger.dispatched(dispatch(STEADY, FIRST, occurrence_id="steady/one:1:m-x", origin="manual"), 0, FIRST)
    assert ledger.result().strange == 4


def held_ledger() -> Ledger:
    """Paused behind the first nominal, resumed behind the third, which is written down."""
    ledger = Ledger([STEADY], [HELD])
    ledger.answered(reply("paused", FIRST + 100))
    ledger.answered(reply("resumed", FIRST + 2_100))
    ledger.told(
        {
            "schedule_id": "held/one",
            "state": "suppressed",
            "count": 2,
            "first": rfc3339(FIRST + 1_000),
            "last": rfc3339(FIRST + 2_000),
        }
    )
    return ledger


def test_what_a_pause_suppressed_is_not_lost() -> None:
    """It is told on the history; the others have run."""
    counts = fired(fired(held_ledger(), HELD, 0, 3), STEADY, 0, 1, 2).result()
    assert counts.clean
    assert (counts.expected, counts.told) == (5, 2)


def test_a_start_after_an_acknowledged_pause_is_seen() -> None:
    """A nominal of the pause; and one of before it, behind a nominal of later than the answer."""
    counts = fired(held_ledger(), HELD, 0, 1, 3).result()
    assert (counts.after, counts.strange) == (1, 1), "it ran, and is told not to have"
    assert fired(fired(fired(held_ledger(), STEADY, 0, 1), HELD, 0), HELD, 3).result().after == 1


def test_what_goes_out_with_the_answer_to_a_pause_is_not_after_it() -> None:
    """However late its transaction came to an end: nothing of later than the answer stands before it."""
    ledger = fired(fired(held_ledger(), STEADY, 0), HELD, 0, late_ms=60_000)
    assert fired(fired(ledger, STEADY, 1, 2, late_ms=60_000), HELD, 3).result().clean


def test_a_nominal_of_a_held_schedule_that_nobody_mentions_is_lost() -> None:
    """Neither run nor told; also behind a cancel nothing is owed, but before it everything."""
    assert fired(fired(held_ledger(), HELD, 0), STEADY, 0, 1, 2).result().lost == 1
    cancelled = Ledger([], [HELD])
    cancelled.answered(reply("cancelled", FIRST + 1_500))
    assert fired(cancelled, HELD, 0).result().lost == 1


def test_each_answered_trigger_runs_once() -> None:
    """One is lost, one doubled; a command without an answer is not clean either."""
    ledger = Ledger([])
    for name in ("a", "b", "c"):
        ledger.answered(reply("dispatched", FIRST, command_id=name, occurrence_id=f"manual/x:1:m-{name}"))
    for name in ("a", "b", "b"):
        more = {"occurrence_id": f"manual/x:1:m-{name}", "origin": "manual"}
        ledger.dispatched(dispatch(Beat("manual/x", FIRST, FIRST + 1), FIRST, **more), 0, FIRST)
    counts = ledger.result()
    assert (counts.expected, counts.lost, counts.doubled) == (3, 1, 1)
    silent = Ledger([])
    silent.commanded({"command_id": "a"})
    assert not silent.result().clean
