"""What a plain field of a command or of a definition may hold: a test, and the words that say what was expected."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

INSTANT = "an instant such as '2026-03-01T09:00:00Z'"


class Check(NamedTuple):
    """`expected` completes "expected ..."."""

    holds: Callable[[object], bool]
    expected: str


def text(most: int) -> Check:
    """Text that is not empty."""
    return Check(lambda given: isinstance(given, str) and 0 < len(given) <= most, f"text of 1 to {most} characters")


def whole(least: int, most: int) -> Check:
    """A whole number, both ends included; true and false are none."""
    return Check(lambda given: type(given) is int and least <= given <= most, f"a whole number from {least} to {most}")


FLAG = Check(lambda given: isinstance(given, bool), "true or false")
