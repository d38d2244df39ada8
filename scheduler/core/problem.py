"""What is wrong with an input, as data: the one shape in which the core reports mistakes.

A parser of the core never raises for bad input and never stops at the first mistake: it returns every `Problem` it
found, so that the sender repairs everything in one go.
"""

from typing import NamedTuple


class Problem(NamedTuple):
    """One mistake (or, in a list of warnings, one surprise): where, which kind, and a sentence with the way out."""

    field: str
    """The field as the sender spelt it, or the part of the expression (`minute`, `day_of_week`); `""` = the whole."""
    code: str
    """Machine code: `bad_field`, `unknown_zone`, `never_fires`, `gap`, `fold`, `too_many`, `not_supported`."""
    message: str
    """For people: what was found, what is allowed, a valid example."""
