"""Creates by a form: topics and store are those of a shard that decides and prints each of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.time import format_instant
from scheduler.shard.alike import Forms
from tests.support.driver import START, Driver
from topics import codec

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.shard.alike import Alike
    from scheduler.shard.commands import Input

SOON = format_instant(START + 3_000)
DAILY = {"cron": "0 9 * * *", "zone": "UTC"}
# A definition, and whether the third create of it is filled in.
SPECS: list[tuple[dict[str, Any], bool]] = [
    ({"trigger": {"cron": "0 9 * * 1-5", "zone": "Europe/Berlin"}}, True),
    (
        {
            "trigger": {"cron": "0/2 * * * * ?", "zone": "UTC", "dialect": "quartz"},
            "labels": {"a": "100% <b>"},
            "priority": "high",
        },
        True,
    ),
    ({"trigger": {"at": SOON}, "handler": "h"}, True),
    ({"trigger": {"cron": "0 0 1 * *", "zone": "UTC"}, "start": SOON, "end": "2026-02-01T00:00:01Z"}, True),
    ({"trigger": DAILY, "colour": "red"}, True),
    ({"trigger": DAILY, "description": "x" * 1_100}, False),
    ({"trigger": {"at": SOON}, "window_ms": 2_000}, False),
    ({"trigger": {"cron": "H H * * *", "zone": "UTC"}}, False),
    ({"trigger": {"every_ms": 1_000}}, False),
    ({"trigger": DAILY, "calendar": "bank"}, False),
    ({"trigger": DAILY, "<tenant>": "in a warning"}, False),
    ({"trigger": DAILY, "description": "<tenant>/<name> <command>"}, False),
    ({"trigger": DAILY, "description": "1970-01-01T00:00:00.001Z"}, False),
    ({"trigger": DAILY, "lane": "other"}, False),
    ({"trigger": DAILY, "window_ms": -1}, False),
    ({"trigger": {"cron": "0 9 31 2 *", "zone": "UTC"}}, False),
]
PAYLOADS = [..., None, "<payload>", {"text": '%s %(id)b "<tenant>/<name>"'}, "ü", "x" * 70_000]
NAMES = [f"{tenant}/{n}" for tenant in ("acme", "zeta") for n in range(30)]
EXTRAS = [
    {"actor": "anna"}, {"actor": "<command>"}, {"reason": "load"}, {"reason": "x" * 201}, {"preview": 2},
    {"dry_run": True}, {"effective_from": SOON}, {"surprise": "<payload>"},
]  # fmt: skip

Command = dict[str, Any]
Filled = list[bool]


def create(name: str, spec: dict[str, Any], payload: Any = ..., **more: Any) -> Command:
    given = spec if payload is ... else {**spec, "payload": payload}
    return {"command": "create", "schedule_id": name, "spec": given, **more}


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[int, str, list[Command]]]:
    """Acts of a shard: so many ms later, what happens, and what it is sent then. A life is made of one or two kinds."""
    some = st.sampled_from([spec for spec, is_filled in SPECS if is_filled])
    specs = [draw(some), draw(st.sampled_from([spec for spec, _ in SPECS]))]
    payloads = draw(st.lists(st.sampled_from(PAYLOADS), min_size=1, max_size=2))
    extras = draw(st.lists(st.sampled_from(EXTRAS), max_size=1))
    names = st.sampled_from(NAMES)
    plain = st.builds(create, names, st.sampled_from(specs), st.sampled_from(payloads))
    other = st.builds(
        lambda verb, name: {"command": verb, "schedule_id": name},
        st.sampled_from(["delete", "pause", "trigger"]),
        names,
    )
    kinds = [plain, plain.map(dict), other]  # the second, lest a repeated one be drawn no more often
    if extras:
        kinds.append(plain.map(lambda one: {**one, **extras[0]}))
    acts = st.tuples(
        st.sampled_from([0, 0, 1, 700, 3_000]),
        st.sampled_from(["", "", "", "restart", "outage"]),
        st.lists(st.one_of(kinds), min_size=6, max_size=12),
    )
    return draw(st.lists(acts, min_size=2, max_size=5))


def live(life: list[tuple[int, str, list[Command]]]) -> Driver:
    """A shard that is sent these commands, each list of them together."""
    driver = Driver()
    for ms, act, commands in life:
        driver.advance(ms)
        if act == "restart":
            driver.restart(wipe=True)
        elif act == "outage":
            driver.outage(driver.now + 600_000)
        for command in commands:
            named = with_id(command, f"c{len(driver.commands)}")
            value = json.dumps(named, separators=(",", ":"), ensure_ascii=False).encode()
            driver.send(value, key=str(command["schedule_id"]).encode())
    driver.advance(5_000)
    return driver


def with_id(command: Command, command_id: str) -> Command:
    """Named in the usual place, as most clients do; for every third schedule at the end."""
    if int(command["schedule_id"].rsplit("/")[1]) % 3 == 0:
        return {**command, "command_id": command_id}
    return {"command": command["command"], "schedule_id": command["schedule_id"], "command_id": command_id, **command}


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> Filled:
    """For each command of the test whether a form served."""
    found: Filled = []
    monkeypatch.setattr(Forms, "apply", noting(found))
    return found


def noting(found: Filled) -> Callable[..., bool]:
    apply = Forms.apply

    def noted(*given: Any) -> bool:
        found.append(apply(*given))
        return found[-1]

    return noted


def test_a_form_gives_what_deciding_gives() -> None:
    """Whatever else a definition says, whoever sends it, and whatever happens in between."""
    found: Filled = []

    @settings(max_examples=150, deadline=None)
    @given(life=lives())
    def law(life: list[tuple[int, str, list[Command]]]) -> None:
        same_as_without_forms(life, found)

    law()
    assert sum(found) > 100, "lives without forms prove nothing"


def same_as_without_forms(life: list[tuple[int, str, list[Command]]], found: Filled) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Forms, "apply", noting(found))
        short = live(life)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Forms, "apply", lambda *_: False)
        long = live(life)
    assert short.topics.log == long.topics.log
    assert short.contents() == long.contents()


NEW = SPECS[0][0]
TWO = [create("acme/0", NEW, {"a": 1}), create("acme/1", NEW, {"a": 1})]
STORIES: dict[str, tuple[list[list[Command]], int]] = {
    "and changed in the same step": (
        [[*TWO, create("acme/2", NEW, {"a": 2}), {"command": "pause", "schedule_id": "acme/2"}]],
        1,
    ),
    "and deleted and made again in the same step": (
        [
            [
                *TWO,
                create("acme/2", NEW, {"a": 2}),
                {"command": "delete", "schedule_id": "acme/2"},
                create("acme/2", NEW, {"a": 3}),
            ]
        ],
        1,
    ),
    "and a deletion gives the next ones another version": (
        [
            TWO,
            [{"command": "delete", "schedule_id": "acme/0"}],
            [create(f"acme/{n}", NEW, {"a": n}) for n in (3, 4, 5)],
        ],
        2,
    ),
    "with payloads, null and none in turn": (
        [
            TWO,
            [
                create(f"acme/{n}", NEW, payload)
                for n, payload in enumerate([..., {}, None, ..., 7, None, None, ..., 8], 3)
            ],
        ],
        5,
    ),
    "twice": ([[*TWO, create("acme/1", NEW, {"a": 1}), create("acme/2", NEW, {"a": 1})]], 1),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_creates_by_a_form(story: tuple[list[list[Command]], int]) -> None:
    """What may come between: the same as without forms, and so many were filled in."""
    found: Filled = []
    same_as_without_forms([(0, "", commands) for commands in story[0]], found)
    assert sum(found) == story[1]


@pytest.mark.parametrize(("spec", "expected"), SPECS)
def test_which_definitions_get_forms(spec: dict[str, Any], expected: bool, filled: Filled) -> None:
    """Those that need no more than their own text: from the third create on they are filled in."""
    live([(0, "", [create(name, spec) for name in NAMES[:5]])])
    assert filled == ([False, False, True, True, True] if expected else [False] * 5)


def test_a_form_ends_with_the_first_nominal(filled: Filled) -> None:
    """What a form says of an instant is right until the instant has come."""
    spec = {"trigger": {"at": SOON}}
    driver = live(
        [
            (0, "", [create(name, spec) for name in NAMES[:3]]),
            (3_000, "", [create(name, spec) for name in NAMES[3:5]]),
        ]
    )
    assert filled == [False, False, True, False, False]
    assert len(driver.dispatched()) == 5


@pytest.fixture
def recognised(monkeypatch: pytest.MonkeyPatch) -> Filled:
    """For each command of the test whether it was known by its bytes."""
    found: Filled = []
    look = Forms.recognised

    def noted(self: Forms, record: Input) -> Alike | None:
        alike = look(self, record)
        found.append(alike is not None)
        return alike

    monkeypatch.setattr(Forms, "recognised", noted)
    return found


USUAL = b'{"command":"create","schedule_id":"acme/%s","command_id":"%s","spec":{"trigger":%s,"payload":%s}}'
CRON = b'{"cron":"0 9 * * *","zone":"UTC"}'
WAYS: dict[str, tuple[bytes, bool]] = {
    "with another payload": (USUAL % (b"b", b"b", CRON, b'{"deep":[{"payload":1}],"text":"\\"}"}'), True),
    "with a payload that is not ASCII": (USUAL % (b"b", b"b", CRON, '"☃"'.encode()), True),
    "with null": (USUAL % (b"b", b"b", CRON, b"null"), False),
    "with a blank before its payload": (USUAL % (b"b", b"b", CRON, b" 1"), False),
    "with more after its payload": (USUAL % (b"b", b"b", CRON, b'1,"priority":"high"'), False),
    "with its payload twice": (USUAL % (b"b", b"b", CRON, b'1,"payload":2'), False),
    "with half a payload": (USUAL % (b"b", b"b", CRON, b'{"a":'), False),
    "with bytes that are no text": (USUAL % (b"b", b"b", CRON, b'"\xff"'), False),
    "with a payload that is too long": (USUAL % (b"b", b"b", CRON, b'"%s"' % (b"x" * 70_000)), False),
    "with a payload nested too deep": (USUAL % (b"b", b"b", CRON, b"[" * 300 + b"]" * 300), False),
    "with a payload nested deep": (USUAL % (b"b", b"b", CRON, b"[" * 200 + b"]" * 200), False),
    "of another definition": (USUAL % (b"b", b"b", CRON.replace(b"9", b"8"), b"1"), False),
    "of no schedule": (USUAL % (b"-b", b"b", CRON, b"1"), False),
    "of an escaped name": (USUAL % (b"\\u0062", b"b", CRON, b"1"), False),
    "of a name that is too long": (USUAL % (b"b" * 152, b"b", CRON, b"1"), False),
    "under an id that is none": (USUAL % (b"b", b"b:b", CRON, b"1"), False),
    "of one that is there": (USUAL % (b"a1", b"b", CRON, b"1"), True),
    "once more": (USUAL % (b"a1", b"a1", CRON, b"1"), True),
}


def sent(values: list[bytes], key: bytes | None, **record: Any) -> Driver:
    """A shard that is sent these bytes one by one; the last under this key, and with more said in its headers."""
    driver = Driver()
    for value in values[:-1]:
        driver.send(value, key=value.split(b'"')[7])
        driver.turn()
    driver.send(values[-1], key=key, **record)
    driver.advance(1_000)
    return driver


def same_as_read(values: list[bytes], key: bytes | None, **record: Any) -> Driver:
    short = sent(values, key, **record)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Forms, "recognised", lambda *_: None)
        long = sent(values, key, **record)
    assert short.topics.log == long.topics.log
    assert short.contents() == long.contents()
    return short


# A shard that was sent these knows a form, and the text of its creates.
KNOWN = [USUAL % (name, name, CRON, b"1") for name in (b"a1", b"a2", b"a3", b"a4")]


@pytest.mark.parametrize(("value", "expected"), WAYS.values(), ids=WAYS)
def test_which_creates_are_recognised(value: bytes, expected: bool, recognised: Filled) -> None:
    """Those that are as one that was read, but for ids and payload; whatever they are, they mean the same."""
    same_as_read([*KNOWN, value], value.split(b'"')[7])
    assert recognised == [False, False, False, True, expected]


NEXT = USUAL % (b"b", b"b", CRON, b"1")


def test_the_key_of_a_create_is_looked_at() -> None:
    """A create without its key, or with another one's, is told so."""
    for key in (None, b"acme/other"):
        same_as_read([*KNOWN, NEXT], key)


