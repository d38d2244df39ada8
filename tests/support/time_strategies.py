"""Hypothesis strategies of the time tests: expressions with their meaning, zones, instants near clock changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from scheduler.core.zones import find_zone, pin_tables, zone_names
from tests.support.time_oracle import Expression

if TYPE_CHECKING:
    from collections.abc import Callable

pin_tables()
ZONES = sorted(zone_names())
GAPS = ("skip", "forward", "shift")
FOLDS = ("auto", "first", "last", "both")
_FROM, _UNTIL = -2_500_000_000, 4_600_000_000  # 1890 to 2115

zones = st.sampled_from(ZONES)
gaps = st.sampled_from(GAPS)
folds = st.sampled_from(FOLDS)


def _numbers(low: int, high: int, *, most: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    """A field's text and values: every form of the grammar that is made of numbers."""
    size = high - low + 1
    value = st.integers(low, high)

    def listed(items: list[tuple[str, frozenset[int]]]) -> tuple[str, frozenset[int]]:
        return ",".join(text for text, _ in items), frozenset().union(*(values for _, values in items))

    def ranged(first: int, last: int, step: int) -> tuple[str, frozenset[int]]:
        span = last - first if last >= first else last - first + size
        values = frozenset((first - low + at) % size + low for at in range(0, span + 1, step))
        return f"{first}-{last}" + (f"/{step}" if step > 1 else ""), values

    item = st.one_of(
        value.map(lambda at: (str(at), frozenset({at}))),
        value.map(lambda at: (f"{at:03}", frozenset({at}))),
        st.builds(ranged, value, value, st.integers(1, 7)),
        st.builds(lambda at, step: (f"{at}/{step}", frozenset(range(at, high + 1, step))), value, st.integers(1, 6)),
    )
    starred = st.one_of(
        st.just(("*", frozenset(range(low, high + 1)))),
        st.integers(1, size - 1).map(lambda step: (f"*/{step}", frozenset(range(low, high + 1, step)))),
    )
    return st.one_of(starred, st.lists(item, min_size=1, max_size=3).map(listed)).filter(
        lambda field: len(field[1]) <= most
    )


_days = st.one_of(
    st.just(("*", ("*",))),
    st.integers(1, 10).map(lambda step: (f"*/{step}", tuple(str(day) for day in range(1, 32, step)))),
    st.lists(
        st.one_of(
            st.integers(1, 31).map(str),
            st.just("L"),
            st.just("LW"),
            st.integers(1, 31).map(lambda day: f"{day}W"),
        ),
        min_size=1,
        max_size=3,
    ).map(lambda items: (",".join(items), tuple(items))),
)
_weekdays = st.one_of(
    st.just(("*", ("*",))),
    st.lists(
        st.one_of(
            st.integers(0, 7).map(str),
            st.integers(0, 6).map(lambda day: f"{day}L"),
            st.tuples(st.integers(0, 6), st.integers(1, 5)).map(lambda pair: f"{pair[0]}#{pair[1]}"),
        ),
        min_size=1,
        max_size=3,
    ).map(lambda items: (",".join(items), tuple("0" if item == "7" else item for item in items))),
)


@st.composite
def expressions(draw: Callable[..., object], *, seconds: bool | None = None) -> Expression:
    """An expression that names some day, as text and as meaning."""
    with_seconds = draw(st.booleans()) if seconds is None else seconds
    second = draw(_numbers(0, 59, most=60)) if with_seconds else ("0", frozenset({0}))
    dense = len(second[1]) > 4
    minute = draw(_numbers(0, 59, most=4 if dense else 60))
    hour = draw(_numbers(0, 23, most=24))
    days, weekdays = draw(_days), draw(_weekdays)
    # Half of all expressions run daily, since only those meet a clock change within a short window for sure.
    if draw(st.booleans()):
        days, weekdays, month = ("*", ("*",)), ("*", ("*",)), ("*", frozenset(range(1, 13)))
    else:
        month = draw(_numbers(1, 12, most=12))
    fields = [minute[0], hour[0], days[0], month[0], weekdays[0]]
    return Expression(
        text=" ".join([second[0], *fields] if with_seconds else fields),
        dialect="seconds" if with_seconds else "unix",
        seconds=second[1],
        minutes=minute[1],
        hours=hour[1],
        days=days[1],
        months=month[1],
        weekdays=weekdays[1],
        either=not days[0].startswith("*") and not weekdays[0].startswith("*"),
        runs_through=minute[0].startswith("*") or hour[0].startswith("*"),
    )


@st.composite
def instants(draw: Callable[..., int], name: str) -> int:
    """A second, four times in five within two days of one of the zone's clock changes."""
    zone = find_zone(name)
    assert zone is not None
    changes = [change.start for change in zone.changes if _FROM < change.start < _UNTIL]
    if changes and draw(st.integers(0, 4)):
        return draw(st.sampled_from(changes)) + draw(st.integers(-2 * 86_400, 2 * 86_400))
    return draw(st.integers(_FROM, _UNTIL))
