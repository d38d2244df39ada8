"""Bytes to values and back: the only place that parses or prints JSON on the wire.

What comes from outside is hostile until it has passed here: every fault of the bytes becomes one `Undecodable` with a
sentence that names it, never another exception. Two kinds of faults are ours to find because the parser does not:

- invalid UTF-8 inside a part that is skipped over (`payload`);
- an object that names a field twice, outside of `payload`: parsers disagree about which one counts.

A limit on nesting keeps a value that was accepted here readable in every later place, whatever the depth of the call
stack there. Whether fields make sense is not decided here.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec
from msgspec import Raw

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_VALUE_BYTES: Final = 2 * 1024 * 1024  # Kafka's own default is 1 MiB a record; nothing legal comes near
MAX_DEPTH: Final = 256  # of arrays and objects inside one another, the payload's included

_T = TypeVar("_T")


class _Payload(msgspec.Struct, gc=False):
    payload: Raw = Raw()


class _Parts(_Payload, gc=False):
    """Where a command may carry a payload: at its top and in its spec. Everything else is skipped over."""

    spec: Raw = Raw()


_parts = msgspec.json.Decoder(_Parts).decode
_payload = msgspec.json.Decoder(_Payload).decode
raw_fields = msgspec.json.Decoder(dict[str, Raw]).decode
"""The fields of a JSON object, each value as it is: a payload is nobody's to touch."""
_raw = msgspec.json.Decoder(Raw).decode
_plain = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_decoders: dict[type, Callable[[bytes], Any]] = {}
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_BOM: Final = b"\xef\xbb\xbf"


class Undecodable(ValueError):
    """The bytes are not what they should be. `what` was expected (say "command"), `why` says what is wrong."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"not a {what}: {why}")
        self.what = what
        self.why = why


class Template:
    """What definitions say that differ in their payloads alone: one object for all of them, to be a key of caches."""

    __slots__ = ("fields",)

    def __init__(self, fields: dict[str, object]) -> None:
        self.fields = fields


class SpecFields(dict[str, object]):
    """A command's `spec`, its payload as bytes; `template`, if it has one, stands for all of it but the payload."""

    __slots__ = ("template",)
    template: Template


def encode(message: msgspec.Struct) -> bytes:
    """The message as compact UTF-8 JSON; fields that hold their default are left out, `Raw` goes through untouched."""
    return _encode(message)


def decode(kind: type[_T], value: bytes | None) -> _T:
    """A value of message type `kind`; unknown fields are ignored. Raises Undecodable, whatever the bytes are."""
    what = kind.__name__
    checked = _checked(what, value)
    try:
        decoder = _decoders.get(kind)
        if decoder is None:
            decoder = _decoders[kind] = msgspec.json.Decoder(kind).decode
        return cast("_T", decoder(checked))
    except (ValueError, RecursionError) as error:
        raise Undecodable(what, _sentence(error)) from None


def with_command_id(command: Mapping[str, Any], command_id: str) -> dict[str, Any]:
    """The command's fields, under this id. It begins as the examples do: creates that are alike are known by that."""
    begun = {name: command[name] for name in ("command", "schedule_id") if name in command}
    rest = {name: value for name, value in command.items() if name != "command_id"}
    return {**begun, "command_id": command_id, **rest}


def split_command(value: bytes | None) -> dict[str, object]:
    """The fields of a command as plain values, `payload` and `spec.payload` as the producer's own bytes.

    Where it is an object, `spec` is a dict (`SpecFields` if it was compact); an explicit `"payload": null` is
    `b"null"`. Unknown fields are kept. Raises Undecodable, and nothing else, when the value is null, is not strict
    UTF-8 JSON, is not an object, names a field twice, is nested deeper than `MAX_DEPTH` or longer than
    `MAX_VALUE_BYTES`.
    """
    checked = _checked("command", value)
    try:
        return _quick(checked) or _thorough(checked)
    except Undecodable:
        raise
    except (ValueError, RecursionError) as error:
        raise Undecodable("command", _sentence(error)) from None


def is_one_value(part: bytes) -> bool:
    """Whether `part`, cut out of a command as a payload, is one JSON value and nothing else, as strict as all of it.

    False also for one that is nested so deep that the whole command has to be looked at.
    """
    try:
        if not part.isascii():
            part.decode()
        is_flat = len(part) <= MAX_DEPTH or part.count(b"{") + part.count(b"[") <= MAX_DEPTH // 2
        return is_flat and bytes(_raw(part)) == part
    except (ValueError, RecursionError):
        return False


