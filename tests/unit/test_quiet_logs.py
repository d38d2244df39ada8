"""What the Kafka client repeats is said once in a while; nothing of ours is ever left out."""

from __future__ import annotations

import logging

from scheduler.runtime.quiet import AGAIN_S, MOST_TEXTS, Repeats


def say(filtered: Repeats, text: str, at: float, logger: str = "kafka") -> str | None:
    """What is shown of a message at a time; None if it is left out."""
    record = logging.LogRecord(logger, logging.ERROR, "", 0, text, (), None)
    record.created = at
    return record.getMessage() if filtered.filter(record) else None


def test_a_repeated_message_is_shown_once_in_a_while_with_the_count_of_the_others() -> None:
    """Numbers in it (ports, durations, client numbers) make no difference."""
    filtered = Repeats()
    assert say(filtered, "consumer-1: refused after 0ms", 100.0) == "consumer-1: refused after 0ms"
    assert [say(filtered, f"consumer-2: refused after {n}ms", 100.1) for n in range(40)] == [None] * 40
    assert say(filtered, "producer-1: refused", 100.2) == "producer-1: refused"
    later = say(filtered, "consumer-2: refused after 7ms", 100.0 + AGAIN_S)
    assert later == "consumer-2: refused after 7ms (40 like this were left out)"
    assert say(filtered, "consumer-2: refused after 7ms", 101.0 + AGAIN_S) is None


def test_our_own_events_are_never_left_out() -> None:
    """The same event twice in a moment is two facts."""
    filtered = Repeats()
    assert [say(filtered, "shard_failed", 1.0, "scheduler") for _ in range(3)] == ["shard_failed"] * 3


def test_a_clock_set_back_silences_nothing() -> None:
    """Log time is the wall clock's, which may jump."""
    filtered = Repeats()
    assert say(filtered, "refused", 1000.0) == "refused"
    assert say(filtered, "refused", 10.0) == "refused"


def test_what_is_remembered_is_bounded() -> None:
    """A client that never says the same twice does not fill the memory."""
    filtered = Repeats()
    for n in range(3 * MOST_TEXTS):
        say(filtered, "x" * n, 1.0)
    assert len(filtered._shown) <= MOST_TEXTS
