"""The contract as files: generated ones agree with the code, samples of every version still decode."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, get_args

import msgspec
import pytest
from jsonschema import Draft202012Validator

from topics import messages
from topics.__main__ import drift, main
from topics.catalog import Catalogue
from topics.codec import decode, encode, split_command
from topics.meanings import LIVE_KINDS, MEANINGS
from topics.reference import MESSAGES, PARTS, SAMPLES, render, samples, schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALL = [kind for kind in vars(messages).values() if isinstance(kind, type) and issubclass(kind, messages.Message)]
SAMPLE_FILES = [(kind, path) for kind in MESSAGES for path in samples(kind.__name__)]


def test_the_generated_files_are_as_the_code_has_them() -> None:
    """A changed message, topic or setting shows up in the contract page, or this fails: `python -m topics --write`."""
    assert drift(render()) == []
    assert main(["--check"]) == 0


def test_a_stale_file_is_found_and_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: with another text, a missing file, or a schema that belongs to nothing."""
    files = render()
    assert drift({**files, "README.md": "", "schemas/new.json": "{}"}) == ["README.md", "schemas/new.json"]
    del files["schemas/reply.json"]
    assert drift(files) == ["schemas/reply.json"]
    monkeypatch.setattr("topics.__main__.render", lambda: files)
    assert main(["--check"]) == 1
    assert "topics/schemas/reply.json is out of date: run `python -m topics --write`" in capsys.readouterr().err


def test_every_field_has_a_meaning_and_every_meaning_a_field() -> None:
    """New field, new sentence in `topics/meanings.py`."""
    fields = {
        kind.__name__: {field.encode_name for field in msgspec.structs.fields(kind)}
        for kind in ALL
        if kind is not messages.Message
    }
    assert {name: set(meanings) for name, meanings in MEANINGS.items()} == fields
    assert {kind.__name__ for kind in (*MESSAGES, *PARTS)} == set(fields)


def test_every_message_of_the_catalogue_has_a_sample() -> None:
    """And no sample belongs to nothing."""
    used = {spec.message for spec in Catalogue().specs() if spec.message}
    assert used <= {kind.__name__ for kind in MESSAGES}
    for name in used:
        assert samples(name), name
    assert {path for _, path in SAMPLE_FILES} == set(SAMPLES.glob("*.json"))


@pytest.mark.parametrize(("kind", "path"), SAMPLE_FILES, ids=[path.name for _, path in SAMPLE_FILES])
def test_a_sample_decodes_validates_and_comes_back_the_same(kind: type[messages.Message], path: Path) -> None:
    """Golden: old samples decode for ever, say nothing the types do not know, and follow the published schema."""
    value = path.read_bytes()
    read = decode(kind, value)
    assert json.loads(encode(read)) == json.loads(value)
    Draft202012Validator.check_schema(schema(kind))
    Draft202012Validator(schema(kind)).validate(json.loads(value))
    newer = json.dumps({**json.loads(value), "added_later": {"x": 1}}).encode()
    assert json.loads(encode(decode(kind, newer))) == json.loads(value)


@pytest.mark.parametrize("path", samples("Command"), ids=lambda path: path.name)
def test_a_command_sample_splits_with_its_payload_untouched(path: Path) -> None:
    """`0.010` stays `0.010`."""
    command = split_command(path.read_bytes())
    spec = command.get("spec")
    for fields in (command, spec if isinstance(spec, dict) else {}):
        if "payload" in fields:
            assert isinstance(fields["payload"], bytes)
            assert fields["payload"] in path.read_bytes()


def test_samples_of_spec_are_inside_of_commands_and_schedules() -> None:
    """The definition in a create is a `Spec`, and its schema accepts it."""
    validator = Draft202012Validator(schema(messages.Spec))
    for name in ("command.create", "schedule"):
        validator.validate(json.loads((SAMPLES / f"{name}.json").read_bytes())["spec"])


def test_a_wrong_value_is_refused_by_its_schema() -> None:
    """The schemas are not so wide that everything passes."""
    sample = json.loads((SAMPLES / "dispatch.json").read_bytes())
    validator = Draft202012Validator(schema(messages.Dispatch))
    for change in ({"priority": "urgent"}, {"attempt": "1"}, {"occurrence_id": None}):
        assert not validator.is_valid({**sample, **change})
    del sample["occurrence_id"]
    assert not validator.is_valid(sample)


def test_the_table_of_live_kinds_is_the_type() -> None:
    """Every kind a shard may write is explained, and has a sample."""
    hints = msgspec.inspect.type_info(messages.Live)
    assert isinstance(hints, msgspec.inspect.StructType)
    kind = next(field.type for field in hints.fields if field.name == "kind")
    assert isinstance(kind, msgspec.inspect.LiteralType)
    assert {one.kind for one in LIVE_KINDS} == set(kind.values)
    assert {path.name for path in samples("Live")} >= {f"live.{one.kind}.json" for one in LIVE_KINDS}
    assert all(one.key.startswith(f"`{one.kind}:") for one in LIVE_KINDS)
    assert set(get_args(messages.Priority)) == set(messages.PRIORITIES)


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for name, part in node.items():
            if name == "$ref":
                yield part
            else:
                yield from _references(part)
    elif isinstance(node, list):
        for part in node:
            yield from _references(part)


def test_the_asyncapi_document_holds_together() -> None:
    """Every reference leads somewhere; every operation says what its client must set."""
    document = json.loads(render()["schemas/asyncapi.json"])
    for reference in set(_references(document)):
        node = document
        for step in reference.removeprefix("#/").split("/"):
            node = node[step]
    settings = {
        name: operation["bindings"]["kafka"]["x-client-settings"] for name, operation in document["operations"].items()
    }
    assert settings.pop("send-commands")["partitioner"] == "murmur2_random"
    assert "receive-dispatch" in settings
    for consumer in settings.values():
        assert consumer == {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    assert document["channels"]["dispatch"]["parameters"]["priority"]["enum"] == list(messages.PRIORITIES)


def test_the_page_alone_is_printed_without_options(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m topics | less`."""
    assert main([]) == 0
    assert capsys.readouterr().out == render()["README.md"]