def test_where_a_create_came_from_is_looked_at() -> None:
    """One that was forwarded here is told so, and noted; one that belongs elsewhere is forwarded."""
    here = same_as_read([*KNOWN, NEXT], b"acme/b", forwarded_from="3-7", forwarded_after="0-0")
    assert here.shard.record.forwarded == {3: 8}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scheduler.shard.commands.partition_for", lambda key, _: int(key == b"acme/b"))
        there = same_as_read([*KNOWN, NEXT], b"acme/b")
    assert "acme/b" not in {reply["schedule_id"] for reply in there.topics.values("scheduler.replies")}


HEAD = b'{"command":"create","schedule_id":"acme/%s","command_id":"%s",'
# How the like of a create is written: what stands for %s is its payload, 1 in those that it is learned from.
TEXTS: dict[str, tuple[bytes, bool]] = {
    "fields after the payload": (b'"spec":{"trigger":%b,"payload":%%b,"priority":"high"},"actor":"anna"}' % CRON, True),
    "fields before the definition": (
        b'"actor":"anna","reason":"load","spec":{"trigger":%b,"payload":%%b}}' % CRON,
        True,
    ),
    "the payload first": (b'"spec":{"payload":%%b,"trigger":%b}}' % CRON, True),
    "blanks": (b'"spec": {"trigger":%b,"payload":%%b}}' % CRON, False),
    "another payload first": (b'"payload":1,"spec":{"trigger":%b,"payload":%%b}}' % CRON, False),
    "the other payload first": (b'"payload":%%b,"spec":{"trigger":%b,"payload":1}}' % CRON, False),
    "another payload after it": (b'"spec":{"trigger":%b,"payload":%%b},"payload":1}' % CRON, True),
    "a payload in an unknown field": (b'"spec":{"trigger":%b,"x":{"payload":%%b},"payload":1}}' % CRON, False),
    "much after the payload": (b'"spec":{"trigger":%b,"payload":%%b},"payload":"%b"}' % (CRON, b"x" * 3_000), False),
}


