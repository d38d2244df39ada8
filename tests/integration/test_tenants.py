"""Terms of tenants from a file to running shards."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from scheduler.cli import main
from tests.support.node import await_ready, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.node import Cluster

pytestmark = pytest.mark.broker


def test_terms_applied_at_the_prompt_reach_a_running_node(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each change is a version; the same again changes nothing; running shards take it up; mistakes come at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCHEDULER_KAFKA__BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
    monkeypatch.setenv("SCHEDULER_NAMESPACE", cluster.namespace)
    monkeypatch.setenv("SCHEDULER_SHARDS", str(cluster.shards))

    def run(*arguments: str, text: str | None = None) -> Result:
        return CliRunner().invoke(main, ("tenant", *arguments), input=text)

    node = cluster.node().start()
    await_ready(node)
    assert "defaults" in run("show", "acme").output
    terms = "tenant: acme\ncatch_up_per_s: 20\n---\ntenant: beta\nweight: 3\n"
    assert run("apply", "-", "--dry-run", text=terms).stdout == "acme@1 would be created\nbeta@1 would be created\n"
    assert run("apply", "-", "--actor", "me", text=terms).stdout == "acme@1 created\nbeta@1 created\n"
    wait_until(lambda: any(e["count"] == 2 for e in node.events("tenants_read")), node.words)
    assert run("apply", "-", text=terms.replace("20", "40")).stdout == "acme@2 updated\nbeta@1 unchanged\n"
    shown = json.loads(run("show", "acme", "--json").stdout)
    assert (shown["version"], shown["catch_up_per_s"]) == (2, 40)
    assert [line.split("\t")[:4] for line in run("list").stdout.splitlines()[1:]] == [
        ["acme", "2", "40", "1"], ["beta", "1", "100 (default)", "3"],
    ]  # fmt: skip
    wrong = run("apply", "-", text="tenant: Acme\ncatch_up_per_s: 0\nlimit: 3\n")
    assert wrong.exit_code == 2
    assert all(word in wrong.output for word in ("limit", "Acme", "catch_up_per_s", "nothing was written"))
    assert node.stop() == [0]
