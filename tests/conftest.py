"""Fixtures shared by all tests.

`broker`: one broker for the whole run, kept apart by `namespace`. `private_broker`: a node of the test's own, to kill.
`docker_broker`: a node in a container, where an engine answers. `cluster`: all topics on `broker`, and nodes of the
scheduler on them; `make_cluster` the same on any broker.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.local import Broker
from tests.support.broker import BrokerUnderTest, given_or_embedded
from tests.support.docker_broker import in_docker
from tests.support.node import Cluster
from tests.support.verifier import reported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_numbers = itertools.count()
_broker = pytest.StashKey[BrokerUnderTest]()


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerUnderTest]:
    """The broker of this run: the given one (`SCHEDULER_KAFKA__BOOTSTRAP_SERVERS`) or an embedded node."""
    for one in given_or_embedded():
        request.config.stash[_broker] = one
        yield one


@pytest.fixture
def private_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """An embedded node of this test alone: it may be killed, restarted and filled with garbage."""
    with Broker.start() as one:
        request.node.stash[_broker] = one
        yield one


@pytest.fixture(scope="session")
def docker_broker() -> Iterator[str]:
    """The address of a node in a container; skips with the engine's own words where none answers."""
    yield from in_docker()


@pytest.fixture
def namespace() -> str:
    """A prefix for topic names that no other test, run or process shares, such as `t3f9-0.`."""
    return f"t{os.getpid():x}{os.urandom(2).hex()}-{next(_numbers)}."


@pytest.fixture
def make_cluster(namespace: str, tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Makes the topics of a scheduler of `shards` shards on a broker; ends what its nodes leave running."""
    made: list[Cluster] = []

    def make(one: BrokerUnderTest, shards: int = 2, **more: Any) -> Cluster:
        number = len(made)
        folder = tmp_path / f"cluster-{number}"
        folder.mkdir()
        cluster = Cluster(one.bootstrap_servers, f"{namespace}{number or ''}", shards, folder, **more)
        made.append(cluster)
        return cluster.make_topics()

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster], broker: BrokerUnderTest) -> Cluster:
    """A scheduler of two shards on the broker of this run; no node runs yet."""
    return make_cluster(broker)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Show the end of the broker's log with every failed test that used one."""
    report = yield
    if call.when == "call":
        report.user_properties += [("counted", counts) for counts in reported()]
    names = getattr(item, "fixturenames", ())
    if report.failed and {"broker", "private_broker"} & set(names):
        one = item.stash.get(_broker, None) or item.config.stash.get(_broker, None)
        if one is not None:
            report.sections.append((f"broker log during {call.when}", one.log_tail(40)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the verifiers counted, test by test, also when all is well."""
    lines = [
        f"{report.nodeid.removeprefix('tests/')}: {counts}"
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        for name, counts in report.user_properties
        if name == "counted"
    ]
    if lines:
        terminalreporter.section("what the verifiers counted")
        for line in sorted(lines):
            terminalreporter.line(line)
