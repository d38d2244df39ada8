"""After a crash, let the cluster forget the broker that died before the one that follows it starts.

A broker that was killed is still registered as alive, with its partitions, until a controller has missed its
heartbeats for the session timeout. If the same node starts within that time it first acts on the old registration: its
transaction coordinator loads as if it still led, and when the old registration is finally fenced there is a moment in
which it takes partitions without a leader for deleted ones and records transactions as complete whose markers it never
wrote. What was written in those partitions then stays invisible to a read-committed reader, though the same transaction
shows elsewhere, until the next one of the same producer makes it visible, too *(Kafka 4.3.1, eight producers: in 2 of 6
kills, and once in an hour when the machine was too busy for a wait of 20 s)*.

With other nodes alive it is enough to wait until they have fenced the dead one. A cluster without any starts as
controllers alone, with a session timeout of a tenth of a second, until they have; that also makes the restart quicker
than a wait for the timeout would be.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from scheduler.local.errors import BrokerUnavailable
from scheduler.local.probe import registered_brokers
from scheduler.local.settings import ClusterLayout, fencing_properties, logging_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from scheduler.local.node import Node, Runtime

FENCED_S = 180.0  # three times as long as a start may take: a machine that busy would not get a broker up, either
END_S = 5.0
LOOK_EVERY_S = 0.02

ACTIVE = "Activated periodic tasks"
REGISTRATION = re.compile(r"for broker (\d+): (?:RegisterBroker|BrokerRegistrationChange)Record\(.*?\bfenced=([-\w]+)")
UNCHANGED = "0"
LOG = "fencing.log"


def fence_crashed(
    layout: ClusterLayout, nodes: Sequence[Node], starting: Iterable[int], runtime: Runtime, tell: Callable[[], None]
) -> None:
    """Wait until those of `nodes` that are about to start (by index) and crashed are fenced, or were never registered.

    `tell` is called when processes change.
    Raises `BrokerUnavailable` if that can't be or takes too long: a broker that started all the same would break
    transactions.
    """
    dead = [index for index in starting if nodes[index].crashed]
    if not dead:
        return
    peers = [layout.nodes[index].port for index, node in enumerate(nodes) if node.process() is not None]
    ids = {layout.nodes[index].node_id for index in dead}
    if peers and len(peers) <= len(nodes) // 2:
        raise BrokerUnavailable(
            f"Kafka {_names(layout, dead)} crashed, and the nodes left are too few to agree on anything.",
            why="only a majority of the controllers can give up a crashed broker, and it must be given up first",
            then="stop the nodes that are left, then start the whole cluster",
        )
    fenced = _by_peers(ids, peers) if peers else _alone(layout, nodes, ids, runtime, tell)
    if not fenced:
        raise BrokerUnavailable(
            f"Kafka {_names(layout, dead)} crashed, and was not seen to be fenced within {FENCED_S:.0f} s.",
            why="a broker that starts before the controller has given up its former self loses transaction markers",
            then=f"look for ERROR or Exception in the logs of the nodes in {nodes[0].folder.parent}; then start again",
        )


def _names(layout: ClusterLayout, indexes: Iterable[int]) -> str:
    return ", ".join(layout.nodes[index].name for index in indexes)


def _by_peers(ids: set[int], ports: Iterable[int]) -> bool:
    def fenced() -> bool:
        for port in ports:
            try:
                if not ids.isdisjoint(registered_brokers(port)):
                    return False
            except (OSError, ValueError):
                return False
        return True

    return _within(FENCED_S, fenced)


def _alone(
    layout: ClusterLayout, nodes: Sequence[Node], ids: set[int], runtime: Runtime, tell: Callable[[], None]
) -> bool:
    logs = []
    try:
        for node, place in zip(nodes, layout.nodes, strict=True):
            properties = node.folder / f"{node.properties.name}.fencing"
            log_config = node.folder / "fencing-log4j2.properties"
            logs.append(node.folder / LOG)
            logs[-1].unlink(missing_ok=True)
            properties.write_text(fencing_properties(layout, place, node.data), "utf-8")
            log_config.write_text(logging_properties(logs[-1]), "utf-8")
            node.spawn(runtime, properties, log_config)
            tell()

        def fenced() -> bool:
            ended = next((node for node in nodes if node.process() is None), None)
            if ended is not None:
                raise BrokerUnavailable(
                    f"The controller that is to fence {ended.folder.name} ended with exit code {ended.exit_code}.",
                    why=f"the last lines of its log say\n{ended.last_words(ended.folder / LOG)}",
                    then="look for ERROR or Exception above; then start again",
                )
            known = [unfenced_in(_text(path)) for path in logs]
            return any(alive is not None and ids.isdisjoint(alive) for alive in known)

        return _within(FENCED_S, fenced)
    finally:
        for node in nodes:
            node.end(END_S)
        tell()


def unfenced_in(log_text: str) -> frozenset[int] | None:
    """The brokers that count as alive according to a controller's log; None before it has become the active controller.

    No request to a controller tells this. The log first repeats the registrations of the past, each with its changes,
    and goes on with new ones once the controller is active; what was said last of a broker holds. One that was killed
    before it was registered is not among them.
    """
    if ACTIVE not in log_text:
        return None
    fenced: dict[int, bool] = {}
    for node, said in REGISTRATION.findall(log_text):
        if said != UNCHANGED:
            fenced[int(node)] = said in ("1", "true")
    return frozenset(node for node, is_fenced in fenced.items() if not is_fenced)


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.exists() else ""


def _within(patience_s: float, true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + patience_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_EVERY_S)
    return True
