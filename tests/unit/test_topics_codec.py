"""The codec: every fault of the bytes is one `Undecodable` with a sentence, and payloads stay the producer's bytes."""

import json

import msgspec
import pytest

from topics import messages
from topics.codec import MAX_DEPTH, MAX_VALUE_BYTES, Undecodable, decode, encode, split_command

HOSTILE = {
    "null": (None, "tombstone"),
    "empty": (b"", "truncated"),
    "blank": (b"  \n ", "truncated"),
    "array": (b'[{"command":"create"}]', "object"),
    "string": (b'"create"', "object"),
    "number": (b"12", "object"),
    "json null": (b"null", "object"),
    "not utf-8": (b'{"command":"\xff"}', "not UTF-8: invalid start byte at byte 12"),
    "not utf-8 inside the payload": (b'{"command":"trigger","payload":"\xff"}', "not UTF-8"),
    "not utf-8 in a name": (b'{"\xff":1}', "not UTF-8"),
    "a surrogate written as utf-8": (b'{"a":"\xed\xa0\x80"}', "not UTF-8"),
    "a lone surrogate": (rb'{"a":"\ud800"}', "truncated"),
    "a lone surrogate and more": (rb'{"a":"\ud800 and more text"}', "malformed"),
    "a lone surrogate in the payload": (rb'{"payload":"\ud800 and more text"}', "malformed"),
    "byte order mark": (b'\xef\xbb\xbf{"command":"create"}', "byte order mark"),
    "utf-16": ('{"command":"create"}'.encode("utf-16"), "not UTF-8"),
    "nan": (b'{"preview":NaN}', "malformed"),
    "infinity": (b'{"preview":-Infinity}', "malformed"),
    "out of range": (b'{"preview":1e999}', "range"),
    "endless integer": (b'{"preview":%b}' % (b"9" * 5000), "range"),
    "repeated name": (b'{"command":"pause","command":"delete"}', "'command' is named twice"),
    "repeated name, spaced": (b'{"command": "pause", "command": "delete"}', "'command' is named twice"),
    "repeated name, escaped": (rb'{"command":"pause","\u0063ommand":"delete"}', "'command' is named twice"),
    "repeated name in spec": (b'{"spec":{"lane":"a","payload":1,"lane":"b"}}', "'lane' is named twice"),
    "repeated name in a trigger": (b'{"spec":{"trigger":{"cron":"a","cron":"b"}}}', "'cron' is named twice"),
    "repeated payload": (b'{"payload":1,"payload":1}', "'payload' is named twice"),
    "repeated name in a list": (b'{"spec":{"tasks":[{"a":1,"a":1}]}}', "'a' is named twice"),
    "repeated name in a deeper payload": (b'{"spec":{"x":{"payload":{"a":1,"a":2}}}}', "'a' is named twice"),
    "deep arrays": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "deep"),
    "deep objects": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "deep"),
    "deep payload": (b'{"payload":' + b"[" * 300 + b"]" * 300 + b"}", "deep"),
    "never closed": (b"[" * 100_000, "deep"),
    "huge": (b'{"a":"' + b"x" * 10_000_000 + b'"}', "10,000,008 bytes"),
    "more after the object": (b"{} {}", "trailing"),
    "cut off": (b'{"command":"create","spec":{"tri', "truncated"),
    "single quotes": (b"{'command':'create'}", "malformed"),
    "a raw control character": (b'{"command":"cre\nate"}', "malformed"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_value_that_is_no_command_is_undecodable_with_its_reason(name: str) -> None:
    """The shard sends it to `scheduler.rejected` with this sentence and goes on."""
    value, says = HOSTILE[name]
    with pytest.raises(Undecodable, match=says) as caught:
        split_command(value)
    assert caught.value.what == "command"
    assert caught.value.why


@pytest.mark.parametrize("kind", [messages.Schedule, messages.Shard, messages.Reply, messages.Dispatch])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_value_that_is_no_message_is_undecodable_too(name: str, kind: type[msgspec.Struct]) -> None:
    """`decode` has one exception as well, whatever the bytes are; it says which message was expected."""
    with pytest.raises(Undecodable, match=f"not a {kind.__name__}: "):
        decode(kind, HOSTILE[name][0])


PAYLOADS = {
    "object": b'{"report": "nightly",  "ids":[1, 2.50, 1e400]}',
    "repeats are its own business": b'{"a":1,"a":2}',
    "string": rb'"caf\u00e9 \/ \ud83d\ude00"',
    "empty object": b"{}",
    "number": b"1",
    "precise number": b"0.1000000000000000055511151231257827021181583404541015625",
    "null": b"null",
    "looks like the name before it": b'":"',
    "holds a payload": b'{"payload":{"payload":null}}',
    "non-ascii": '"žluťoučký kůň 🐎"'.encode(),
}


@pytest.mark.parametrize("spaced", [False, True])
@pytest.mark.parametrize("name", PAYLOADS)
def test_a_payload_stays_the_producers_bytes(name: str, spaced: bool) -> None:
    """Not parsed, not re-printed: numbers keep their digits, strings their escapes, blanks their places."""
    payload = PAYLOADS[name]
    blank = b" " if spaced else b""
    create = b'{"command":%b"create","spec":{"payload":%b%b,"lane":"1"},"only":1}' % (blank, blank, payload)
    trigger = b'{"command":%b"trigger","payload":%b%b,"schedule_id":"1"}' % (blank, blank, payload)
    both = b'{"command":%b"x","payload":%b,"spec":{"payload":%b,"labels":{"payload":1}}}' % (blank, payload, payload)
    assert split_command(create) == {"command": "create", "spec": {"payload": payload, "lane": "1"}, "only": 1}
    assert split_command(trigger) == {"command": "trigger", "payload": payload, "schedule_id": "1"}
    assert split_command(both) == {
        "command": "x",
        "payload": payload,
        "spec": {"payload": payload, "labels": {"payload": 1}},
    }


def test_a_payload_beside_an_empty_spec_stays_bytes() -> None:
    """`payload` at the top is opaque whatever `spec` holds."""
    assert split_command(b'{"spec":{},"payload":{"a":1}}') == {"spec": {}, "payload": b'{"a":1}'}
    assert split_command(b'{"spec":null,"payload":{"a":1}}') == {"spec": None, "payload": b'{"a":1}'}
    assert split_command(b'{"spec":[{"payload":1}],"payload":2}') == {"spec": [{"payload": 1}], "payload": b"2"}


def test_unknown_fields_are_kept_for_the_parser_to_judge() -> None:
    """Tolerating or naming an unknown field is the core's decision, so it must see it."""
    assert split_command(b'{"command":"pause","colour":[1,{"x":null}]}') == {
        "command": "pause",
        "colour": [1, {"x": None}],
    }
    assert split_command(b"{}") == {}


def test_nesting_up_to_the_limit_is_accepted() -> None:
    """The limit counts the arrays and objects of the value itself; brackets inside strings are text."""
    inside = MAX_DEPTH - 1
    payload = b"[" * inside + b"]" * inside
    assert split_command(b'{"payload":%b}' % payload) == {"payload": payload}
    with pytest.raises(Undecodable, match="deep"):
        split_command(b'{"payload":[%b]}' % payload)
    text = rb"[{\"" * 1000
    assert split_command(b'{"payload":"%b"}' % text) == {"payload": b'"%b"' % text}


def test_a_large_payload_is_not_the_codecs_business() -> None:
    """The core refuses more than 64 KiB and says so in a reply; it needs the command for that."""
    payload = b'"%b"' % (b"x" * 1_000_000)
    assert split_command(b'{"spec":{"payload":%b}}' % payload) == {"spec": {"payload": payload}}
    assert len(payload) < MAX_VALUE_BYTES


def test_defaults_stay_off_the_wire_and_unknown_fields_are_ignored() -> None:
    """Old readers read new records and the other way round."""
    probe = messages.ClockProbe(process="n1/0", sequence=7)
    assert encode(probe) == b'{"process":"n1/0","sequence":7}'
    assert decode(messages.ClockProbe, b'{"process":"n1/0","sequence":7,"added_in_2031":{}}') == probe
    assert json.loads(encode(messages.Command(command="pause", schedule_id="a/b"))) == {
        "command": "pause",
        "schedule_id": "a/b",
    }


def test_a_field_of_the_wrong_type_is_named() -> None:
    """The sentence says which field, what was expected and what was found."""
    with pytest.raises(Undecodable, match=r"expected `int`, got `str` - at `\$.sequence`"):
        decode(messages.ClockProbe, b'{"process":"n1/0","sequence":"7"}')
