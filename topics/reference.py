"""The contract in files, printed from the code: `README.md`, a JSON Schema for each message, the AsyncAPI document.

Pure: `render` gives path -> text. `python -m topics --write` writes them, a test compares them with what is committed,
so that neither can drift from `catalog`, `messages` and `meanings`. Samples are written by hand and only read here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from topics import messages
from topics.asyncapi import document
from topics.catalog import Catalogue
from topics.meanings import LIVE_KINDS, MEANINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topics.catalog import TopicSpec

HERE: Final = Path(__file__).parent
SAMPLES: Final = HERE / "schemas" / "samples"

# The messages with a schema of their own: the value of a topic, and the definition inside of commands.
MESSAGES: Final[tuple[type[messages.Message], ...]] = (
    messages.Command,
    messages.Spec,
    messages.Reply,
    messages.Dispatch,
    messages.Schedule,
    messages.Occurrence,
    messages.Revision,
    messages.Rejected,
    messages.Live,
    messages.Tenant,
    messages.Shard,
    messages.Zones,
    messages.Lag,
    messages.Repair,
    messages.Calendar,
    messages.ClockProbe,
)
PARTS: Final[tuple[type[messages.Message], ...]] = (
    messages.Problem,
    messages.Planned,
    messages.RecentCommand,
    messages.OwedRun,
    messages.Stretch,
    messages.Cursor,
    messages.KeyRange,
    messages.Absence,
    messages.Backlog,
    messages.Move,
    messages.ZoneMark,
    messages.DateRange,
    messages.HolidaysOf,
)


def render() -> dict[str, str]:
    """Every generated file: its path below `topics/`, and its text."""
    catalogue = Catalogue()
    schemas = {kind.__name__: schema(kind) for kind in MESSAGES}
    files = {f"schemas/{name.lower()}.json": _json(value) for name, value in schemas.items()}
    files["schemas/asyncapi.json"] = _json(document(catalogue.specs(), schemas))
    files["README.md"] = "\n".join(_readme(catalogue)) + "\n"
    return files


def schema(kind: type[messages.Message]) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a message, each property with its meaning."""
    made = msgspec.json.schema(kind)
    for name, definition in made["$defs"].items():
        definition["description"] = _first_sentence(definition["description"])
        for field, about in definition["properties"].items():
            about["description"] = MEANINGS[name][field]
    title = kind.__name__
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:kafka-streaming-scheduler:{title.lower()}",
        **made,
    }


def samples(name: str) -> list[Path]:
    """The golden samples of a message: `<name>.json` and `<name>.<variant>.json`."""
    prefix = name.lower()
    return sorted(path for path in SAMPLES.glob("*.json") if path.name.split(".")[0] == prefix)


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _first_sentence(text: str) -> str:
    return text.split("\n\n", 1)[0].replace("\n", " ")


def _readme(catalogue: Catalogue) -> Iterator[str]:
    specs = catalogue.specs()
    yield _HEAD
    yield "## Topics\n"
    yield from _topic_table(specs)
    yield "\n### Settings, and why\n"
    yield from _settings_table(specs)
    yield "\n### What lives on `scheduler.live`\n"
    yield from _table(
        ("kind", "key", "value", "written when", "tombstoned when"),
        [(f"`{one.kind}`", one.key, one.value, one.written, one.tombstoned) for one in LIVE_KINDS],
    )
    yield "\n## Messages\n"
    yield _MESSAGES
    for kind in MESSAGES:
        yield from _message(kind)
    yield "\n### Parts of messages\n"
    for kind in PARTS:
        yield from _message(kind, level="####")
    yield ""
    yield _FOOT


def _topic_table(specs: tuple[TopicSpec, ...]) -> Iterator[str]:
    shown = [spec for spec in specs if not spec.base.startswith("dispatch.")]
    dispatch = next(spec for spec in specs if spec.base.startswith("dispatch."))
    rows = [(spec, f"`{spec.base}`") for spec in shown] + [(dispatch, "`dispatch.<lane>.<priority>`")]
    yield from _table(
        ("topic", "key", "partitions", "policy", "written by", "read by", "carries"),
        [
            (
                name,
                spec.key.replace("<", "&lt;"),
                spec.rule,
                _policy(spec),
                spec.writer,
                spec.readers,
                spec.carries + _link(spec),
            )
            for spec, name in rows
        ],
    )


def _policy(spec: TopicSpec) -> str:
    if spec.retention_ms is None:
        return "**compact**"
    hours = spec.retention_ms // 3_600_000
    return f"delete, {hours // 24} d" if hours % 24 == 0 else f"delete, {hours} h"


def _link(spec: TopicSpec) -> str:
    return f" ([{spec.message}](#{spec.message.lower()}))" if spec.message else ""


