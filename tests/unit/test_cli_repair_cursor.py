"""`scheduler repair-cursor`: what it refuses before it asks any broker, and how it says what it did."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from scheduler.cli import main
from scheduler.cli.repair_cursor import _as_json
from scheduler.shard.repair import Outcome

T = 1_800_000_000_000


def refusal(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """What stands on standard error; the exit code says that nothing was done."""
    monkeypatch.setenv("SCHEDULER_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("SCHEDULER_SHARDS", "4")
    result = CliRunner().invoke(main, ["repair-cursor", *arguments])
    assert result.exit_code == 2, result.output
    return result.stderr


def test_every_mistake_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No shards, no reason, no instant: all of it is said in one answer."""
    text = refusal(monkeypatch, "--reason", " ", "--to", "noon")
    assert "say which shards" in text
    assert "--reason is empty" in text
    assert "'noon' is not an instant" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--all", "--shard", "1", "--reason", "x"], "say which shards"),
        (["--shard", "4", "--reason", "x"], "there is no shard 4; this cluster has 0 to 3"),
        (["--all"], "--reason"),
    ],
)
def test_a_repair_needs_shards_that_exist_and_a_reason(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    """Both or neither of --shard and --all, a shard beyond the last, and silence about why are refused."""
    assert said in refusal(monkeypatch, *arguments)


def test_the_line_of_a_shard() -> None:
    """A program sees what was found, what was done, and which schedules stay silent until when."""
    outcome = Outcome(3, T + 7_200_000, needed=True, schedules=1, missed=2, silent=[("acme/a", T + 7_200_000)])
    line = _as_json(outcome, T, dry_run=True)
    assert line == {
        "shard": 3,
        "result": "would_repair",
        "was": "2027-01-15T10:00:00Z",
        "to": "2027-01-15T08:00:00Z",
        "schedules": 1,
        "missed": 2,
        "silent": [{"schedule_id": "acme/a", "until": "2027-01-15T10:00:00Z"}],
    }
    assert _as_json(outcome, T, dry_run=False)["result"] == "repaired"
    assert _as_json(Outcome(0, T, needed=False), T, dry_run=False)["result"] == "not_needed"
