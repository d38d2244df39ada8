"""A simulation as a picture (SVG): a row a schedule, time to the right, a mark for everything that happened.

Bounded whatever the length: marks of one kind that fall on one pixel are one mark with a count, and beyond `MOST_ROWS`
schedules only the first have a row.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

from scheduler.core.time import format_instant, parse_instant
from scheduler.simulator.scenario import ClockStep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.simulator.events import Event
    from scheduler.simulator.scenario import Scenario

MOST_ROWS: Final = 60
_LEFT, _TOP, _ROW, _PLOT, _RIGHT = 230, 64, 30, 900, 24
_TICKS: Final = (
    *(1, 10, 100, 1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 3 * 3_600_000, 6 * 3_600_000),
    *(12 * 3_600_000, 86_400_000, 7 * 86_400_000, 30 * 86_400_000, 91 * 86_400_000, 365 * 86_400_000),
    3_650 * 86_400_000,
)
_MOST_TICKS: Final = 10
_UNFIT: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# kind → (colour, shape, words); shape and colour both tell kinds apart
_KINDS: Final = {
    "dispatched": ("#1a7f37", "bar", "dispatched on time"),
    "late": ("#9a6700", "triangle", "dispatched late, or for others"),
    "manual": ("#0969da", "diamond", "dispatched because somebody asked"),
    "missed": ("#cf222e", "cross", "missed"),
    "suppressed": ("#6e7781", "ring", "suppressed"),
    "cancelled": ("#8250df", "square", "cancelled"),
    "accepted": ("#24292f", "tick", "command accepted"),
    "rejected": ("#cf222e", "tick", "command rejected"),
    "ended": ("#24292f", "end", "the schedule has ended"),
}


class Picture:
    """Collects events one by one with `add`, then draws them."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._span = max(1, scenario.until - scenario.start)
        self._rows: dict[str, int] = {}
        self._left_out: set[str] = set()
        self._marks: Counter[tuple[int, float, str]] = Counter()
        self._texts: dict[tuple[int, float, str], str] = {}
        self._spans: dict[tuple[int, float, float, str], str] = {}

    def add(self, event: Event) -> None:
        """Note one event."""
        name = str(event["schedule_id"])
        row = self._rows.get(name)
        if row is None:
            if len(self._rows) == MOST_ROWS:
                self._left_out.add(name)
                return
            row = self._rows[name] = len(self._rows)
        kind = _kind(event)
        at = event["scheduled_for"] if kind in ("missed", "suppressed", "cancelled") else event["at"]
        key = (row, self._x(parse_instant(at)), kind)
        self._marks[key] += event.get("count", 1)
        self._texts[key] = _words(event)
        if "first" in event:
            first, last = self._x(parse_instant(event["first"])), self._x(parse_instant(event["last"]))
            self._spans[row, first, last, kind] = _words(event)

    def svg(self) -> str:
        """The whole picture."""
        rows = len(self._rows)
        height = _TOP + rows * _ROW + 60 + 18 * ((len(_KINDS) + 2) // 3)
        width = _LEFT + _PLOT + _RIGHT
        title = self._scenario.title or "Simulation"
        head = f'width="{width}" height="{height}" font-family="sans-serif" font-size="12" role="img"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {head}>',
            f"<title>{_safe(title)}</title>",
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            f'<text x="16" y="24" font-size="16" font-weight="bold">{_safe(title)}</text>',
            *self._axis(rows),
            *self._outages(rows),
            *self._lines(),
            *self._drawn(),
            *self._legend(_TOP + rows * _ROW + 44),
            "</svg>",
        ]
        return "\n".join(lines) + "\n"

    def _x(self, instant: int) -> float:
        inside = min(max(instant, self._scenario.start), self._scenario.until)
        return round(_LEFT + _PLOT * (inside - self._scenario.start) / self._span)

    def _axis(self, rows: int) -> Iterator[str]:
        bottom = _TOP + rows * _ROW
        step = next((t for t in _TICKS if self._span / t <= _MOST_TICKS), _TICKS[-1])
        first = -(-self._scenario.start // step) * step
        several_days = self._span > 86_400_000
        for at in range(first, self._scenario.until + 1, step):
            x, text = self._x(at), format_instant(at)
            shown = text[:10] if step >= 86_400_000 else text[5:16] if several_days else text[11:].removesuffix("Z")
            yield f'<line x1="{x}" y1="{_TOP - 6}" x2="{x}" y2="{bottom}" stroke="#d0d7de"/>'
            yield f'<text x="{x}" y="{bottom + 16}" text-anchor="middle" fill="#57606a">{shown}</text>'
        start, until = format_instant(self._scenario.start), format_instant(self._scenario.until)
        yield f'<text x="16" y="44" fill="#57606a">{start} to {until}</text>'
        if self._left_out:
            more = f"{len(self._left_out)} more schedules are not drawn"
            yield f'<text x="{_LEFT}" y="44" fill="#cf222e">{more}</text>'

    def _outages(self, rows: int) -> Iterator[str]:
        height = rows * _ROW + 6
        for outage in self._scenario.outages:
            x, end = self._x(outage.at), self._x(outage.until)
            words = f"outage from {format_instant(outage.at)} to {format_instant(outage.until)}"
            yield (
                f'<rect x="{x}" y="{_TOP - 6}" width="{max(1, end - x)}" height="{height}" fill="#ffd8d3" '
                f'fill-opacity="0.7"><title>{words}</title></rect>'
            )
        for step in self._scenario.steps:
            if isinstance(step, ClockStep):
                x = self._x(step.at)
                words = f"the wall clock moves by {step.step_ms} ms; the due clock does not follow"
                yield (
                    f'<line x1="{x}" y1="{_TOP - 6}" x2="{x}" y2="{_TOP + height - 6}" stroke="#8250df" '
                    f'stroke-dasharray="4 3"><title>{words}</title></line>'
                )

    def _lines(self) -> Iterator[str]:
        for name, row in self._rows.items():
            y = _TOP + row * _ROW + _ROW / 2
            shown = name if len(name) <= 30 else name[:29] + "…"
            yield f'<line x1="{_LEFT}" y1="{y}" x2="{_LEFT + _PLOT}" y2="{y}" stroke="#eaeef2"/>'
            yield f'<text x="16" y="{y + 4}">{_safe(shown)}<title>{_safe(name)}</title></text>'
        for (row, first, last, kind), words in self._spans.items():
            y = _TOP + row * _ROW + _ROW / 2
            yield (
                f'<line x1="{first}" y1="{y}" x2="{last}" y2="{y}" stroke="{_KINDS[kind][0]}" stroke-width="4" '
                f'stroke-opacity="0.35"><title>{_safe(words)}</title></line>'
            )

    def _drawn(self) -> Iterator[str]:
        order = list(_KINDS)
        for key in sorted(self._marks, key=lambda k: (order.index(k[2]), k[0], k[1])):
            row, x, kind = key
            count = self._marks[key]
            words = self._texts[key] if count == 1 or kind in ("missed", "suppressed") else f"{count} times {kind}"
            yield _shape(kind, x, _TOP + row * _ROW + _ROW / 2, words)

    def _legend(self, top: float) -> Iterator[str]:
        for index, (kind, (_, shape, words)) in enumerate(_KINDS.items()):
            x, y = 24 + 380 * (index % 3), top + 18 * (index // 3)
            yield _shape(kind, x, y + (10 if shape == "tick" else 0), words)  # a tick stands above its line
            yield f'<text x="{x + 14}" y="{y + 4}">{words}</text>'
        index = len(_KINDS)
        x, y = 24 + 380 * (index % 3), top + 18 * (index // 3)
        yield f'<rect x="{x - 6}" y="{y - 6}" width="12" height="12" fill="#ffd8d3"/>'
        yield f'<text x="{x + 14}" y="{y + 4}">nobody there</text>'


def _kind(event: Event) -> str:
    if event["event"] == "dispatched":
        if event["origin"] == "manual":
            return "manual"
        punctual = event["at"] == event["available_at"] and event["origin"] == "schedule"
        return "dispatched" if punctual else "late"
    return event["event"] if event["event"] in _KINDS else "ended"


def _words(event: Event) -> str:
    parts = [event["at"], event["event"]]
    parts += [f"for {event['scheduled_for']}"] if "scheduled_for" in event else []
    parts += [f"{event['count']} nominals"] if event.get("count", 1) > 1 else []
    parts += [str(event[name]) for name in ("code", "reason") if name in event]
    return " ".join(parts)


def _shape(kind: str, x: float, y: float, words: str) -> str:
    colour, shape, _ = _KINDS[kind]
    title = f"<title>{_safe(words)}</title>"
    drawn = {
        "bar": f'<rect x="{x - 1}" y="{y - 8}" width="2" height="16" fill="{colour}">',
        "triangle": f'<path d="M{x - 5} {y + 6} L{x + 5} {y + 6} L{x} {y - 6} Z" fill="{colour}">',
        "diamond": f'<path d="M{x} {y - 7} L{x + 6} {y} L{x} {y + 7} L{x - 6} {y} Z" fill="{colour}">',
        "cross": f'<path d="M{x - 5} {y - 5} L{x + 5} {y + 5} M{x - 5} {y + 5} L{x + 5} {y - 5}" stroke="{colour}" '
        'stroke-width="2">',
        "ring": f'<circle cx="{x}" cy="{y}" r="4" fill="#ffffff" stroke="{colour}" stroke-width="2">',
        "square": f'<rect x="{x - 4}" y="{y - 4}" width="8" height="8" fill="{colour}">',
        "tick": f'<path d="M{x} {y - 6} L{x} {y - 13} M{x - 3} {y - 10} L{x} {y - 6} L{x + 3} {y - 10}" fill="none" '
        f'stroke="{colour}">',
        "end": f'<path d="M{x + 3} {y - 8} L{x + 3} {y + 8}" stroke="{colour}" stroke-width="3">',
    }[shape]
    tag = drawn[1 : drawn.index(" ")]
    return f"{drawn}{title}</{tag}>"


def _safe(text: str) -> str:
    return escape(_clean(text))


def _clean(text: str) -> str:
    """What XML can't hold, whatever somebody wrote into a title or an id."""
    return _UNFIT.sub("?", text)
