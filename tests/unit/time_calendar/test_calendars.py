"""Calendars: which days are worked, what is removed or moved, and that every question agrees."""

from __future__ import annotations

import pickle
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.calendar import Calendar, Holidays, parse_calendar
from scheduler.core.calendared import Calendared, under_calendar
from scheduler.core.problem import Problem
from scheduler.core.time import EPOCH_DAY, format_instant, parse_instant
from scheduler.core.trigger import Every, Once, Trigger, parse_trigger

WEEK = ["MON", "TUE", "WED", "THU", "FRI"]


def calendar(**fields: object) -> Calendar:
    """The calendar of the fields, which must be right."""
    parsed = parse_calendar(fields)
    assert parsed.calendar is not None, parsed.problems
    return parsed.calendar


def trigger(expr: str, zone: str = "UTC", **more: str) -> Trigger:
    """The trigger of an expression."""
    parsed = parse_trigger({"cron": expr, "zone": zone, **more}, schedule_id=None, effective_at=0)
    assert parsed.trigger is not None, parsed.problems
    return parsed.trigger


def fires(bare: Trigger, days: Calendar, roll: str, start: str, until: str, zone: str = "UTC") -> list[str]:
    """The local-looking text of all fires in (start, until]."""
    governed = under_calendar(bare, days, roll, zone)
    assert isinstance(governed, Calendared), governed
    a, b = parse_instant(start), parse_instant(until)
    found = governed.between(a, b, 1000)
    assert governed.count_between(a, b) == len(found)
    assert governed.newest_before(b, 1000, a) == found
    return [format_instant(at)[:16] for at in found]


def day(text: str) -> int:
    """Days since 1970 of a date."""
    return date.fromisoformat(text).toordinal() - EPOCH_DAY


def test_the_order_of_authority() -> None:
    """An included date is worked whatever else says; an excluded one is not; then holidays; then the week."""
    days = calendar(
        working_days=WEEK,
        holidays=[{"country": "US"}],
        exclude_dates=["2026-03-10", "2026-03-11"],
        exclude_ranges=[{"from": "2026-08-03", "to": "2026-08-07"}],
        include_dates=["2026-03-11", "2026-12-25", "2026-03-14"],
    )
    assert [at for at in range(day("2026-03-07"), day("2026-03-16")) if days.is_open(at)] == [
        day(f"2026-03-{number:02}") for number in (9, 11, 12, 13, 14)
    ]
    assert not any(days.is_open(day(f"2026-08-{number:02}")) for number in range(1, 10))
    assert days.is_open(day("2026-12-25"))
    assert not days.is_open(day("2026-07-03"))  # Independence Day, observed on the Friday
    assert not days.is_open(day("0001-01-01") - 1)
    assert not days.is_open(day("9999-12-31") + 1)


def test_subdivisions_have_their_own_holidays() -> None:
    """Epiphany is a holiday in Bavaria and not in Berlin."""
    bavaria, berlin = (calendar(holidays=[{"country": "DE", "subdivision": land}]) for land in ("BY", "BE"))
    assert not bavaria.is_open(day("2026-01-06"))
    assert berlin.is_open(day("2026-01-06"))
    assert "(DE)" in bavaria.why_closed(day("2026-01-06"))


@pytest.mark.parametrize(
    ("roll", "expected"),
    [
        ("skip", ["2026-04-30T09:00", "2026-06-30T09:00", "2026-07-31T09:00"]),
        ("next", ["2026-04-30T09:00", "2026-06-01T09:00", "2026-06-30T09:00", "2026-07-31T09:00"]),
        ("previous", ["2026-04-30T09:00", "2026-05-29T09:00", "2026-06-30T09:00", "2026-07-31T09:00"]),
    ],
)
def test_a_closed_day_is_removed_or_moved(roll: str, expected: list[str]) -> None:
    """The last day of May 2026 is a Sunday: left out, on 1 June, or on 29 May."""
    found = fires(
        trigger("0 9 L * *"), calendar(working_days=WEEK), roll, "2026-04-15T00:00:00Z", "2026-08-01T00:00:00Z"
    )
    assert found == expected