def _quick(value: bytes) -> dict[str, object] | None:
    """The command if `value` is compact JSON without needless escapes, as most libraries print it; else None.

    Spec and payload are cut out, the rest is parsed and printed again: the same bytes prove that no field was named
    twice, and a null where the part was that the right bytes were cut out.
    """
    try:
        found = _parts(value)
        spec, payload = bytes(found.spec), bytes(found.payload)
        fields = None
        if spec.startswith(b"{"):
            fields = _quick_spec(spec)
            if fields is None:
                return None
            value = _without(value, b'"spec":', spec)
        if payload:
            value = _without(value, b'"payload":', payload)
        command: dict[str, object] = _plain(value)
        if _encode(command) != value:
            return None
    except (ValueError, RecursionError):
        return None  # the thorough way finds the reason, if there is one
    if fields is not None:
        if command["spec"] is not None:
            return None
        command["spec"] = fields
    if payload:
        if command["payload"] is not None:
            return None
        command["payload"] = payload
    return command


def _quick_spec(spec: bytes) -> SpecFields | None:
    payload = bytes(_payload(spec).payload)
    text = _without(spec, b'"payload":', payload) if payload else spec
    is_kept = len(text) <= _LONGEST_KEPT
    template = _kept_template(text) if is_kept else _template(text)
    if template is None:
        return None
    fields = SpecFields(template.fields)
    if is_kept:
        fields.template = template
    if payload:
        if fields["payload"] is not None:
            return None
        fields["payload"] = payload
    return fields


def _without(value: bytes, name: bytes, part: bytes) -> bytes:
    """With null in place of `part`, where the first field of that name has it; perhaps not the right place."""
    start = value.find(name) + len(name)
    end = start + len(part)
    return value[:start] + b"null" + value[end:] if value[start:end] == part else value


def _template(text: bytes) -> Template | None:
    """What `text` says if it is compact; a definition without its payload."""
    fields = _plain(text)
    return Template(fields) if _encode(fields) == text else None


# Those who send many definitions send few different ones. Bounded: some 8 MB.
_kept_template = lru_cache(maxsize=4096)(_template)
_LONGEST_KEPT: Final = 1024  # bytes


def _thorough(value: bytes) -> dict[str, object]:
    """The command, field by field, after a look at every object for fields named twice."""
    fields = raw_fields(value)  # first: the other parser is less strict and its sentences are about lines and columns
    _refuse_repeats(value)
    command: dict[str, object] = {}
    for name, raw in fields.items():
        part = bytes(raw)
        if name == "payload":
            command[name] = part
        elif name == "spec" and part.startswith(b"{"):
            command[name] = {
                inner: bytes(piece) if inner == "payload" else _plain(piece)
                for inner, piece in raw_fields(part).items()
            }
        else:
            command[name] = _plain(part)
    return command


def _refuse_repeats(value: bytes) -> None:
    """Look at every object outside the payloads with a slower parser that shows all pairs."""
    # Numbers are of no interest here, and converting hostile ones may fail: keep their text.
    pairs = json.loads(value, object_pairs_hook=_Pairs, parse_int=str, parse_float=str)
    _walk(pairs, opaque=1)


class _Pairs(list[tuple[str, Any]]):
    """One object's fields in source order, repeats included."""


def _walk(node: object, *, opaque: int) -> None:
    if isinstance(node, _Pairs):
        seen: set[str] = set()
        for name, part in node:
            if name in seen:
                raise Undecodable("command", f"the field {name[:80]!r} is named twice in one object; keep one of them")
            seen.add(name)
            if not (opaque and name == "payload"):
                # `payload` is opaque at the top and directly inside `spec`, nowhere else.
                _walk(part, opaque=opaque if opaque and name == "spec" else 0)
    elif isinstance(node, list):
        for part in node:
            _walk(part, opaque=0)


def _checked(what: str, value: bytes | None) -> bytes:
    """`value`, after the checks that are the same for every message. Raises Undecodable."""
    if value is None:
        raise Undecodable(what, "the value is null (a tombstone); send a JSON object, `delete` is a command of its own")
    if len(value) > MAX_VALUE_BYTES:
        raise Undecodable(what, f"the value has {len(value):,} bytes; at most {MAX_VALUE_BYTES:,} are read")
    if not value.isascii():
        if value.startswith(_BOM):
            raise Undecodable(what, "the value starts with a byte order mark; send plain UTF-8")
        try:
            value.decode()
        except UnicodeDecodeError as error:
            raise Undecodable(what, f"the value is not UTF-8: {error.reason} at byte {error.start}") from None
    # n bytes nest at most n/2 deep, so that most values need no look at all
    if len(value) > 2 * MAX_DEPTH and value.count(b"{") + value.count(b"[") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise Undecodable(what, f"arrays and objects are nested more than {MAX_DEPTH} deep")
    return value


def _depth(value: bytes) -> int:
    deepest = depth = 0
    for byte in _STRING.sub(b"", value):
        if byte in b"{[":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"}]":
            depth -= 1
    return deepest


def _sentence(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "arrays and objects are nested too deep"
    text = str(error)
    return text[:1].lower() + text[1:] if text.startswith("Expected") else text
