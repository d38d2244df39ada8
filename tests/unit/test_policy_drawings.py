"""`ops/policies.md` shows what the simulator does, today."""

from __future__ import annotations

import json
import re

import pytest

from scheduler.simulator import simulate
from tests.support.policy_drawings import FILE, STORIES, Story, document, drawing


def test_the_policies_are_drawn_as_they_are() -> None:
    """Generated: `python -m tests.support.policy_drawings` writes the file again after a change of policy."""
    assert FILE.read_text(encoding="utf-8") == document()


def test_every_scenario_in_the_file_can_be_played_as_it_stands() -> None:
    """What a reader copies out of the file is the scenario that was drawn."""
    found = re.findall(r"```json\n(.*?)\n```", FILE.read_text(encoding="utf-8"), re.DOTALL)
    assert [json.loads(text) for text in found] == [story.scenario for story in STORIES]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.title)
def test_a_drawing_accounts_for_every_nominal(story: Story) -> None:
    """Under each nominal that does not run there is a mark, and the runs are the others."""
    rows = {line[:11].strip(): line[11:] for line in drawing(story, simulate(story.scenario))}
    events = list(simulate(story.scenario))
    runs = sum(event["event"] == "dispatched" for event in events)
    drawn = sum(int(sign) if sign.isdigit() else 1 for sign in rows.get("runs", "") if sign != " ")
    assert drawn == runs
    gone = sum(rows.get(row, "").count("x") for row in ("missed", "suppressed", "cancelled"))
    assert gone == sum(event.get("count", 0) for event in events)
