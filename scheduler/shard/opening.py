"""What goes first after a shard was opened: the commands sent before, so that a "pause all" among them still holds.

What is overdue as after an outage lets them go first, however long they take. After an absence everything waits for
them, but not for longer than `COMMANDS_FIRST_MS`.
"""

from __future__ import annotations

COMMANDS_FIRST_MS = 500  # half the least max_lateness


class Opening:
    """One per opening of a shard. `at`: when it looked again; `is_read`: all commands sent before are applied.

    `holds`: nothing fires. `end`: the offset behind the last of those commands.
    """

    def __init__(self, at: int = 0, position: int = 0, end: int = 0) -> None:
        self.at = at
        self.is_read = position >= end
        self._end = end
        self.holds = False

    def unread(self, position: int) -> int:
        """How many commands, at most, are still to be applied."""
        return 0 if self.is_read else self._end - position

    def applied(self, position: int) -> None:
        """Commands before this offset are applied."""
        self.is_read = self.is_read or position >= self._end

    def hold(self) -> None:
        """Nothing fires until they are, for a while."""
        self.holds = not self.is_read

    def release(self, at: int) -> None:
        """What was overdue when the shard looked at this instant is decided in other ways; everything else fires."""
        self.at = at
        self.holds = False

    @property
    def until(self) -> int:
        """The first instant at which nothing is held any more, whatever was applied."""
        return self.at + COMMANDS_FIRST_MS + 1

    def has_ended(self, now: int) -> bool:
        """Whether what is held may go on."""
        return self.holds and (self.is_read or now >= self.until)

    def held(self, instant: int | None) -> int | None:
        """When something due at this instant may fire."""
        return instant if instant is None or self.is_read or not self.holds else max(instant, self.until)

    @property
    def overdue_until(self) -> int | None:
        """Up to here what is overdue lets the commands go first; None once they are applied."""
        return None if self.is_read else self.at
