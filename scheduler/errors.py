"""What can go wrong, named for what the caller must do next.

    SchedulerError             anything of ours; the text says what, why and the next step
    ├── ConfigInvalid          fix the settings: every mistake is in the text, one line each
    ├── Retriable              nothing is lost: try again after a back-off
    │   └── BrokerUnavailable  no broker answers: say so, keep trying, report not ready
    ├── Fenced                 another owner has taken over: stop writing at once, close the shard
    └── StateCorrupted         the store can't be trusted: stop the shard and ask an operator
        ├── StoreDamaged       its files can't be read: delete them and restore it from the changelogs
        ├── StoreUnusable      this node can't keep it: leave the shard to a node that can, if there is one
        └── NewerFormat        a newer version wrote it: leave the shard to that version

`Undecodable` (set the record aside with its bytes and go on) belongs to the contracts: `topics.codec`. A test compares
this drawing with the classes. `exit_code` is what the command line ends with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence


class SchedulerError(Exception):
    """Base of every error this package raises on purpose; its text is written for the person who reads it."""

    exit_code: ClassVar[int] = 1


class ConfigInvalid(SchedulerError):
    """The settings can't be used. `problems` holds every mistake, one line each, in the order they were found; `hint`
    is what to do about them, or empty.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, problems: Sequence[str], hint: str = "") -> None:
        self.problems = tuple(problems)
        self.hint = hint
        count = len(self.problems)
        title = "the settings have a mistake" if count == 1 else f"the settings have {count} mistakes"
        lines = [f"{title}:", *(f"  {problem}" for problem in self.problems)]
        super().__init__("\n".join([*lines, hint] if hint else lines))

    def __reduce__(self) -> tuple[type[ConfigInvalid], tuple[tuple[str, ...], str]]:
        """Crosses a process boundary whole: the default would pickle the text and lose `problems`."""
        return (ConfigInvalid, (self.problems, self.hint))


class Retriable(SchedulerError):
    """It did not work now and nothing is half done: the same call may be made again after a back-off."""


class BrokerUnavailable(Retriable):
    """No broker answered at the given address in the given time."""

    exit_code: ClassVar[int] = 3


class Fenced(SchedulerError):
    """Another producer with our transactional id exists: whatever we do from here on is not committed."""


class StateCorrupted(SchedulerError):
    """The local store contradicts its changelogs or belongs to another cluster, namespace or shard count."""


class StoreDamaged(StateCorrupted):
    """What the disk gives back is not what was written. A store is only a copy, so no operator is needed."""


class StoreUnusable(StateCorrupted):
    """The disk refuses, or what is there is not ours: this node can't have the shard, another one may."""


class NewerFormat(StateCorrupted):
    """Written in a record format newer than this version reads: not damaged, but not ours to read."""
