"""Commands to a cluster under test, and what its shards say to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topics.client import CommandClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.node import Cluster
    from tests.support.verifier import Beat


def send(cluster: Cluster, *commands: dict[str, Any]) -> list[str]:
    """The codes of the replies, in the order of the commands."""
    with CommandClient(cluster.kafka, namespace=cluster.namespace) as client:
        codes = {id(command): reply.code for command, reply in client.send_many(list(commands))}
    return [codes[id(command)] for command in commands]


def create(cluster: Cluster, schedules: Sequence[Beat], **spec: Any) -> dict[str, int]:
    """Create the schedules, each of which must be accepted; returns what is expected of them."""
    codes = send(cluster, *(beat.create(**spec) for beat in schedules))
    assert codes == ["created"] * len(schedules), codes
    return {name: at for beat in schedules for name, at in beat.expected().items()}
