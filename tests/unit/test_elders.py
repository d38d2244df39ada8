"""Who has older zone tables, as heard on the clock topic."""

from __future__ import annotations

from scheduler.runtime.elders import ALIVE_MS, Elders

NOW = 1_800_000_000_000


def heard(*probes: tuple[str, str, int]) -> Elders:
    """The elders of the process `me-0` with tables 2026b, after these probes and one of its own."""
    elders = Elders("me-0", "2026b")
    for process, version, ago in probes:
        elders.hear(process, version, NOW - ago)
    elders.hear("me-0", "2026b", NOW)
    return elders


def test_who_lives_with_older_tables_is_waited_for() -> None:
    """Alive is who probed within three seconds of our own newest probe, by the broker's clock."""
    assert heard(("old-0", "2025b", ALIVE_MS)).older() == {"old-0": "2025b"}
    assert heard(("gone-0", "2025b", ALIVE_MS + 1)).older() == {}


def test_the_same_and_newer_tables_are_not_waited_for() -> None:
    """Newer ones are told apart, for the alarm."""
    elders = heard(("peer-0", "2026b", 0), ("new-0", "2026c", 0))
    assert elders.older() == {}
    assert elders.newer() == {"new-0": "2026c"}


def test_our_own_former_self_and_processes_that_say_nothing_do_not_count() -> None:
    """A process that restarts with newer tables must not wait for its own last words."""
    elders = heard(("me-0", "2025b", 100), ("ancient-0", "", 0))
    assert elders.older() == {}


def test_a_process_that_upgrades_in_place_counts_by_its_newest_probe() -> None:
    """The last word of a name is the one that holds."""
    assert heard(("old-0", "2025b", 900), ("old-0", "2026b", 100)).older() == {}


def test_nothing_is_known_before_our_own_probe_was_heard() -> None:
    """Only then is everything before it heard, too."""
    elders = Elders("me-0", "2026b")
    elders.hear("old-0", "2025b", NOW)
    assert not elders.knows