@pytest.mark.parametrize("payload", [b"1", b'"<payload>"', b"null"])
@pytest.mark.parametrize(("text", "expected"), TEXTS.values(), ids=TEXTS)
def test_which_texts_are_learned(text: bytes, expected: bool, payload: bytes, recognised: Filled) -> None:
    """Those in which the first that looks like a payload is the definition's."""
    learned = [
        (HEAD % (name, name)) + text.replace(b":1", b":" + payload) % payload for name in (b"a", b"b", b"c", b"d")
    ]
    other = (HEAD % (b"e", b"e")) + text.replace(b":1", b":" + payload) % b'{"x":2}'
    same_as_read([*learned, other], b"acme/e")
    assert recognised == [False] * 3 + [expected and payload != b"null"] * 2


def test_creates_without_a_payload_are_known(recognised: Filled) -> None:
    """Two kinds at once, one of which begins as the other does."""
    texts = [b'"spec":{"trigger":%b}}' % CRON, b'"spec":{"trigger":%b,"handler":"h"}}' % CRON]
    same_as_read([HEAD % (b"%d" % n, b"%d" % n) + texts[n % 2] for n in range(9)], b"acme/8")
    assert recognised == [False] * 6 + [True] * 3


def test_a_text_that_is_known_stays() -> None:
    """Definitions that print their payloads first begin alike: those in turn do not push each other out."""
    texts = [b'"spec":{"payload":1,"trigger":%b,"handler":"h%d"}}' % (CRON, n) for n in (0, 1)]
    driver = Driver()
    for n in range(12):
        driver.send(HEAD % (b"%d" % n, b"%d" % n) + texts[n % 2], key=b"acme/%d" % n)
        driver.turn()
    forms: Forms = driver.shard._commands._forms
    assert len(forms._texts) == 1
    assert forms.recognised(driver.commands[10])
    assert not forms.recognised(driver.commands[11])


