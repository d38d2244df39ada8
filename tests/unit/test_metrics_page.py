"""Metrics are an interface: the page is what the code has, and no document names one that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

from scheduler.runtime.telemetry import metrics, page

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"\bscheduler_[a-z_]*[a-z]\b")
SUFFIXES = ("", "_bucket", "_count", "_sum", "_created")


def test_the_page_is_what_the_code_has() -> None:
    """A new or changed metric shows up there: `python -m scheduler.runtime.telemetry > ops/metrics.md`."""
    assert (ROOT / "ops" / "metrics.md").read_text(encoding="utf-8") == page()


def test_every_metric_named_in_a_document_exists() -> None:
    """Documents, dashboards and alerts query what there is."""
    known = {name + suffix for name, _, _, _ in metrics() for suffix in SUFFIXES}
    files = [ROOT / "README.md", *(ROOT / "ops").rglob("*.*"), *(ROOT / "compose").rglob("*.*")]
    named = {
        (file.name, name)
        for file in files
        if file.suffix in (".md", ".json", ".yaml", ".yml", ".toml")
        for name in NAME.findall(file.read_text(encoding="utf-8"))
    }
    assert {name for _, name in named} >= {"scheduler_oldest_overdue_seconds", "scheduler_drain_seconds"}
    assert {(file, name) for file, name in named if name not in known} == set()


def test_labels_are_bounded() -> None:
    """Never a schedule, a tenant's text or an id."""
    labels = {label for _, _, names, _ in metrics() for label in names}
    assert labels <= {"priority", "origin", "state", "reason", "code", "shard", "kind"}
