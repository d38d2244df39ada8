"""Whose turn it is when more is due than one step takes.

    priorities   strictly in order
    tenants      take turns inside a priority (deficit round robin): a round gives the least weight among them
                 `QUANTUM`, and others in proportion
    aging        a queue of a lower priority whose oldest has waited `AGING_MS` shares `AGED_PART` of a full step with
                 others of its kind, so that nothing waits for ever

The unit is one occurrence, whatever its size. A turn that the end of a step cuts short is finished in the next one, so
over any number of steps two queues of a priority that both always have work differ by less than a round. Nothing here
is state that must survive: after a restart the turns begin anew.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

QUANTUM = 16
AGING_MS = 10_000
AGED_PART = 16  # one of so many
_AGED = -1  # the ring of those


class Waiting(NamedTuple):
    """What is due of one queue: its name (a byte of priority, the tenant), how many, and since when the oldest."""

    queue: bytes
    number: int
    since: int


class Turn(NamedTuple):
    """So many of one queue, in the order in which they fell due."""

    queue: bytes
    number: int


class Turns:
    """One per shard: remembers where each round stopped."""

    def __init__(self) -> None:
        self._weights: Mapping[str, int] = {}
        self._stopped: dict[int, tuple[bytes, int]] = {}  # by ring: whose turn it is, and what is left of it

    def weigh(self, weights: Mapping[str, int]) -> None:
        """The weights of tenants that count from now on; 1 for those not named."""
        self._weights = weights

    def share(self, waiting: Iterable[Waiting], limit: int, now: int) -> list[Turn]:
        """At most `limit` of what waits, and as many if there are, in the order in which they go out."""
        queues = sorted(waiting)
        left = {queue.queue: queue.number for queue in queues}
        if sum(left.values()) <= limit:
            room, aged = limit, []
        else:
            aged = self._aged(queues, left, limit, now)
            room = limit - sum(turn.number for turn in aged)
        turns: list[Turn] = []
        for priority, group in groupby(queues, key=_priority):
            if room <= 0:
                break
            taken = self._round(priority, [queue.queue for queue in group], left, room)
            room -= sum(turn.number for turn in taken)
            turns += taken
        return turns + aged

    def first_round(self, waiting: Iterable[Waiting]) -> int | None:
        """How many go out until all who share the first priority that is shared had a turn; None if none is shared."""
        ahead = 0
        for _, group in groupby(sorted(waiting), key=_priority):
            left = {queue.queue: queue.number for queue in group}
            if len(left) > 1:
                return ahead + sum(min(left[name], quantum) for name, quantum in self._quanta([*left]).items())
            ahead += sum(left.values())
        return None

    def _aged(self, queues: list[Waiting], left: dict[bytes, int], limit: int, now: int) -> list[Turn]:
        """The part of a full step that goes to what has waited too long behind a higher priority."""
        first = queues[0].queue[0]
        aged = [q.queue for q in queues if q.queue[0] > first and now - q.since >= AGING_MS]
        return self._round(_AGED, aged, left, -(-limit // AGED_PART)) if aged else []

    def _round(self, ring: int, names: list[bytes], left: dict[bytes, int], room: int) -> list[Turn]:
        """Turns of these queues (ascending), beginning where the ring stopped; takes them off `left`."""
        names = [name for name in names if left[name]]
        stopped, rest = self._stopped.pop(ring, (b"", 0))
        later = [name for name in names if name >= stopped]
        names = later + names[: len(names) - len(later)]
        if names and names[0] != stopped:
            rest = 0
        quanta = self._quanta(names)
        turns: list[Turn] = []
        while names and room:
            if len(names) == 1:  # nobody to take turns with
                count = min(left[names[0]], room)
                turns.append(Turn(names[0], count))
                left[names[0]] -= count
                break
            following: list[bytes] = []
            for index, name in enumerate(names):
                allowed = rest or quanta[name]
                rest = 0
                has = left[name]
                count = min(allowed, has, room)
                turns.append(Turn(name, count))
                left[name] = has - count
                room -= count
                if has > count:
                    following.append(name)
                if not room:
                    self._stop(ring, name, allowed - count if has > count else 0, names[index + 1 :] + following)
                    break
            names = following
        return turns

    def _quanta(self, names: list[bytes]) -> dict[bytes, int]:
        weights = {name: self._weights.get(name[1:].decode(), 1) for name in names} if self._weights else {}
        least = min(weights.values(), default=1)
        return {name: QUANTUM * weights.get(name, 1) // least for name in names}

    def _stop(self, ring: int, name: bytes, rest: int, behind: list[bytes]) -> None:
        """The step is full: the turn just cut short goes on first, else it is the next one's."""
        if rest:
            self._stopped[ring] = (name, rest)
        elif behind:
            self._stopped[ring] = (behind[0], 0)


def _priority(waiting: Waiting) -> int:
    return waiting.queue[0]