def test_texts_go_with_their_forms(monkeypatch: pytest.MonkeyPatch, recognised: Filled) -> None:
    """After many other kinds a definition is read again, and then known again."""
    monkeypatch.setattr("scheduler.shard.alike._KINDS", 10)
    others = [USUAL % (b"x%d" % n, b"x%d" % n, CRON.replace(b"0 9", b"%d 9" % (n + 1)), b"1") for n in range(20)]
    again = [USUAL % (name, name, CRON, b"1") for name in (b"c1", b"c2", b"c3", b"c4")]
    same_as_read([*KNOWN, *others, *again], b"acme/c4")
    assert recognised == [False] * 3 + [True] + [False] * 23 + [True]


def test_a_text_does_not_outlive_its_form(recognised: Filled) -> None:
    """A deletion gives new schedules another version; and what was read of the definition is forgotten meanwhile."""
    driver = Driver()
    delete = b'{"command":"delete","schedule_id":"acme/a1","command_id":"d"}'
    again = [USUAL % (name, name, CRON, b"1") for name in (b"c1", b"c2", b"c3", b"c4", b"c5")]
    for value in (*KNOWN, delete, *again):
        driver.send(value, key=value.split(b'"')[7])
        driver.turn()
        if value is delete:
            codec._kept_template.cache_clear()
    assert recognised[-5:] == [True, False, False, True, True]


