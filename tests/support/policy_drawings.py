"""`ops/policies.md`: every policy in words, as a scenario, and as a drawing of what the simulator makes of it.

`python -m tests.support.policy_drawings` writes the file again; a test compares.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scheduler.core.time import parse_instant
from scheduler.core.trigger import parse_trigger
from scheduler.core.turns import AGED_PART, AGING_MS, QUANTUM
from scheduler.shard.firing import FEW_QUEUES, FIRST_STEP
from scheduler.simulator import simulate
from tests.support.policy_cases import FIVE, create, cron, do, down, full, once, told

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scheduler.simulator import Event

FILE = Path(__file__).parents[2] / "ops" / "policies.md"
CELL_MS = 60_000  # one character of a drawing
CELLS_A_LABEL = 10


@dataclass(frozen=True)
class Story:
    """One section: a title, the rule in words, and a scenario of one schedule that shows it."""

    title: str
    rule: str
    start: str
    until: str
    steps: tuple[dict[str, Any], ...]
    more: tuple[tuple[str, Any], ...] = ()

    @property
    def scenario(self) -> dict[str, Any]:
        return {"from": full(self.start), "until": full(self.until), **dict(self.more), "steps": list(self.steps)}


OUTAGE = down("12:12", "12:42")

STORIES = (
    Story(
        "Misfire `fire_once` (the default)",
        "After an outage the newest of the missed nominals runs, once, and says for how many it stands "
        "(`stands_for`, itself included). The others are one `missed` record.",
        "12:00", "13:00", (create("12:00", FIVE), OUTAGE),
    ),
    Story(
        "Misfire `skip`",
        "Nothing of the outage runs that is later than `max_lateness_ms`, whose default under `skip` is the grace.",
        "12:00", "13:00", (create("12:00", FIVE, misfire="skip"), OUTAGE),
    ),
    Story(
        "Misfire `catch_up`: K",
        "The newest K run, oldest first; the older ones are one `missed` record.",
        "12:00", "13:00", (create("12:00", FIVE, misfire={"catch_up": 3}), OUTAGE),
    ),
    Story(
        "`max_lateness_ms` bounds every policy",
        "However many a policy would run: what is later than this, counted from `available_at` to the first look after "
        "the outage, is missed. Exactly as late still runs.",
        "12:00", "13:00", (create("12:00", FIVE, misfire={"catch_up": 3}, max_lateness_ms=420_000), OUTAGE),
    ),
    Story(
        "The grace: a restart is no misfire",
        "If no overdue nominal is later than its grace (the least of 60 s, `max_lateness_ms`, and the larger of 15 s "
        "and the distance to the next nominal), all of them run as if nothing had happened, whatever the policy.",
        "12:00", "12:30", (create("12:00", FIVE, misfire="skip"), down("12:14", "12:16")),
    ),
    Story(
        "The budget of catch-up",
        "Work of an outage runs under a budget of its tenant (here one a minute) and never delays what is on time. "
        "Waiting for the budget does not age it. Of one version of a schedule 10,000 runs are kept at most: "
        "if further outages add to them, the oldest are missed (reason `throttled`).",
        "12:00", "13:00", (create("12:00", FIVE, misfire={"catch_up": 4}), OUTAGE),
        (("tenants", {"acme": {"catch_up_per_s": 1 / 60}}),),
    ),
    Story(
        "Pause and resume",
        "What falls into a pause is suppressed, not missed: it does not run at the resume, under any policy. A "
        "nominal at the very instant of the pause still runs; after the answer to the pause nothing does.",
        "12:00", "13:00", (create("12:00", FIVE, misfire={"catch_up": 3}), do("12:12", "pause"), do("12:42", "resume")),
    ),
    Story(
        "Resume with `catch_up`",
        "Only when the resume asks for it does the misfire policy cover the pause.",
        "12:00", "13:00",
        (create("12:00", FIVE, misfire={"catch_up": 3}), do("12:12", "pause"), do("12:42", "resume", catch_up=True)),
    ),
    Story(
        "A pause sent during an outage",
        "Commands that waited on the topic are applied before anything overdue is decided: the pause wins over the "
        "catch-up.",
        "12:00", "13:00", (create("12:00", FIVE, misfire={"catch_up": 3}), OUTAGE, do("12:30", "pause")),
    ),
    Story(
        "Update",
        "The new rule counts strictly after the instant of the update; what the old one named before stays with the "
        "old version.",
        "12:00", "13:00", (create("12:00", FIVE), do("12:25", "update", spec=cron("*/15 * * * *"))),
    ),
    Story(
        "Jitter: `window_ms`",
        "Each nominal starts somewhere in its window, which never reaches past the next nominal. Where, is a hash of "
        "the occurrence's id: the same on every node and after every restart.",
        "12:00", "13:00", (create("12:00", "*/15 * * * *", window_ms=600_000),),
    ),
    Story(
        "Update while a nominal is in its window",
        "It was reached before the update, so it still starts, by the old version.",
        "12:00", "13:00",
        (create("12:00", "*/15 * * * *", window_ms=600_000), do("12:30:01", "update", spec=cron("*/20 * * * *"))),
    ),
    Story(
        "... and with `supersede`",
        "The same update, asked to cancel what the old version still owes.",
        "12:00", "13:00",
        (
            create("12:00", "*/15 * * * *", window_ms=600_000),
            do("12:30:01", "update", spec=cron("*/20 * * * *"), supersede=True),
        ),
    ),
    Story(
        "Cancel and delete",
        "Nothing starts after the answer. What was reached and waits in its window is cancelled, with a record.",
        "12:00", "13:00", (create("12:00", "*/15 * * * *", window_ms=600_000), do("12:30:01", "delete")),
    ),
    Story(
        "A one-shot that was due while everything was down",
        "`fire_once` and `catch_up` run it within `max_lateness_ms`; `skip` lets it go. Either way it is then "
        "completed.",
        "12:00", "13:00", (create("12:00", once("12:20")), OUTAGE),
    ),
    Story(
        "A wall clock that steps",
        "The due clock follows the broker's append time, not the node's wall clock: a step raises an alarm and moves "
        "nothing.",
        "12:00", "12:30",
        (create("12:00", FIVE), {"at": full("12:07"), "clock_step_ms": 7_200_000},
         {"at": full("12:13"), "clock_step_ms": -7_200_000}),
    ),
)  # fmt: skip


def document() -> str:
    """The whole file."""
    parts = [INTRODUCTION]
    for story in STORIES:
        events = list(simulate(story.scenario))
        lines = [told(event, full(story.start)[:10]) for event in events]
        parts += [
            f"## {story.title}\n",
            story.rule + "\n",
            "```text",
            *drawing(story, events),
            "```\n",
            "<details><summary>The scenario, and all that happens</summary>\n",
            "```json",
            _json(story.scenario),
            "```\n",
            "```text",
            *lines,
            "```\n",
            "</details>\n",
        ]
    return "\n".join([*parts, TURNS])


INTRODUCTION = """\
# Policies

