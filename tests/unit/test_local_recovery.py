"""Reading from a controller's log which brokers are fenced."""

from __future__ import annotations

import pytest

from scheduler.local.recovery import fenced_in

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
    ("lines", "fenced"),
    [
        ([registered(1, fenced=True), changed(1, -1), ACTIVE, changed(1, 1)], {1}),
        ([registered(1, fenced=True), changed(1, -1), ACTIVE], set()),
        ([registered(1, fenced=True), ACTIVE], {1}),
        ([registered(1, fenced=False), ACTIVE, changed(1, 1), changed(1, 0)], {1}),
        ([registered(1, fenced=False), registered(12, fenced=True), ACTIVE], {12}),
        ([], set()),
    ],
)
def test_what_was_said_last_holds(lines: list[str], fenced: set[int]) -> None:
    """Registrations and changes count in order; a change may leave the fence as it was; numbers are whole."""
    assert fenced_in("\n".join(lines)) == fenced


def test_the_past_is_not_the_present() -> None:
    """A fence of an earlier crash, repeated while the controller reads its log, is no answer yet."""
    past = [registered(1, fenced=True), changed(1, -1), changed(1, 1)]
    assert fenced_in("\n".join(past)) == frozenset()
    assert fenced_in("\n".join([*past, changed(1, -1), ACTIVE])) == frozenset()
