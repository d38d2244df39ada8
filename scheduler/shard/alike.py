"""Creates that are alike: of one definition but for its payload, as those who load schedules by the thousand send them.

    read, decide, print    the long way, which says what a create does; the first two of a kind go it
    learn                  a form from what came of the second: its records, with holes for what differs
    recognised             later ones by their bytes, which but for the same holes are those of one that was read
    apply                  fills in, to the byte what the long way gives

What differs is the ids, the payload and the instant of the decision. A form serves until the first nominal, while no
deletion gives new schedules another version, and only definitions whose meaning depends on nothing else: no calendar,
no window, no `H`, no fixed rate. Recognised is what begins with verb, schedule id and command id, as clients and
examples here write them; in another order a create is read the long way, and filled in all the same.
"""

from __future__ import annotations

import re
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from scheduler import wire
from scheduler.core.decision import Effects
from scheduler.core.due import Due, due_key
from scheduler.core.identity import COMMAND_ID, SCHEDULE_ID
from scheduler.core.model import Nominal, State
from scheduler.core.spec import MAX_PAYLOAD_BYTES, shared_by_all
from scheduler.core.time import format_instant
from scheduler.shard.step import Ready
from topics.codec import SpecFields, Undecodable, is_one_value, split_command

if TYPE_CHECKING:
    from scheduler.core.command import Command
    from scheduler.core.decision import Decision
    from scheduler.core.model import Schedule
    from scheduler.core.spec import Template
    from scheduler.shard.commands import Input
    from scheduler.shard.step import Step

# So much is kept: with templates of a KiB at most, some 12 MB a shard if every kind is as large as may be.
_KINDS = 1024
_LONGEST_REASON = 200  # characters
_LONGEST_FORM = 4096  # bytes of its records
_PLAIN = Effects(save=True, revised=True)

# What stands in the holes while a form is printed. Ids can't hold these; a create that prints one of them has no form.
_TENANT, _COMMAND, _PAYLOAD, _INSTANT = "<tenant>", "<command>", b'"<payload>"', 1
_ID = f"{_TENANT}/<name>"  # before the tenant, which it begins with
_HOLES = (_ID.encode(), _TENANT.encode(), _COMMAND.encode(), _PAYLOAD, format_instant(_INSTANT).encode())
_HOLE = re.compile(b"|".join(map(re.escape, _HOLES)))

_Kind = tuple["Template", bool, str | None, str | None]  # the definition, whether it has a payload, actor, reason

_BEGIN = re.compile(
    b'\\{"command":"create","schedule_id":"(%b)","command_id":"(%b)"' % (SCHEDULE_ID.encode(), COMMAND_ID.encode())
)
_PAYLOAD_NAME = b'"payload":'


class Blank(Struct, frozen=True):
    """Printed text with holes. `pick` takes it, piece by piece, out of a value for each of `_HOLES` and its `texts`."""

    texts: tuple[bytes, ...]
    pick: itemgetter[Any]

    @classmethod
    def of(cls, printed: bytes) -> Blank:
        texts = tuple(_HOLE.split(printed))
        order = [len(_HOLES)]
        for number, hole in enumerate(_HOLE.findall(printed), 1):
            order += [_HOLES.index(hole), len(_HOLES) + number]
        return cls(texts, itemgetter(*order))

    def filled(self, values: tuple[bytes, ...]) -> bytes:
        return b"".join(self.pick(values + self.texts))


class Form(Struct, frozen=True):
    """What a create of one kind comes to. `schedule` is an example: what differs in it means nothing."""

    first: Nominal  # from then on the answer is another one
    place: bytes  # of a schedule in the due index, before its id
    schedule: Schedule
    record: Blank
    revision: Blank
    reply: Blank


class Alike(Struct, frozen=True, gc=False):
    """A create of a kind, and what differs in it."""

    kind: _Kind
    schedule_id: str
    key: bytes
    command_id: bytes
    payload: bytes | None
    verb: str = "create"