def test_what_moves_over_the_years_end_is_found_there() -> None:
    """A month's rule reaches into the next month when its nominal moves there, also across a long closure."""
    days = calendar(working_days=WEEK, exclude_ranges=[{"from": "2026-12-24", "to": "2027-01-10"}])
    moved = fires(trigger("0 9 25 12 *"), days, "next", "2026-12-01T00:00:00Z", "2027-02-01T00:00:00Z")
    assert moved == ["2027-01-11T09:00"]
    back = fires(trigger("0 9 5 1 *"), days, "previous", "2026-12-01T00:00:00Z", "2027-02-01T00:00:00Z")
    assert back == ["2026-12-23T09:00"]


def test_what_meets_is_one_nominal() -> None:
    """Saturday's and Sunday's move to Monday, which has its own: one fire."""
    found = fires(
        trigger("0 9 * * *"), calendar(working_days=WEEK), "next", "2026-06-05T12:00:00Z", "2026-06-09T12:00:00Z"
    )
    assert found == ["2026-06-08T09:00", "2026-06-09T09:00"]


def test_business_days_are_counted_by_the_calendar() -> None:
    """`3B` and `LB` skip holidays; without a calendar they count Monday to Friday."""
    us = calendar(working_days=WEEK, holidays=[{"country": "US"}])
    found = fires(trigger("0 9 3B,LB * *"), us, "skip", "2026-01-01T00:00:00Z", "2026-06-01T00:00:00Z")
    assert found[:4] == ["2026-01-06T09:00", "2026-01-30T09:00", "2026-02-04T09:00", "2026-02-27T09:00"]
    bare = [
        format_instant(at)[:10]
        for at in trigger("0 9 3B * *").between(parse_instant("2026-01-01T00:00:00Z"), 10**14, 2)
    ]
    assert bare == ["2026-01-05", "2026-02-04"]


def test_a_day_is_the_schedules_local_date() -> None:
    """20:00 on 3 July in Los Angeles is already 4 July in UTC, and fires."""
    days = calendar(exclude_dates=["2026-07-04"])
    bare = trigger("0 20 * * *", "America/Los_Angeles")
    found = fires(bare, days, "skip", "2026-07-03T12:00:00Z", "2026-07-06T12:00:00Z")
    assert found == ["2026-07-04T03:00", "2026-07-06T03:00"]


def test_a_moved_nominal_meets_gap_and_fold_where_it_lands() -> None:
    """Rolled onto the day of the change, 02:30 is missing or moved like any other 02:30 there."""
    days = calendar(exclude_dates=["2026-03-07"])
    for gap, expected in (("skip", []), ("forward", ["2026-03-08T07:00"]), ("shift", ["2026-03-08T07:30"])):
        bare = trigger("30 2 7 3 *", "America/New_York", gap=gap)
        assert fires(bare, days, "next", "2026-03-01T00:00:00Z", "2026-03-20T00:00:00Z") == expected
    days = calendar(exclude_dates=["2026-10-31"])
    both = trigger("30 1 31 10 *", "America/New_York", fold="both")
    assert len(fires(both, days, "next", "2026-10-01T00:00:00Z", "2026-11-20T00:00:00Z")) == 2


def test_one_shots_are_kept_moved_or_removed() -> None:
    """A one-shot on a closed day follows the roll, in the zone given."""
    once = Once(parse_instant("2026-07-04T09:00:00Z"))
    days = calendar(working_days=WEEK)
    for roll, expected in (("skip", []), ("next", ["2026-07-06T09:00"]), ("previous", ["2026-07-03T09:00"])):
        assert fires(once, days, roll, "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z") == expected


def test_a_rate_leaves_closed_days_out_and_cannot_roll() -> None:
    """Its grid stays; the days are those of the zone given; a roll is refused with a hint."""
    every, days = Every(6 * 3_600_000, 0), calendar(working_days=WEEK)
    found = fires(every, days, "skip", "2026-06-05T12:00:00Z", "2026-06-08T07:00:00Z", "America/New_York")
    assert found == ["2026-06-05T18:00", "2026-06-06T00:00", "2026-06-08T06:00"]
    refused = under_calendar(every, days, "next", "UTC")
    assert isinstance(refused, Problem)
    assert refused.code == "not_supported"


