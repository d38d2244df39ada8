"""The values the core works on: a schedule's definition, its record, and what becomes of its nominals."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.core.trigger import Trigger

DAY_MS = 86_400_000
DEFAULT_MAX_LATENESS_MS = DAY_MS
COMPLETED_RETENTION_MS = DAY_MS


class State(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    BROKEN = "broken"


class Priority(IntEnum):
    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    BACKGROUND = 3


PRIORITY_BY_NAME: Mapping[str, Priority] = {p.name.lower(): p for p in Priority}
PRIORITY_NAMES: tuple[str, ...] = tuple(p.name.lower() for p in Priority)


class Origin(StrEnum):
    SCHEDULE = "schedule"
    CATCH_UP = "catch_up"
    BACKFILL = "backfill"
    MANUAL = "manual"
    RETRY = "retry"
    QUEUED = "queued"


class MisfireKind(StrEnum):
    FIRE_ONCE = "fire_once"
    SKIP = "skip"
    CATCH_UP = "catch_up"


class Misfire(NamedTuple):
    """What to do with nominals nobody could look at in time; `newest` is K of `catch_up`."""

    kind: MisfireKind = MisfireKind.FIRE_ONCE
    newest: int = 0


FIRE_ONCE = Misfire()


class Spec(Struct, frozen=True, kw_only=True, gc=False):
    """A validated definition, defaults filled in. `payload` is the producer's bytes, never decoded.

    `max_lateness_ms`: None is unlimited. Under misfire `skip` its default is the grace, so `lateness_given` keeps
    whether the producer chose it.
    """

    trigger: Trigger
    start: int | None = None
    end: int | None = None
    calendar: str | None = None
    roll: str = "skip"
    priority: Priority = Priority.NORMAL
    lane: str = "default"
    window_ms: int = 0
    misfire: Misfire = FIRE_ONCE
    max_lateness_ms: int | None = DEFAULT_MAX_LATENESS_MS
    lateness_given: bool = False
    overlap: str = "allow"
    tracking: str = "none"
    retry: tuple[int, int, int] | None = None
    timeout_ms: int | None = None
    deadline_ms: int | None = None
    handler: str | None = None
    payload: bytes | None = None
    labels: tuple[tuple[str, str], ...] = ()
    owner: str | None = None
    description: str | None = None
    impact: str | None = None
    runbook: str | None = None

    def same_meaning(self, other: Spec) -> bool:
        """Whether a change from one to the other keeps the version (it may still grow the revision)."""
        return all(getattr(self, field) == getattr(other, field) for field in VERSION_FIELDS)


VERSION_FIELDS = (
    "trigger", "start", "end", "calendar", "roll", "window_ms", "payload", "handler", "overlap", "tracking",
)  # fmt: skip


class Answer(Struct, frozen=True, gc=False):
    """What a command got, as a schedule remembers it for a repeat."""

    command_id: str
    command: str
    accepted: bool
    code: str
    message: str
    at: int
    version: int
    revision: int
    effective_at: int | None = None
    occurrence_id: str | None = None
    counts: tuple[tuple[str, int], ...] = ()


class Schedule(Struct, frozen=True, kw_only=True, gc=False):
    """One schedule as it now is. Nominals at or before `floor` are decided; the cursor decides later ones."""

    schedule_id: str
    state: State
    version: int
    revision: int
    created_at: int
    updated_at: int
    effective_at: int
    floor: int
    spec: Spec
    completed_at: int | None = None
    broken_reason: str | None = None
    actor: str | None = None
    reason: str | None = None
    recent: tuple[Answer, ...] = ()
    older: str = ""

    def next_after(self, instant: int) -> int | None:
        """The least nominal of this schedule later than `instant`, its floor, and the eve of its start."""
        spec = self.spec
        after = max(instant, self.floor)
        if spec.start is not None and spec.start > after:
            after = spec.start - 1
        nominal = spec.trigger.next_after(after)
        if nominal is None or (spec.end is not None and nominal >= spec.end):
            return None
        return nominal


class Nominal(Struct, frozen=True, order=True, gc=False):
    """One instant the trigger names, and when it may start."""

    scheduled_for: int
    available_at: int


class Run(NamedTuple):
    """A nominal decided to be dispatched."""

    scheduled_for: int
    available_at: int
    origin: Origin = Origin.SCHEDULE
    stands_for: int = 1
    attempt: int = 1


class Gone(Struct, frozen=True, gc=False):
    """Nominals decided not to run: one record for all of them."""

    state: str  # missed | suppressed | cancelled
    reason: str
    count: int
    first: int
    last: int
