"""What should have happened, by an arithmetic of its own, against what did: no scheduler code decides here.

The answers say when each change took effect; the definitions say which nominals there are. Every nominal of an active
schedule must have been dispatched once, or be counted in one record that says why not.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scheduler.core.time import format_instant, parse_instant

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.world.witness import Told, Witness

MINUTE_MS = 60_000
LATE_MS = 100  # a nominal younger than this at the end may still be on its way
MEANING = ("trigger", "start", "end", "window_ms", "payload")


@dataclass
class Era:
    """One version of one schedule: its nominals are later than `after` and at most `until` (ms; None: no end)."""

    version: int
    spec: dict[str, Any]
    after: int
    until: int | None = None
    new_rule: bool = True
    pauses: list[tuple[int, int | None, bool]] = field(default_factory=list)  # after, until, caught up

    def nominals(self, now: int) -> list[int]:
        return list(_nominals(self.spec, self.after, now if self.until is None else self.until, self.new_rule))

    def pause_at(self, nominal: int) -> tuple[int, int | None, bool] | None:
        for pause in self.pauses:
            if pause[0] < nominal and (pause[1] is None or nominal <= pause[1]):
                return pause
        return None


def _nominals(spec: dict[str, Any], after: int, until: int, new_rule: bool) -> Iterable[int]:
    first = max(after + 1, parse_instant(spec["start"]) if spec.get("start") else 0)
    last = min(until, parse_instant(spec["end"]) - 1 if spec.get("end") else until)
    trigger = spec["trigger"]
    if "at" in trigger:
        at = parse_instant(trigger["at"])
        # One that passed on the way to the shard is judged like any that nobody looked at.
        if at <= last and (at >= first or (new_rule and at >= after - MINUTE_MS)):
            yield at
        return
    if "every_ms" in trigger:
        step, phase = trigger["every_ms"], parse_instant(trigger["anchor"])
    else:
        head, _, rest = trigger["cron"].partition(" ")
        step, phase = (MINUTE_MS, 0) if head == "*" else (int(head.removeprefix("*/")) * 1000, 0)
        assert rest.replace("*", "").strip() == ""
    at = first + (phase - first) % step
    while at <= last:
        yield at
        at += step


def eras(sent: dict[str, dict[str, Any]], answers: list[dict[str, Any]]) -> dict[str, list[Era]]:
    """Every version of every schedule, by what was answered."""
    found: dict[str, list[Era]] = {}
    for answer in answers:
        if answer["status"] != "accepted":
            continue
        name, code = answer["schedule_id"], answer["code"]
        command = sent[answer["command_id"]]
        known = found.setdefault(name, [])
        at = parse_instant(answer["effective_at"]) if answer.get("effective_at") else 0
        if code == "created":
            known.append(Era(answer["version"], command["spec"], at))
        elif code == "updated":
            _update(known, command["spec"], answer, at)
        elif code == "paused":
            known[-1].pauses.append((at, None, False))
        elif code == "resumed":
            _end_pause(known[-1], at, caught_up=bool(command.get("catch_up")))
        elif code in ("cancelled", "deleted"):
            _end_pause(known[-1], at, caught_up=False)
            known[-1].until = at if known[-1].until is None else known[-1].until
    return found


def _update(known: list[Era], change: dict[str, Any], answer: dict[str, Any], at: int) -> None:
    before = known[-1]
    spec = {**before.spec, **change}
    if answer["version"] == before.version:
        before.spec = spec
        return
    before.until = at
    new_rule = spec["trigger"] != before.spec["trigger"]
    after = Era(answer["version"], spec, at, new_rule=new_rule)
    if before.pauses and before.pauses[-1][1] is None:
        _end_pause(before, at, caught_up=False)
        after.pauses.append((at, None, False))
    known.append(after)


def _end_pause(era: Era, at: int, *, caught_up: bool) -> None:
    if era.pauses and era.pauses[-1][1] is None:
        era.pauses[-1] = (era.pauses[-1][0], at, caught_up)


def judge(sent: dict[str, dict[str, Any]], witness: Witness, now: int) -> list[str]:
    """Everything wrong at `now`, when all is quiet; nothing if the promise was kept."""
    problems: list[str] = []
    starts: dict[tuple[str, int], set[int]] = {}
    manual: set[str] = set()
    for name, one in witness.dispatched.items():
        if one.origin == "manual":
            manual.add(name)
        else:
            starts.setdefault((one.schedule_id, one.version), set()).add(one.scheduled_for)
    history = eras(sent, witness.answers)
    known = {(name, era.version) for name, versions in history.items() for era in versions}
    problems += [f"{name} version {version} starts, which there never was" for name, version in starts.keys() - known]
    for name, versions in history.items():
        told = witness.told.get(name, [])
        for era in versions:
            mine = [one for one in told if one.version == era.version]
            problems += _judge(f"{name}:{era.version}", era, starts.get((name, era.version), set()), mine, now)
    expected = {a["occurrence_id"] for a in witness.answers if a["code"] == "dispatched"}
    problems += [f"{name} was asked for and not dispatched" for name in expected - manual]
    problems += [f"{name} was dispatched and not asked for" for name in manual - expected]
    return problems


def _judge(name: str, era: Era, starts: set[int], told: list[Told], now: int) -> list[str]:
    nominals = era.nominals(now)
    covered = Counter(starts)
    problems = [f"{name} starts at {format_instant(at)}, which is none of its nominals" for at in starts - {*nominals}]
    for one in told:
        inside = [at for at in nominals if one.first <= at <= one.last and at not in starts]
        if len(inside) != one.count:
            problems.append(f"{name}: {one} counts {one.count} nominals, there are {len(inside)}")
        covered.update(inside)
    window = era.spec.get("window_ms", 0)
    for at in nominals:
        pause = era.pause_at(at)
        is_young = at + window > now - LATE_MS
        if covered[at] > 1:
            problems.append(f"{name} at {format_instant(at)} is accounted for {covered[at]} times")
        elif covered[at] == 0 and not is_young and (pause is None or pause[1] is not None):
            problems.append(f"{name} at {format_instant(at)} is lost")
        if pause is not None and at in starts and not pause[2]:
            problems.append(f"{name} at {format_instant(at)} starts in a pause")
    return problems
