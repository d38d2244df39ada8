"""What an embedded cluster is made of, as values: its layout and the files each node reads. Pure.

The layout (`broker.json` in the data directory) is remembered, so that a restarted cluster has the same ports, ids and
data.
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

HOST = "127.0.0.1"
LARGEST_MESSAGE = 16 << 20
LAYOUT_FORMAT = 1


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """One node. `pid` is the process last started for it, alive or not."""

    node_id: int
    port: int
    controller_port: int
    directory_id: str
    pid: int | None = None

    @property
    def name(self) -> str:
        return f"node-{self.node_id}"


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """All nodes of one cluster, ids 1 to n."""

    cluster_id: str
    nodes: tuple[NodeLayout, ...]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{node.port}" for node in self.nodes)

    def with_ports(self, ports: Sequence[int]) -> ClusterLayout:
        """Return the same cluster with its first client ports replaced."""
        moved = [replace(node, port=port) for node, port in zip(self.nodes, ports, strict=False)]
        return replace(self, nodes=(*moved, *self.nodes[len(moved) :]))

    def with_pid(self, index: int, pid: int | None) -> ClusterLayout:
        nodes = list(self.nodes)
        nodes[index] = replace(nodes[index], pid=pid)
        return replace(self, nodes=tuple(nodes))

    def to_json(self) -> str:
        return json.dumps({"format": LAYOUT_FORMAT, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> ClusterLayout:
        """Read what `to_json` wrote. Raises `ValueError` for anything else."""
        try:
            data = json.loads(text)
            if data["format"] != LAYOUT_FORMAT:
                raise ValueError(f"format {data['format']}, expected {LAYOUT_FORMAT}")
            return cls(data["cluster_id"], tuple(NodeLayout(**node) for node in data["nodes"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a broker layout: {error}") from error


def new_layout(ports: Iterable[tuple[int, int]], randoms: Iterable[bytes]) -> ClusterLayout:
    """Lay out a cluster with one node per pair of (client, controller) port; `randoms` yields 16 bytes per id."""
    ids = (_kafka_uuid(raw) for raw in randoms)
    cluster_id = next(ids)
    nodes = (NodeLayout(n, port, controller, next(ids)) for n, (port, controller) in enumerate(ports, start=1))
    return ClusterLayout(cluster_id, tuple(nodes))


def _kafka_uuid(raw: bytes) -> str:
    # Kafka's own text form; it refuses ids that begin with a dash, which its command lines would take for an option.
    return base64.urlsafe_b64encode(bytes([raw[0] & 0x7F]) + raw[1:16]).decode().rstrip("=")


def initial_controllers(layout: ClusterLayout) -> str:
    """The voters a cluster of several nodes is formatted with."""
    return ",".join(f"{n.node_id}@{HOST}:{n.controller_port}:{n.directory_id}" for n in layout.nodes)


def server_properties(layout: ClusterLayout, node: NodeLayout, data: Path) -> str:
    """The node's `server.properties`: everything on loopback, everything small, everything quick."""
    return _rendered(_server_values(layout, node, data))


def fencing_properties(layout: ClusterLayout, node: NodeLayout, data: Path) -> str:
    """The same node as a controller alone that gives up at once on brokers it does not hear of; see `recovery`."""
    listener = f"CONTROLLER://{HOST}:{node.controller_port}"
    return _rendered(
        _server_values(layout, node, data)
        | {
            "process.roles": "controller",
            "listeners": listener,
            "advertised.listeners": listener,
            "broker.heartbeat.interval.ms": 50,
            "broker.session.timeout.ms": 100,
            "controller.quorum.append.linger.ms": 0,
        }
    )


def _server_values(layout: ClusterLayout, node: NodeLayout, data: Path) -> dict[str, object]:
    copies = len(layout.nodes)
    in_sync = 2 if copies > 1 else 1
    listeners = f"PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}"
    return {
        "node.id": node.node_id,
        "process.roles": "broker,controller",
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.bootstrap.servers": ",".join(f"{HOST}:{n.controller_port}" for n in layout.nodes),
        "log.dirs": data,
        # Three see in seconds that one is gone. One alone must never be given up by itself on a busy machine, and need
        # not be: `recovery` sees to it after a crash.
        "broker.heartbeat.interval.ms": 500,
        "broker.session.timeout.ms": 5000 if copies > 1 else 30_000,
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.num.partitions": 4,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 500,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        "log.cleaner.dedupe.buffer.size": 16 << 20,
        "auto.create.topics.enable": "false",
        # Batches of many 64 KiB payloads, and room for one that grew.
        "message.max.bytes": LARGEST_MESSAGE,
        "replica.fetch.max.bytes": LARGEST_MESSAGE,
        "num.network.threads": 2,
        "num.io.threads": 4,
    }


def _rendered(values: dict[str, object]) -> str:
    return "".join(f"{key}={_escaped(str(value))}\n" for key, value in values.items())


def _escaped(value: str) -> str:
    # Java reads these files as Latin-1, with backslash escapes in UTF-16 units.
    units = memoryview(value.encode("utf-16-le")).cast("H")
    return "".join(chr(u) if 32 <= u < 127 and u != ord("\\") else f"\\u{u:04x}" for u in units)


def logging_properties(log_file: Path) -> str:
    """A log4j2 configuration: everything to one file of bounded size."""
    return f"""\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {_escaped(str(log_file))}
appender.file.filePattern = {_escaped(str(log_file))}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %-5p %m (%c{{1}})%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 16MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""
