"""Triggers: the time rule of a schedule as an immutable value, and the parser that makes one from its wire form.

One calculator serves preview, firing, catch-up, backfill and reconciliation, so all of it hangs on the six questions
of `Trigger`. A trigger knows nothing of `start`, `end`, jitter or policies.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from scheduler.core.problem import Problem
from scheduler.core.time import MAX_MS, format_instant, parse_instant

_LEAST_EVERY_MS: Final = 1000


class Trigger(Protocol):
    """A time rule: an immutable, hashable, picklable value. A *nominal* is an instant (ms) that it names."""

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

    def to_wire(self) -> dict[str, object]:
        """The JSON form, defaults omitted; parsing it gives an equal trigger."""


class Walk:
    """`between` and `newest_before` for triggers that can step either way."""

    __slots__ = ()

    def next_after(self, t: int) -> int | None:
        raise NotImplementedError

    def prev_before(self, t: int) -> int | None:
        raise NotImplementedError

    def between(self, a: int, b: int, limit: int) -> list[int]:
        """See `Trigger.between`."""
        found: list[int] = []
        at = self.next_after(a)
        while at is not None and at <= b and len(found) < limit:
            found.append(at)
            at = self.next_after(at)
        return found

    def newest_before(self, t: int, k: int, after: int) -> list[int]:
        """See `Trigger.newest_before`."""
        found: list[int] = []
        at = self.prev_before(t + 1)
        while at is not None and at > after and len(found) < k:
            found.append(at)
            at = self.prev_before(at)
        found.reverse()
        return found


@dataclass(frozen=True, slots=True)
class Once(Walk):
    """One instant. Given as local time it keeps how it was written, so that newer zone tables can re-plan it."""

    at: int
    local: str | None = None
    zone: str | None = None
    fold: str | None = None

    def next_after(self, t: int) -> int | None:
        """See `Trigger.next_after`."""
        return self.at if self.at > t else None

    def prev_before(self, t: int) -> int | None:
        """See `Trigger.prev_before`."""
        return self.at if self.at < t else None

    def count_between(self, a: int, b: int) -> int:
        """See `Trigger.count_between`."""
        return int(a < self.at <= b)

    def to_wire(self) -> dict[str, object]:
        """See `Trigger.to_wire`."""
        if self.local is None:
            return {"at": format_instant(self.at)}
        wire: dict[str, object] = {"at_local": self.local, "zone": self.zone}
        return wire if self.fold is None else wire | {"fold": self.fold}


@dataclass(frozen=True, slots=True)
class Every(Walk):
    """Elapsed time on the grid `anchor + k * every_ms`, k >= 0: no drift, blind to clock changes."""

    every_ms: int
    anchor: int

    def next_after(self, t: int) -> int | None:
        """See `Trigger.next_after`."""
        if t < self.anchor:
            return self.anchor
        at = t - (t - self.anchor) % self.every_ms + self.every_ms
        return at if at <= MAX_MS else None

    def prev_before(self, t: int) -> int | None:
        """See `Trigger.prev_before`."""
        if t <= self.anchor:
            return None
        last = min(t - 1, MAX_MS)
        return last - (last - self.anchor) % self.every_ms

    def count_between(self, a: int, b: int) -> int:
        """See `Trigger.count_between`."""
        return max(0, self._up_to(b) - self._up_to(a))

    def _up_to(self, t: int) -> int:
        return 0 if t < self.anchor else (min(t, MAX_MS) - self.anchor) // self.every_ms + 1

    def to_wire(self) -> dict[str, object]:
        """See `Trigger.to_wire`."""
        return {"every_ms": self.every_ms, "anchor": format_instant(self.anchor)}


class Parsed(NamedTuple):
    """What came of a trigger's wire form: a trigger, or every problem at once; warnings stand beside either."""

    trigger: Trigger | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def parse_trigger(spec: object, *, schedule_id: str | None, effective_at: int) -> Parsed:  # noqa: ARG001 - cron follows
    """The trigger a decoded JSON object describes. Never raises; all problems at once.

    Forms: `{"at"}`, `{"at_local","zone","fold"?}`, `{"cron","zone","dialect"?,"gap"?,"fold"?}`,
    `{"every_ms","anchor"?}`. A rate without an anchor is anchored at `effective_at` (ms).
    """
    if not isinstance(spec, dict):
        return _refused("", 'a trigger is an object such as {"cron": "0 9 * * MON-FRI", "zone": "Europe/Paris"}')
    if "at" in spec:
        try:
            return Parsed(Once(parse_instant(spec["at"])))
        except (ValueError, TypeError) as problem:
            return _refused("at", str(problem))
    if "every_ms" in spec:
        every_ms, anchor = spec["every_ms"], spec.get("anchor")
        if not isinstance(every_ms, int) or isinstance(every_ms, bool) or every_ms < _LEAST_EVERY_MS:
            return _refused("every_ms", f"{every_ms!r} is not a whole number of milliseconds >= 1000")
        try:
            return Parsed(Every(every_ms, effective_at if anchor is None else parse_instant(anchor)))
        except (ValueError, TypeError) as problem:
            return _refused("anchor", str(problem))
    return Parsed(None, (Problem("", "not_supported", "this form of trigger is not built yet"),))


def _refused(field: str, message: str) -> Parsed:
    return Parsed(None, (Problem(field, "bad_field", message),))