class Forms:
    """Those of one shard. What they remember changes what a create costs, never what it does."""

    def __init__(self) -> None:
        self._forms: dict[_Kind, Form | None] = {}  # None: the next one of the kind gives its form
        self._texts: dict[bytes, tuple[bytes, _Kind]] = {}  # from the ids to the payload -> from there on

    def recognised(self, record: Input) -> Alike | None:
        """A create that was read before, but for its ids and payload: as good as that one, if it belongs here."""
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
            if not value.endswith(after) or payload == b"null" or not is_one_value(payload):
                return None
        return Alike(kind, key.decode(), key, command_id, payload)

    def apply(self, step: Step, record: Input, command: Command | Alike) -> bool:
        """Carry a create out by its form; False if it has none, or there is more to decide: then nothing was done."""
        alike = command if isinstance(command, Alike) else _alike(command)
        form = None if alike is None else self._forms.get(alike.kind)
        if alike is None or form is None:
            return False
        if step.now >= form.first.scheduled_for or form.schedule.version != step.record.next_version:
            self._forms[alike.kind] = None
            return False
        payload = alike.payload
        if step.touched[alike.schedule_id].schedule is not None or len(payload or b"") > MAX_PAYLOAD_BYTES:
            return False
        if not isinstance(command, Alike):
            self._learn_text(record, command, alike.kind)
        key = alike.key
        values = (key, key[: key.index(b"/")], alike.command_id, payload or b"", _stamp(step.now))
        made = _made(form.schedule, alike.schedule_id, alike.command_id.decode(), payload, step.now)
        step.save(made, Ready(form.record.filled(values), Due(form.place + key, form.first)))
        step.emit(step.catalogue.schedule_history, key, form.revision.filled(values))
        step.reply(key, alike.command_id, made.recent[0].code, form.reply.filled(values))
        return True

    def learn(self, step: Step, command: Command, decision: Decision) -> None:
        """Note what went the long way: the second plain create of a kind gives its form."""
        kind = _kind(command)
        if kind is None or decision.before is not None or decision.effects != _PLAIN:
            return
        if kind in self._forms:
            self._forms[kind] = _form(command, decision, step.now)
            return
        if len(self._forms) >= _KINDS:
            self._forms.clear()
        self._forms[kind] = None

    def _learn_text(self, record: Input, command: Command, kind: _Kind) -> None:
        """Recognise the like of a create that was read the long way, if what differs stands where it is looked for."""
        value = record.value or b""
        begun = _BEGIN.match(value)
        if begun is None or record.forwarded_from is not None or record.key != command.schedule_id.encode():
            return
        before, at = _before_payload(value, begun.end())
        after = b"" if at is None else _after_payload(value, at, command)
        if after is None:
            return
        if len(self._texts) >= _KINDS:
            self._texts.clear()
        self._texts[before] = after, kind


def _before_payload(value: bytes, start: int) -> tuple[bytes, int | None]:
    """What stands from `start` to the first thing that looks like a payload, and where that is, if anything does."""
    at = value.find(_PAYLOAD_NAME, start)
    if at < 0:
        return value[start:], None
    at += len(_PAYLOAD_NAME)
    return value[start:at], at


def _after_payload(value: bytes, at: int, command: Command) -> bytes | None:
    """What follows the payload of a command's definition; None unless it is this what stands at `at`."""
    given = (command.spec or {}).get("payload")
    if not isinstance(given, bytes) or given == b"null" or not value.startswith(given, at):
        return None
    after = value[at + len(given) :]
    try:
        spec = split_command(value[:at] + _PAYLOAD + after).get("spec")
    except Undecodable:
        return None
    is_payload = isinstance(spec, SpecFields) and spec.get("payload") == _PAYLOAD
    return after if is_payload else None


def _alike(command: Command) -> Alike | None:
    kind = _kind(command)
    if kind is None:
        return None
    owner, payload = command.schedule_id, (command.spec or {}).get("payload")
    given = payload if isinstance(payload, bytes) and payload != b"null" else None
    return Alike(kind, owner, owner.encode(), command.command_id.encode(), given)


def _kind(command: Command) -> _Kind | None:
    """What all creates that are alike share; None for a command that is alike to no other."""
    spec = command.spec
    template: Template | None = getattr(spec, "template", None)
    if command.verb != "create" or spec is None or template is None or command.problems or command.warnings:
        return None
    if command.preview or command.dry_run or command.effective_from is not None:
        return None
    if len(command.reason or "") > _LONGEST_REASON or shared_by_all(template) is None:
        return None
    return template, spec.get("payload", b"null") != b"null", command.actor, command.reason


def _form(command: Command, decision: Decision, now: int) -> Form | None:
    after = decision.after
    if after is None or after.spec.window_ms or after.state is not State.ACTIVE:
        return None
    first = after.next_after(now)
    made = replace(after, spec=replace(after.spec, payload=None))  # a payload may say what it likes
    if first is None or any(map(_HOLE.search, _printed(made, command, decision, now))):
        return None
    pattern = replace(command, schedule_id=_ID, command_id=_COMMAND)
    shown = _made(made, _ID, _COMMAND, None if after.spec.payload is None else _PAYLOAD, _INSTANT)
    printed = _printed(shown, pattern, decision, _INSTANT)
    if sum(map(len, printed)) > _LONGEST_FORM:
        return None
    place = due_key(first, made.spec.priority, "")
    return Form(Nominal(first, first), place, made, *map(Blank.of, printed))


def _printed(made: Schedule, command: Command, decision: Decision, now: int) -> tuple[bytes, bytes, bytes]:
    """The schedule's record, its revision, the reply."""
    decision = replace(decision, after=made, effective_at=now)
    return (
        wire.schedule_to_bytes(made),
        wire.revision_to_bytes(made, decision.code, command.command_id, now),
        wire.reply_to_bytes(command, decision, now),
    )


def _made(like: Schedule, schedule_id: str, command_id: str, payload: bytes | None, now: int) -> Schedule:
    """The schedule that another create of the kind makes at `now`. `like` has no payload."""
    recent = replace(like.recent[0], command_id=command_id, at=now, effective_at=now)
    return replace(
        like,
        schedule_id=schedule_id,
        created_at=now,
        updated_at=now,
        effective_at=now,
        floor=now,
        spec=like.spec if payload is None else replace(like.spec, payload=payload),
        recent=(recent,),
    )


@lru_cache(maxsize=64)
def _stamp(now: int) -> bytes:
    return format_instant(now).encode()
