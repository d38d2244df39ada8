"""Names and derived identities. An identity is computed, never drawn, so that every retry and replay finds it again."""

from __future__ import annotations

import hashlib
import re

from scheduler.core.time import stamp

_TENANT = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~/-]{0,150}")
SCHEDULE_ID = f"{_TENANT.pattern}/{_NAME.pattern}"  # a pattern of ASCII characters, as is the next
COMMAND_ID = r"[A-Za-z0-9._-]{1,64}"
_SCHEDULE_ID = re.compile(SCHEDULE_ID)
_COMMAND_ID = re.compile(COMMAND_ID)
_LANE = re.compile(r"[a-z0-9-]{1,40}")


def schedule_id_fault(text: object) -> str | None:
    """What is wrong with a schedule id, as a sentence; None when it is good."""
    if isinstance(text, str) and _SCHEDULE_ID.fullmatch(text):
        return None
    if not isinstance(text, str):
        return f"expected text such as 'acme/nightly', got {type(text).__name__}"
    tenant, slash, name = text.partition("/")
    if not slash:
        return f"{text[:80]!r} has no tenant: expected <tenant>/<name>, such as 'acme/nightly'"
    if not _TENANT.fullmatch(tenant):
        return f"tenant {tenant[:80]!r}: expected 1 to 40 of a-z, 0-9 and '-', not beginning with '-'"
    if not _NAME.fullmatch(name):
        return f"name {name[:80]!r}: expected 1 to 151 of A-Z, a-z, 0-9 and '._~/-', beginning with a letter or digit"
    return None


def is_command_id(text: object) -> bool:
    return isinstance(text, str) and _COMMAND_ID.fullmatch(text) is not None


def is_lane(text: object) -> bool:
    return isinstance(text, str) and _LANE.fullmatch(text) is not None


def tenant_of(schedule_id: str) -> str:
    return schedule_id[: schedule_id.index("/")]


def occurrence_id(schedule_id: str, version: int, nominal: int) -> str:
    """`acme/nightly:3:20260308T073000.000Z`: the same after every retry, crash and replay."""
    return f"{schedule_id}:{version}:{stamp(nominal)}"


def manual_occurrence_id(schedule_id: str, version: int, command_id: str) -> str:
    """A manual run is named after the command that asked for it, so that a repeated command is the same run."""
    return f"{schedule_id}:{version}:m-{command_id}"


def command_digest(command_id: str) -> str:
    """Eight characters that stand for a command id a schedule has forgotten the answer to."""
    return hashlib.blake2b(command_id.encode(), digest_size=4).hexdigest()
