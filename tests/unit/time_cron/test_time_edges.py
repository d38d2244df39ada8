"""The edges: text of instants, the ends of the calendar, years that are named, errors that travel."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from scheduler.core import calendar as calendar_module
from scheduler.core import calendared as calendared_module
from scheduler.core import zones as zones_module
from scheduler.core.calendar import Calendar
from scheduler.core.calendared import Calendared
from scheduler.core.cron import Cron, compile_cron
from scheduler.core.explain import describe, events_between, local_text, notes_on, zone_of
from scheduler.core.time import MAX_MS, MIN_MS, format_instant, format_local, parse_instant, parse_local, stamp
from scheduler.core.trigger import Every, Once, parse_trigger
from scheduler.core.zones import find_zone, pin_tables


def cron(expr: str, zone: str = "UTC", dialect: str = "unix", gap: str = "skip", fold: str = "auto") -> Cron:
    """The trigger of an expression, which must be right."""
    parsed = compile_cron(expr, zone, dialect, gap, fold)
    assert isinstance(parsed.trigger, Cron), parsed.problems
    return parsed.trigger


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.001Z", 1),
        ("1970-01-01T00:00:00.0019999Z", 1),
        ("1970-01-01T00:00:00.5Z", 500),
        ("1969-12-31T23:59:59.999Z", -1),
        ("1970-01-01t02:00:00+02:00", 0),
        ("1969-12-31T18:30:00.250-05:30", 250),
        ("2024-02-29T00:00:00z", 1_709_164_800_000),
        ("0001-01-01T00:00:00Z", MIN_MS),
        ("9999-12-31T23:59:59.999Z", MAX_MS),
    ],
)
def test_rfc_3339_is_read(text: str, ms: int) -> None:
    """Z or an offset, any number of digits of which three count."""
    assert parse_instant(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        *("", "2026-03-08", "2026-03-08T07:30:00", "2026-03-08 07:30:00Z", "2026-03-08T07:30Z", "20260308T073000Z"),
        *("2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:00:60Z"),
        *("2026-01-01T00:00:00+24:00", "2026-01-01T00:00:00+02", "2026-01-01T00:00:00.Z", "0000-01-01T00:00:00Z"),
        *("0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "2026-01-01T00:00:00Z\n", "9" * 5000),
        "\u0662026-01-01T00:00:00Z",
    ],
)
def test_everything_else_is_refused_with_an_example(text: str) -> None:
    """Not an instant: the message shows one, or names what does not exist, and stays short."""
    with pytest.raises(ValueError, match=r"2026-03-08T07:30:00Z|no day and time") as caught:
        parse_instant(text)
    assert len(str(caught.value)) < 300


def test_local_text_is_read_and_written() -> None:
    """Wall time has no offset; one that has is sent to `at`."""
    assert parse_local("1970-01-02T00:00:00.5") == 86_400_500
    assert format_local(86_400) == "1970-01-02T00:00:00"
    with pytest.raises(ValueError, match="belongs into `at`"):
        parse_local("2026-01-01T00:00:00Z")
    with pytest.raises(ValueError, match="no day and time"):
        parse_local("2026-02-30T00:00:00")


def test_text_ends_where_the_calendar_ends() -> None:
    """Instants beyond the years 1 to 9999 have no text."""
    assert stamp(1_772_955_000_000) == "20260308T073000.000Z"
    assert stamp(1_772_955_000_007) == "20260308T073000.007Z"
    assert format_instant(MIN_MS) == "0001-01-01T00:00:00Z"
    for ms in (MAX_MS + 1, MIN_MS - 1, 10**18):
        with pytest.raises(ValueError, match="outside the years"):
            format_instant(ms)


def test_the_calendar_has_two_ends() -> None:
    """Nothing is named before the year 1 or after 9999, and asking there is no error."""
    for trigger in (cron("0 0 1 1 *"), cron("* * * * *", "America/New_York"), cron("0 0 L * *", "Asia/Tokyo")):
        assert trigger.next_after(MAX_MS) is None
        assert trigger.prev_before(MIN_MS) is None
        assert trigger.prev_before(MIN_MS - 10**15) is None
        first = trigger.next_after(MIN_MS - 10**15)
        assert first is not None
        assert trigger.next_after(MAX_MS + 10**15) is None
        last = trigger.prev_before(MAX_MS + 10**15)
        assert last is not None
        assert last > parse_instant("9998-12-31T00:00:00Z")
        assert trigger.count_between(MAX_MS, MAX_MS + 10**15) == 0
    assert Every(1000, 0).next_after(MAX_MS) is None
    assert Every(1000, 0).prev_before(MAX_MS + 10**15) == MAX_MS // 1000 * 1000
    assert Every(1000, 5000).prev_before(5000) is None
    daily = cron("0 0 * * *")
    assert daily.count_between(MIN_MS - 10**15, MAX_MS + 10**15) == 3_652_059 - 2


def test_years_that_are_named_are_the_only_ones() -> None:
    """Forwards to the first, backwards from after the last, over holes, and counted; also from beyond the tables."""
    trigger = cron("0 0 0 1 1,7 ? 2027,2030-2032/2", dialect="quartz")
    expected = [parse_instant(f"{year}-0{month}-01T00:00:00Z") for year in (2027, 2030, 2032) for month in (1, 7)]
    assert trigger.between(0, MAX_MS, 100) == expected
    assert trigger.newest_before(MAX_MS, 100, 0) == expected
    assert trigger.count_between(MIN_MS, MAX_MS) == 6
    assert trigger.next_after(parse_instant("2032-07-01T00:00:00Z")) is None
    assert trigger.prev_before(parse_instant("2027-01-01T00:00:00Z")) is None
    assert trigger.prev_before(parse_instant("2029-01-01T00:00:00Z")) == expected[1]
    assert trigger.next_after(parse_instant("2600-01-01T00:00:00Z")) is None
    far = cron("0 0 1 1 ? 2199", "Europe/Paris", "aws")
    assert far.next_after(0) == parse_instant("2198-12-31T23:00:00Z")


def test_a_gap_may_swallow_all_that_is_left() -> None:
    """A nominal in the day that Samoa left out is moved by `forward` and `shift`, and lost by `skip`."""
    texts = {"forward": "2011-12-30T10:00:00Z", "shift": "2011-12-30T22:00:00Z"}
    for gap, text in texts.items():
        trigger = cron("0 0 12 30 12 ? 2011", "Pacific/Apia", "quartz", gap)
        assert trigger.next_after(0) == trigger.prev_before(MAX_MS) == parse_instant(text)
        assert trigger.count_between(0, MAX_MS) == 1
        assert [note.kind for note in notes_on(trigger, parse_instant(text))] == ["gap"]
    assert cron("0 0 12 30 12 ? 2011", "Pacific/Apia", "quartz").next_after(0) is None


def test_a_trigger_whose_zone_is_gone_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read by a process with newer tables, a removed zone is an error that names it; others are not touched."""
    gone, kept = pickle.dumps(cron("0 0 * * *", "Asia/Calcutta")), pickle.dumps(cron("0 0 * * *", "Asia/Kolkata"))
    names = zones_module.zone_names() - {"Asia/Calcutta"}
    monkeypatch.setattr(zones_module, "zone_names", lambda: names)
    compile_cron.cache_clear()
    with pytest.raises(ValueError, match="Asia/Calcutta"):
        pickle.loads(gone)
    assert pickle.loads(kept).next_after(0) is not None
    spec = {"cron": "0 0 * * *", "zone": "Asia/Calcutta"}
    assert parse_trigger(spec, schedule_id=None, effective_at=0).problems[0].code == "unknown_zone"
    compile_cron.cache_clear()


