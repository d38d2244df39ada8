"""Which schedules a bulk command is for: a selector as typed, checked as a whole, matched against records. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.core.lifecycle import Act, act_for
from scheduler.core.model import State
from scheduler.errors import StateCorrupted
from topics.messages import TENANT_PATTERN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BULK_ID_PATTERN = r"[A-Za-z0-9._-]{1,40}"  # with the verb behind it, it is a command id
USUAL: Mapping[str, tuple[str, ...]] = {
    "pause": ("active",),
    "resume": ("paused",),
    "cancel": ("active", "paused", "broken"),
    "delete": tuple(state.value for state in State),
}
"""The states a bulk command is for if none is given."""

_tenant = re.compile(TENANT_PATTERN).fullmatch
_prefix = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~/-]{0,150}").fullmatch
_bulk_id = re.compile(BULK_ID_PATTERN).fullmatch
_LEFT_ALONE = frozenset({Act.NOT_ALLOWED, Act.UNCHANGED})


class _Spec(msgspec.Struct):
    labels: dict[str, str] = {}


class _Sent(msgspec.Struct):
    command_id: str


class _Row(msgspec.Struct):
    """A schedule record as far as a selector looks at it."""

    state: str
    spec: _Spec
    reason: str | None = None
    recent: list[_Sent] = []


_row = msgspec.json.Decoder(_Row).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """All that it names must hold. `command_id`: that of the bulk run, by which what it has reached is known again."""

    command_id: str
    states: frozenset[str]
    tenant: str | None = None
    name_prefix: str = ""
    labels: Mapping[str, str]
    reason: str | None = None

    def takes(self, key: bytes, value: bytes) -> bool:
        """Whether the schedule with this record is meant. Raises StateCorrupted for a record that cannot be read."""
        tenant, _, name = key.decode(errors="replace").partition("/")
        if self.tenant not in (None, tenant) or not name.startswith(self.name_prefix):
            return False
        row = self._read(value)
        if self.labels and not self.labels.items() <= row.spec.labels.items():
            return False
        if row.state in self.states and self.reason in (None, row.reason):
            return True
        return self._has_reached(row, value)

    def has_reached(self, value: bytes) -> bool:
        """Whether an earlier part of the same run has been answered by this schedule."""
        return self._has_reached(self._read(value), value)

    def _has_reached(self, row: _Row, value: bytes) -> bool:
        if self.command_id.encode() not in value:
            return False
        return any(sent.command_id == self.command_id for sent in row.recent)

    @staticmethod
    def _read(value: bytes) -> _Row:
        try:
            return _row(value)
        except msgspec.MsgspecError as fault:
            raise StateCorrupted(f"a schedule record cannot be read ({fault}): {value[:200]!r}") from fault


def is_bulk(options: Mapping[str, Any]) -> bool:
    """Whether the options choose by selector, not by name."""
    return bool(options["everything"] or _given(options) or options["states"] or options["bulk_id"])


def selector(verb: str, schedule_ids: Sequence[str], options: Mapping[str, Any], bulk_id: str) -> Selector:
    """The selector of a bulk command's options. Raises ValueError that names everything that is wrong with them."""
    problems = []
    given = _given(options)
    if schedule_ids:
        problems.append("name schedules or select them (--all, --tenant, --label, --name-prefix), not both")
    elif not given and not options["everything"]:
        problems.append("say which: --tenant, --label or --name-prefix, or --all")
    if given and options["everything"]:
        problems.append(f"--all is all of them: leave out --all, or {', '.join(given)}")
    if options["command_id"] is not None:
        problems.append("--command-id names one command; a bulk run takes --bulk-id")
    if not _bulk_id(bulk_id):
        problems.append(f"--bulk-id: {bulk_id[:60]!r} is none: 1 to 40 letters, digits, '.', '_' and '-'")
    tenant, prefix = options["tenant"], options["name_prefix"]
    if tenant is not None and not _tenant(tenant):
        problems.append(f"--tenant: {tenant[:60]!r} is none: 1 to 40 of a-z, 0-9 and '-', not beginning with '-'")
    if prefix is not None and not _prefix(prefix):
        problems.append(f"--name-prefix: no name begins with {prefix[:60]!r}; names look like nightly/close.eu")
    labels = _labels(options["label"], problems)
    states = _states(verb, options["states"], problems)
    if problems:
        raise ValueError("\n".join(problems))
    return Selector(
        command_id=f"{bulk_id}.{verb}",
        states=states,
        tenant=tenant,
        name_prefix=prefix or "",
        labels=labels,
        reason=options.get("paused_for"),
    )


def _given(options: Mapping[str, Any]) -> list[str]:
    """The options by which schedules are selected, as they are spelled."""
    names = {"tenant": "--tenant", "label": "--label", "name_prefix": "--name-prefix"}
    return [spelled for name, spelled in names.items() if options[name] not in (None, ())]


def _labels(given: Sequence[str], problems: list[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            problems.append(f"--label: {text[:60]!r} is none: NAME=VALUE, as in team=billing")
        elif labels.setdefault(name, value) != value:
            problems.append(f"--label: {name} can't be both {labels[name]!r} and {value!r}")
    return labels


def _states(verb: str, given: Sequence[str], problems: list[str]) -> frozenset[str]:
    useful = [state.value for state in State if act_for(verb, state) not in _LEFT_ALONE]
    problems += [
        f"--state: {verb} changes nothing about {state[:60]!r} ones; it does about {_or(useful)}"
        for state in given
        if state not in useful
    ]
    return frozenset(given or USUAL[verb])


def _or(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
