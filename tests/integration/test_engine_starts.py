"""A node that cannot start says why, once for each process, ends with 2, and leaves nothing behind."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from topics.admin import connect

if TYPE_CHECKING:
    from tests.support.node import Cluster, Node

pytestmark = pytest.mark.broker


def ends_with(node: Node, *words: str) -> None:
    """Started under its supervisor, it ends with exit code 2 and these words, and without a traceback."""
    node.start()
    pids = node.pids()
    assert node.await_death() == 2, node.words()
    said = node.log.read_text()
    for word in words:
        assert word in said, said
    assert "Traceback" not in said
    assert not pids & node.pids()


def test_topics_that_are_missing(cluster: Cluster) -> None:
    admin = connect(cluster.kafka)
    for future in admin.delete_topics([cluster.catalogue.replies]).values():
        future.result(30)
    node = cluster.node(processes=2, supervised=True)
    ends_with(node, cluster.catalogue.replies, "`scheduler topics apply`")


def test_a_port_that_is_taken(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        node = cluster.node(processes=1, supervised=True, **{"http.port": port})
        ends_with(node, f"127.0.0.1:{port} can't be served", "http.port + N")


def test_an_option_that_the_client_does_not_know(cluster: Cluster) -> None:
    node = cluster.node(processes=2, supervised=True)
    with node.config.open("a") as file:
        file.write('[kafka.client]\n"no.such.option" = "1"\n')
    ends_with(node, 'kafka.client: No such configuration property: "no.such.option"')
