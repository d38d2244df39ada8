"""The zones: the pinned tables and nothing else, right at every change, and far beyond the last one."""

from __future__ import annotations

import random
import subprocess
import sys
import zoneinfo
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from scheduler.core import zones
from scheduler.core.trigger import parse_trigger
from scheduler.core.tzfile import read_tzif
from scheduler.core.zones import (
    Zone,
    find_zone,
    keep_tables,
    pin_tables,
    tz_version,
    unknown_zone,
    zone_fingerprint,
    zone_names,
    zone_warnings,
)

pin_tables()
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAMES = sorted(zone_names())


def zone(name: str) -> Zone:
    """The zone, which must exist."""
    found = find_zone(name)
    assert found is not None
    return found


def test_offsets_and_names_are_those_of_the_standard_library() -> None:
    """In every zone, on both sides of every change and at random instants up to the year 9000, sub-minute ones too."""
    rnd = random.Random(4)
    for name in NAMES:
        ours, theirs = zone(name), zoneinfo.ZoneInfo(name)
        instants = [rnd.randrange(-5_000_000_000, 4_100_000_000) for _ in range(20)]
        instants += [rnd.randrange(4_100_000_000, 220_000_000_000) for _ in range(10)]
        changes = ours.changes[1:]
        instants += [change.start - one for change in rnd.sample(changes, min(20, len(changes))) for one in (0, 1)]
        for at in instants:
            local = (EPOCH + timedelta(seconds=at)).astimezone(theirs)
            offset = local.utcoffset()
            assert offset is not None
            assert (ours.offset_at(at), ours.name_at(at)) == (offset // timedelta(seconds=1), local.tzname()), (
                name,
                at,
            )


def test_no_two_changes_share_a_local_time() -> None:
    """The search looks at neighbouring stretches only: over all tables changes are further apart than they shift."""
    for name in NAMES:
        view = zone(name).view("both", complete=True)
        jumps = [
            (start, abs(new - old))
            for start, old, new in zip(view.starts[1:], view.offsets, view.offsets[1:], strict=False)
        ]
        for (first, by), (second, other) in pairwise(jumps):
            assert second - first > by + other, name


@pytest.mark.parametrize(
    ("name", "local", "instants"),
    [
        ("America/New_York", "2026-03-08T02:30:00", 0),
        ("America/New_York", "2026-11-01T01:30:00", 2),
        ("America/New_York", "2026-11-01T02:00:00", 1),
        ("Pacific/Apia", "2011-12-30T12:00:00", 0),
        ("Pacific/Kwajalein", "1993-08-21T12:00:00", 0),
        ("Antarctica/Troll", "2026-10-25T02:30:00", 2),
        ("Australia/Lord_Howe", "2026-10-04T02:15:00", 0),
        ("America/Havana", "2025-11-02T00:30:00", 2),
        ("Europe/Berlin", "2950-03-29T02:30:00", 0),
    ],
)
def test_a_local_time_has_none_one_or_two_instants(name: str, local: str, instants: int) -> None:
    """Gaps have none, folds have two, also where only the rule of the footer knows."""
    second = (datetime.fromisoformat(local).replace(tzinfo=UTC) - EPOCH) // timedelta(seconds=1)
    found = zone(name).instants_of(second)
    assert len(found) == instants
    assert all(at + zone(name).offset_at(at) == second for at in found)


@pytest.mark.parametrize(
    ("given", "suggested"),
    [
        ("america/new_york", "America/New_York"),
        ("America/New_York ", "America/New_York"),
        ("America/New York", "America/New_York"),
        ("Asia/Beijing", "Asia/Shanghai"),
        ("US/Pacific-New", "America/Los_Angeles"),
        ("UTC+2", "Etc/GMT-2"),
        ("GMT-05:00", "Etc/GMT+5"),
        ("CST", "America/Chicago"),
        ("Kolkata", "Asia/Kolkata"),
        ("Europe/Pariss", "Europe/Paris"),
        ("localtime", "UTC"),
    ],
)
def test_an_unknown_name_is_refused_with_the_likeliest_right_one(given: str, suggested: str) -> None:
    """The error says what was probably meant."""
    assert find_zone(given) is None
    problem = unknown_zone(given)
    assert (problem.field, problem.code) == ("zone", "unknown_zone")
    assert suggested in problem.message


@pytest.mark.parametrize(
    "name", ["", "../zoneinfo/UTC", "/etc/localtime", "America/", "__init__.py", "UTC\0", "x" * 9999]
)
def test_a_path_or_junk_is_no_zone(name: str) -> None:
    """Nothing but a name of the list ever reaches a file, and the message stays short."""
    assert find_zone(name) is None
    assert len(unknown_zone(name).message) < 400


def test_every_name_of_the_tables_is_accepted() -> None:
    """All of them, as written; those that surprise with a warning, those that people use without."""
    for name in NAMES:
        assert parse_trigger({"cron": "0 0 * * *", "zone": name}, schedule_id=None, effective_at=0).trigger is not None
    assert "Panama" in zone_warnings("EST")[0].message
    assert "5 h behind" in zone_warnings("Etc/GMT+5")[0].message
    for name in ("UTC", "Europe/Paris", "US/Eastern", "GMT", "Etc/UTC", "Etc/GMT"):
        assert zone_warnings(name) == ()


