"""The command x state table of the contract, cell by cell, through the whole shard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scheduler.core.lifecycle import TABLE, TRANSITIONS, Act, act_for, drawing
from scheduler.core.model import State
from tests.support.driver import Driver

HOURLY = {"trigger": {"cron": "0 * * * *", "zone": "UTC"}}
OTHER = {"trigger": {"cron": "30 * * * *", "zone": "UTC"}}
ONCE = {"trigger": {"at": "2026-01-01T09:10:00Z"}}
NAME = "acme/a"


def absent() -> Driver:
    return Driver()


def active() -> Driver:
    driver = Driver()
    driver.create(**HOURLY)
    return driver


def paused() -> Driver:
    driver = active()
    driver.do("pause")
    return driver


def completed() -> Driver:
    driver = Driver()
    driver.create(**ONCE)
    driver.run_until("2026-01-01T09:20:00Z")
    return driver


def cancelled() -> Driver:
    driver = active()
    driver.do("cancel")
    return driver


def broken() -> Driver:
    driver = active()
    driver.rewrite(NAME, b'"zone":"UTC"', b'"zone":"US/Pacific-New"')
    return driver


STATES = {
    "absent": absent, "active": active, "paused": paused, "completed": completed, "cancelled": cancelled,
    "broken": broken,
}  # fmt: skip

CREATE_SAME: dict[str, Any] = {"command": "create", "spec": HOURLY}
CREATE_OTHER = {"command": "create", "spec": OTHER}
UPDATE = {"command": "update", "spec": OTHER}
BACKFILL = {"command": "backfill", "from": "2026-01-01T05:00:00Z", "until": "2026-01-01T09:15:00Z"}
UPDATE_TO_THE_PAST = {"command": "update", "spec": {"description": "said again"}}

# command, state it meets -> (code, state afterwards); the rows of DESIGN section 3
CELLS = [
    (CREATE_SAME, "absent", "created", "active"),
    (CREATE_SAME, "active", "unchanged", "active"),
    (CREATE_SAME, "paused", "unchanged", "paused"),
    ({"command": "create", "spec": ONCE | {"lane": "default"}}, "completed", "already_exists", "completed"),
    (CREATE_SAME, "cancelled", "already_exists", "cancelled"),
    (CREATE_SAME, "broken", "already_exists", "broken"),
    (CREATE_OTHER, "absent", "created", "active"),
    (CREATE_OTHER, "active", "already_exists", "active"),
    (CREATE_OTHER, "paused", "already_exists", "paused"),
    (CREATE_OTHER, "completed", "already_exists", "completed"),
    (CREATE_OTHER, "cancelled", "already_exists", "cancelled"),
    (CREATE_OTHER, "broken", "already_exists", "broken"),
    (UPDATE, "absent", "not_found", None),
    (UPDATE, "active", "updated", "active"),
    (UPDATE, "paused", "updated", "paused"),
    (UPDATE, "completed", "updated", "active"),
    (UPDATE_TO_THE_PAST, "completed", "never_fires", "completed"),
    (UPDATE, "cancelled", "not_allowed", "cancelled"),
    (UPDATE, "broken", "updated", "active"),
    (UPDATE_TO_THE_PAST, "broken", "never_fires", "broken"),
    ({"command": "pause"}, "absent", "not_found", None),
    ({"command": "pause"}, "active", "paused", "paused"),
    ({"command": "pause"}, "paused", "unchanged", "paused"),
    ({"command": "pause"}, "completed", "not_allowed", "completed"),
    ({"command": "pause"}, "cancelled", "not_allowed", "cancelled"),
    ({"command": "pause"}, "broken", "paused", "paused"),
    ({"command": "resume"}, "absent", "not_found", None),
    ({"command": "resume"}, "active", "unchanged", "active"),
    ({"command": "resume"}, "paused", "resumed", "active"),
    ({"command": "resume"}, "completed", "not_allowed", "completed"),
    ({"command": "resume"}, "cancelled", "not_allowed", "cancelled"),
    ({"command": "resume"}, "broken", "not_allowed", "broken"),
    ({"command": "cancel"}, "absent", "not_found", None),
    ({"command": "cancel"}, "active", "cancelled", "cancelled"),
    ({"command": "cancel"}, "paused", "cancelled", "cancelled"),
    ({"command": "cancel"}, "completed", "unchanged", "completed"),
    ({"command": "cancel"}, "cancelled", "unchanged", "cancelled"),
    ({"command": "cancel"}, "broken", "cancelled", "cancelled"),
    ({"command": "delete"}, "absent", "not_found", None),
    ({"command": "delete"}, "active", "deleted", None),
    ({"command": "delete"}, "paused", "deleted", None),
    ({"command": "delete"}, "completed", "deleted", None),
    ({"command": "delete"}, "cancelled", "deleted", None),
    ({"command": "delete"}, "broken", "deleted", None),
    ({"command": "trigger"}, "absent", "not_found", None),
    ({"command": "trigger"}, "active", "dispatched", "active"),
    ({"command": "trigger"}, "paused", "dispatched", "paused"),
    ({"command": "trigger"}, "completed", "dispatched", "completed"),
    ({"command": "trigger"}, "cancelled", "not_allowed", "cancelled"),
    ({"command": "trigger"}, "broken", "not_allowed", "broken"),
    (BACKFILL, "absent", "not_found", None),
    (BACKFILL, "active", "backfilling", "active"),
    (BACKFILL, "paused", "backfilling", "paused"),
    (BACKFILL, "completed", "backfilling", "completed"),
    (BACKFILL, "cancelled", "not_allowed", "cancelled"),
    (BACKFILL, "broken", "not_allowed", "broken"),
    ({"command": "cancel-backfill"}, "absent", "not_found", None),
    *(({"command": "cancel-backfill"}, state, "unchanged", state) for state in list(STATES)[1:]),
]
ACCEPTED = {
    "created", "updated", "paused", "resumed", "cancelled", "deleted", "dispatched", "unchanged", "backfilling",
}  # fmt: skip


@pytest.mark.parametrize(
    ("command", "state", "code", "afterwards"),
    CELLS,
    ids=[f"{command['command']}-{state}-{code}" for command, state, code, _ in CELLS],
)
def test_a_command_meets_a_state(command: dict[str, Any], state: str, code: str, afterwards: str | None) -> None:
    """The answer and the state afterwards are the table's; the topic says the same as the reply."""
    driver = STATES[state]()
    before = driver.schedule()
    assert (before["state"] if before else "absent") == state

    reply = driver.do(command["command"], NAME, **{k: v for k, v in command.items() if k != "command"})

    assert reply["code"] == code, reply["message"]
    assert reply["status"] == ("accepted" if code in ACCEPTED else "rejected")
    after = driver.schedule()
    assert (after["state"] if after else None) == afterwards
    assert reply.get("state") == afterwards


