"""One world from one seed: nodes, a tenant, faults, and a quiet end at which everything must be as promised."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scheduler.core.time import parse_instant
from scheduler.shard import keys
from scheduler.shard.rebuild import ORDER, Change, Rebuild
from scheduler.shard.shard import Shard
from scheduler.state.store import MemoryStore
from tests.support.world.brokers import Brokers
from tests.support.world.chaos import FAULTS, Chaos
from tests.support.world.fibers import SECOND, Violation, World
from tests.support.world.machines import Body, Node
from tests.support.world.tenant import Tenant
from tests.support.world.verdict import judge
from tests.support.world.witness import Witness
from topics.catalog import Catalogue
from topics.messages import STEP_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.runtime.task import ShardTask

START = parse_instant("2026-01-01T09:00:00Z")
QUIET_S = 240  # at most, until everything is served and accounted for: ambiguous calls take 10 s each
WRONG = frozenset({"shard_error", "changelog_foreign_records"})  # events that must never come


class Simulation:
    """`run` raises Violation, with the seed and the last events, when a promise is broken."""

    def __init__(self, seed: int, faults: Mapping[str, float] = FAULTS) -> None:
        self.world = World(seed)
        random = self.world.random
        self.catalogue = Catalogue(shards=random.choice((4, 6, 8)), dispatch_factor=random.choice((1, 1, 2)))
        self.witness = Witness(self.world)
        start = START + random.randrange(600_000)
        self.brokers = Brokers(self.world, self.catalogue, start, self.witness.see)
        settings = {
            "horizon_ms": random.choice((1_000, 5_000, 30_000)),
            "max_transaction_records": random.choice((100, 20_000)),
            "catch_up_per_s": random.choice((5, 100)),
            "dispatch_factor": self.catalogue.dispatch_factor,
        }
        self.nodes = [
            Node(self.world, self.brokers, f"n{n}", random.choice((1, 2)), **settings)
            for n in range(random.choice((2, 3)))
        ]
        self.tenant = Tenant(self.brokers, random, random.choice((6, 12)))
        self.chaos = Chaos(self.brokers, self.nodes, faults)
        self.length = int(random.uniform(15, 60) * SECOND)

    def run(self) -> None:
        """The whole story."""
        with _events_of(self.world):
            try:
                self._run()
            except Violation as fault:
                raise Violation(self._told(str(fault))) from None
            except Exception as fault:
                raise AssertionError(self._told(repr(fault))) from fault
            finally:
                self.end()

    def _run(self) -> None:
        world, random = self.world, self.world.random
        for node in self.nodes:
            for index in range(node.settings.processes):
                world.call_in(int(random.uniform(0, 3) * SECOND), lambda n=node, i=index: n.start(i))
        world.call_in(int(random.uniform(0, 4) * SECOND), self.tenant.begin)
        world.run(4 * SECOND)
        end = world.now + self.length
        self._again(self.tenant.act, 1.0, end + 10 * SECOND)
        self._again(self.chaos.strike, random.choice((1.5, 4.0)), end)
        world.run(self.length)
        self.chaos.heal()
        world.run(10 * SECOND)
        self._quiet()

    def end(self) -> None:
        """Nothing of this world goes on."""
        for node in self.nodes:
            for body in node.bodies.values():
                self.world.kill(body.process)

    def _again(self, what: Callable[[], None], mean_s: float, end: int) -> None:
        def once() -> None:
            if self.world.now < end:
                what()
                again()

        def again() -> None:
            self.world.call_in(int(self.world.random.expovariate(1 / mean_s) * SECOND), once)

        again()

    # --- the end

    def _quiet(self) -> None:
        """All shards are served, all nominals accounted for, and stores are what the topics say.

        All commands are answered, those sent to the right partition not more often than that.
        """
        wrong = self._wrong()
        for _ in range(QUIET_S // 2):
            if not wrong:
                break
            self.world.run(2 * SECOND)
            wrong = self._wrong()
        if wrong:
            more = "" if len(wrong) <= 8 else f"\n... and {len(wrong) - 8} more"
            raise Violation("at the quiet end:\n" + "\n".join(wrong[:8]) + more)
        for name, times in self.tenant.times.items():
            if self.witness.replies[name] > times:
                raise Violation(f"command {name} is answered {self.witness.replies[name]} times, sent {times} times")
        for number in range(self.catalogue.shards):
            self._compare_store(number)

    def _wrong(self) -> list[str]:
        owners = self.owners()
        wrong = [
            f"shard {number} is served by {[body.name for body, _ in owners.get(number, [])] or 'nobody'}"
            for number in range(self.catalogue.shards)
            if len(owners.get(number, [])) != 1
        ]
        bodies = [body for node in self.nodes for body in node.bodies.values()]
        wrong += [f"{body.name} is not ready" for body in bodies if not body.is_ready]
        unanswered = self.tenant.unanswered(self.witness.answered)
        wrong += [f"command {name} has no answer" for name in unanswered]
        return wrong + judge(self.tenant.sent, self.witness, self.brokers.wall_ms())

    def owners(self) -> dict[int, list[tuple[Body, ShardTask]]]:
        """Shard -> who serves it."""
        found: dict[int, list[tuple[Body, ShardTask]]] = {}
        for node in self.nodes:
            for body in node.bodies.values():
                for number, task in body.serving().items():
                    found.setdefault(number, []).append((body, task))
        return found

    def _compare_store(self, number: int) -> None:
        """What the owner's store holds is what an empty one holds after a restore."""
        # A commit is acknowledged before its markers are written: until then readers see some of its topics only.
        logs = [self.brokers.log(self.catalogue.namespace + base, number) for base in ORDER]
        settled = self.world.run(
            10 * SECOND,
            until=lambda: self._stored(number) == self._written(number) and all(log.lso == log.end for log in logs),
        )
        if not settled:
            raise Violation(f"the store of shard {number} does not follow its topics")
        live, cold = MemoryStore(), MemoryStore()
        live._map.update(self._store(number)._map)
        rebuild = Rebuild(cold, number)
        for base, log in zip(ORDER, logs, strict=True):
            entries = log.committed()
            changes = [Change(e.offset, e.key, e.value, int(dict(e.headers or [])[STEP_HEADER])) for e in entries]
            rebuild.apply(base, changes, entries[-1].offset + 1 if entries else 0)
        found, wanted = self._opened(number, live), self._opened(number, cold)
        if found != wanted:
            more, less = found.items() - wanted.items(), wanted.items() - found.items()
            raise Violation(f"the store of shard {number} has {sorted(more)[:5]}, a cold restore {sorted(less)[:5]}")

    def _opened(self, number: int, store: MemoryStore) -> dict[bytes, bytes]:
        """As the next owner takes it up."""
        around = next(iter(self.owners()[number]))[1]._around
        shard = Shard(number, self.catalogue, store, around.shard_settings())
        shard.open(self.brokers.wall_ms(), 0)
        return {k: v for k, v in store.items(b"", b"\xff") if not k.startswith(keys.META)}

    def _store(self, number: int) -> MemoryStore:
        ((body, task),) = self.owners()[number]
        node = next(node for node in self.nodes if body in node.bodies.values())
        base = str(task._around.store_path(number))
        (directory,) = (
            directory
            for name, directory in node.disk.directories.items()
            if directory.is_held
            and directory.handle.process is body.process
            and (name == base or name.startswith(f"{base}."))
        )
        return directory.map

    def _stored(self, number: int) -> bytes | None:
        return self._store(number).get(keys.RECORD)

    def _written(self, number: int) -> bytes | None:
        entries = self.brokers.log(self.catalogue.shard_records, number).committed()
        return next((e.value for e in reversed(entries) if e.key == b"%d" % number), None)

    def _told(self, fault: str) -> str:
        seed = self.world.seed
        again = f"FIRST_SEED={seed} SEEDS=1 .venv/bin/pytest -m 'not soak' -k no_fault tests/simulation/test_shell.py"
        return f"{fault}\n\nseed {seed}; the same again: {again}\nthe last events:\n{self.world.story()}"


class _events_of(logging.Handler):  # noqa: N801 - used as a context manager
    """The shell's log events become notes of the world; some of them must never come."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._log = logging.getLogger("scheduler")

    def __enter__(self) -> None:
        self._before = self._log.level, self._log.propagate, self._log.handlers
        self._log.handlers, self._log.propagate = [self], False
        self._log.setLevel(logging.INFO)

    def __exit__(self, *_: object) -> None:
        level, self._log.propagate, self._log.handlers = self._before
        self._log.setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        fiber = self._world._running
        who = fiber.process.name if fiber is not None else "world"
        self._world.heard.add(" ".join((record.getMessage(), *_why(record))))
        fields = " ".join(f"{k}={v}" for k, v in getattr(record, "fields", {}).items())
        self._world.note(who, f"{record.getMessage()} {fields}".rstrip())
        if record.getMessage() in WRONG:
            text = logging.Formatter().formatException(record.exc_info) if record.exc_info else fields
            self._world.violate(f"{record.getMessage()}: {text}")


def _why(record: logging.LogRecord) -> tuple[str, ...]:
    why = getattr(record, "fields", {}).get("why")
    return () if why is None else (str(why),)