def test_the_operating_systems_tables_are_never_read(tmp_path: object) -> None:
    """With a search path full of lies, the answer is the wheel's; and after start `zoneinfo` has no path either."""
    program = (
        "import zoneinfo\n"
        "from scheduler.core.zones import find_zone, pin_tables, tz_version\n"
        "assert pin_tables() == tz_version()\n"
        "assert zoneinfo.TZPATH == ()\n"
        "assert find_zone('Europe/Paris').offset_at(1_700_000_000) == 3600\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONTZPATH": str(tmp_path), "TZ": "Asia/Tokyo"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_the_version_is_the_pinned_wheels() -> None:
    """The stamp of occurrences is the IANA version, such as 2026f."""
    assert tz_version()[:4].isdigit()
    assert tz_version()[4:].isalpha()


def test_a_fingerprint_sees_the_next_400_days_only() -> None:
    """Equal for zones that agree from then on, whatever came before; different where one change differs."""
    at = 1_767_225_600_000  # 2026-01-01
    assert zone_fingerprint("Europe/Berlin", at) == zone_fingerprint("Europe/Paris", at)
    assert zone_fingerprint("Europe/Berlin", at) != zone_fingerprint("Europe/London", at)
    assert zone_fingerprint("Asia/Kolkata", at) == zone_fingerprint("Asia/Calcutta", at)
    assert zone_fingerprint("Asia/Kolkata", at) == zone_fingerprint("Asia/Kolkata", at + 10**10)
    assert zone_fingerprint("Mars/Phobos", at) is None


def test_changes_go_on_beyond_the_compiled_tables() -> None:
    """The jumps of a zone in any window are those of its rule, across 2037, 2550 and the centuries after."""
    for year in (2036, 2049, 2101, 2399, 2549, 2551, 3000, 9000):
        low = (datetime(year, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(seconds=1)
        jumps = list(zone("America/New_York").jumps(low, low + 366 * 86_400))
        assert [(old, new) for _, old, new in jumps] == [(-18000, -14400), (-14400, -18000)], year
        march = EPOCH + timedelta(seconds=jumps[0][0])
        assert (march.month, march.isoweekday(), march.hour) == (3, 7, 7)
        assert 8 <= march.day <= 14


def test_the_ends_of_a_local_second() -> None:
    """The first and the last instant of a wall time; in a gap the first after it and the last before it."""
    beirut = zone("Asia/Beirut")
    midnight = (datetime(2023, 3, 26, tzinfo=UTC) - EPOCH) // timedelta(seconds=1)  # the clock goes from 0 to 1
    change = midnight - 2 * 3600
    assert (beirut.first_from(midnight), beirut.last_to(midnight + 1800)) == (change, change - 1)
    havana = zone("America/Havana")
    repeated = (datetime(2025, 11, 2, 0, 30, tzinfo=UTC) - EPOCH) // timedelta(seconds=1)
    assert havana.last_to(repeated) - havana.first_from(repeated) == 3600


def test_stretches_make_up_the_window() -> None:
    """They follow each other without holes, from its first second to its last."""
    low, high = 1_700_000_000, 1_800_000_000
    found = list(zone("Europe/London").stretches(low, high))
    assert found[0][0] == low
    assert found[-1][1] == high
    assert all(before[1] == after[0] and before[2] != after[2] for before, after in pairwise(found))


@pytest.mark.parametrize("data", [b"", b"TZif", b"TZif1" + bytes(100), b"nonsense" * 20])
def test_bytes_that_are_no_table_are_refused(data: bytes) -> None:
    """A damaged wheel is an error, not a zone of UTC."""
    with pytest.raises(ValueError, match="TZif"):
        read_tzif(data)


def test_a_footer_of_another_kind_is_read_as_well() -> None:
    """`Jn` never counts 29 February, `n` does; a footer that is not a rule is refused."""
    header = b"TZif2" + bytes(15)
    counts = (0, 0, 0, 0, 1, 4)
    body = b"".join(count.to_bytes(4, "big") for count in counts)
    record = (0).to_bytes(4, "big") + bytes(2) + b"UTC\0"
    table = (header + body + record) * 2

    def days(footer: str, year: int) -> list[str]:
        _, rule = read_tzif(table + b"\n" + footer.encode() + b"\n")
        assert rule is not None
        return [f"{EPOCH + timedelta(seconds=change.start):%m-%d %H:%M}" for change in rule.changes(year)]

    assert days("AAA0BBB,J60/0,J300/0", 2024) == ["03-01 00:00", "10-26 23:00"]
    assert days("AAA0BBB,J60/0,J300/0", 2023) == ["03-01 00:00", "10-26 23:00"]
    assert days("AAA0BBB,59/0,299/0", 2024) == ["02-29 00:00", "10-25 23:00"]
    assert days("<+02>-2<+03>-3,M3.5.0/-1:30,M10.1.0/25", 2026) == ["03-28 20:30", "10-04 22:00"]
    with pytest.raises(ValueError, match="not understood"):
        read_tzif(table + b"\nwhatever!\n")


def test_tables_once_kept_do_not_change_with_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that are started later compute with those of the first ones."""
    monkeypatch.setattr(zones.TABLES, "read", zones.TABLES.read)  # put back afterwards
    before = {name: zones.TABLES.read(name) for name in NAMES}
    keep_tables()

    def gone(_package: str) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(zones.resources, "files", gone)
    assert {name: zones.TABLES.read(name) for name in NAMES} == before
