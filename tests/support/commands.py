"""Commands to a cluster under test, and what its shards say to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.verifier import ms_of
from topics.client import CommandClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.node import Cluster
    from tests.support.verifier import Beat
    from topics.messages import Reply


def ask(cluster: Cluster, *commands: dict[str, Any]) -> list[Reply]:
    """The replies, in the order of the commands."""
    with CommandClient(cluster.kafka, namespace=cluster.namespace) as client:
        replies = {id(command): reply for command, reply in client.send_many(list(commands))}
    return [replies[id(command)] for command in commands]


def send(cluster: Cluster, *commands: dict[str, Any]) -> list[str]:
    """The codes of the replies, in the order of the commands."""
    return [reply.code for reply in ask(cluster, *commands)]


def create(cluster: Cluster, schedules: Sequence[Beat], **spec: Any) -> dict[str, int]:
    """Create the schedules, each of which must be accepted; returns what is expected of them."""
    replies = ask(cluster, *(beat.create(**spec) for beat in schedules))
    assert [reply.code for reply in replies] == ["created"] * len(schedules), replies
    for beat, reply in zip(schedules, replies, strict=True):
        # A nominal at or before the create was never owed: then the test began too late, and nothing was lost.
        assert ms_of(reply.effective_at or "") < beat.first, f"accepted after its first nominal: {reply}"
    return {name: at for beat in schedules for name, at in beat.expected().items()}
