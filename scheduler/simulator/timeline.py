"""A simulation as lines a person reads: runs of ordinary dispatches folded, everything else on a line of its own."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from scheduler.core.time import format_instant, parse_instant
from scheduler.simulator.scenario import CalendarStep, ClockStep, OutageStep

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scheduler.simulator.events import Event
    from scheduler.simulator.scenario import Scenario

_GONE: Final = ("missed", "suppressed", "cancelled")
_ORIGINS: Final = {
    "schedule": "late",
    "catch_up": "caught up",
    "manual": "asked for",
    "backfill": "backfilled",
    "retry": "tried again",
    "queued": "had to wait",
}


class _Run(NamedTuple):
    """Ordinary dispatches of one schedule, one after the other."""

    first: str
    last: str
    many: int


def timeline(scenario: Scenario, events: Iterable[Event]) -> Iterator[str]:
    """The lines of one simulation; `events` are taken as they come, and only runs are held back."""
    names = max([8, *(len(str(s.schedule_id)) for s in scenario.steps if hasattr(s, "schedule_id"))])
    page = _Page(min(names, 40))
    if scenario.title:
        yield scenario.title
    marks = _marks(scenario)
    mark = next(marks, None)
    totals: Counter[str] = Counter()
    for event in events:
        totals[event["event"]] += event.get("count", 1)
        if _is_ordinary(event) and (mark is None or parse_instant(event["at"]) < mark[0]):
            page.hold(event)
            continue
        while mark is not None and mark[0] <= parse_instant(event["at"]):
            yield from page.line(format_instant(mark[0]), "", *mark[1:])
            mark = next(marks, None)
        if _is_ordinary(event):
            page.hold(event)
        else:
            yield from page.line(event["at"], event["schedule_id"], event["event"], _detail(event))
    while mark is not None:
        yield from page.line(format_instant(mark[0]), "", *mark[1:])
        mark = next(marks, None)
    told = ", ".join(f"{count} {name}" for name, count in sorted(totals.items())) or "nothing happened"
    yield from page.line(format_instant(scenario.until), "", "end", told)


class _Page:
    """Lays lines out; holds runs of ordinary dispatches back until something else happens."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._day = ""
        self._runs: dict[str, _Run] = {}

    def hold(self, event: Event) -> None:
        name, at = event["schedule_id"], event["scheduled_for"]
        run = self._runs.get(name)
        self._runs[name] = _Run(at, at, 1) if run is None else run._replace(last=at, many=run.many + 1)

    def line(self, at: str, name: str, what: str, detail: str) -> Iterator[str]:
        runs, self._runs = self._runs, {}
        for held, run in runs.items():
            text = "" if run.many == 1 else f"{run.many} on time, to {_until(run)}"
            yield from self._row(run.first, held, "dispatched", text)
        yield from self._row(at, name, what, detail)

    def _row(self, at: str, name: str, what: str, detail: str) -> Iterator[str]:
        day, clock = _split(at)
        if day != self._day:
            self._day = day
            yield day
        yield f"  {clock:<12}  {name or '-':<{self._width}}  {what:<10}  {detail}".rstrip()


def _until(run: _Run) -> str:
    day, clock = _split(run.last)
    return clock if day == _split(run.first)[0] else f"{day} {clock}"


def _split(at: str) -> tuple[str, str]:
    day, _, clock = at.partition("T")
    return day, clock.removesuffix("Z")


def _is_ordinary(event: Event) -> bool:
    """On time, from its schedule, standing for itself."""
    return bool(
        event["event"] == "dispatched" and event["origin"] == "schedule" and event["at"] == event["scheduled_for"]
    )


def _detail(event: Event) -> str:
    if event["event"] == "dispatched":
        return _dispatch_detail(event)
    if event["event"] in _GONE:
        span = event["scheduled_for"] if "first" not in event else f"{event['first']} to {event['last']}"
        return f"{event['count']} ({event['reason']}): {span}"
    parts = [event.get("code", ""), event.get("reason", "")]
    if event["event"] == "accepted" and "version" in event:
        parts.append(f"version {event['version']}")
    return ": ".join(part for part in parts if part)


def _dispatch_detail(event: Event) -> str:
    late_ms = parse_instant(event["at"]) - parse_instant(event["scheduled_for"])
    why = _ORIGINS[event["origin"]]
    if event["origin"] == "schedule" and event["at"] == event["available_at"]:
        why = "in its window"
    text = f"{why}, for {event['scheduled_for']}"
    if late_ms:
        text += f", {late_ms / 1000:g} s after it"
    return text + (f", for all {event['stands_for']}" if event.get("stands_for", 1) > 1 else "")


def _marks(scenario: Scenario) -> Iterator[tuple[int, str, str]]:
    """(instant, what, detail) of what happened to the node, in order."""
    marks = []
    for step in scenario.steps:
        if isinstance(step, OutageStep):
            marks.append((step.at, "outage", f"nobody is there until {format_instant(step.until)}"))
            if step.until <= scenario.until:
                marks.append((step.until, "back", "commands that waited are applied first"))
        elif isinstance(step, CalendarStep):
            text = f"{step.name} is {'deleted' if step.calendar is None else 'applied'}"
            marks.append((step.at, "calendar", text))
        elif isinstance(step, ClockStep):
            text = f"the wall clock moves by {step.step_ms / 1000:+g} s: an alarm; the due clock does not follow"
            marks.append((step.at, "clock", text))
    return iter(sorted(marks))