@settings(max_examples=60, deadline=None)
@given(
    closed=st.frozensets(st.integers(20_454, 20_514), max_size=40),
    week=st.integers(1, 127),
    roll=st.sampled_from(["skip", "next", "previous"]),
    expr=st.sampled_from(["0 9 * * *", "0 9 L * *", "0 9 */5 * *", "0 9,17 1,15 * *", "0 9 * * MON", "0 9 15W * *"]),
)
def test_rolling_is_what_walking_finds(closed: frozenset[int], week: int, roll: str, expr: str) -> None:
    """Every nominal of the bare rule, walked day by day to where it belongs: the same set of instants."""
    days = Calendar("c", 1, week, closed)
    bare = trigger(expr)
    low, high = 20_400, 20_600
    expected = set()
    for at in bare.between(low * 86_400_000 - 1, high * 86_400_000, 1000):
        on, time = divmod(at, 86_400_000)
        if not (week >> (on + 4) % 7 & 1 and on not in closed):
            if roll == "skip":
                continue
            step = 1 if roll == "next" else -1
            while not (week >> (on + 4) % 7 & 1 and on not in closed):
                on += step
        expected.add(on * 86_400_000 + time)
    a, b = (low + 60) * 86_400_000, (high - 60) * 86_400_000
    governed = Calendared(bare, days, roll, "UTC")
    found = governed.between(a, b, 1000)
    assert found == sorted(at for at in expected if a < at <= b)
    assert governed.newest_before(b, 1000, a) == found
    assert governed.count_between(a, b) == len(found)


def test_the_preview_shows_what_the_calendar_did() -> None:
    """Each nominal that was moved or removed, where to, and by which date of which version."""
    days = calendar(name="us", version=7, working_days=WEEK, holidays=[{"country": "US"}])
    governed = under_calendar(trigger("0 9 1 1,8 *"), days, "next", "UTC")
    assert isinstance(governed, Calendared)
    new_year, august = governed.moved_between(
        parse_instant("2025-12-01T00:00:00Z"), parse_instant("2026-12-01T00:00:00Z"), 10
    )
    assert (format_instant(new_year.nominal), format_instant(new_year.to or 0)) == (
        *("2026-01-01T09:00:00Z", "2026-01-02T09:00:00Z"),
    )
    assert "New Year's Day (US) in calendar us@7" in new_year.reason
    assert august.to == parse_instant("2026-08-03T09:00:00Z")
    assert "SAT" in august.reason
    closed = Calendar("c", 2, closed=frozenset({day("2026-01-01")}))
    (removed,) = Calendared(trigger("0 9 1 1 *"), closed, "skip", "UTC").moved_between(
        parse_instant("2025-12-01T00:00:00Z"), parse_instant("2026-02-01T00:00:00Z"), 10
    )
    assert removed.to is None
    assert "excluded by calendar c@2" in removed.reason


def test_a_gap_on_a_closed_day_swallows_nothing() -> None:
    """What the calendar removed was not there to be lost; on a worked day the record stands."""
    bare = trigger("30 2 * * *", "America/New_York")
    a, b = parse_instant("2026-03-01T00:00:00Z"), parse_instant("2026-04-01T00:00:00Z")
    assert len(list(Calendared(bare, calendar(), "skip", "UTC").skipped_between(a, b))) == 1
    assert list(Calendared(bare, calendar(working_days=WEEK), "skip", "UTC").skipped_between(a, b)) == []
    assert list(Calendared(Once(a + 1), calendar(), "skip", "UTC").skipped_between(a, b)) == []


def test_nothing_open_is_nothing_found() -> None:
    """A calendar that closes every day a rule names: no fires, within the bound, in either direction."""
    weekend = under_calendar(trigger("0 9 * * SAT,SUN"), calendar(working_days=WEEK), "skip", "UTC")
    every = under_calendar(Every(86_400_000, 0), Calendar("c", 1, 0), "skip", "UTC")
    for governed in (weekend, every):
        assert isinstance(governed, Calendared)
        assert governed.next_after(0) is None
        assert governed.prev_before(10**12) is None
        assert governed.count_between(0, 10**12) == 0


