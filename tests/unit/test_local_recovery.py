"""Reading from a controller's log which brokers are fenced, and what happens when they are not to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from scheduler.local import recovery
from scheduler.local.errors import BrokerUnavailable
from scheduler.local.recovery import fence_crashed, unfenced_in
from scheduler.local.settings import new_layout

if TYPE_CHECKING:
    from pathlib import Path

REGISTERED = (
    "[QuorumController id=1] Replayed initial RegisterBrokerRecord for broker {0}: RegisterBrokerRecord(brokerId={0}, "
    "isMigratingZkBroker=false, incarnationId=o7ZRxqpDR1yTd-ArYsfNow, brokerEpoch=13, endPoints=[], rack=null, "
    "fenced={1}, inControlledShutdown=false, logDirs=[]) (ClusterControlManager)"
)
CHANGED = (
    "[QuorumController id=1] Replayed BrokerRegistrationChangeRecord modifying the registration for broker {0}: "
    "BrokerRegistrationChangeRecord(brokerId={0}, brokerEpoch=13, fenced={1}, inControlledShutdown=0) (Cluster)"
)
ACTIVE = "[QuorumController id=1] Activated periodic tasks: electPreferred, maybeFenceStaleBroker"


def registered(node: int, *, fenced: bool) -> str:
    return REGISTERED.format(node, str(fenced).lower())


def changed(node: int, code: int) -> str:
    return CHANGED.format(node, code)


@pytest.mark.parametrize(
    ("lines", "unfenced"),
    [
        ([registered(1, fenced=True), changed(1, -1), ACTIVE, changed(1, 1)], set()),
        ([registered(1, fenced=True), changed(1, -1), ACTIVE], {1}),
        ([registered(1, fenced=True), ACTIVE], set()),
        ([registered(1, fenced=False), ACTIVE, changed(1, 1), changed(1, 0)], set()),
        ([registered(1, fenced=False), registered(12, fenced=True), ACTIVE], {1}),
        ([ACTIVE], set()),
    ],
)
def test_what_was_said_last_holds(lines: list[str], unfenced: set[int]) -> None:
    """Registrations and changes count in order; a change may leave the fence as it was; numbers are whole."""
    assert unfenced_in("\n".join(lines)) == unfenced


def test_the_past_is_not_the_present() -> None:
    """A fence of an earlier crash, repeated while the controller reads its log, is no answer yet."""
    past = [registered(1, fenced=True), changed(1, -1), changed(1, 1)]
    assert unfenced_in("\n".join(past)) is None
    assert unfenced_in("\n".join([*past, changed(1, -1), ACTIVE])) == {1}


class Machine:
    """A node whose process ran, crashed, or is what `spawn` makes of it."""

    def __init__(self, folder: Path, *, runs: bool = False, lives: bool = True, says: str = "") -> None:
        folder.mkdir()
        self.folder, self.data, self.properties = folder, folder / "data", folder / "server.properties"
        self.crashed = not runs
        self.exit_code: int | None = None
        self._runs, self._lives, self._says = runs, lives, says
        self.ended = 0

    def process(self) -> object | None:
        return self if self._runs else None

    def spawn(self, *_: object) -> None:
        (self.folder / recovery.LOG).write_text(self._says)
        self._runs = self._lives
        self.exit_code = None if self._lives else 1

    def end(self, _patience_s: float) -> None:
        self._runs = False
        self.ended += 1

    def last_words(self, log: Path) -> str:
        return f"what {log.name} says"


def fence(*nodes: Machine, starting: tuple[int, ...] = (0,)) -> None:
    layout = new_layout([(1, 2)] * len(nodes), [bytes([n]) * 16 for n in range(len(nodes) + 1)])
    fence_crashed(layout, cast("Any", nodes), starting, cast("Any", None), lambda: None)


def test_no_broker_starts_before_it_is_fenced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long that takes: an error, and nothing is left running."""
    monkeypatch.setattr(recovery, "FENCED_S", 0.05)
    node = Machine(tmp_path / "node-1")
    with pytest.raises(BrokerUnavailable, match="node-1 crashed, and was not seen to be fenced"):
        fence(node)
    assert node.process() is None
    assert node.ended == 1


def test_a_controller_that_does_not_live_is_not_waited_for(tmp_path: Path) -> None:
    """Its own words are in the error."""
    with pytest.raises(BrokerUnavailable, match=r"ended with exit code 1(?s:.*)what fencing\.log says"):
        fence(Machine(tmp_path / "node-1", lives=False))


def test_one_of_three_cannot_fence_the_others(tmp_path: Path) -> None:
    """It has no majority, so there is nothing to wait for."""
    alive, *dead = (Machine(tmp_path / f"node-{n}", runs=n == 1) for n in (1, 2, 3))
    with pytest.raises(BrokerUnavailable, match="node-2 crashed, and the nodes left are too few"):
        fence(alive, *dead, starting=(1,))
    assert alive.process() is not None


def test_who_was_killed_before_it_was_registered_has_nothing_to_lose(tmp_path: Path) -> None:
    """As one that was interrupted in its very first start."""
    node = Machine(tmp_path / "node-1", says=ACTIVE)
    fence(node)
    assert node.process() is None


def test_only_who_is_about_to_start_is_fenced(tmp_path: Path) -> None:
    """Another one that is dead meanwhile is no reason to wait, or to refuse."""
    nodes = [Machine(tmp_path / f"node-{n}", runs=n != 2) for n in (1, 2, 3)]
    fence(*nodes, starting=(0,))
    assert [node.ended for node in nodes] == [0, 0, 0]