def test_a_node_without_tables_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """An incomplete wheel is found at start, with what to do about it."""
    monkeypatch.setattr(zones_module, "zone_names", frozenset)
    with pytest.raises(RuntimeError, match="reinstall"):
        pin_tables()


def test_a_one_shot_at_the_calendars_end_is_refused() -> None:
    """Local times whose instant has no text are an error of the field."""
    spec = {"at_local": "9999-12-31T23:00:00", "zone": "America/New_York"}
    (problem,) = parse_trigger(spec, schedule_id=None, effective_at=0).problems
    assert (problem.field, problem.code) == ("at_local", "bad_field")


@pytest.mark.parametrize(
    ("expr", "hint"),
    [("0 0 * * 9L", "0-7"), ("H/60 * * * *", "1 to 59"), ("H(5-70) * * * *", "0-59"), ("H/0 * * * *", "1 to")],
)
def test_special_forms_have_ranges_too(expr: str, hint: str) -> None:
    """A weekday beside `L` and the range and step of `H` are checked like any value."""
    parsed = compile_cron(expr, "UTC", "unix", "skip", "auto", "acme/x")
    assert parsed.trigger is None
    assert hint in parsed.problems[0].message


def test_memory_of_calendars_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a calendar has worked out is forgotten rather than kept without end; answers do not change."""
    monkeypatch.setattr(calendar_module, "_KEPT_MONTHS", 3)
    monkeypatch.setattr(calendared_module, "_KEPT_MONTHS", 3)
    days = Calendar("c", 1, 0b0111110)
    governed = Calendared(cron("0 9 L * *"), days, "previous", "UTC")
    whole = governed.between(0, 10**12, 100)
    assert len(whole) == 100
    assert governed.newest_before(whole[-1], 100, 0) == whole
    assert len(days._masks) <= 4


def test_under_a_calendar_a_one_shot_that_is_worked_stays() -> None:
    """Nothing moves what falls on a business day; the wire form is the bare trigger's."""
    once = Once(parse_instant("2026-07-03T09:00:00Z"))
    governed = Calendared(once, Calendar("c", 1, 0b0111110), "next", "UTC")
    assert governed.next_after(0) == governed.prev_before(MAX_MS) == once.at
    assert governed.to_wire() == once.to_wire()
    assert zone_of(governed).name == "UTC"
    every = Calendared(Every(86_400_000, 0), Calendar("c", 1, 0b0111110), "skip", "Asia/Tokyo")
    assert every.to_wire() == {"every_ms": 86_400_000, "anchor": "1970-01-01T00:00:00Z"}
    assert list(every.moved_between(0, 4 * 86_400_000, 10))


