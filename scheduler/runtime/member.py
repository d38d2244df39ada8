"""What runs in one process, put together: a due clock, tables, shards as the group gives them, copies of the others.

On the real outside `process.py` runs it; the simulation runs the same on its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.core.time import format_instant
from scheduler.runtime.aside import Aside
from scheduler.runtime.assignment import Assignment
from scheduler.runtime.clock import DueClock
from scheduler.runtime.elders import Turn
from scheduler.runtime.probe import ClockWatch, Probe
from scheduler.runtime.standby import Standbys
from scheduler.runtime.surroundings import Surroundings
from scheduler.runtime.tables import Tables
from scheduler.runtime.task import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.config import Settings
    from scheduler.runtime.clock import Clock
    from scheduler.runtime.outside import Outside
    from scheduler.runtime.task import ShardTask
    from scheduler.runtime.telemetry import Telemetry

STOP_S = 10.0
STUCK_S = 30.0  # the poll loop has not turned for so long: not live


class Member:
    """Process `index` of a node. `stopped` is asked at every turn, and ends it. `system`: the clocks of the machine."""

    def __init__(
        self,
        settings: Settings,
        index: int,
        cluster: str,
        outside: Outside,
        system: Clock,
        telemetry: Telemetry,
        stopped: Callable[[], bool],
    ) -> None:
        catalogue = settings.catalogue()
        self.name = f"{settings.node_id}-{index}"
        self._outside = outside
        self._telemetry = telemetry
        self._stopped = stopped
        self._clock = DueClock(system)
        self._probe = Probe(outside, catalogue.clock, self.name, self._clock, system)
        self._watch = ClockWatch(self._clock, telemetry)
        self._tables = Tables(outside, catalogue, telemetry)
        self._around = Surroundings(settings, catalogue, self._clock, telemetry, cluster, self._tables, outside)
        self._assignment = Assignment(self._around)
        self._standbys = Standbys(self._around, index)
        self._turn = Turn(outside, catalogue.clock, self.name, self._awaiting)
        self._awaited: Mapping[str, str] = {}
        self._aside = Aside(self._around, self._staying_aside)
        self._aside_for = ""
        self._turned = outside.monotonic()

    def run(self) -> bool:
        """Serve until stopped. True if all shards could be drained in time."""
        self._probe.start()
        self._tables.start()
        try:
            self._standbys.start()  # whoever waits for others has warm copies when its turn comes
            self._join()
            while not self._stopped():
                self._assignment.poll()
                if self._leaves():
                    self._assignment.close(STOP_S)
                    self._assignment = Assignment(self._around, self._assignment.ending)
                    self._join()
                self._turned = self._outside.monotonic()
                self._watch.look()
        finally:
            self._probe.say(waits=True)  # whoever waits for us need not wait any longer
            drained = self._assignment.close(STOP_S)
            self._standbys.stop()
            self._probe.stop()
            self._tables.stop()
            self._outside.plain.flush(1.0)
        return drained

    def _leaves(self) -> bool:
        """Whether another process is to serve a shard of ours that we can't: a newer version, or one with a disk."""
        if self._assignment.is_outgrown and self._turn.is_over():
            return True
        return self._aside.leaves(self._assignment.refused(self._aside.patience))

    def _join(self) -> None:
        self._probe.say(waits=True)
        self._aside.wait()
        self._turn.wait(self._probe)
        if not self._stopped():
            self._assignment.join()

    def _awaiting(self, awaited: Mapping[str, str]) -> bool:
        """Told for whom this process waits, and why; True to wait no longer."""
        self._awaited = awaited
        self._turned = self._outside.monotonic()
        return self._stopped()

    def _staying_aside(self, why: str) -> bool:
        """Told why this process leaves all shards to others; True to do so no longer."""
        self._aside_for = why
        self._telemetry.aside.set(bool(why))
        self._turned = self._outside.monotonic()
        return self._stopped()

    @property
    def tasks(self) -> dict[int, ShardTask]:
        """The shards the group has given to this process."""
        return dict(self._assignment.tasks)

    def state(self) -> dict[str, Any]:
        """What `/live` and `/ready` show."""
        live = self._outside.monotonic() - self._turned < STUCK_S
        tasks = self.tasks
        shards = {
            str(n): {"phase": task.phase.value, **({"trouble": task.trouble} if task.trouble else {})}
            for n, task in sorted(tasks.items())
        }
        now, difference, alarms = self._clock.now(), self._clock.wall_difference_ms(), self._clock.alarms()
        serving = self._assignment.is_settled and all(
            task.phase is Phase.READY and task.trouble is None for task in tasks.values()
        )
        return {
            "live": live,
            "ready": live and now is not None and not alarms and serving and not self._awaited and not self._aside_for,
            "now": None if now is None else format_instant(now),
            "wall_clock_ahead_ms": None if difference is None else round(difference),
            "clock_alarms": alarms,
            "waits_for": dict(self._awaited),
            "aside": self._aside_for or None,
            "shards": shards,
            "standbys": self._standbys.state(),
        }
