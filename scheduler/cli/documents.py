"""Files of commands: YAML documents or JSON lines, each command with the line it begins on. Pure: text in, values out.

YAML is read as people mean it and as JSON would have it: `on`, `yes` and `2026-03-08` stay text, a key given twice is
a mistake, and values JSON has no form for (`.nan`, dates, non-text keys) are refused. A YAML document is one command or
a list of them. Nothing here raises for what a file says: mistakes come back beside the commands, with their lines.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import yaml

from scheduler.cli.values import absolute
from topics.messages import Command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TextIO

T = TypeVar("T")
FIELDS = tuple(field.encode_name for field in msgspec.structs.fields(Command))


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """One command and the file and line it was read from."""

    file: str
    line: int
    command: Command


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """What can't be read as a command, where, and why."""

    file: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.why}"


def read_commands(text: str, file: str, now: int) -> Iterator[Located | Mistake]:
    """Every command of a file, in order. `now` (ms) is what `trigger: {at: +90s}` counts from."""
    lines = _json_lines if _looks_like_json_lines(text) else _yaml_documents
    for line, value in lines(text):
        if isinstance(value, _Unreadable):
            yield Mistake(file=file, line=line, why=value.why)
            continue
        found = _command(value, now)
        if isinstance(found, Command):
            yield Located(file=file, line=line, command=found)
        else:
            yield Mistake(file=file, line=line, why=found)


def to_command(value: object, now: int) -> Command:
    """One command from plain values. Raises ValueError with the reason."""
    found = _command(value, now)
    if isinstance(found, str):
        raise ValueError(found)  # noqa: TRY004 - the text is the message
    return found


def read_mapping(text: str) -> dict[str, Any]:
    """One YAML or JSON object, read as commands are. Raises ValueError with line and reason."""
    found = list(_yaml_documents(text))
    for line, value in found:
        if isinstance(value, _Unreadable):
            raise ValueError(f"line {line}: {value.why}")  # noqa: TRY004 - the text is what matters
    if len(found) != 1 or not isinstance(found[0][1], dict):
        raise ValueError("expected one object with the fields of a spec, for example `priority: high`")
    return found[0][1]


def read_objects(text: str, file: str) -> Iterator[tuple[int, dict[str, Any]] | Mistake]:
    """Every object of a file of YAML documents or JSON lines, with its line; what is none comes as a mistake."""
    lines = _json_lines if _looks_like_json_lines(text) else _yaml_documents
    for line, value in lines(text):
        if isinstance(value, _Unreadable):
            yield Mistake(file=file, line=line, why=value.why)
        elif isinstance(value, dict):
            yield line, value
        else:
            yield Mistake(file=file, line=line, why="expected an object of names and values")


def read_each(
    files: Iterable[TextIO], read: Callable[[str, str], Iterable[T | Mistake]]
) -> Iterator[tuple[str, T] | Mistake]:
    """What `read` finds in the text of each file, given with the file's name; mistakes among it."""
    for file in files:
        try:
            text = file.read()
        except UnicodeDecodeError as error:
            yield Mistake(file=file.name, line=1, why=f"is not UTF-8 text: {error.reason}")
            continue
        for found in read(text, file.name):
            yield found if isinstance(found, Mistake) else (file.name, found)


def read_named(
    files: Iterable[TextIO], name: str, faults: Callable[[dict[str, Any]], Iterable[str]]
) -> tuple[list[tuple[str, int, dict[str, Any]]], list[Mistake]]:
    """The objects of all files with file and line, and everything that is wrong; the field `name` tells them apart."""
    good: list[tuple[str, int, dict[str, Any]]] = []
    mistakes: list[Mistake] = []
    for found in read_each(files, read_objects):
        if isinstance(found, Mistake):
            mistakes.append(found)
            continue
        file, (line, fields) = found
        wrong = list(faults(fields))
        wrong += [f"{fields.get(name)!r} is given twice" for *_, one in good if one[name] == fields.get(name)]
        mistakes += [Mistake(file=file, line=line, why=why) for why in wrong]
        if not wrong:
            good.append((file, line, fields))
    return good, mistakes


