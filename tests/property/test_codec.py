"""Laws of the codec, against generated and mutated bytes."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from topics import messages
from topics.codec import Undecodable, _quick, _thorough, decode, encode, split_command

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | TEXT
NAMES = st.sampled_from(["command", "schedule_id", "spec", "payload", "lane", "trigger", "labels", "a", "é", '"', "\\"])
VALUES = st.recursive(
    SCALARS | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
COMMANDS = st.dictionaries(NAMES, VALUES, max_size=6)
STYLES = st.sampled_from(
    [
        {"separators": (",", ":")},
        {"separators": (",", ":"), "ensure_ascii": False},
        {},
        {"indent": 2, "ensure_ascii": False},
        {"separators": (" ,\t", "\r\n: ")},
    ],
)


def printed(value: Any, style: dict[str, Any]) -> bytes:
    return json.dumps(value, **style).encode()


def expected(command: dict[str, Any], style: dict[str, Any]) -> dict[str, Any]:
    """What must come back: payloads as the bytes in which they were printed, everything else as it was."""

    def opaque(fields: dict[str, Any]) -> dict[str, Any]:
        return {name: RAW if name == "payload" else value for name, value in fields.items()}

    result = opaque(command)
    if isinstance(command.get("spec"), dict):
        result["spec"] = opaque(command["spec"])
    return result


RAW = object()


def payloads_parsed(got: dict[str, Any], want: dict[str, Any]) -> dict[str, Any]:
    """`got` with its payload bytes checked against `want`'s places and replaced by the marker."""
    result = {}
    for name, value in got.items():
        if want[name] is RAW:
            assert isinstance(value, bytes)
            result[name] = RAW
        elif name == "spec" and isinstance(value, dict):
            result[name] = payloads_parsed(value, want[name])
        else:
            result[name] = value
    return result


@given(COMMANDS, STYLES)
def test_every_command_comes_back_however_it_was_printed(command: dict[str, Any], style: dict[str, Any]) -> None:
    """Values survive parsing; a payload's bytes stand in the source and mean what was meant."""
    source = printed(command, style)
    got = split_command(source)
    want = expected(command, style)
    assert payloads_parsed(got, want) == want
    spec, meant = got.get("spec"), command.get("spec")
    for fields, original in [(got, command), (spec, meant)]:
        if isinstance(fields, dict) and isinstance(original, dict) and "payload" in fields:
            payload = fields["payload"]
            assert isinstance(payload, bytes)
            assert payload in source
            assert json.loads(payload) == original["payload"]


@given(st.text('"payloadspecnull:{}[]1,\\ ', max_size=60))
@example('{"payload":":"}')
@example('{"a":1,"payload":1}')
@example('{"payload":{"payload":1},"spec":{"payload":1}}')
@example('{"spec":{"payload":1},"a":"1"}')
def test_the_quick_way_agrees_with_the_thorough_one(text: str) -> None:
    """Quickness may only ever decline, never answer differently."""
    value = text.encode()
    try:
        quick = _quick(value)
    except RecursionError:
        pytest.fail("the quick way raised")
    if quick is not None:
        assert quick == _thorough(value)


@given(COMMANDS, STYLES, st.data())
def test_mutated_commands_are_read_or_undecodable(
    command: dict[str, Any],
    style: dict[str, Any],
    data: st.DataObject,
) -> None:
    """Cut, doubled, overwritten: a dict or Undecodable comes out, and nothing else ever."""
    source = bytearray(printed(command, style))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(source)))
        piece = data.draw(st.binary(max_size=3) | st.sampled_from([b'"', b"{", b"}", b"\\", b",", b"\xff", b"\\ud800"]))
        source[at : at + data.draw(st.integers(0, 5))] = piece
    try:
        result = split_command(bytes(source))
    except Undecodable as error:
        assert error.why  # noqa: PT017  (either outcome is right; this one must explain itself)
    else:
        assert all(isinstance(name, str) for name in result)


@given(st.binary(max_size=200))
def test_random_bytes_are_never_more_than_undecodable(value: bytes) -> None:
    """Whatever arrives on an input topic."""
    for read in (split_command, lambda b: decode(messages.Schedule, b), lambda b: decode(messages.Dispatch, b)):
        try:
            read(value)
        except Undecodable as error:
            assert error.why  # noqa: PT017 - as above


@given(COMMANDS, NAMES, VALUES, VALUES, STYLES)
def test_a_name_given_twice_is_refused_in_every_style(
    command: dict[str, Any],
    name: str,
    first: Any,
    second: Any,
    style: dict[str, Any],
) -> None:
    """Two parsers may disagree about which one counts, so neither does. Also when the values are equal."""
    command.pop(name, None)
    rest = printed(command, style)[1:]
    pairs = b",".join(printed(name, style) + b":" + printed(value, style) for value in (first, second))
    comma = b"," if command else b""
    with pytest.raises(Undecodable, match="named twice"):
        split_command(b"{" + pairs + comma + rest)


@given(
    st.builds(
        messages.Dispatch,
        **dict.fromkeys(["occurrence_id", "schedule_id", "tenant", "lane", "tz_version"], TEXT),
        **dict.fromkeys(["scheduled_for", "available_at"], st.just("2026-03-08T07:30:00Z")),
        **dict.fromkeys(["version", "shard", "attempt", "stands_for", "generation"], st.integers(0, 2**53)),
        priority=st.sampled_from(messages.PRIORITIES),
        origin=st.sampled_from(["schedule", "catch_up", "manual"]),
        deadline=st.none() | st.just("2026-03-08T07:30:00.250Z"),
        payload=VALUES.map(lambda value: msgspec.Raw(json.dumps(value).encode())),
    ),
)  # fmt: skip
def test_messages_round_trip(dispatch: messages.Dispatch) -> None:
    """Encoding and decoding gives an equal message, and encoding that again the same bytes."""
    value = encode(dispatch)
    again = decode(messages.Dispatch, value)
    assert encode(again) == value
    assert again.occurrence_id == dispatch.occurrence_id
    assert again.payload == dispatch.payload
    assert isinstance(json.loads(value), dict)
