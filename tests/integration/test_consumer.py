"""The example consumer on a real broker: exactly one effect an occurrence, through kills and repeats."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from msgspec import Raw

from consumers import Handled, Ledger, Worker
from topics.admin import apply, connect, plan
from topics.catalog import Catalogue
from topics.codec import encode
from topics.messages import Dispatch

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from tests.support.broker import BrokerUnderTest

pytestmark = pytest.mark.broker

TOTAL = 700


@pytest.fixture
def catalogue(broker: BrokerUnderTest, namespace: str) -> Catalogue:
    made = Catalogue(namespace=namespace, shards=2)
    wanted = [spec for spec in made.specs() if spec.name in made.dispatch_topics()]
    apply(connect({"bootstrap.servers": broker.bootstrap_servers}), plan(wanted, {}))
    return made


def dispatch(number: int) -> Dispatch:
    minute = f"{number // 60:02d}:{number % 60:02d}"
    return Dispatch(
        occurrence_id=f"acme/job:1:20260308T07{minute.replace(':', '')}.000Z",
        schedule_id="acme/job",
        tenant="acme",
        version=1,
        shard=number % 2,
        lane="default",
        priority="normal",
        attempt=1,
        scheduled_for=f"2026-03-08T07:{minute}Z",
        available_at=f"2026-03-08T07:{minute}Z",
        origin="schedule",
        stands_for=1,
        tz_version="2026a",
        generation=0,
        payload=Raw(b'{"n": %d, "precise": 1.50}' % number),
    )


class Shard:
    """Writes to the lane as a shard does, in transactions; some of them taken back."""

    def __init__(self, broker: BrokerUnderTest, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": f"{catalogue.namespace}writer"}
        )
        self._producer.init_transactions(30)

    def write(self, values: list[bytes | None], *, abort: bool = False, priority: str = "normal") -> None:
        self._producer.begin_transaction()
        for number, value in enumerate(values):
            self._producer.produce(self._catalogue.dispatch("default", priority), value, b"acme/job", number % 2)
        self._producer.flush(30)
        if abort:
            self._producer.abort_transaction(30)
        else:
            self._producer.commit_transaction(30)


def command(broker: BrokerUnderTest, catalogue: Catalogue, ledger: Path, *more: str) -> list[str]:
    quick = ["--set", "session.timeout.ms=2000", "--set", "heartbeat.interval.ms=400"]  # a kill is noticed soon
    return [
        sys.executable, "-m", "consumers", "--bootstrap", broker.bootstrap_servers, "--namespace",
        catalogue.namespace, "--ledger", str(ledger), *quick, *more,
    ]  # fmt: skip


def test_each_occurrence_is_handled_once_through_a_kill_and_repeats(
    broker: BrokerUnderTest, catalogue: Catalogue, tmp_path: Path
) -> None:
    """Killed in the middle, its offsets uncommitted: the second run gets repeats and prints only what is new."""
    shard = Shard(broker, catalogue)
    expected = [dispatch(number) for number in range(TOTAL)]
    values: list[bytes | None] = [encode(one) for one in expected]
    shard.write(values[:350])
    shard.write([encode(dispatch(number)) for number in range(900, 950)], abort=True)
    shard.write([b"garbage", None, b"{}"])
    shard.write(values[350:], priority="critical")
    shard.write(values[100:120])  # a repeat the scheduler itself would never make
    path = tmp_path / "ledger.sqlite"

    # It prints far more than a pipe holds, so it cannot be done before it is killed.
    first = subprocess.Popen(command(broker, catalogue, path), stdout=subprocess.PIPE)
    assert first.stdout is not None
    lines = [first.stdout.readline() for _ in range(120)]
    os.kill(first.pid, signal.SIGKILL)
    lines += [line for line in first.stdout.readlines() if line.endswith(b"}\n")]
    first.wait()
    first.stdout.close()

    with Ledger(path) as ledger:
        remaining = sum(not ledger.knows(one.occurrence_id) for one in expected)
    assert remaining
    again = command(broker, catalogue, path, "--max", str(remaining))
    second = subprocess.run(again, capture_output=True, timeout=60, check=True)
    lines += second.stdout.splitlines()

    printed = [json.loads(line) for line in lines]
    ids = [line["occurrence_id"] for line in printed]
    assert len(ids) == len(set(ids))
    assert set(ids) <= {one.occurrence_id for one in expected}
    assert len(ids) >= TOTAL - 1  # the one in hand at the kill may be handled and not printed, or printed in half
    with Ledger(path) as ledger:
        assert all(ledger.knows(one.occurrence_id) for one in expected)
    assert f"{remaining} handled" in second.stderr.decode()
    assert all(b'"precise":1.50' in line for line in lines)
    assert all(line["lag_ms"] > 0 for line in printed)


def test_stopped_in_order_it_starts_again_behind_what_it_has_done(
    broker: BrokerUnderTest, catalogue: Catalogue, tmp_path: Path
) -> None:
    """The offset follows the effect: a second run sees nothing of the first one's records, not even as repeats."""
    shard = Shard(broker, catalogue)
    shard.write([encode(dispatch(number)) for number in range(10)])
    ledger = tmp_path / "ledger.sqlite"
    run = {"capture_output": True, "text": True, "timeout": 60, "check": True}
    first: Any = subprocess.run(command(broker, catalogue, ledger, "--max", "10"), **run)  # noqa: PLW1510 - `check` is in `run`
    shard.write([encode(dispatch(number)) for number in range(10, 13)])
    second: Any = subprocess.run(command(broker, catalogue, ledger, "--max", "3"), **run)  # noqa: PLW1510 - `check` is in `run`
    assert "10 handled, 0 repeats" in first.stderr
    assert "3 handled, 0 repeats" in second.stderr


def test_a_handler_that_raises_gets_its_occurrence_again(
    broker: BrokerUnderTest, catalogue: Catalogue, tmp_path: Path
) -> None:
    """The worker stops with the handler's exception; nothing is remembered, nothing is skipped."""
    Shard(broker, catalogue).write([encode(dispatch(number)) for number in range(4)])
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    attempts: list[str] = []

    def fails_first(one: Dispatch, effects: sqlite3.Connection) -> None:
        attempts.append(one.occurrence_id)
        if len(attempts) == 1:
            raise ValueError("the bank is closed")

    done: list[Handled] = []
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        with pytest.raises(ValueError, match="the bank is closed"):
            list(Worker(kafka, group="g", handler=fails_first, ledger=ledger).run(catalogue.dispatch_topics()))
        worker = Worker(kafka, group="g", handler=fails_first, ledger=ledger)
        for one in worker.run(catalogue.dispatch_topics(), stop=lambda: len(done) == 4):
            done.append(one)  # noqa: PERF402 - `stop` looks at it in between
    assert {one.dispatch.occurrence_id for one in done} == {dispatch(number).occurrence_id for number in range(4)}
    assert not any(one.repeat for one in done)
    assert attempts.count(attempts[0]) == 2
