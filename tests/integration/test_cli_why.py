"""`scheduler why` and `scheduler forecast` against a real broker that holds what a shard wrote."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from scheduler.cli import main
from scheduler.core.time import format_instant
from tests.support.traces import traces
from topics.admin import apply, connect, plan
from topics.catalog import Catalogue
from topics.partition import partition_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.broker import BrokerUnderTest

pytestmark = pytest.mark.broker

SHARDS = 4
MINUTE = 60_000
# Its records belong on the partition that the simulated shard, number 0, would own.
NAME = next(f"acme/a{n}" for n in range(100) if partition_for(f"acme/a{n}".encode(), SHARDS) == 0)


@pytest.fixture
def ask(
    broker: BrokerUnderTest, namespace: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., list[dict[str, Any]]]:
    """Runs a command with `--json` and gives its lines; the topics hold the last two hours of one schedule."""
    catalogue = Catalogue(namespace=namespace, shards=SHARDS)
    apply(connect({"bootstrap.servers": broker.bootstrap_servers}), plan(catalogue.specs(), {}))
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for record in traces(scenario()):
        producer.produce(namespace + record.topic, record.value, record.key, 0, headers=record.headers)
    assert producer.flush(30) == 0
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCHEDULER_KAFKA__BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.setenv("SCHEDULER_NAMESPACE", namespace)
    monkeypatch.setenv("SCHEDULER_SHARDS", str(SHARDS))

    def run(*arguments: str, exit_code: int = 0) -> list[dict[str, Any]]:
        result = CliRunner().invoke(main, [*arguments, "--json"])
        assert result.exit_code == exit_code, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    return run


_NOW = time.time_ns() // 1_000_000 // MINUTE * MINUTE


def ago(minutes: int) -> str:
    return format_instant(_NOW - minutes * MINUTE)


def scenario() -> dict[str, Any]:
    """Every minute since two hours ago, with an outage, a pause and a delete."""

    def do(at: str, verb: str, **fields: Any) -> dict[str, Any]:
        return {"at": at, "command": {"command": verb, "schedule_id": NAME, **fields}}

    return {
        "from": ago(120),
        "until": ago(0),
        "steps": [
            do(ago(120), "create", spec={"trigger": {"cron": "* * * * *", "zone": "UTC"}}),
            {"at": ago(99), "outage_until": format_instant(_NOW - 90 * MINUTE + 30_000)},
            do(ago(60), "pause", actor="kim"),
            do(ago(50), "resume"),
            do(ago(20), "delete", reason="moved"),
        ],
    }


def test_each_answer_comes_with_the_records_that_prove_it(ask: Callable[..., Any], namespace: str) -> None:
    """Dispatched, missed, suppressed and ended, from one cluster; topic, partition and offset lead to the records."""
    found = {minutes: ask("why", NAME, "--at", ago(minutes))[0] for minutes in (110, 95, 55, 10)}
    assert {minutes: one["answer"] for minutes, one in found.items()} == {
        110: "dispatched", 95: "missed", 55: "suppressed", 10: "ended",
    }  # fmt: skip
    proof = found[110]["evidence"][0]
    assert (proof["topic"], proof["partition"], proof["offset"]) == (f"{namespace}dispatch.default.normal", 0, 9)
    assert proof["record"]["scheduled_for"] == ago(110)
    assert found[95]["evidence"][0]["record"]["reason"] == "downtime"
    assert f"{ago(90)} ran for it" in found[95]["text"]
    assert "for moved" in found[10]["text"]


def test_what_is_not_there_is_said_so(ask: Callable[..., Any]) -> None:
    """Not a nominal, and a schedule nobody knows (exit code 1)."""
    second = format_instant(_NOW - 110 * MINUTE + 1000)
    told = ask("why", NAME, "--at", second)[0]
    assert (told["answer"], told["previous"], told["next"]) == ("not_named", ago(110), ago(109))
    assert ask("why", "acme/nobody", "--at", second, exit_code=1)[0]["answer"] == "unknown"


def test_the_forecast_reads_the_compacted_topic(ask: Callable[..., Any]) -> None:
    """A deleted schedule is not foreseen."""
    assert ask("forecast", "--to", "+2h")[-1] == {"total": 0, "left_out": {}}
