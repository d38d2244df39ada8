"""Creates known by their bytes: what was read once, but for its ids and payload, is not read again.

    {"command":"create","schedule_id":"<id>","command_id":"<id>" <before> <payload> <after>

A text is what stands between ids and payload, and after the payload. Known are creates that begin so, as clients and
examples here write them; others are read, whatever they are. Of what differs everything is checked that reading would
check: the ids by their patterns, the payload as one JSON value that is not too long. All else was found right in the
one that was read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from scheduler.core.identity import COMMAND_ID, SCHEDULE_ID
from scheduler.core.spec import MAX_PAYLOAD_BYTES
from topics.codec import SpecFields, Undecodable, is_one_value, split_command

if TYPE_CHECKING:
    from scheduler.core.command import Command
    from scheduler.core.spec import Template
    from scheduler.shard.commands import Input

    # What creates that are alike share: the definition, whether it has a payload, actor, reason.
    Kind = tuple[Template, bool, str | None, str | None]

_KEPT = 1024  # texts
_LONGEST = 2048  # bytes of one
_BEGIN = re.compile(
    b'\\{"command":"create","schedule_id":"(%b)","command_id":"(%b)"' % (SCHEDULE_ID.encode(), COMMAND_ID.encode())
)
_NAME = b'"payload":'
_NOTHING = b"null"  # no payload, although there is a name for it


class Alike(Struct, frozen=True, gc=False):
    """A create of a kind, and what differs in it."""

    kind: Kind
    schedule_id: str
    key: bytes
    command_id: bytes
    payload: bytes | None
    verb: str = "create"  # as of any command


class Texts:
    """What a shard knows of how creates are written, by kind."""

    def __init__(self) -> None:
        self._texts: dict[bytes, tuple[bytes, Kind]] = {}  # before -> after, kind
        self._of: dict[Kind, list[bytes]] = {}  # kind -> before, of each of its texts

    def __len__(self) -> int:
        return len(self._texts)

    def recognised(self, record: Input) -> Alike | None:
        """A create of a known text, as good as the one that was read, if it belongs to this shard; else None."""
        value = record.value
        begun = None if value is None or record.forwarded_from is not None else _BEGIN.match(value)
        if value is None or begun is None:
            return None
        key, command_id = begun.groups()
        before, at = _before_payload(value, begun.end())
        found = self._texts.get(before)
        if found is None or key != record.key:
            return None
        after, kind = found
        payload = None
        if at is not None:
            payload = value[at : len(value) - len(after)]
            if not value.endswith(after) or payload == _NOTHING or len(payload) > MAX_PAYLOAD_BYTES:
                return None
            if not is_one_value(payload):
                return None
        return Alike(kind, key.decode(), key, command_id, payload)

    def learn(self, record: Input, command: Command, kind: Kind) -> None:
        """Know the text of this create, which was read, if what differs stands where it is looked for.

        A text that is known stays what it is: definitions that print their payloads first begin alike.
        """
        value = record.value or b""
        begun = _BEGIN.match(value)
        if begun is None:
            return
        before, at = _before_payload(value, begun.end())
        if before in self._texts:
            return
        after = b"" if at is None else _after_payload(value, at, command)
        if after is None or len(before) + len(after) > _LONGEST:
            return
        if len(self._texts) >= _KEPT:
            self.clear()
        self._texts[before] = after, kind
        self._of.setdefault(kind, []).append(before)

    def forget(self, kind: Kind) -> None:
        """Read creates of this kind again."""
        for before in self._of.pop(kind, ()):
            del self._texts[before]

    def clear(self) -> None:
        """Read all again."""
        self._texts.clear()
        self._of.clear()


def _before_payload(value: bytes, start: int) -> tuple[bytes, int | None]:
    """What stands from `start` to the first thing that looks like a payload, and where that is, if anything does."""
    at = value.find(_NAME, start)
    if at < 0:
        return value[start:], None
    at += len(_NAME)
    return value[start:at], at


def _after_payload(value: bytes, at: int, command: Command) -> bytes | None:
    """What follows the payload of a command's definition; None unless it is this payload that stands at `at`."""
    given = (command.spec or {}).get("payload")
    if not isinstance(given, bytes) or given == _NOTHING or not value.startswith(given, at):
        return None
    after = value[at + len(given) :]
    try:
        spec = split_command(value[:at] + _NOTHING + after).get("spec")
    except Undecodable:
        return None
    is_payload = isinstance(spec, SpecFields) and spec.get("payload") == _NOTHING
    return after if is_payload else None