@pytest.mark.parametrize(
    ("command", "state", "code", "afterwards"),
    [cell for cell in CELLS if cell[2] not in ACCEPTED],
    ids=[f"{command['command']}-{state}" for command, state, code, _ in CELLS if code not in ACCEPTED],
)
def test_a_refused_command_changes_nothing(
    command: dict[str, Any], state: str, code: str, afterwards: str | None
) -> None:
    """A refusal leaves definition, version, revision and place as they were, and dispatches nothing."""
    del code, afterwards
    driver = STATES[state]()
    before, fired = driver.schedule(), driver.dispatched()

    driver.do(command["command"], NAME, **{k: v for k, v in command.items() if k != "command"})

    after = driver.schedule()
    ignored = ("recent",)  # it remembers the answer
    assert (before is None) == (after is None)
    if before is not None and after is not None:
        assert {k: v for k, v in after.items() if k not in ignored} == {
            k: v for k, v in before.items() if k not in ignored
        }
    assert driver.dispatched() == fired


def test_the_table_has_no_holes() -> None:
    """Every command has an act in every state, absent included."""
    for verb, row in TABLE.items():
        assert set(row) == {None, *State}, verb
        assert all(act_for(verb, state) is row[state] for state in row)


def test_every_transition_is_used() -> None:
    """No act that changes the state is listed without a cell that leads to it."""
    used = {act for row in TABLE.values() for act in row.values()}
    assert set(TRANSITIONS) <= used
    assert used == set(Act)


def test_the_drawing_is_what_the_table_says() -> None:
    """Renew it with `python -c 'from scheduler.core.lifecycle import drawing; print(drawing(), end="")'`."""
    page = Path(__file__).parents[2] / "ops" / "lifecycle.md"
    assert page.read_text(encoding="utf-8") == drawing()


@pytest.mark.parametrize("state", list(STATES))
def test_a_schedule_in_any_state_survives_a_cold_restore(state: str) -> None:
    """What a state means is on the topics: a store made from them alone is the same, key by key."""
    driver = STATES[state]()
    live = driver.contents()
    assert driver.cold_contents() == live
    assert driver.cold_contents(compacted=True) == live


def test_a_broken_schedule_that_was_paused_is_broken_again_when_resumed() -> None:
    """A pause does not mend a trigger: resuming ends the pause and says what is still wrong."""
    driver = broken()
    driver.do("pause")
    reply = driver.do("resume")
    assert (reply["code"], reply["state"]) == ("resumed", "broken")
    assert "update it" in reply["message"]
