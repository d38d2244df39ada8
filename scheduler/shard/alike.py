"""Creates that are alike: of one definition but for its payload, as those who load schedules by the thousand send them.

    decide + print     the long way, which says what a create does; the first two of a kind go it
    learn              a form from what came of the second: its records, with holes for what differs
    apply              later ones are filled in, to the byte what the long way gives

What differs is the ids, the payload and the instant of the decision. A form serves until the first nominal, while no
deletion gives new schedules another version, and only definitions whose meaning depends on nothing else: no calendar,
no window, no `H`, no fixed rate.
"""

from __future__ import annotations

import re
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from scheduler import wire
from scheduler.core.decision import Effects
from scheduler.core.due import Due, due_key
from scheduler.core.identity import tenant_of
from scheduler.core.model import Answer, Nominal, State
from scheduler.core.spec import SpecContext, parse_spec, shared_by_all
from scheduler.core.time import format_instant
from scheduler.shard.step import Ready

if TYPE_CHECKING:
    from scheduler.core.command import Command
    from scheduler.core.decision import Decision
    from scheduler.core.model import Schedule, Spec
    from scheduler.core.spec import Template
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


class Blank(Struct, frozen=True):
    """Printed text with holes. `pick` takes what fills them, in their order, out of a value for each of `_HOLES`."""

    text: bytes
    pick: itemgetter[Any]

    @classmethod
    def of(cls, printed: bytes) -> Blank:
        order = [_HOLES.index(hole) for hole in _HOLE.findall(printed)]
        return cls(_HOLE.sub(b"%b", printed.replace(b"%", b"%%")), itemgetter(*order))

    def filled(self, values: tuple[bytes, ...]) -> bytes:
        filled: bytes = self.text % self.pick(values)
        return filled


class Form(Struct, frozen=True):
    """What a create of one kind comes to. `schedule` is an example: what differs in it means nothing."""

    first: Nominal  # from then on the answer is another one
    schedule: Schedule
    record: Blank
    revision: Blank
    reply: Blank


class Forms:
    """Those of one shard. What they remember changes what a create costs, never what it does."""

    def __init__(self) -> None:
        self._forms: dict[_Kind, Form | None] = {}  # None: the next one of the kind gives its form

    def apply(self, step: Step, command: Command) -> bool:
        """Carry a create out by its form; False if it has none, or there is more to decide: then nothing was done."""
        kind = _kind(command)
        form = None if kind is None else self._forms.get(kind)
        if kind is None or form is None or command.spec is None:
            return False
        if step.now >= form.first.scheduled_for or form.schedule.version != step.record.next_version:
            self._forms[kind] = None
            return False
        owner = command.schedule_id
        spec = parse_spec(command.spec, SpecContext(owner, step.now)).spec
        if step.touched[owner].schedule is not None or spec is None:
            return False
        key, tenant, now = owner.encode(), tenant_of(owner).encode(), format_instant(step.now).encode()
        values = (key, tenant, command.command_id.encode(), spec.payload or b"", now)
        due = Due(due_key(form.first.available_at, spec.priority, owner), form.first)
        step.save(_made(form.schedule, command, spec, step.now), Ready(form.record.filled(values), due))
        step.emit(step.catalogue.schedule_history, key, form.revision.filled(values))
        step.answer(command, form.schedule.recent[0].code, form.reply.filled(values))
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
    made = decision.after
    if made is None or made.spec.window_ms or made.state is not State.ACTIVE:
        return None
    first = made.next_after(now)
    bare = replace(made.spec, payload=None)
    real = _printed(_made(made, command, bare, now), command, decision, now)
    if first is None or any(map(_HOLE.search, real)) or sum(map(len, real)) > _LONGEST_FORM:
        return None
    pattern = replace(command, schedule_id=_ID, command_id=_COMMAND)
    spec = bare if made.spec.payload is None else replace(bare, payload=_PAYLOAD)
    shown = _made(made, pattern, spec, _INSTANT)
    return Form(Nominal(first, first), shown, *map(Blank.of, _printed(shown, pattern, decision, _INSTANT)))


def _printed(made: Schedule, command: Command, decision: Decision, now: int) -> tuple[bytes, bytes, bytes]:
    """The schedule's record, its revision, the reply."""
    decision = replace(decision, after=made, effective_at=now)
    return (
        wire.schedule_to_bytes(made),
        wire.revision_to_bytes(made, decision.code, command.command_id, now),
        wire.reply_to_bytes(command, decision, now),
    )


def _made(like: Schedule, command: Command, spec: Spec, now: int) -> Schedule:
    """The schedule that another create of the kind makes at `now`."""
    answer = like.recent[0]
    recent = Answer(
        command.command_id, answer.command, answer.accepted, answer.code, answer.message, now, answer.version,
        answer.revision, now,
    )  # fmt: skip
    return replace(
        like,
        schedule_id=command.schedule_id,
        created_at=now,
        updated_at=now,
        effective_at=now,
        floor=now,
        spec=spec,
        recent=(recent,),
    )
