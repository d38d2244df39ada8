"""Random failures for a long time, many at once: two nodes of two processes, their broker, one node's network.

`SOAK_S` is for how many seconds schedules fire (default: 300). The seed is printed; the order of failures follows
from it (`SOAK_SEED` repeats it), their timing from the machine.
"""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scheduler.local.settings import HOST
from tests.support.node import Cluster, Node, await_ready
from tests.support.proxy import END_TXN, Proxy, proxied_broker
from tests.support.verifier import Dispatches, beats, judge, now_ms
from topics.client import CommandClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.local import Broker

pytestmark = [pytest.mark.broker, pytest.mark.soak]

SECONDS = int(os.environ.get("SOAK_S", "300"))
SHARDS = 8
SCHEDULES = 100  # each fires every second
SESSION_S = 2.5


class Chaos:
    """One failure after another; everything is whole again when `mend` returns."""

    def __init__(self, broker: Broker, proxy: Proxy, nodes: list[Node], dispatches: Dispatches, seed: int) -> None:
        self._broker, self._proxy, self._nodes, self._dispatches = broker, proxy, nodes, dispatches
        self._chance = random.Random(seed)
        self.counts: dict[str, int] = {}

    def strike(self) -> None:
        """Something fails, for a while or for good; the verifier reads on."""
        failures = [self.kill, self.freeze, self.replan, self.cut, self.lose, self.kill_broker]
        failure = self._chance.choices(failures, weights=[6, 4, 2, 3, 3, 1])[0]
        self.counts[failure.__name__] = self.counts.get(failure.__name__, 0) + 1
        failure()
        self.watch(self._chance.uniform(0.5, 8))

    def watch(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._dispatches.read()

    def _any(self) -> tuple[Node, int]:
        return self._chance.choice(self._nodes), self._chance.randrange(2)

    def kill(self) -> None:
        node, index = self._any()
        try:
            node.sigkill(index)
        except ProcessLookupError:
            return  # it is already gone, and not started again yet

    def freeze(self) -> None:
        """A zombie, if it lasts longer than the session."""
        node, index = self._any()
        pid = node.pid(index)
        try:
            os.kill(pid, signal.SIGSTOP)
            self.watch(self._chance.uniform(0.2, 3 * SESSION_S))
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            return

    def replan(self) -> None:
        """A planned stop and a start."""
        node = self._chance.choice(self._nodes)
        assert node.stop() == [0]
        node.start()

    def cut(self) -> None:
        """The first node loses its network."""
        self._proxy.cut()
        self.watch(self._chance.uniform(0.2, 3 * SESSION_S))
        self._proxy.mend()

    def lose(self) -> None:
        """Answers to its commits get lost."""
        self._proxy.lose(END_TXN, self._chance.randint(1, 6), hang_up=self._chance.random() < 0.5)

    def kill_broker(self) -> None:
        self._broker.kill()
        self._broker.restart()

    def mend(self) -> None:
        self._proxy.lose(END_TXN, 0, hang_up=False)
        await_ready(*self._nodes, seconds=120)


@pytest.mark.timeout(2 * SECONDS + 600)
def test_random_failures(make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it was killed, frozen, cut off or restarted: each occurrence once, none early."""
    seed = int(os.environ.get("SOAK_SEED", random.SystemRandom().randrange(10**9)))
    print(f"seed {seed}")
    with proxied_broker(monkeypatch) as (broker, proxy):
        cluster = make_cluster(broker, shards=SHARDS)
        behind = replace(cluster, bootstrap_servers=f"{HOST}:{proxy.port}", nodes=cluster.nodes)
        nodes = [behind.node("a", 2, supervised=True).start(), cluster.node("b", 2, supervised=True).start()]
        await_ready(*nodes)
        schedules = beats(SCHEDULES, now_ms() + 3_000, SECONDS)
        expected = {name: at for beat in schedules for name, at in beat.expected().items()}
        with CommandClient(cluster.kafka, namespace=cluster.namespace) as client:
            replies = client.send_many([beat.create(misfire={"catch_up": 10_000}) for beat in schedules])
            assert {reply.status for _, reply in replies} == {"accepted"}
        with Dispatches(cluster) as dispatches:
            chaos = Chaos(broker, proxy, nodes, dispatches, seed)
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                chaos.strike()
            chaos.mend()
            dispatches.await_all(expected, SECONDS + 300, lambda: "\n".join(node.words() for node in nodes))
            assert [node.stop() for node in nodes] == [[0], [0]]
            verdict = judge(dispatches.read_to_end(), expected)
        cluster.close()
    print(f"{chaos.counts}: expected {verdict.expected}, seen {verdict.seen}, lost {len(verdict.lost)}, ", end="")
    print(f"doubled {len(verdict.doubled)}, early {len(verdict.early)}")
    assert verdict.clean, f"{verdict}"
