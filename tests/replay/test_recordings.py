"""What a release wrote, later code reads: golden changelogs restore, golden commands are decided the same.

`tests/support/recording.py` says how a recording is made. A change that fails here changes what running clusters do
with what they have stored: it needs a new record format, or is wrong.
"""

from __future__ import annotations

import json
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


def regardless_of_budgets(ones: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What `third` owes halfway without its instant: no budget is stored, it is whole again after a restart."""
    timeless = [{**one, "at": ""} if one.get("occurrence_id", "").startswith("third/") else one for one in ones]
    return sorted(timeless, key=lambda one: (one["at"], json.dumps(one, sort_keys=True)))


@pytest.mark.parametrize("compacted", [False, True], ids=["whole", "compacted"])
def test_golden_changelogs_go_on_as_they_would_have(recording: Path, *, compacted: bool) -> None:
    """Restored halfway, what is owed, paused, planned and caught up comes as it did in the release that wrote it."""
    driver, rest = restored(recording, compacted=compacted)
    play(driver, rest, END)
    golden = read(recording, "decided")
    before = [one for one in golden if one["at"] <= HALFWAY]
    if (recording / "halfway.jsonl").exists():  # else nothing waited for its turn
        before = read(recording, "halfway")
    left = [one for one in golden if one not in before]
    assert regardless_of_budgets(decided(driver.topics, HALFWAY)) == regardless_of_budgets(left)


def test_what_is_new_in_a_format_is_in_its_recording() -> None:
    """A restore must find what is caught up in series, and what waits for its turn."""
    owed = {line["key"]: line["value"] for line in read(FOLDER / "format-3", "changelogs") if "catchup:" in line["key"]}
    assert max(run.get("count", 1) for value in owed.values() if value for run in value["runs"]) > 30
    folder = FOLDER / "format-2"
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
