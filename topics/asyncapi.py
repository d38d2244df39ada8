"""The contract as an AsyncAPI 3.0 document, for generators and catalogues of other teams.

Operations are named from the client's side: it sends commands and receives the rest.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from topics.messages import LANE_PATTERN, PRIORITIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topics.catalog import TopicSpec

_BINDING: Final = "0.5.0"
_SCHEMA_FORMAT: Final = "application/schema+json;version=draft-2020-12"
_CONSUMER: Final = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
_PRODUCER: Final = {"partitioner": "murmur2_random", "acks": "all", "enable.idempotence": True}


def document(specs: Sequence[TopicSpec], schemas: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The document for topics that have a message; `schemas` is message name -> JSON Schema."""
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for spec in specs:
        dispatch = spec.base.startswith("dispatch.")
        name = "dispatch" if dispatch else spec.base.removeprefix("scheduler.")
        if spec.message is None or name in channels:
            continue
        channels[name] = _channel(spec, dispatch=dispatch)
        operations.update(_operations(name, spec))
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Kafka streaming scheduler",
            "version": "1",
            "description": "Standing orders in, occurrences on durable topics. A namespace may stand before the names.",
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": {
                name: {
                    "name": name,
                    "payload": {"schemaFormat": _SCHEMA_FORMAT, "schema": _local(name, value)},
                }
                for name, value in schemas.items()
            },
        },
    }


def _channel(spec: TopicSpec, *, dispatch: bool) -> dict[str, Any]:
    configuration: dict[str, Any] = {"cleanup.policy": [spec.cleanup]}
    if spec.retention_ms is not None:
        configuration["retention.ms"] = spec.retention_ms
    channel: dict[str, Any] = {
        "address": "dispatch.{lane}.{priority}" if dispatch else spec.base,
        "description": f"{spec.carries}. Key: {spec.key}. Written by: {spec.writer}",
        "messages": {str(spec.message): {"$ref": f"#/components/messages/{spec.message}"}},
        "bindings": {
            "kafka": {
                "partitions": spec.partitions,
                "topicConfiguration": configuration,
                "bindingVersion": _BINDING,
                "x-partitions-rule": spec.rule,
                "x-topic-settings": dict(spec.config),
            },
        },
    }
    if dispatch:
        channel["parameters"] = {
            "lane": {"description": f"a lane of the cluster, {LANE_PATTERN}", "default": "default"},
            "priority": {"description": "most urgent first", "enum": list(PRIORITIES)},
        }
    return channel


def _operations(name: str, spec: TopicSpec) -> dict[str, Any]:
    sends = spec.writer == "anyone allowed"
    operation: dict[str, Any] = {
        "action": "send" if sends else "receive",
        "channel": {"$ref": f"#/channels/{name}"},
        "bindings": {"kafka": {"bindingVersion": _BINDING, "x-client-settings": _PRODUCER if sends else _CONSUMER}},
    }
    if name == "commands":
        operation["reply"] = {"channel": {"$ref": "#/channels/replies"}}
    return {f"{'send' if sends else 'receive'}-{name}": operation}


def _local(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with references that hold inside of the document."""
    text = json.dumps({key: value for key, value in schema.items() if not key.startswith("$schema")})
    base = f"#/components/messages/{name}/payload/schema/$defs/"
    made = json.loads(text.replace("#/$defs/", base))
    del made["$id"]
    return dict(made)