def test_a_rate_that_only_hits_closed_days_ends() -> None:
    """Weekly on a day that is never worked: no fire within 41 years, found out by asking, not by walking for ever."""
    sundays = Every(7 * 86_400_000, parse_instant("2026-01-04T12:00:00Z"))
    governed = Calendared(sundays, calendar(working_days=WEEK), "skip", "UTC")
    assert governed.next_after(0) is None
    assert governed.prev_before(parse_instant("2090-01-01T00:00:00Z")) is None
    assert governed.prev_before(0) is None


def test_a_closure_of_years_drops_what_would_move_through_it() -> None:
    """A nominal moves at most a year; the rest of a longer closure is left out."""
    days = calendar(exclude_ranges=[{"from": "2026-01-01", "to": "2028-12-31"}])
    found = fires(trigger("0 9 1 1 *"), days, "next", "2025-06-01T00:00:00Z", "2030-06-01T00:00:00Z")
    assert found == ["2029-01-01T09:00", "2030-01-01T09:00"]
    found = fires(trigger("0 9 1 12 *"), days, "next", "2025-06-01T00:00:00Z", "2029-06-01T00:00:00Z")
    assert found == ["2025-12-01T09:00", "2029-01-01T09:00"]
    days = calendar(exclude_ranges=[{"from": "2026-01-01", "to": "2027-12-31"}])
    assert fires(trigger("0 9 2 1 2"), days, "next", "2025-12-31T00:00:00Z", "2027-12-31T00:00:00Z") == []


def test_a_version_is_part_of_the_value() -> None:
    """Two versions differ even with the same days; a value travels without what it has computed."""
    one, two = calendar(name="x", version=1), calendar(name="x", version=2)
    assert one != two
    one.is_open(20_000)
    assert pickle.loads(pickle.dumps(one)) == one
    assert hash(pickle.loads(pickle.dumps(one))) == hash(one)


def test_all_mistakes_of_a_calendar_are_named_at_once() -> None:
    """Each field with what is allowed in it; nothing raises."""
    parsed = parse_calendar(
        {
            "name": "",
            "version": 0,
            "working_days": ["MONDAY", 3],
            "exclude_dates": ["2026-02-30", 5, "20260704"],
            "exclude_ranges": [{"from": "2026-02-01", "to": "2026-01-01"}, "x", {"from": "2026-01-01"}],
            "include_dates": "2026-01-01",
            "holidays": [{"country": "XX"}, {"country": "US", "subdivision": "ZZ"}, "US"],
            "colour": "blue",
        }
    )
    assert parsed.calendar is None
    assert [problem.field for problem in parsed.problems] == [
        *("name", "version", "working_days", "working_days", "exclude_dates", "exclude_dates", "exclude_dates"),
        *("exclude_ranges", "exclude_ranges", "exclude_ranges", "include_dates", "holidays", "holidays", "holidays"),
        *("working_days", "colour"),
    ]
    assert parse_calendar([]).problems[0].code == "bad_field"
    assert parse_calendar({"working_days": []}).calendar is None
    assert parse_calendar({"working_days": [], "include_dates": ["2026-01-01"]}).calendar is not None


def test_what_cannot_be_governed_is_a_problem() -> None:
    """An unknown roll, an unknown zone: named, not raised."""
    for roll, zone, field in (("sideways", "UTC", "roll"), ("skip", "Mars/Phobos", "zone")):
        refused = under_calendar(Once(0), Calendar("c"), roll, zone)
        assert isinstance(refused, Problem)
        assert refused.field == field
    with pytest.raises(TypeError, match="cannot govern"):
        Calendared(Every(1000, 0), Calendar("c"), "next", "UTC")
    with pytest.raises(LookupError, match="not a zone"):
        Calendared(Once(0), Calendar("c"), "skip", "Mars/Phobos")


def test_holidays_are_values() -> None:
    """The source of holidays is part of the calendar's value."""
    assert calendar(holidays=[{"country": "JP"}]).holidays == (Holidays("JP"),)
