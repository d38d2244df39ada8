"""What a trigger is asked, and what a trigger's parser answers: the seam between time rules and everything else."""

from typing import NamedTuple, Protocol

from scheduler.core.problem import Problem


class Nominals(Protocol):
    """A set of instants (ms), asked in five ways."""

    def next_after(self, t: int) -> int | None:
        """The least nominal later than `t`; None = there is none."""

    def prev_before(self, t: int) -> int | None:
        """The greatest nominal earlier than `t`; None = there is none."""

    def count_between(self, a: int, b: int) -> int:
        """How many nominals lie in (a, b], without walking through them."""

    def between(self, a: int, b: int, limit: int) -> list[int]:
        """The first `limit` nominals in (a, b], ascending."""

    def newest_before(self, t: int, k: int, after: int) -> list[int]:
        """The newest `k` nominals in (after, t], ascending; found backwards from `t`."""


class Trigger(Nominals, Protocol):
    """A time rule: an immutable, hashable, picklable value. A *nominal* is an instant (ms) that it names."""

    def to_wire(self) -> dict[str, object]:
        """The JSON form, defaults omitted; parsing it gives an equal trigger."""


class Parsed(NamedTuple):
    """What came of a trigger's wire form: a trigger, or every problem at once; warnings stand beside either."""

    trigger: Trigger | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