What becomes of a nominal (an instant that a schedule names) when time, people and outages collide.
Each section is a scenario played by `scheduler simulate`, by the code that decides it in operation.
This file is generated by `python -m tests.support.policy_drawings`; a test fails when it differs.

How to read a drawing: one character is a minute.

| row | marks |
|---|---|
| `named` | a nominal of the rule that is in force |
| `nobody` | the outage: no node is there |
| `command` | `p`ause, `r`esume, `u`pdate, `d`elete; `~` a step of the wall clock |
| `runs` | a dispatch at the minute it happens: `o` on time, `L` late; a digit, where several at one minute |
| `missed`, `suppressed`, `cancelled` | `x` at each nominal that does not run |

`scheduler why SCHEDULE --at TIME` tells which of these became of one nominal in operation, and shows its record.
"""


TURNS = f"""\
## More is due than a transaction takes: priorities, weights, aging

As long as all that is due fits into a transaction (`max_transaction_records`), nobody waits for anybody, but for one
thing: if more than {2 * FIRST_STEP:,} are due in a shard, a first transaction of {FIRST_STEP:,} lets small tenants out
before the large ones' rest, where it reaches a priority that tenants share, holds a round of them, and no more than
{FEW_QUEUES} queues wait. In a burst, each shard decides for itself whose turn it is:

