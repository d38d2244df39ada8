"""The states of a schedule and what each command may do in each: one table, from which `decide` works and the
drawing in `ops/lifecycle.md` is generated.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from scheduler.core.model import State

if TYPE_CHECKING:
    from collections.abc import Mapping


class Act(StrEnum):
    """What a command comes to in a state. Acts that refuse are answered with their own name as the code."""

    CREATE = "created"
    COMPARE = "already_exists"  # `unchanged` when an active or paused one has the same definition
    UPDATE = "updated"
    REARM = "re-armed"  # an update that must bring a later nominal
    PAUSE = "paused"
    RESUME = "resumed"
    CANCEL = "cancelled"
    DELETE = "deleted"
    RUN = "dispatched"
    SHOW = "previewed"
    BACKFILL = "backfilling"  # a paused schedule's waits for the resume
    CANCEL_BACKFILL = "backfill_cancelled"  # `unchanged` when none is running
    UNCHANGED = "unchanged"
    NOT_FOUND = "not_found"
    NOT_ALLOWED = "not_allowed"


_A, _P, _D, _C, _B = State.ACTIVE, State.PAUSED, State.COMPLETED, State.CANCELLED, State.BROKEN

TABLE: Mapping[str, Mapping[State | None, Act]] = {
    "create": {
        None: Act.CREATE, _A: Act.COMPARE, _P: Act.COMPARE,
        _D: Act.COMPARE, _C: Act.COMPARE, _B: Act.COMPARE,
    },
    "update": {
        None: Act.NOT_FOUND, _A: Act.UPDATE, _P: Act.UPDATE, _D: Act.REARM, _C: Act.NOT_ALLOWED, _B: Act.REARM,
    },
    "pause": {
        None: Act.NOT_FOUND, _A: Act.PAUSE, _P: Act.UNCHANGED,
        _D: Act.NOT_ALLOWED, _C: Act.NOT_ALLOWED, _B: Act.PAUSE,
    },
    "resume": {
        None: Act.NOT_FOUND, _A: Act.UNCHANGED, _P: Act.RESUME,
        _D: Act.NOT_ALLOWED, _C: Act.NOT_ALLOWED, _B: Act.NOT_ALLOWED,
    },
    "cancel": {
        None: Act.NOT_FOUND, _A: Act.CANCEL, _P: Act.CANCEL, _D: Act.UNCHANGED, _C: Act.UNCHANGED, _B: Act.CANCEL,
    },
    "delete": {
        None: Act.NOT_FOUND, _A: Act.DELETE, _P: Act.DELETE, _D: Act.DELETE, _C: Act.DELETE, _B: Act.DELETE,
    },
    "trigger": {
        None: Act.NOT_FOUND, _A: Act.RUN, _P: Act.RUN, _D: Act.RUN, _C: Act.NOT_ALLOWED, _B: Act.NOT_ALLOWED,
    },
    "preview": {
        None: Act.SHOW, _A: Act.SHOW, _P: Act.SHOW, _D: Act.SHOW, _C: Act.SHOW, _B: Act.SHOW,
    },
    "backfill": {
        None: Act.NOT_FOUND, _A: Act.BACKFILL, _P: Act.BACKFILL, _D: Act.BACKFILL,
        _C: Act.NOT_ALLOWED, _B: Act.NOT_ALLOWED,
    },
    "cancel-backfill": {
        None: Act.NOT_FOUND, _A: Act.CANCEL_BACKFILL, _P: Act.CANCEL_BACKFILL, _D: Act.CANCEL_BACKFILL,
        _C: Act.UNCHANGED, _B: Act.CANCEL_BACKFILL,
    },
}  # fmt: skip

TRANSITIONS: Mapping[Act, State] = {
    Act.CREATE: _A,
    Act.REARM: _A,
    Act.PAUSE: _P,
    Act.RESUME: _A,
    Act.CANCEL: _C,
}


OWN_TRANSITIONS = (
    (_A, _D, "its last nominal is decided and nothing of it is owed"),
    (_A, _B, "this node cannot fire it: its zone or lane is gone"),
    (_P, _D, "resume, with no nominal left"),
    (_P, _B, "resume of one that was broken when it was paused"),
    (_D, None, "a day later"),
)
"""What happens beside a command's usual effect: from, to (None: forgotten), why."""


def act_for(verb: str, state: State | None) -> Act:
    return TABLE[verb][state]


def drawing() -> str:
    """`ops/lifecycle.md`: the states, what leads from one to the other, and the whole table."""
    edges: dict[tuple[str, str], list[str]] = {}
    for verb, row in TABLE.items():
        for state, act in row.items():
            after = None if act is Act.DELETE else TRANSITIONS.get(act, state)
            if act in TRANSITIONS or act is Act.DELETE:
                edges.setdefault((_node(state), _node(after)), []).append(verb)
    for state, after, why in OWN_TRANSITIONS:
        edges.setdefault((_node(state), _node(after)), []).append(why)
    lines = [f"    {start} --> {end}: {', '.join(reasons)}" for (start, end), reasons in edges.items()]
    states = (None, *State)
    head = " | ".join("absent" if state is None else state.value for state in states)
    rows = [
        f"| {verb} | " + " | ".join(f"{row[state].value}" for state in states) + " |" for verb, row in TABLE.items()
    ]
    return "\n".join(
        [
            "# The life of a schedule",
            "",
            "Generated from `scheduler/core/lifecycle.py`, which decides by the same table; a test compares the two.",
            "",
            "```mermaid",
            "stateDiagram-v2",
            *lines,
            "```",
            "",
            f"| command | {head} |",
            "|---" * (len(states) + 1) + "|",
            *rows,
            "",
            "`already_exists` is `unchanged` where an active or paused schedule has the same definition. `re-armed`",
            "needs a later nominal and is `never_fires` without one; its reply says `updated`. Codes that refuse:",
            "`already_exists`, `not_found`, `not_allowed`.",
            "",
        ]
    )


def _node(state: State | None) -> str:
    return "[*]" if state is None else state.value
