"""Whose turn it is when more is due than a step takes: the laws of the selection, over random queues and steps."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.turns import AGED_PART, AGING_MS, QUANTUM, Turn, Turns, Waiting

NOW = 1_000_000
TENANTS = ("a", "a-b", "b", "c", "d")
QUEUES = st.tuples(st.integers(0, 3), st.sampled_from(TENANTS)).map(lambda q: bytes([q[0]]) + q[1].encode())
AGES = st.sampled_from([0, 1, AGING_MS - 1, AGING_MS, 10 * AGING_MS])
WAITING = st.dictionaries(QUEUES, st.tuples(st.integers(1, 200), AGES), max_size=12).map(
    lambda found: [Waiting(queue, number, NOW - age) for queue, (number, age) in found.items()]
)
WEIGHTS = st.dictionaries(st.sampled_from(TENANTS), st.integers(1, 20))


def summed(turns: list[Turn]) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    for queue, number in turns:
        assert number > 0
        found[queue] += number
    return found


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(WAITING, st.integers(1, 300)), min_size=1, max_size=4), WEIGHTS)
def test_a_step_takes_all_there_is_or_is_full(steps: list[tuple[list[Waiting], int]], weights: dict[str, int]) -> None:
    """Work-conserving, and of no queue more than waits, whatever the steps before left open."""
    turns = Turns()
    turns.weigh(weights)
    for waiting, limit in steps:
        taken = summed(turns.share(waiting, limit, NOW))
        assert taken.total() == min(limit, sum(w.number for w in waiting))
        assert all(taken[w.queue] <= w.number for w in waiting)


@settings(max_examples=300, deadline=None)
@given(WAITING, WEIGHTS)
def test_after_the_first_round_all_who_share_had_a_turn(waiting: list[Waiting], weights: dict[str, int]) -> None:
    """The whole of it, and nothing of lower priorities."""
    turns, young = Turns(), [w._replace(since=NOW) for w in waiting]
    turns.weigh(weights)
    reached = turns.first_round(young)
    shared = [p for p, count in sorted(Counter(w.queue[0] for w in young).items()) if count > 1]
    assert (reached is None) is not bool(shared)
    if reached is None:
        return
    tenants = {w.queue: w.number for w in young if w.queue[0] == shared[0]}
    least = min(weights.get(name[1:].decode(), 1) for name in tenants)
    turn = {name: QUANTUM * weights.get(name[1:].decode(), 1) // least for name in tenants}
    taken = summed(turns.share(young, reached, NOW))
    assert all(taken[name] == min(tenants[name], turn[name]) for name in tenants)
    assert taken.total() == reached


@settings(max_examples=300, deadline=None)
@given(WAITING, st.integers(1, 300))
def test_priorities_go_in_order_but_for_what_has_aged(waiting: list[Waiting], limit: int) -> None:
    """A lower priority gets something only when nothing is left of the higher ones, or of the part of what aged."""
    taken = summed(Turns().share(waiting, limit, NOW))
    left = {w.queue: w.number - taken[w.queue] for w in waiting}
    first_left = min((queue[0] for queue, number in left.items() if number), default=4)
    out_of_turn = {w.queue: taken[w.queue] for w in waiting if w.queue[0] > first_left and taken[w.queue]}
    assert sum(out_of_turn.values()) <= -(-limit // AGED_PART)
    assert all(NOW - w.since >= AGING_MS for w in waiting if w.queue in out_of_turn)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=12), WEIGHTS, st.integers(2, len(TENANTS)))
def test_tenants_that_always_have_work_get_their_parts(limits: list[int], weights: dict[str, int], count: int) -> None:
    """Deficit bound: over any run of steps, two queues of a priority never differ by more than a turn each."""
    turns = Turns()
    turns.weigh(weights)
    served: Counter[bytes] = Counter()
    queues = [b"\x02" + tenant.encode() for tenant in TENANTS[:count]]
    of = {queue: weights.get(queue[1:].decode(), 1) for queue in queues}
    least = min(of.values())
    quanta = {queue: QUANTUM * weight // least for queue, weight in of.items()}
    for limit in limits:
        served += summed(turns.share([Waiting(queue, 100_000, NOW) for queue in queues], limit, NOW))
        rounds = [served[queue] / quanta[queue] for queue in queues]
        assert max(rounds) - min(rounds) <= 1, served


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), st.integers(1, 3), st.integers(1, 4))
def test_nothing_starves(limit: int, priority: int, aged: int) -> None:
    """Under a flood of critical work that never ends, each aged queue is served within as many steps as there are."""
    turns = Turns()
    queues = [bytes([priority]) + tenant.encode() for tenant in TENANTS[:aged]]
    served: Counter[bytes] = Counter()
    for _ in range(aged * QUANTUM):
        flood = Waiting(b"\x00flood", 100_000, NOW)
        taken = summed(turns.share([flood, *(Waiting(q, 1_000, NOW - AGING_MS) for q in queues)], limit, NOW))
        assert taken[flood.queue] == limit - -(-limit // AGED_PART)
        served += taken
    assert all(served[queue] for queue in queues)


def test_a_turn_alone_is_not_remembered() -> None:
    """Who had a step for itself does not go on with it when others come: small ones are in the first round."""
    turns = Turns()
    assert turns.share([Waiting(b"\x02big", 9_000, NOW)], 1_000, NOW) == [Turn(b"\x02big", 1_000)]
    both = [Waiting(b"\x02big", 8_000, NOW), Waiting(b"\x02small", 5, NOW)]
    assert turns.share(both, 100, NOW)[:2] == [Turn(b"\x02big", QUANTUM), Turn(b"\x02small", 5)]


def test_a_turn_cut_short_goes_on_in_the_next_step() -> None:
    """What the end of a step took from a tenant is not lost to it."""
    turns = Turns()
    turns.weigh({"b": 3})
    waiting = [Waiting(b"\x02a", 100, NOW), Waiting(b"\x02b", 100, NOW)]
    assert turns.share(waiting, QUANTUM + 10, NOW) == [Turn(b"\x02a", QUANTUM), Turn(b"\x02b", 10)]
    rest = 3 * QUANTUM - 10
    assert turns.share(waiting, rest + 6, NOW) == [Turn(b"\x02b", rest), Turn(b"\x02a", 6)]