def _settings_table(specs: tuple[TopicSpec, ...]) -> Iterator[str]:
    """One row for each setting, value and reason, with the topics that have it."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for spec in specs:
        base = "dispatch.*" if spec.base.startswith("dispatch.") else spec.base.removeprefix("scheduler.")
        for setting, reason in spec.why.items():
            value = spec.rule if setting == "partitions" else spec.config[setting]
            names = rows.setdefault((setting, value, reason), [])
            if base not in names:
                names.append(base)
    yield from _table(
        ("setting", "value", "topics", "why"),
        [
            (f"`{setting}`", f"`{value}`", ", ".join(names), reason)
            for (setting, value, reason), names in sorted(rows.items(), key=lambda row: row[0][:2])
        ],
    )


def _message(kind: type[messages.Message], level: str = "###") -> Iterator[str]:
    name = kind.__name__
    yield f"\n{level} {name}\n"
    yield _first_sentence((kind.__doc__ or "").strip()) + "\n"
    required = {field.encode_name for field in msgspec.structs.fields(kind) if field.required}
    definition = msgspec.json.schema(kind)["$defs"][name]
    yield from _table(
        ("field", "type", "default", "meaning"),
        [
            (
                f"`{field}`",
                _type(about),
                "required" if field in required else _default(about),
                MEANINGS[name][field],
            )
            for field, about in definition["properties"].items()
        ],
    )
    for path in samples(name)[:1]:
        yield f"\nSample ([all of them](schemas/samples)): `{path.name}`\n\n```json\n{path.read_text().strip()}\n```"


def _type(about: dict[str, Any]) -> str:
    """A property's schema in a few words."""
    if "anyOf" in about:
        kinds = [_type(one) for one in about["anyOf"]]
        return " or ".join(kind for kind in kinds if kind != "null") + (", null" if "null" in kinds else "")
    if "enum" in about:
        return ", ".join(f"`{value}`" for value in about["enum"])
    if "$ref" in about:
        name = about["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "RFC 3339" in about.get("description", ""):
        return "instant"
    if about.get("type") == "array":
        return f"list of {_type(about['items'])}"
    if about.get("type") == "object":
        inner = about.get("additionalProperties")
        return f"object of {_type(inner)}" if isinstance(inner, dict) else "object"
    return str(about.get("type", "any JSON"))


def _default(about: dict[str, Any]) -> str:
    if "default" not in about:
        return "absent"
    value = about["default"]
    return "absent" if value is None else f"`{json.dumps(value)}`"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


_HEAD: Final = """\
# The contracts: topics and messages

This page is printed by `python -m topics --write` from `catalog.py`, `messages.py` and `meanings.py`; edit those.
Everyone who speaks to the scheduler over Kafka needs only what stands here. The same for machines:
[`schemas/asyncapi.json`](schemas/asyncapi.json), and a JSON Schema for each message beside it.

## What a client must do

- **Read with `isolation.level=read_committed`.** The scheduler writes in transactions. Most clients default to
  `read_uncommitted`, which shows copies that were taken back. `read_committed` is part of the dispatch contract.
- **Start a new group with `auto.offset.reset=earliest`**, or it misses what already waits.
- **Deduplicate on `occurrence_id`.** Kafka delivers at least once; the id is the same after every retry and replay.
- **Write commands with Kafka's default partitioner** (murmur2 of the key), keyed by `schedule_id`. Java, kafka-ui and
  Kafka Streams do so by themselves; librdkafka users set `partitioner=murmur2_random`. A command in the wrong partition
  is forwarded, at the price of a detour; its reply names the setting.
- **Commands are idempotent by `command_id`.** No reply? Send it again with the same id. A schedule takes what it
  remembers along when it is deleted: its create, sent again after that, creates it anew.
- **If you create by the thousand**, print compact JSON that begins with `command`, `schedule_id`, `command_id`, in this
  order, and a definition that many share in the same bytes, its payload last: such creates are known by their bytes,
  and cost two thirds of what others do.

A namespace set for the cluster stands before every topic name; P is its number of shards.
"""

_MESSAGES: Final = """\
Values are UTF-8 JSON objects, keys and headers UTF-8 text, tombstones real nulls. Instants are RFC 3339 in UTC with
`Z`, a fraction of three digits only when it is not zero. Durations are whole milliseconds, their names end in `_ms`.
A field that holds its default is left out. `payload` is carried byte for byte and never decoded.

Headers: `command_id` on replies; `step` on changelog records; `fwd` on forwarded commands, `<partition>-<offset>` of
where they came from; and `fwd-after`, by which a second copy is known: `<settled>-<gapless>`, the offset below which
all copies were acknowledged before, and the one from which on there is none before this for the same partition."""

_FOOT: Final = """\
## Compatibility

- Only optional fields are added, with a default; readers ignore fields they do not know.
- A field's name is never reused for another meaning, and its type never changes.
- Every sample below [`schemas/samples`](schemas/samples) decodes with every later version: a test reads them all, and
  samples are added, not changed.
- A changelog record carries its format in the shard record; a reader refuses a newer format than its own.

A value that is no strict UTF-8 JSON object (a field named twice, nesting deeper than 256, more than 2 MiB, a byte
order mark, a lone surrogate, `NaN`) is set aside on `scheduler.rejected` with its bytes and the reason."""