- **Priorities go in order**: nothing `normal` while anything `high` is due.
- **Tenants take turns inside a priority**: {QUANTUM} occurrences each in a round, in the order in which they fell due.
  Where weights differ (`scheduler tenant apply`; 1 unless it says otherwise), the least of them stands for those
  {QUANTUM} and others for more in proportion. Who has little to do is through in the first rounds, however much others
  have. What counts is occurrences, not their size.
- **Nothing waits for ever**: of each full transaction one part in {AGED_PART} goes to queues of lower priorities whose
  oldest has waited for {AGING_MS // 1000} s.

What waits is neither missed nor skipped: it comes late, with its own `scheduled_for`, in order for each schedule.
`max_lateness_ms` bounds that too (reason `throttled`). A pause, update or cancel acknowledged meanwhile holds for
whatever was not dispatched yet. `scheduler why` says of such an occurrence that it waits for its turn; the metrics
`scheduler_queues_lagging` and `scheduler_queue_lag_seconds` say how many queues do, and how far the last one is behind.
"""


def drawing(story: Story, events: Iterable[Event]) -> Iterator[str]:
    """The rows of one story."""
    start, until = parse_instant(full(story.start)), parse_instant(full(story.until))
    width = (until - start) // CELL_MS + 1
    rows: dict[str, list[str]] = {}

    def mark(row: str, at: int, sign: str) -> None:
        cells = rows.setdefault(row, [" "] * width)
        cell = (at - start) // CELL_MS
        if 0 <= cell < width:
            taken = cells[cell]
            several = "2" if taken.isalpha() else str(int(taken) + 1) if taken.isdigit() else sign
            cells[cell] = several if row == "runs" else sign

    named = [at for at, _ in _nominals(story, start, until)]
    for at in named:
        mark("named", at, "|")
    for step in story.steps:
        at = parse_instant(step["at"])
        if "outage_until" in step:
            for cell in range(at, parse_instant(step["outage_until"]), CELL_MS):
                mark("nobody", cell, "#")
        elif "clock_step_ms" in step:
            mark("command", at, "~")
        elif step["command"]["command"] != "create":
            mark("command", at, step["command"]["command"][0])
    for event in events:
        if event["event"] == "dispatched":
            on_time = event["at"] == event["available_at"]
            mark("runs", parse_instant(event["at"]), "o" if on_time else "L")
        elif "count" in event:
            first = parse_instant(event.get("first", event["scheduled_for"]))
            last = parse_instant(event["scheduled_for"])
            for at in (n for n in named if first <= n <= last):
                mark(event["event"], at, "x")
    labels = "".join(_clock(start + cell * CELL_MS).ljust(CELLS_A_LABEL) for cell in range(0, width, CELLS_A_LABEL))
    yield f"{'':<11}{labels}".rstrip()
    for row in ("named", "nobody", "command", "runs", "missed", "suppressed", "cancelled"):
        if row in rows:
            yield f"{row:<11}{''.join(rows[row])}".rstrip()


def _nominals(story: Story, start: int, until: int) -> Iterator[tuple[int, int]]:
    """What each rule names while it is in force, with the instant from which that is."""
    rules = []
    for step in story.steps:
        command = step.get("command", {})
        trigger = command.get("spec", {}).get("trigger")
        at = parse_instant(step["at"])
        if trigger is not None:
            parsed = parse_trigger(trigger, schedule_id="acme/a", effective_at=at).trigger
            assert parsed is not None
            rules.append((at, parsed))
        elif command.get("command") == "delete":
            rules.append((at, None))
    for (at, trigger), (end, _) in zip(rules, [*rules[1:], (until, None)], strict=True):
        if trigger is not None:
            yield from ((nominal, at) for nominal in trigger.between(max(at, start - 1), end, 1000))


def _clock(at: int) -> str:
    minutes = at // 60_000 % 1440
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _json(scenario: dict[str, Any]) -> str:
    """One step a line."""
    head = {name: value for name, value in scenario.items() if name != "steps"}
    steps = ",\n".join("  " + json.dumps(step) for step in scenario["steps"])
    return json.dumps(head)[:-1] + f', "steps": [\n{steps}]}}'


if __name__ == "__main__":
    FILE.write_text(document(), encoding="utf-8")
