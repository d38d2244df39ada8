"""Creates that are alike: of one definition but for its payload, as those who load schedules by the thousand send them.

    read, decide, print    the long way, which says what a create does; the first two of a kind go it
    learn                  a form from what came of the second: its records, with holes for what differs
    recognised             later ones need not even be read: they are known by their bytes (`texts.py`)
    apply                  fills in, to the byte what the long way gives

What differs is the ids, the payload and the instant of the decision. A form serves until the first nominal, while no
deletion gives new schedules another version, and only definitions whose meaning depends on nothing else: no calendar,
no window, no `H`, no fixed rate.
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
from scheduler.core.model import Nominal, State
from scheduler.core.spec import MAX_PAYLOAD_BYTES, shared_by_all
from scheduler.core.time import format_instant
from scheduler.shard.step import Ready
from scheduler.shard.texts import Alike, Texts

if TYPE_CHECKING:
    from scheduler.core.command import Command
    from scheduler.core.decision import Decision
    from scheduler.core.model import Schedule
    from scheduler.core.spec import Template
    from scheduler.shard.commands import Input
    from scheduler.shard.step import Step
    from scheduler.shard.texts import Kind

# So much is kept: with templates of a KiB and texts of two, some 14 MB a shard if every kind is as large as may be.
_KINDS = 1024
_LONGEST_REASON = 200  # characters
_LONGEST_FORM = 4096  # bytes of its records
_PLAIN = Effects(save=True, revised=True)

# What stands in the holes while a form is printed. Ids can't hold these; a create that prints one of them has no form.
_TENANT, _COMMAND, _PAYLOAD, _INSTANT = "<tenant>", "<command>", b'"<payload>"', 1
_ID = f"{_TENANT}/<name>"  # before the tenant, which it begins with
_HOLES = (_ID.encode(), _TENANT.encode(), _COMMAND.encode(), _PAYLOAD, format_instant(_INSTANT).encode())
_HOLE = re.compile(b"|".join(map(re.escape, _HOLES)))


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


class Forms:
    """Those of one shard. What they remember changes what a create costs, never what it does."""

    def __init__(self) -> None:
        self._forms: dict[Kind, Form | None] = {}  # None: the next one of the kind gives its form
        self._texts = Texts()  # of kinds that have forms

    def recognised(self, record: Input) -> Alike | None:
        """A create that has a form, by its bytes; see `shard/texts.py`."""
        return self._texts.recognised(record)

    def apply(self, step: Step, record: Input, command: Command | Alike) -> bool:
        """Carry a create out by its form; False if it has none, or there is more to decide: then nothing was done.

        One that had to be read leaves its text, so that the next one need not be.
        """
        alike = command if isinstance(command, Alike) else _alike(command)
        form = None if alike is None else self._forms.get(alike.kind)
        if alike is None or form is None:
            return False
        if step.now >= form.first.scheduled_for or form.schedule.version != step.record.next_version:
            self._drop(alike.kind)
            return False
        payload = alike.payload
        if step.touched[alike.schedule_id].schedule is not None or len(payload or b"") > MAX_PAYLOAD_BYTES:
            return False
        if not isinstance(command, Alike):
            self._texts.learn(record, command, alike.kind)
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
            self._texts.clear()
        self._forms[kind] = None

    def _drop(self, kind: Kind) -> None:
        self._forms[kind] = None
        self._texts.forget(kind)


def _alike(command: Command) -> Alike | None:
    kind = _kind(command)
    if kind is None:
        return None
    owner, payload = command.schedule_id, (command.spec or {}).get("payload")
    given = payload if isinstance(payload, bytes) and payload != b"null" else None
    return Alike(kind, owner, owner.encode(), command.command_id.encode(), given)


def _kind(command: Command) -> Kind | None:
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
