"""What a release wrote, later code reads: golden changelogs restore, golden commands are decided the same.

`tests/support/recording.py` says how a recording is made. A change that fails here changes what running clusters do
with what they have stored: it needs a new record format, or is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scheduler.core.record import FORMAT
from tests.support.driver import Driver
from tests.support.recording import END, FOLDER, HALFWAY, START, decided, load, play, read

if TYPE_CHECKING:
    from pathlib import Path

RECORDINGS = sorted(FOLDER.glob("format-*"))


def test_this_format_is_recorded() -> None:
    """`python -m tests.support.recording` makes it, in the release that brings the format."""
    assert [folder.name for folder in RECORDINGS] == [f"format-{number}" for number in range(1, FORMAT + 1)]


@pytest.fixture(params=RECORDINGS, ids=lambda folder: folder.name)
def recording(request: pytest.FixtureRequest) -> Path:
    return request.param  # type: ignore[no-any-return]


def restored(recording: Path, *, compacted: bool) -> tuple[Driver, list[dict[str, Any]]]:
    """A shard on the golden changelogs, halfway, and what happens from there on."""
    happenings = read(recording, "happenings")
    driver = Driver(START)
    before = [one for one in happenings if one["at"] < HALFWAY]
    for one in before:
        if "command" in one:
            driver.send(dict(one["command"]))
    driver.now = Driver(HALFWAY).now
    driver.topics = load(read(recording, "changelogs"))
    driver.restart(wipe=True, compacted=compacted)
    return driver, happenings[len(before) :]


@pytest.mark.parametrize("compacted", [False, True], ids=["whole", "compacted"])
def test_golden_changelogs_go_on_as_they_would_have(recording: Path, *, compacted: bool) -> None:
    """Restored halfway, what is owed, paused, planned and caught up comes as it did in the release that wrote it."""
    driver, rest = restored(recording, compacted=compacted)
    play(driver, rest, END)
    golden = read(recording, "decided")
    before = [one for one in golden if one["at"] <= HALFWAY]
    if (recording / "halfway.jsonl").exists():  # else nothing waited for its turn
        before = read(recording, "halfway")
    assert decided(driver.topics, HALFWAY) == [one for one in golden if one not in before]


def test_queues_lag_where_this_format_was_recorded() -> None:
    """What is new in it is in the recording: a restore must find what waits for its turn."""
    folder = RECORDINGS[-1]
    queues = {line["key"] for line in read(folder, "changelogs") if "/queue/" in line["key"] and line["value"]}
    left = [one for one in read(folder, "decided") if one["at"] == HALFWAY and one not in read(folder, "halfway")]
    assert queues
    assert left


def test_golden_changelogs_give_one_store(recording: Path) -> None:
    """Whole or compacted, and again from what this code then writes: the same store, key by key."""
    driver, _ = restored(recording, compacted=False)
    compacted, _ = restored(recording, compacted=True)
    assert driver.contents() == compacted.contents() == driver.cold_contents()


def test_golden_commands_are_decided_the_same(recording: Path) -> None:
    """From the first command on: the same starts, answers and records at the same instants."""
    driver = Driver(START)
    play(driver, read(recording, "happenings"), END)
    assert decided(driver.topics) == read(recording, "decided")
    assert {one["topic"] for one in read(recording, "decided")} >= {"scheduler.replies", "scheduler.occurrences"}