def test_words_for_every_kind() -> None:
    """One-shots, odd periods and rare forms have words; what is no trigger has none."""
    assert describe(Once(0)) == "once, at 1970-01-01T00:00:00Z"
    assert describe(Every(1500, 0)).startswith("every 1500 ms")
    assert "nearest to 3 days before the last day" in describe(cron("0 0 12 L-3W * ?", dialect="quartz"))
    assert list(events_between(Once(0), 0, 1, 5)) == []
    assert notes_on(Once(0), 0) == []
    unknown: Any = object()
    with pytest.raises(TypeError, match="not a trigger"):
        describe(unknown)
    amsterdam = find_zone("Europe/Amsterdam")
    assert amsterdam is not None
    assert repr(amsterdam) == "<zone Europe/Amsterdam>"
    assert "(+00:17:30)" in local_text(amsterdam, parse_instant("1880-01-01T00:00:00Z"))


def test_a_calendar_in_the_batch_needs_no_zone_for_a_rate() -> None:
    """A rate has no zone of its own: its days are UTC's unless the case says otherwise."""
    from scheduler.core.batch import answer

    case = {"id": 1, "every_ms": 43_200_000, "start": "2026-01-01T00:00:00Z", "count": 2}
    closed = {"calendar": {"exclude_dates": ["2026-01-01"]}}
    assert answer(case | closed)["fires"] == ["2026-01-02T00:00:00Z", "2026-01-02T12:00:00Z"]
    tokyo = answer(case | closed | {"zone": "Asia/Tokyo"})
    assert tokyo["fires"] == ["2026-01-02T00:00:00Z", "2026-01-02T12:00:00Z"]
