"""The reference says what the parser does."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.core.cron import EXAMPLES, MACROS, compile_cron
from scheduler.core.cron_fields import DIALECTS, MARKS
from scheduler.core.reference import reference

DOCUMENT = (Path(__file__).parents[3] / "ops" / "time.md").read_text("utf-8")


def test_the_document_contains_the_generated_reference() -> None:
    """`ops/time.md` and `scheduler next --reference` are the same text."""
    part = DOCUMENT.partition("<!-- reference -->")[2].partition("<!-- /reference -->")[0]
    assert part.strip() == reference().strip(), "run: scheduler next --reference, and put it between the marks"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_dialects_example_is_valid(dialect: str) -> None:
    """The example that error texts show is accepted by the dialect it is shown for."""
    assert compile_cron(EXAMPLES[dialect], "UTC", dialect).trigger is not None


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_fields_example_is_valid(dialect: str) -> None:
    """The example of a field's errors is accepted in that field."""
    for at, kind in enumerate(DIALECTS[dialect]):
        texts = ["?" if other.name == "day_of_week" and "?" in other.marks else "*" for other in DIALECTS[dialect]]
        texts[at] = kind.example
        if kind.name == "day_of_week" and "?" in kind.marks:
            texts[[other.name for other in DIALECTS[dialect]].index("day_of_month")] = "?"
        assert compile_cron(" ".join(texts), "UTC", dialect).trigger is not None, texts


@pytest.mark.parametrize("mark", MARKS)
def test_each_special_form_is_accepted_where_the_reference_says_and_nowhere_else(mark: str) -> None:
    """The column of special forms is the truth, tried with the form's own example."""
    example = MARKS[mark][1].split(",")[0].strip("`")
    for dialect, kinds in DIALECTS.items():
        for at, kind in enumerate(kinds):
            texts = ["*"] * len(kinds)
            if "?" in kinds[-2].marks:
                other = "day_of_week" if kind.name == "day_of_month" else "day_of_month"
                texts[[known.name for known in kinds].index(other)] = "?"
            if mark == "?":
                texts = ["*"] * len(kinds)
            texts[at] = example
            accepted = compile_cron(" ".join(texts), "UTC", dialect).trigger is not None
            assert accepted == (mark in kind.marks), (dialect, kind.name, texts)


@pytest.mark.parametrize("macro", MACROS)
def test_a_macro_is_its_expression(macro: str) -> None:
    """A macro, in any case, fires as the expression beside it, with seconds and without."""
    expected = compile_cron(MACROS[macro], "Europe/Berlin").trigger
    assert expected is not None
    for text in (macro, macro.upper(), f"  {macro}\t"):
        for dialect in ("unix", "seconds"):
            trigger = compile_cron(text, "Europe/Berlin", dialect).trigger
            assert trigger is not None
            assert trigger.between(0, 10**11, 50) == expected.between(0, 10**11, 50)
            assert trigger.search.passes == expected.search.passes  # type: ignore[attr-defined] # a Cron
