"""Creates by a form: topics and store are those of a shard that decides and prints each of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.time import format_instant, parse_instant
from scheduler.shard.alike import Alike
from tests.support.driver import START, Driver

SOON = format_instant(START + 3_000)
SPECS: list[dict[str, Any]] = [
    {"trigger": {"cron": "0 9 * * 1-5", "zone": "Europe/Berlin"}},
    {"trigger": {"cron": "0/2 * * * * ?", "zone": "UTC", "dialect": "quartz"}, "labels": {"a": "100% <b>"}},
    {"trigger": {"at": SOON}, "handler": "h"},
    {"trigger": {"at": SOON}, "window_ms": 2_000},
    {"trigger": {"cron": "0 0 1 * *", "zone": "UTC"}, "start": SOON, "end": "2026-02-01T00:00:01Z"},
    {"trigger": {"cron": "H H * * *", "zone": "UTC"}},
    {"trigger": {"every_ms": 1_000}},
    {"trigger": {"cron": "0 10 * * *", "zone": "UTC"}, "calendar": "bank"},
    {"trigger": {"cron": "0 9 * * *", "zone": "UTC"}, "<tenant>": "colour"},
    {"trigger": {"cron": "0 9 * * *", "zone": "UTC"}, "description": "<tenant>/<name> <command>"},
    {"trigger": {"cron": "0 9 * * *", "zone": "UTC"}, "description": "1970-01-01T00:00:00.001Z"},
    {"trigger": {"cron": "0 9 * * *", "zone": "UTC"}, "lane": "other"},
    {"trigger": {"cron": "0 9 * * *", "zone": "UTC"}, "window_ms": -1},
    {"trigger": {"cron": "0 9 31 2 *", "zone": "UTC"}},
]
PAYLOADS = [..., None, "<payload>", {"text": '%s %(id)b "<tenant>/<name>"'}, "ü", "x" * 70_000]
NAMES = [f"{tenant}/{n}" for tenant in ("acme", "zeta") for n in range(30)]

creates = st.fixed_dictionaries(
    {
        "command": st.just("create"),
        "schedule_id": st.sampled_from(NAMES),
        "spec": st.tuples(st.sampled_from(SPECS), st.sampled_from(PAYLOADS)).map(
            lambda both: both[0] if both[1] is ... else {**both[0], "payload": both[1]}
        ),
    },
    optional={
        "actor": st.sampled_from(["anna", "<command>"]),
        "reason": st.sampled_from(["load", "1970-01-01T00:00:00.001Z"]),
        "preview": st.just(2),
        "dry_run": st.just(True),
        "effective_from": st.just(SOON),
        "surprise": st.just("<payload>"),
    },
)
others = st.fixed_dictionaries(
    {"command": st.sampled_from(["delete", "pause", "trigger", "delete"]), "schedule_id": st.sampled_from(NAMES)}
)
waits = st.sampled_from([0, 0, 0, 1, 700, 3_000])
lives = st.lists(st.tuples(waits, st.lists(st.one_of(creates, creates, creates, others), max_size=12)), max_size=12)


def live(life: list[tuple[int, list[dict[str, Any]]]]) -> Driver:
    """A shard that is sent these commands, each list of them together, after so many ms."""
    driver = Driver()
    for ms, commands in life:
        driver.advance(ms)
        for command in commands:
            named = {**command, "command_id": f"c{len(driver.commands)}"}
            value = json.dumps(named, separators=(",", ":"), ensure_ascii=False).encode()
            driver.send(value, key=str(command["schedule_id"]).encode())
    driver.advance(5_000)
    return driver


@settings(max_examples=150, deadline=None)
@given(life=lives)
def test_a_form_gives_what_deciding_gives(life: list[tuple[int, list[dict[str, Any]]]]) -> None:
    """Whatever else a definition says, whoever sends it, and whatever happens in between."""
    short = live(life)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Alike, "apply", lambda *_: False)
        long = live(life)
    assert short.topics.log == long.topics.log
    assert short.contents() == long.contents()


@pytest.mark.parametrize("number", range(len(SPECS)))
def test_which_definitions_get_forms(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that need no more than their own text: from the third create on they are filled in."""
    filled = []
    apply = Alike.apply
    monkeypatch.setattr(Alike, "apply", lambda *given: filled.append(apply(*given)) or filled[-1])
    live([(0, [{"command": "create", "schedule_id": name, "spec": SPECS[number]} for name in NAMES[:5]])])
    assert filled == ([False, False, True, True, True] if number in (0, 1, 2, 4) else [False] * 5)


def test_a_form_ends_with_the_first_nominal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a form says of an instant is right until the instant has come."""
    filled = []
    apply = Alike.apply
    monkeypatch.setattr(Alike, "apply", lambda *given: filled.append(apply(*given)) or filled[-1])
    create = {"command": "create", "spec": {"trigger": {"at": SOON}}}
    driver = live(
        [
            (0, [{**create, "schedule_id": name} for name in NAMES[:3]]),
            (3_000, [{**create, "schedule_id": name} for name in NAMES[3:5]]),
        ]
    )
    assert filled == [False, False, True, False, False]
    assert parse_instant(SOON) == START + 3_000
    assert len(driver.dispatched()) == 5


def test_many_kinds_are_not_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Definitions that nobody sends again cost no memory for ever."""
    monkeypatch.setattr("scheduler.shard.alike._KEPT", 10)
    kept = []
    learn = Alike.learn
    monkeypatch.setattr(Alike, "learn", lambda self, *given: (learn(self, *given), kept.append(len(self._forms)))[0])
    specs = [{"trigger": {"cron": "0 9 * * *", "zone": "UTC"}, "handler": f"h{n}"} for n in range(40)]
    live([(0, [{"command": "create", "schedule_id": f"acme/{n}", "spec": spec} for n, spec in enumerate(specs)])])
    assert max(kept) == 10
