"""The page of failures names tests that exist, and the bugs that are put in, with the tests that catch them."""

from __future__ import annotations

import re

from tests.crash.test_deliberate_bugs import CAUGHT_BY
from tests.support.node import ROOT

PAGE = (ROOT / "ops" / "failures.md").read_text()


def test_every_test_on_the_page_exists() -> None:
    """A row without its test would be a promise."""
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    files = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    defined = {name for text in files for name in re.findall(r"^def (test_\w+)\(", text, re.MULTILINE)}
    assert named
    assert named <= defined, sorted(named - defined)


def test_the_bugs_on_the_page_are_those_that_are_put_in() -> None:
    """Each with the tests that catch it."""
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGE, re.MULTILINE)
    told = {bug: re.findall(r"`(\w+)`", tests) for bug, tests in rows}
    assert told == {bug: [test.partition("::")[2] for test in tests] for bug, tests in CAUGHT_BY.items()}