@dataclass(frozen=True, slots=True)
class _Unreadable:
    why: str


def _looks_like_json_lines(text: str) -> bool:
    """A file whose first non-blank line is a whole JSON object is JSON lines; all else is YAML."""
    first = next((line for line in text.split("\n") if line.strip()), "")
    if not first.lstrip().startswith("{"):
        return False
    try:
        json.loads(first)
    except RecursionError:
        return True  # to be refused with its line
    except ValueError:
        return False
    return True


def _json_lines(text: str) -> Iterator[tuple[int, object]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line, object_pairs_hook=_no_repeats, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            yield number, _Unreadable(f"is not a JSON object on one line: {error}")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the field {key!r} is given twice")
        found[key] = value
    return found


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is no JSON number")


class _Loader(yaml.SafeLoader):
    """YAML 1.2's core types: text stays text unless it is a JSON-like null, boolean or number."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - yaml's own way


for _tag, _pattern, _first in (
    ("null", r"null|~|", ["n", "~", ""]),
    ("bool", r"true|false", ["t", "f"]),
    ("int", r"-?(0|[1-9][0-9]*)", list("-0123456789")),
    ("float", r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?", list("-0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _first)


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    loader.flatten_mapping(node)
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is no text", key_node.start_mark)
        if key in found:
            raise yaml.constructor.ConstructorError(
                None, None, f"the field {key!r} is given twice", key_node.start_mark
            )
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def _yaml_documents(text: str) -> Iterator[tuple[int, object]]:
    line = 1
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            for part in node.value if isinstance(node, yaml.SequenceNode) else filter(None, [node]):
                line = part.start_mark.line + 1
                try:
                    yield line, loader.construct_document(part)
                except yaml.MarkedYAMLError as error:
                    yield _line_of(error, line), _Unreadable(error.problem or "is no YAML")
    except yaml.MarkedYAMLError as error:
        why = " ".join(filter(None, [error.context, error.problem]))
        yield _line_of(error, line), _Unreadable(f"is no YAML: {why}; nothing below this line was read")
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        yield line, _Unreadable(f"is no YAML: {reason}; nothing below this line was read")


def _line_of(error: yaml.MarkedYAMLError, otherwise: int) -> int:
    mark = error.problem_mark or error.context_mark
    return mark.line + 1 if mark is not None else otherwise


def _command(value: object, now: int) -> Command | str:
    """The command a plain value is, or the sentence that says why it is none."""
    if not isinstance(value, dict):
        kind = {type(None): "empty", list: "a list", str: "text"}.get(type(value), f"a {type(value).__name__}")
        return f"expected an object with `command` and `schedule_id`; this is {kind}"
    unknown = [name for name in value if name not in FIELDS]
    if unknown:
        return "; ".join(_unknown(str(name)) for name in unknown)
    try:
        value = _with_absolute_instants(value, now)
        return msgspec.json.decode(json.dumps(value, allow_nan=False, ensure_ascii=False).encode(), type=Command)
    except msgspec.ValidationError as error:
        return str(error)
    except (TypeError, ValueError, RecursionError) as error:
        return f"has no JSON form: {error}"


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, FIELDS, n=1)
    hint = f"did you mean `{close[0]}`?" if close else f"a command has {', '.join(FIELDS)}"
    return f"`{name}` is no field of a command; {hint}"


def _with_absolute_instants(value: dict[str, Any], now: int) -> dict[str, Any]:
    """`spec.trigger.at`, `start` and `end` may be relative here (`+90s`); the wire has instants only."""
    spec = value.get("spec")
    if not isinstance(spec, dict):
        return value
    spec = {
        name: absolute(given, now) if name in {"start", "end"} and _relative(given) else given
        for name, given in spec.items()
    }
    trigger = spec.get("trigger")
    if isinstance(trigger, dict) and _relative(trigger.get("at")):
        spec["trigger"] = {**trigger, "at": absolute(trigger["at"], now)}
    return {**value, "spec": spec}


def _relative(given: object) -> bool:
    return isinstance(given, str) and given.startswith("+")
