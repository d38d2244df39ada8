"""Counting what a read-committed reader saw, without Kafka and without scheduler code: what is expected is arithmetic.

Three kinds of schedules, told apart by what may be asked of them:

    steady   each nominal exactly once, whatever happens
    held     paused, resumed and cancelled by commands: each nominal once, or told on the history to be suppressed or
             cancelled; none after an acknowledged pause or cancel
    others   only triggered by hand: each answered trigger exactly once

An answer is stamped with the time of its step, which on a busy machine, or while a broker is away, may be committed
much later, so append times do not tell what was sent after it. The order in a shard's dispatch partition does: what
stands behind a nominal later than the answer is of a later step.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.verifier import ms_of, stamped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.verifier import Beat

EXAMPLES = 5


@dataclass
class Counts:
    """What was counted; `silence_ms` is the longest time between two dispatches of a shard's steady schedules."""

    expected: int = 0
    seen: int = 0
    lost: int = 0
    doubled: int = 0
    early: int = 0
    strange: int = 0  # nobody asked for it
    after: int = 0  # started after an acknowledged pause or cancel
    told: int = 0  # nominals that did not run, and are written down as such
    commands: int = 0
    answered: int = 0
    answered_twice: int = 0
    latest_ms: int = 0  # the longest time from a nominal to its dispatch
    silence_ms: dict[int, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Never lost, never twice, never early, never after a pause, each command answered once."""
        wrong = self.lost or self.doubled or self.early or self.strange or self.after or self.answered_twice
        return not wrong and self.answered == self.commands

    def __str__(self) -> str:
        names = ("expected", "seen", "lost", "doubled", "early", "strange", "after")
        text = ", ".join(f"{name} {getattr(self, name)}" for name in names)
        if self.commands:
            text += f", told {self.told}, commands {self.commands}, answered {self.answered}"
            text += f", twice {self.answered_twice}"
        silences = ", ".join(f"{shard}: {ms / 1000:.1f} s" for shard, ms in sorted(self.silence_ms.items()))
        text += f"; latest {self.latest_ms / 1000:.1f} s; longest silence per shard {silences}"
        return text + (f"; such as {self.examples}" if self.examples else "")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class _Schedule:
    """One schedule, and how often each of its nominals was seen."""

    def __init__(self, beat: Beat) -> None:
        self.beat = beat
        self.seen = bytearray(len(range(beat.first, beat.end, beat.every_ms)))
        self.stops: list[tuple[int, int]] = []  # from, until (beyond the first, the last included)
        self.told: list[tuple[range, int]] = []  # nominals from, to, and how many of them did not run
        self.dispatches: list[tuple[int, int]] = []  # of a held one: nominal, the latest before it in its partition

    def index(self, fields: dict[str, Any]) -> int | None:
        """Which nominal a dispatch is of; None if its id is not what it must be."""
        at = ms_of(fields["scheduled_for"])
        number, rest = divmod(at - self.beat.first, self.beat.every_ms)
        wanted = f"{self.beat.schedule_id}:{self.beat.version}:{stamped(at)}"
        return number if rest == 0 <= number < len(self.seen) and fields["occurrence_id"] == wanted else None

    def number(self, instant: int) -> int:
        return (instant - self.beat.first) // self.beat.every_ms


class Ledger:
    """Takes records in any order of topics, in the order of each partition."""

    def __init__(self, steady: Sequence[Beat], held: Sequence[Beat] = ()) -> None:
        self._steady = {beat.schedule_id: _Schedule(beat) for beat in steady}
        self._held = {beat.schedule_id: _Schedule(beat) for beat in held}
        self._manual: Counter[str] = Counter()
        self._triggered: set[str] = set()
        self._commands: set[str] = set()
        self._answers: Counter[str] = Counter()
        self._counts = Counts(expected=sum(len(one.seen) for one in self._steady.values()))
        self._to_come = self._counts.expected
        self._last: dict[int, int] = {}
        self._latest: Counter[int] = Counter()  # partition -> the latest nominal on it so far

    @property
    def to_come(self) -> int:
        """Nominals of steady schedules not seen yet."""
        return self._to_come

    @property
    def seen(self) -> int:
        return self._counts.seen

    @property
    def unanswered(self) -> int:
        return len(self._commands - self._answers.keys())

    def dispatched(self, fields: dict[str, Any], partition: int, append_ms: int) -> None:
        counts = self._counts
        counts.seen += 1
        if append_ms < ms_of(fields["available_at"]):
            counts.early += 1
        schedule_id = fields["schedule_id"]
        if fields["origin"] == "manual":
            self._manual[fields["occurrence_id"]] += 1
            return
        one = self._steady.get(schedule_id) or self._held.get(schedule_id)
        number = None if one is None else one.index(fields)
        if one is None or number is None:
            self._wrong("strange", fields["occurrence_id"])
            return
        one.seen[number] = min(255, one.seen[number] + 1)
        if one.seen[number] > 1:
            self._wrong("doubled", fields["occurrence_id"])
        nominal = one.beat.first + number * one.beat.every_ms
        before_it = self._latest[partition]
        self._latest[partition] = max(before_it, nominal)
        if schedule_id in self._held:
            one.dispatches.append((nominal, before_it))
            return
        self._to_come -= one.seen[number] == 1
        counts.latest_ms = max(counts.latest_ms, append_ms - nominal)
        before = self._last.get(partition)
        if before is not None:
            counts.silence_ms[partition] = max(counts.silence_ms.get(partition, 0), append_ms - before)
        self._last[partition] = append_ms

    def commanded(self, fields: dict[str, Any]) -> None:
        if "command_id" in fields:
            self._commands.add(fields["command_id"])

    def answered(self, fields: dict[str, Any]) -> None:
        """A reply. Only those to commands with an id of the sender's are counted."""
        self._answers[fields["command_id"]] += 1
        if fields["code"] == "dispatched":
            self._triggered.add(fields["occurrence_id"])
        one = self._held.get(fields["schedule_id"])
        if one is not None and fields["code"] in ("paused", "cancelled"):
            one.stops.append((ms_of(fields["effective_at"]), one.beat.end))
        elif one is not None and fields["code"] == "resumed":
            one.stops[-1] = (one.stops[-1][0], ms_of(fields["effective_at"]))

    def told(self, fields: dict[str, Any]) -> None:
        """A record of the history: nominals that will not run."""
        one = self._held.get(fields["schedule_id"])
        first, last = (fields.get(name) or fields.get("scheduled_for") for name in ("first", "last"))
        if one is None or first is None or last is None:
            self._wrong("strange", f"{fields['schedule_id']} {fields['state']}")
            return
        one.told.append((range(one.number(ms_of(first)), one.number(ms_of(last)) + 1), fields.get("count", 1)))

    def result(self) -> Counts:
        """To be asked once, at the end."""
        counts = self._counts
        for one in self._steady.values():
            for number, times in enumerate(one.seen):
                if not times:
                    self._wrong(
                        "lost", f"{one.beat.schedule_id} {stamped(one.beat.first + number * one.beat.every_ms)}"
                    )
        for one in self._held.values():
            self._judge_held(one)
        for occurrence in self._triggered:
            if self._manual[occurrence] != 1:
                self._wrong("doubled" if self._manual[occurrence] else "lost", occurrence)
        for occurrence in self._manual.keys() - self._triggered:
            self._wrong("strange", occurrence)
        counts.expected += len(self._triggered)
        counts.commands = len(self._commands)
        counts.answered = len(self._commands & self._answers.keys())
        counts.answered_twice = sum(self._answers[name] > 1 for name in self._commands)
        return counts

    def _judge_held(self, one: _Schedule) -> None:
        counts = self._counts
        for nominal, before_it in one.dispatches:
            for stop, until in one.stops:
                if stop < nominal <= until or nominal <= stop < before_it:
                    text = f"stopped at {stamped(stop)} until {stamped(until)}, behind {stamped(before_it)}"
                    self._wrong("after", f"{one.beat.schedule_id} {stamped(nominal)}: {text}")
                    break
        told: set[int] = set()
        for numbers, count in one.told:
            gone = [number for number in numbers if not one.seen[number]]
            if len(gone) != count:
                self._wrong("strange", f"{one.beat.schedule_id}: {count} told of {numbers}, {len(gone)} did not run")
            told.update(gone)
        counts.told += len(told)
        for number, times in enumerate(one.seen):
            nominal = one.beat.first + number * one.beat.every_ms
            if times or not (number in told or any(stop < nominal <= until for stop, until in one.stops)):
                counts.expected += 1
                if not times:
                    self._wrong("lost", f"{one.beat.schedule_id} {stamped(nominal)}")

    def _wrong(self, kind: str, what: str) -> None:
        setattr(self._counts, kind, getattr(self._counts, kind) + 1)
        if len(self._counts.examples) < EXAMPLES:
            self._counts.examples.append(f"{kind}: {what}")
