"""`count` one-shots at one instant, whatever else goes on: loaded, awaited, read by a process of its own, compared.

What `burst.py` does next to a bare producer, as a part for benches that repeat it under other conditions. The instant
is chosen from the rate of the first thousands, so that a slow machine only takes longer.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheduler.core.time import format_instant, stamp
from tests.bench.stand import Reader, quantile
from topics.client import CommandClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.stand import Stand

FIRST = 4_000  # created to see how fast it goes, and due long after
FAR_MS = 90 * 86_400_000
SLACK = 1.5  # times the time the load is expected to take
SPARE_S = 10.0
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Outcome:
    """Seconds from the instant on, occurrences that are not as they must be, and creates a second before it."""

    append: list[float]
    visible: list[float]
    lost: int
    doubled: int
    early: int
    load_per_s: float

    @property
    def right(self) -> bool:
        return self.lost == self.doubled == self.early == 0

    def figures(self) -> dict[str, Any]:
        """As the result line has them."""
        return {
            "append_p50_s": quantile(self.append, 0.5), "append_p99_s": quantile(self.append, 0.99),
            "append_max_s": quantile(self.append, 1), "visible_p99_s": quantile(self.visible, 0.99),
            "load_per_s": round(self.load_per_s), "lost": self.lost, "duplicates": self.doubled, "early": self.early,
        }  # fmt: skip


def creates(tenant: str, count: int, due_ms: int, pad: int) -> Iterator[dict[str, Any]]:
    """One-shots whose occurrences have some 400 bytes with a `pad` of 26."""
    for n in range(count):
        yield {
            "command": "create",
            "schedule_id": f"{tenant}/job-{n:07d}",
            "command_id": f"b{n}",
            "spec": {
                "trigger": {"at": format_instant(due_ms)},
                "handler": "send-invoice",
                "payload": {"pad": "x" * pad},
            },
        }


def one_instant(
    it: Stand,
    tenant: str,
    count: int,
    *,
    pad: int = 26,
    while_loading: Callable[[], None] | None = None,
    at_instant: Callable[[], None] | None = None,
) -> Outcome:
    """Create, wait, read. `while_loading` is called in the middle of the load, `at_instant` when the instant has come.

    Raises RuntimeError when not all creates were accepted before the instant.
    """
    rate = _load(it, f"{tenant}-first", FIRST, time.time_ns() // 1_000_000 + FAR_MS, pad, None)
    due_ms = (int(time.time() + count / rate * SLACK + SPARE_S) + (30 if while_loading else 0)) * 1000
    load_per_s = _load(it, tenant, count, due_ms, pad, while_loading)
    spare_s = due_ms / 1000 - time.time()
    if spare_s < 1:
        raise RuntimeError(f"the load ended {-spare_s:.1f} s after the instant: the machine became much slower")
    reader = Reader(it, count, spare_s + PATIENCE_S, f'"{tenant}/'.encode())
    timer = threading.Timer(max(0.0, due_ms / 1000 - time.time()), at_instant or _nothing)
    timer.start()
    seen = reader.result(spare_s + PATIENCE_S + 60)
    timer.join()
    expected = {f"{tenant}/job-{n:07d}:1:{stamp(due_ms)}" for n in range(count)}
    return Outcome(
        append=[(a - due_ms) / 1000 for a in seen.appended],
        visible=[(v - due_ms) / 1000 for v in seen.visible],
        lost=len(expected - set(seen.ids)),
        doubled=len(seen.ids) - len(set(seen.ids) & expected),
        early=sum(a < d for a, d in zip(seen.appended, seen.due, strict=True)),
        load_per_s=load_per_s,
    )


def _load(it: Stand, tenant: str, count: int, due_ms: int, pad: int, half_way: Callable[[], None] | None) -> float:
    """Create all; returns creates a second."""
    began = time.monotonic()
    accepted = 0
    with CommandClient(it.kafka, timeout_s=PATIENCE_S) as client:
        for answered, (_, reply) in enumerate(client.send_many(creates(tenant, count, due_ms, pad))):
            accepted += reply.code == "created"
            if half_way is not None and answered == count // 2:
                half_way()
    if accepted != count:
        raise RuntimeError(f"{accepted} of {count} creates accepted")
    return count / (time.monotonic() - began)


def _nothing() -> None:
    """Nothing happens at the instant but what is due."""