def test_texts_are_not_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who prints every create in another way costs no memory for ever."""
    monkeypatch.setattr("scheduler.shard.texts._KEPT", 10)
    driver = Driver()
    kept = []
    for n in range(40):
        name = b"%d" % n
        more = b'"expected_revision":%d,"spec":{"trigger":%b,"payload":1}}' % (n + 1, CRON)
        driver.send(HEAD % (name, name) + more, key=b"acme/" + name)
        driver.turn()
        kept.append(len(driver.shard._commands._forms._texts))
    assert max(kept) <= 10


PIECES = [
    b'"', b"\\", b"{", b"}", b"[", b",", b":", b" ", b"1", b"null", b'"payload":', b',"payload":1', b'"spec":',
    b',"spec":{}', b',"actor":"eve"', b',"dry_run":true', b'"schedule_id":"acme/c",', b"\xff", b"\x00", b"a",
]  # fmt: skip
EDITS = st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from([b"", *PIECES]))


@settings(max_examples=300, deadline=None)
@given(st.lists(EDITS, min_size=1, max_size=3), st.sampled_from([b"1", b'{"a":"b"}', b'"\\"}"']))
def test_bytes_mean_the_same_recognised_or_read(edits: list[tuple[float, int, bytes]], payload: bytes) -> None:
    """However a create was mangled: what is near to one that is known is taken for it only if it is."""
    value = USUAL % (b"b", b"b", CRON, payload)
    for place, cut, piece in edits:
        at = int(place * len(value))
        value = value[:at] + piece + value[at + cut :]
    same_as_read([*KNOWN, value], b"acme/b")


def test_many_kinds_are_not_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Definitions that nobody sends again cost no memory for ever."""
    monkeypatch.setattr("scheduler.shard.alike._KINDS", 10)
    kept = []
    learn = Forms.learn

    def noted(self: Forms, *given: Any) -> None:
        learn(self, *given)
        kept.append(len(self._forms))

    monkeypatch.setattr(Forms, "learn", noted)
    live([(0, "", [create(f"acme/{n}", {"trigger": DAILY, "handler": f"h{n}"}) for n in range(40)])])
    assert max(kept) == 10
