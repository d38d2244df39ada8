"""A node that cannot start says why. With wrong settings it ends with 2 and leaves nothing behind."""

from __future__ import annotations

import os
import socket

import psutil
import pytest

from tests.support.node import Cluster, Node, await_ready, wait_until
from topics.admin import connect

pytestmark = pytest.mark.broker


def ends_with(node: Node, *words: str) -> None:
    """Started under its supervisor, it ends with exit code 2 and these words, and nothing of it is left."""
    node.start()
    (supervisor,) = node.pids() & set(psutil.pids())
    assert node.await_death() == 2, node.words()
    assert said(node, *words)
    assert [one for one in psutil.pids() if session_of(one) == supervisor] == []


def session_of(pid: int) -> int | None:
    """A node is a session of its own, named after its supervisor."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def said(node: Node, *words: str) -> bool:
    """All of these, and no traceback."""
    text = node.log.read_text()
    assert "Traceback" not in text
    return all(word in text for word in words)


def test_topics_that_are_missing(cluster: Cluster) -> None:
    admin = connect(cluster.kafka)
    for future in admin.delete_topics([cluster.catalogue.replies]).values():
        future.result(30)
    node = cluster.node(processes=2, supervised=True)
    ends_with(node, cluster.catalogue.replies, "`scheduler topics apply`")


def test_a_port_that_is_taken(cluster: Cluster) -> None:
    """It may be a former process that still drains: the node waits, and serves when the port is free."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        node = cluster.node(supervised=True, **{"http.port": port}).start()
        wait_until(lambda: said(node, f"127.0.0.1:{port} can't be served", "http.port + N"), node.words)
    await_ready(node)
    assert said(node)


def test_an_option_that_the_client_does_not_know(cluster: Cluster) -> None:
    node = cluster.node(processes=2, supervised=True)
    with node.config.open("a") as file:
        file.write('[kafka.client]\n"no.such.option" = "1"\n')
    ends_with(node, 'kafka.client: No such configuration property: "no.such.option"')
