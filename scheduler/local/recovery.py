"""After a crash, let the cluster forget the broker that died before the one that follows it starts.

A broker that was killed is still registered as alive, with its partitions, until a controller has missed its
heartbeats for the session timeout. If the same node starts within that time it first acts on the old registration: its
transaction coordinator loads as if it still led, and when the old registration is finally fenced there is a moment in
which it takes partitions without a leader for deleted ones and records transactions as complete whose markers it never
wrote. Their partitions then show nothing new to a read-committed reader, for ever *(Kafka 4.3.1, eight producers: in 2
of 6 kills)*.

With other nodes alive it is enough to wait until they have fenced the dead one. A cluster without any starts as
controllers alone, with a session timeout of a tenth of a second, until they have; that also makes the restart quicker
than a wait for the timeout would be.
"""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING

from scheduler.local.probe import registered_brokers
from scheduler.local.settings import ClusterLayout, fencing_properties, logging_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from scheduler.local.node import Node, Runtime

log = logging.getLogger(__name__)

FENCED_BY_PEERS_S = 20.0
FENCED_ALONE_S = 20.0
END_S = 5.0
LOOK_EVERY_S = 0.02

ACTIVE = "Activated periodic tasks"
REGISTRATION = re.compile(r"for broker (\d+): (?:RegisterBroker|BrokerRegistrationChange)Record\(.*?\bfenced=([-\w]+)")
UNCHANGED = "0"


def fence_crashed(layout: ClusterLayout, nodes: Sequence[Node], runtime: Runtime, tell: Callable[[], None]) -> None:
    """Wait until every node of `nodes` that crashed and is down is fenced. `tell` is called when processes change.

    Gives up with a warning after some seconds: the broker then starts all the same, with the risk told above.
    """
    dead = [index for index, node in enumerate(nodes) if node.crashed and node.process() is None]
    if not dead:
        return
    peers = [layout.nodes[index].port for index, node in enumerate(nodes) if node.process() is not None]
    ids = {layout.nodes[index].node_id for index in dead}
    fenced = _by_peers(ids, peers) if peers else _alone(layout, nodes, ids, runtime, tell)
    if not fenced:
        log.warning("node %s was not seen to be fenced after its crash", ", ".join(map(str, sorted(ids))))


def _by_peers(ids: set[int], ports: Iterable[int]) -> bool:
    def fenced() -> bool:
        for port in ports:
            try:
                if not ids.isdisjoint(registered_brokers(port)):
                    return False
            except (OSError, ValueError):
                return False
        return True

    return _within(FENCED_BY_PEERS_S, fenced)


def _alone(
    layout: ClusterLayout, nodes: Sequence[Node], ids: set[int], runtime: Runtime, tell: Callable[[], None]
) -> bool:
    logs = []
    try:
        for node, place in zip(nodes, layout.nodes, strict=True):
            properties = node.folder / f"{node.properties.name}.fencing"
            log_config = node.folder / "fencing-log4j2.properties"
            logs.append(node.folder / "fencing.log")
            logs[-1].unlink(missing_ok=True)
            properties.write_text(fencing_properties(layout, place, node.data), "utf-8")
            log_config.write_text(logging_properties(logs[-1]), "utf-8")
            node.spawn(runtime, properties, log_config)
            tell()
        return _within(FENCED_ALONE_S, lambda: any(ids <= fenced_in(_text(path)) for path in logs))
    finally:
        for node in nodes:
            node.end(END_S)
        tell()


def fenced_in(log_text: str) -> frozenset[int]:
    """The brokers that are fenced according to a controller's log; none before it has become the active controller.

    No request to a controller tells this. The log first repeats the registrations of the past, each with its changes,
    and goes on with new ones once the controller is active; what was said last of a broker holds.
    """
    if ACTIVE not in log_text:
        return frozenset()
    fenced: dict[int, bool] = {}
    for node, said in REGISTRATION.findall(log_text):
        if said != UNCHANGED:
            fenced[int(node)] = said in ("1", "true")
    return frozenset(node for node, is_fenced in fenced.items() if is_fenced)


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.exists() else ""


def _within(patience_s: float, true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + patience_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_EVERY_S)
    return True
