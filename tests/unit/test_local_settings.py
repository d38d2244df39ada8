"""The files and the layout of an embedded cluster, as values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.local.settings import (
    ClusterLayout,
    initial_controllers,
    logging_properties,
    new_layout,
    server_properties,
)


def layout(nodes: int) -> ClusterLayout:
    ports = [(20_000 + n, 21_000 + n) for n in range(nodes)]
    return new_layout(ports, (bytes([n]) * 16 for n in range(nodes + 1)))


def properties(cluster: ClusterLayout, data: str = "/data") -> dict[str, str]:
    text = server_properties(cluster, cluster.nodes[0], Path(data))
    return dict(line.split("=", 1) for line in text.splitlines())


def test_a_layout_survives_its_file() -> None:
    """A restarted cluster has the ids, ports and processes that were written down."""
    cluster = layout(3).with_pid(1, 4711)
    assert ClusterLayout.from_json(cluster.to_json()) == cluster


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "cluster_id": "x", "nodes": [{}]}'])
def test_a_damaged_layout_is_a_value_error(text: str) -> None:
    """Whatever the file holds, there is one error to expect."""
    with pytest.raises(ValueError, match=r".+"):
        ClusterLayout.from_json(text)


@pytest.mark.parametrize("nodes", [1, 3])
def test_everything_is_on_the_loopback_address(nodes: int) -> None:
    """No address in a node's settings can be reached from another machine."""
    hosts = re.findall(r"([^,=/]+):\d+", server_properties(layout(nodes), layout(nodes).nodes[0], Path("/data")))
    assert set(hosts) == {"127.0.0.1"}
    assert len(hosts) == 2 + 2 + nodes  # listeners, advertised listeners, controllers


def test_one_node_keeps_one_copy_and_three_keep_three() -> None:
    """Internal topics have one copy on one node; on three they survive the loss of any one."""
    for nodes, in_sync in ((1, "1"), (3, "2")):
        values = properties(layout(nodes))
        assert values["offsets.topic.replication.factor"] == str(nodes)
        assert values["transaction.state.log.replication.factor"] == str(nodes)
        assert values["transaction.state.log.min.isr"] == in_sync
        assert values["min.insync.replicas"] == in_sync


def test_topics_are_never_made_by_mistake() -> None:
    """A misspelt topic name is an error, not a new topic."""
    assert properties(layout(1))["auto.create.topics.enable"] == "false"


def test_new_ports_move_the_first_nodes_only() -> None:
    """Ports given by the user replace the remembered ones from the first node on; the rest stay."""
    moved = layout(3).with_ports([9092])
    assert [node.port for node in moved.nodes] == [9092, 20_001, 20_002]
    assert moved.bootstrap_servers == "127.0.0.1:9092,127.0.0.1:20001,127.0.0.1:20002"


def test_every_node_is_a_voter() -> None:
    """A cluster of three is formatted with all three controllers and their directories."""
    cluster = layout(3)
    assert initial_controllers(cluster).split(",") == [
        f"{node.node_id}@127.0.0.1:{node.controller_port}:{node.directory_id}" for node in cluster.nodes
    ]


@given(st.lists(st.binary(min_size=16, max_size=16), min_size=2, max_size=2))
def test_ids_have_the_form_kafka_accepts(randoms: list[bytes]) -> None:
    """Ids are 22 characters of URL-safe base64 and never begin with a dash, which would read as an option."""
    cluster = new_layout([(1, 2)], randoms)
    for text in (cluster.cluster_id, cluster.nodes[0].directory_id):
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", text)


@given(st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1))
def test_any_path_is_read_back_by_java(name: str) -> None:
    """Paths reach Java whole: its file format is Latin-1 with escapes, a user's home need not be."""
    path = Path("/", name.replace("/", "-"), "data")
    line = properties(layout(1), str(path))["log.dirs"]
    assert line.isascii()
    units = re.sub(r"\\u([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), line)
    assert units.encode("utf-16-le", "surrogatepass").decode("utf-16-le") == str(path)


def test_the_log_has_a_bound() -> None:
    """A broker left running for weeks fills no disk with its log."""
    text = logging_properties(Path("/data/server.log"))
    assert "appender.file.policies.size.size = 16MB" in text
    assert "appender.file.strategy.max = 2" in text
