"""The checks bite: each small fault put into the engine's source is caught by the compact check suite.

A mutant is a copy of the core under another package name with one place changed. That the unchanged copy passes shows
that it is the change which is caught.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.time_checks import cases, check_case, check_golden, golden

if TYPE_CHECKING:
    from collections.abc import Iterator

CORE = Path(__file__).parents[2] / "scheduler" / "core"
COPIED = (
    *("cron.py", "cron_clock.py", "cron_days.py", "cron_fields.py", "cron_search.py", "problem.py", "protocol.py"),
    *("time.py", "tzfile.py", "walk.py", "zones.py"),
)

# (file, what stands there, what the mutant says)
MUTANTS = [
    # strictly after, strictly before
    ("cron.py", "self.search.at_or_after(t // 1000 + 1)", "self.search.at_or_after(t // 1000)"),
    ("cron.py", "self.search.at_or_before((t - 1) // 1000)", "self.search.at_or_before(t // 1000)"),
    ("cron.py", "self.search.count(a // 1000 + 1, b // 1000 + 1)", "self.search.count(a // 1000, b // 1000 + 1)"),
    ("cron.py", "self.search.count(a // 1000 + 1, b // 1000 + 1)", "self.search.count(a // 1000 + 1, b // 1000)"),
    ("cron.py", "self.search.between(a // 1000 + 1, b // 1000,", "self.search.between(a // 1000 + 1, b // 1000 - 1,"),
    # policies chosen from the text
    ("cron.py", '[0] == "*" or texts[minute + 1][0]', '[0] == "*" and texts[minute + 1][0]'),
    ("cron.py", '("both" if runs_through else "first")', '("first" if runs_through else "both")'),
    ("cron.py", 'not in "*?" and texts[minute + 4][0] not in "*?"', 'not in "*?" or texts[minute + 4][0] not in "*?"'),
    ("cron.py", "days.bits >> 1", "days.bits"),
    # folds and gaps, forwards
    ("cron_search.py", "(begin if begin > second else second) + offset", "second + offset"),
    ("cron_search.py", "if local - offset < ends[at]:", "if local - offset <= ends[at]:"),
    ("cron_search.py", "if local < begin or begin < low:", "if local < begin:"),
    ("cron_search.py", "if local < begin or begin < low:", "if local < begin and begin < low:"),
    ("cron_search.py", "begin = begins[at] + offset", "begin = begins[at] + before"),
    ("cron_search.py", "                    return starts[at]\n", "                    return starts[at] + 1\n"),
    ("cron_search.py", "moved = local - before", "moved = local - offset"),
    ("cron_search.py", "else min(local - offset, moved)", "else max(local - offset, moved)"),
    ("cron_search.py", '(self.gap == "forward" and second > start)', '(self.gap == "forward" and second >= start)'),
    ("cron_search.py", "if local is None or local >= end:", "if local is None or local > end:"),
    ("cron_search.py", "low = second + before", "low = second + offset"),
    # folds and gaps, backwards
    ("cron_search.py", "high = min(second, ends[at] - 1) + offset", "high = second + offset"),
    ("cron_search.py", "local - offset >= begins[at]:", "local - offset > begins[at]:"),
    ("cron_search.py", "else max(local - offset, moved)", "else min(local - offset, moved)"),
    ("cron_search.py", "end = ends[at] - 1 + offset", "end = ends[at] + offset"),
    ("cron_search.py", "local > end or end > high:", "local > end:"),
    ("cron_search.py", "end = start + offset - 1", "end = start + offset"),
    ("cron_search.py", "min(end, second + before)", "end"),
    # counting
    ("cron_search.py", "total += self._moved_count(view, at, first, stop)", "total += 0"),
    ("cron_search.py", "(moved & ~usual)", "(moved)"),
    ("cron_search.py", "int(named and not self.wall.count(", "int(named or not self.wall.count("),
    ("cron_search.py", "max(first, begins[at]) + offset, min(stop", "first + offset, min(stop"),
    # wall time
    ("cron_clock.py", "if time > self._last:", "if time >= self._last:"),
    ("cron_clock.py", "if time < self._first:", "if time <= self._first:"),
    ("cron_clock.py", "found * _DAY + self._first\n", "found * _DAY\n"),
    ("cron_clock.py", "first, full) >> number - 1", "first, full) >> number"),
    ("cron_clock.py", "& FULL[number]", "& FULL[number - 1]"),
    ("cron_clock.py", "return start, (start + 4) % 7,", "return start, (start + 3) % 7,"),
    ("cron_clock.py", "within <= self._last_in_hour", "within < self._last_in_hour"),
    ("cron_clock.py", "within >= self._first_in_hour", "within > self._first_in_hour"),
    ("cron_clock.py", "second <= self._last_in_minute", "second < self._last_in_minute"),
    ("cron_clock.py", "if self._either else", "if not self._either else"),
    ("cron_clock.py", "if low_time and", "if not low_time and"),
    ("cron_clock.py", "total += self._times_before(high_time)", "total -= self._times_before(high_time)"),
    ("cron_clock.py", "mask &= -1 << low - start", "mask &= -1 << low - start + 1"),
    ("cron_clock.py", "mask &= FULL[high - start]", "mask &= FULL[high - start - 1]"),
    # the calendar
    ("cron_days.py", "(year % 100 != 0 or year % 400 == 0)", "year % 100 != 0"),
    ("cron_days.py", "year % 4 == 0 and", "year % 4 == 0 or"),
    ("cron_days.py", "day - 1 if day > 1 else day + 2", "day - 1"),
    ("cron_days.py", "day + 1 if day < length else day - 2", "day + 1"),
    ("cron_days.py", "_top_bit(of_weekday) if", "_nth_bit(of_weekday, 4) if"),
    ("cron_days.py", "for _ in range(nth - 1):", "for _ in range(nth):"),
    ("cron_days.py", "(days | weekdays if rule.either", "(days & weekdays if rule.either"),
    # fields
    ("cron_fields.py", "high += field.size", "low, high = high, low"),
    ("cron_fields.py", "for value in range(low, high + 1, step)", "for value in range(low, high, step)"),
    # zones
    ("zones.py", "start + max(0, old - new) for", "start for"),
    ("zones.py", "end - max(0, old - new) for", "end for"),
    ("zones.py", "for change in self._rule.changes(year) if change.start > known", "for change in ()"),
    ("tzfile.py", "else day - 7", "else day"),
    ("tzfile.py", "self.into[1] - self.standard[0]", "self.into[1] - self.summer[0]"),
]  # fmt: skip


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the import path for one mutant; its modules are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def engine(workshop: Path, name: str, file: str = "", old: str = "", new: str = "") -> Any:
    """`compile_cron` of a copy of the core called `name`, with one text replaced."""
    package = workshop / name
    package.mkdir()
    (package / "__init__.py").touch()
    for source in COPIED:
        text = (CORE / source).read_text("utf-8").replace("scheduler.core", name)
        if source == file:
            assert text.count(old) >= 1, f"{file} no longer contains {old!r}: write the mutant anew"
            text = text.replace(old, new, 1)
        (package / source).write_text(text, "utf-8")
    return importlib.import_module(f"{name}.cron").compile_cron


def survives(compile_cron: Any) -> bool:
    """Whether the checks find nothing wrong."""
    try:
        for case in CASES:
            check_case(compile_cron, case)
        for item in GOLDEN:
            check_golden(compile_cron, item)
    except Exception:  # noqa: BLE001 - a mutant may fail in any way
        return False
    return True


CASES = [case for case in cases() if case["kind"] in {"cron", "never"}]
GOLDEN = golden()


def test_the_unchanged_copy_passes(workshop: Path) -> None:
    """Without a fault there is nothing to catch."""
    assert survives(engine(workshop, "mutant_none"))


@pytest.mark.parametrize("number", range(len(MUTANTS)))
def test_a_mutant_is_caught(workshop: Path, number: int) -> None:
    """One small fault in the evaluator, and some check fails."""
    assert not survives(engine(workshop, f"mutant_{number}", *MUTANTS[number])), MUTANTS[number]
