"""Calendars through a real node: applied on the command line, followed by preview and dispatch, changed, deleted."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from scheduler.cli import main
from scheduler.config_load import load_settings
from scheduler.runtime.kafka import changelog_consumer
from scheduler.runtime.restore import Restore
from scheduler.shard import keys
from scheduler.state.store import MemoryStore
from tests.support.node import Cluster, await_ready, wait_until
from tests.support.verifier import Dispatches, ms_of, now_ms
from topics.partition import partition_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.broker

EVERY_SECOND = ("--cron", "* * * * * *", "--dialect", "seconds", "--zone", "UTC")


@pytest.fixture
def ask(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Runs a command with `--json` and gives its lines."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCHEDULER_KAFKA__BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
    monkeypatch.setenv("SCHEDULER_NAMESPACE", cluster.namespace)
    monkeypatch.setenv("SCHEDULER_SHARDS", str(cluster.shards))

    def run(*arguments: str, text: str = "", exit_code: int = 0) -> list[dict[str, Any]]:
        result = CliRunner().invoke(main, [*arguments, "--json"], input=text)
        assert result.exit_code == exit_code, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    return run


def test_a_calendar_is_applied_changed_and_deleted(
    cluster: Cluster, ask: Callable[..., list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed today and tomorrow: nothing fires and the preview says when. Opened: it fires. Deleted: it is broken."""
    today = datetime.now(UTC).date()
    closed = f"name: office\nexclude_dates: ['{today}', '{today + timedelta(1)}']\n"
    node = cluster.node().start()
    await_ready(node)

    def told() -> dict[str, Any]:
        return ask("schedule", "show", "acme/tick")[0]

    def apply(text: str, version: int, result: str) -> None:
        assert ask("calendar", "apply", "-", text=text) == [
            {"name": "office", "version": version, "result": result, "dry_run": False}
        ]

    def planned_by(version: int) -> dict[str, Any]:
        found: dict[str, Any] = wait_until(
            lambda: (seen := told()).get("calendar_version") == version and seen,
            lambda: f"a re-plan by version {version}; {node.words()}",
        )
        return found

    refused = ask("schedule", "create", "acme/tick", *EVERY_SECOND, "--calendar", "office", exit_code=1)
    assert refused[0]["code"] == "unknown_calendar"
    apply(closed, 1, "created")
    wait_until(lambda: node.events("calendars_read"), node.words)
    created = ask("schedule", "create", "acme/tick", *EVERY_SECOND, "--calendar", "office", "--preview", "1")
    first = created[0]["preview"][0]["scheduled_for"]
    assert first == f"{today + timedelta(2)}T00:00:00Z"
    assert told()["next"][0]["scheduled_for"] == first
    with Dispatches(cluster) as dispatches:
        apply("name: office\n", 2, "updated")
        opened = planned_by(2)
        dispatches.await_count(2, words=node.words)
        apply(closed, 3, "updated")
        shut = planned_by(3)
        assert [shut["version"], shut["next"][0]["scheduled_for"]] == [3, first]
        fired = dispatches.read_to_end()
        assert {seen.fields["version"] for seen in fired} == {2}
        assert all(ms_of(seen.fields["scheduled_for"]) > ms_of(opened["effective_at"]) for seen in fired)
        assert all(ms_of(seen.fields["scheduled_for"]) <= ms_of(shut["effective_at"]) for seen in fired)
        node.sigkill()
        node.start()
        await_ready(node)
        assert ask("calendar", "delete", "office")[0]["version"] == 4
        broken = wait_until(lambda: (seen := told())["state"] == "broken" and seen, node.words)
        assert "office" in broken["broken_reason"]
        apply("name: office\n", 5, "created")
        mended = planned_by(5)
        assert (mended["state"], mended["version"]) == ("active", 4)
        since = now_ms()
        dispatches.await_count(len(fired) + 2, words=node.words)
        assert all(ms_of(s.fields["scheduled_for"]) >= since - 60_000 for s in dispatches.read_to_end())
    history = ask("schedule", "history", "acme/tick")
    assert [h["change"] for h in history] == ["created", "re-planned", "re-planned", "broken", "re-planned"]
    assert 'scheduler_schedules_broken_total{reason="calendar"} 1.0' in node.metrics()
    assert node.stop() == [0]

    # A cold restore reads the shard topic from its end, and the zone record lies far before that.
    monkeypatch.setattr("scheduler.runtime.restore.TAIL", 1)
    settings, number = load_settings(None), partition_for(b"acme/tick", cluster.shards)
    store = MemoryStore()
    restore = Restore(changelog_consumer(settings), cluster.namespace, number, lambda: False)
    restore.run(store)
    zones = store.get(keys.ZONES)
    assert zones is not None
    assert json.loads(zones)["zones"][0]["zone"] == "UTC"
    assert restore.foreign == 0
