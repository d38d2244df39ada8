"""How a demo went: figures, and whether it may call itself a success. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from topics.messages import PRIORITIES

if TYPE_CHECKING:
    from scheduler.cli.arrivals import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Counts of the demo and what went wrong in it."""

    tally: Tally
    loaded: int
    rejected: int
    seconds: float
    deaths: list[str] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        """Each reason why the demo failed, in words; empty: it went well."""
        faults = list(self.deaths)
        if self.tally.count == 0:
            faults.append("nothing arrived on the dispatch topics")
        if self.tally.early:
            faults.append(f"{len(self.tally.early)} came before their time, first {self.tally.early[0]}")
        if self.tally.duplicates:
            faults.append(f"{len(self.tally.duplicates)} came twice, first {self.tally.duplicates[0]}")
        if self.rejected:
            faults.append(f"{self.rejected} of the demo's schedules were rejected")
        return faults

    @property
    def exit_code(self) -> int:
        return 1 if self.faults else 0

    def as_json(self) -> dict[str, Any]:
        """For programs: one object."""
        return {
            "seconds": round(self.seconds, 1),
            "schedules_loaded": self.loaded,
            "schedules_rejected": self.rejected,
            "dispatched": self.tally.count,
            "early": len(self.tally.early),
            "duplicates": len(self.tally.duplicates),
            "lateness_ms": {
                name: {"count": count, "p50": p50, "p99": p99, "max": most}
                for name, count, p50, p99, most in self.tally.rows(PRIORITIES)
            },
            "origins": dict(sorted(self.tally.origins.items())),
            "faults": self.faults,
        }

    def as_lines(self) -> list[str]:
        """For a person."""
        counts = f"{self.rejected} rejected), {len(self.tally.early)} early, {len(self.tally.duplicates)} twice"
        lines = [
            "",
            f"{self.tally.count} occurrences in {self.seconds:.0f} s from {self.loaded} schedules ({counts}",
            f"{'lateness in ms':<16}{'count':>8}{'p50':>8}{'p99':>8}{'max':>8}",
        ]
        lines += [
            f"{name:<16}{count:>8}{p50:>8}{p99:>8}{most:>8}"
            for name, count, p50, p99, most in self.tally.rows(PRIORITIES)
        ]
        return [*lines, *(f"fault: {fault}" for fault in self.faults)]
