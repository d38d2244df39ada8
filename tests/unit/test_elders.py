"""Who has older zone tables or another record format, as heard on the clock topic."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.runtime.elders import ALIVE_MS, Elders
from topics.codec import decode
from topics.messages import ClockProbe

NOW = 1_800_000_000_000


FORMAT = 3


def probe(process: str, tables: str, written: int = FORMAT, *, waits: bool = False) -> ClockProbe:
    return ClockProbe(process=process, sequence=1, tz_version=tables, format=written, waits=waits)


def heard(*probes: tuple[str, str, int], outgrown: bool = False, **more: Any) -> Elders:
    """The elders of the process `me-0` with tables 2026b and format 3, after these probes and one of its own."""
    elders = Elders("me-0", "2026b", FORMAT, is_outgrown=outgrown)
    for process, tables, ago in probes:
        elders.hear(probe(process, tables, **more), NOW - ago)
    elders.hear(probe("me-0", "2026b", waits=True), NOW)
    return elders


def test_who_lives_with_older_tables_is_waited_for() -> None:
    """Alive is who probed within three seconds of our own newest probe, by the broker's clock."""
    assert heard(("old-0", "2025b", ALIVE_MS)).awaited() == {"old-0": "zone tables 2025b"}
    assert heard(("gone-0", "2025b", ALIVE_MS + 1)).awaited() == {}


def test_the_same_and_newer_tables_are_not_waited_for() -> None:
    """Newer ones are told apart, for the alarm."""
    elders = heard(("peer-0", "2026b", 0), ("new-0", "2026c", 0))
    assert elders.awaited() == {}
    assert elders.newer() == {"new-0": "2026c"}


def test_our_own_former_self_and_processes_that_say_nothing_do_not_count() -> None:
    """A process that restarts with newer tables must not wait for its own last words."""
    elders = heard(("me-0", "2025b", 100), ("ancient-0", "", 0))
    assert elders.awaited() == {}


def test_a_process_that_upgrades_in_place_counts_by_its_newest_probe() -> None:
    """The last word of a name is the one that holds."""
    assert heard(("old-0", "2025b", 900), ("old-0", "2026b", 100)).awaited() == {}


def test_nothing_is_known_before_our_own_probe_was_heard() -> None:
    """Only then is everything before it heard, too."""
    elders = Elders("me-0", "2026b", FORMAT)
    elders.hear(probe("old-0", "2025b"), NOW)
    elders.heard_all()
    assert not elders.knows
    elders.hear(probe("me-0", "2026b"), NOW)
    assert elders.knows


def test_our_former_self_on_the_topic_does_not_end_the_listening() -> None:
    """Its probe is heard first, and what others said after it is still to come."""
    elders = Elders("me-0", "2026b", FORMAT)
    elders.hear(probe("me-0", "2026b"), NOW - 60_000)
    assert not elders.knows


@pytest.mark.parametrize(("written", "why"), [(2, "record format 2"), (4, "record format 4, newer than 3")])
def test_who_writes_another_record_format_is_waited_for(written: int, why: str) -> None:
    """An older one could not read what we would write, nor we what a newer one writes: never both in one group."""
    assert heard(("peer-0", "2026b", 0), written=written).awaited() == {"peer-0": why}
    assert heard(("gone-0", "2026b", ALIVE_MS + 1), written=written).awaited() == {}


@pytest.mark.parametrize("written", [2, 4])
def test_who_waits_itself_is_not_waited_for(written: int) -> None:
    """An old process that returns beside new ones that wait for it goes on: each would wait for the other else."""
    assert heard(("other-0", "2026b", 0), written=written, waits=True).awaited() == {}


def test_an_outgrown_process_leaves_its_shards_to_whoever_is_newer() -> None:
    """Also to one that waits for it: what it holds it cannot serve."""
    awaited = heard(("new-0", "2026b", 0), written=4, waits=True, outgrown=True).awaited()
    assert awaited == {"new-0": "record format 4, newer than 3"}


def test_a_process_of_a_release_before_formats_were_told_writes_the_first() -> None:
    """The first releases say nothing about it."""
    elders = Elders("me-0", "2026b", 2)
    elders.hear(decode(ClockProbe, b'{"process": "old-0", "sequence": 7, "tz_version": "2026b"}'), NOW)
    elders.hear(probe("me-0", "2026b", 2), NOW)
    assert elders.awaited() == {"old-0": "record format 1"}
