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
        None: Act.NOT_FOUND, _A: Act.UPDATE, _P: Act.UPDATE, _D: Act.REARM, _C: Act.NOT_ALLOWED, _B: Act.UPDATE,
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
}  # fmt: skip

TRANSITIONS: Mapping[Act, State] = {
    Act.CREATE: _A,
    Act.REARM: _A,
    Act.PAUSE: _P,
    Act.RESUME: _A,
    Act.CANCEL: _C,
}


def act_for(verb: str, state: State | None) -> Act:
    return TABLE[verb][state]
