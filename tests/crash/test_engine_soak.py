"""Random failures for a long time, many at once: four processes on three nodes, their broker, one node's network.

`SOAK_S` is for how many seconds schedules fire (default: an hour); `SOAK_SCHEDULES` how many of them, each every second
(1,000), and `SOAK_COMMANDS` how many commands a second are sent beside them (200). The seed is printed; the order of
failures follows from it (`SOAK_SEED` repeats it), their timing from the machine. The verdict is one line.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scheduler.local.settings import HOST
from tests.crash.wrong_clock import Lies
from tests.support.load import Load
from tests.support.node import Cluster, Node, await_ready
from tests.support.proxy import Proxy, proxied_broker
from tests.support.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.local import Broker

pytestmark = [pytest.mark.broker, pytest.mark.soak]

SECONDS = int(os.environ.get("SOAK_S", "3600"))
SCHEDULES = int(os.environ.get("SOAK_SCHEDULES", "1000"))
COMMANDS = int(os.environ.get("SOAK_COMMANDS", "200"))
SHARDS = 8
SESSION_S = 2.5
CATCH_UP = 1000  # an outage longer than so many seconds would be a misfire: on a starved machine the broker takes long
NO_BROKER = 3  # exit code
TWO_HOURS_MS = 7_200_000
OFFSET_COMMIT, HEARTBEAT, ADD_PARTITIONS, END_TXN = 8, 12, 24, 26


class Chaos:
    """One failure after another; everything is whole again when `mend` returns.

    `cut_off` is behind the proxy, `lied_to` is one process that the chaos itself starts again.
    """

    def __init__(self, broker: Broker, proxy: Proxy, nodes: list[Node], lies: Lies, seed: int) -> None:
        self._broker, self._proxy, self._nodes, self._lies = broker, proxy, nodes, lies
        self._chance = random.Random(seed)
        self.counts: Counter[str] = Counter()

    def strike(self) -> None:
        """Something fails, for a while or for good."""
        failures = {
            self.kill: 8, self.freeze: 4, self.replan: 2, self.cut: 3, self.lose: 3, self.step_clock: 2,
            self.kill_broker: 1, self.kill_all: 1,
        }  # fmt: skip
        self._revive()
        failure = self._chance.choices(list(failures), weights=list(failures.values()))[0]
        self.counts[failure.__name__] += 1
        failure()
        time.sleep(self._chance.uniform(0.5, 8))

    def _any(self) -> tuple[Node, int]:
        every = [(node, index) for node in self._nodes for index in range(node.processes)]
        return self._chance.choice(every)

    def _kill(self, node: Node, index: int) -> None:
        try:
            node.sigkill(index)
        except ProcessLookupError:
            return  # it is already gone, and not started again yet
        if not node.supervised:
            self._start(node)

    def _revive(self) -> None:
        """One that found no broker when it started has ended, and has no supervisor."""
        if not self._nodes[-1].runs():
            self._start(self._nodes[-1])

    def _start(self, node: Node) -> None:
        node.start(lies=None if node.supervised else self._lies.path)

    def kill(self) -> None:
        self._kill(*self._any())

    def kill_all(self) -> None:
        """Every process at once: nobody is there for a moment."""
        for node in self._nodes:
            for index in range(node.processes):
                self._kill(node, index)

    def freeze(self) -> None:
        """A zombie, if it lasts longer than the session."""
        node, index = self._any()
        pid = node.pid(index)
        try:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self._chance.uniform(0.2, 3 * SESSION_S))
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            return

    def replan(self) -> None:
        """A planned stop and a start."""
        node = self._chance.choice(self._nodes)
        codes = node.stop()
        # One that has hardly begun has no handlers yet, and nothing to drain.
        allowed = {0, -signal.SIGTERM, NO_BROKER if node is self._nodes[-1] else 0}
        assert set(codes) <= allowed, f"{codes}: {node.words()}"
        self._start(node)

    def cut(self) -> None:
        """The first node loses its network."""
        self._proxy.cut()
        time.sleep(self._chance.uniform(0.2, 3 * SESSION_S))
        self._proxy.mend()

    def lose(self) -> None:
        """Answers to it get lost, with their connections or in silence."""
        api = self._chance.choice([END_TXN, END_TXN, ADD_PARTITIONS, HEARTBEAT, OFFSET_COMMIT])
        self._proxy.lose(api, self._chance.randint(1, 6), hang_up=self._chance.random() < 0.5)

    def step_clock(self) -> None:
        """One process's wall clock is hours wrong from here on, or right again."""
        self._lies.tell(wall_ms=self._chance.choice([-TWO_HOURS_MS, 0, TWO_HOURS_MS]))

    def kill_broker(self) -> None:
        """For longer than a commit is tried, at times: its outcome stays open until the broker is back."""
        self._broker.kill()
        time.sleep(self._chance.choice([0, 0, 0, 5, 20]))
        self._broker.restart()

    def mend(self) -> None:
        for api in (END_TXN, ADD_PARTITIONS, HEARTBEAT, OFFSET_COMMIT):
            self._proxy.lose(api, 0, hang_up=False)
        self._lies.tell()
        self._revive()
        await_ready(*self._nodes, seconds=120)


@pytest.mark.timeout(2 * SECONDS + 900)
def test_random_failures(make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it was killed, frozen, cut off, stopped or misled: each occurrence once, none early."""
    seed = int(os.environ.get("SOAK_SEED", random.SystemRandom().randrange(10**9)))
    print(f"seed {seed}")
    with proxied_broker(monkeypatch) as (broker, proxy):
        cluster = make_cluster(broker, shards=SHARDS)
        behind = replace(cluster, bootstrap_servers=f"{HOST}:{proxy.port}")
        lies = Lies(cluster.folder / "lies.json")
        more = {"catch_up_per_s": 100_000}
        nodes = [behind.node("cut-off", 2, supervised=True, **more).start()]
        nodes += [cluster.node("b", supervised=True, **more).start()]
        nodes += [cluster.node("lied-to", **more).start(lies=lies.path)]

        def words() -> str:
            return f"seed {seed}, {dict(chaos.counts)}\n" + "\n".join(node.words() for node in nodes)

        chaos = Chaos(broker, proxy, nodes, lies, seed)
        await_ready(*nodes)
        load = Load(cluster, SCHEDULES, SECONDS, per_s=COMMANDS, seed=seed).create(CATCH_UP)
        with Witness(cluster, load.steady, load.held) as witness:
            with load:
                end = time.monotonic() + SECONDS
                while time.monotonic() < end:
                    chaos.strike()
            chaos.mend()
            witness.settle(120)
            codes = [node.stop() for node in nodes]
            counts = witness.count()
        takeovers = sum(len(node.events("shard_ready")) for node in nodes) - SHARDS
        verdict = f"{counts}; takeovers {takeovers}; failures {dict(chaos.counts)}; seed {seed}"
        print(verdict)
        if not counts.clean:  # what the brokers have written is the only witness of why
            shutil.copytree(broker.data_dir, cluster.folder / "brokers")
        assert counts.clean, f"{verdict}\n{words()}"
        assert codes == [[0], [0], [0]], words()
        cluster.close()
