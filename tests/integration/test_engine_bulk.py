"""Bulk commands against a real node: one effect a schedule however often a run is begun; the account adds up."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from scheduler.cli import main
from tests.support.commands import send
from tests.support.node import Node, await_ready
from tests.support.verifier import Reader

if TYPE_CHECKING:
    from tests.support.node import Cluster

pytestmark = pytest.mark.broker

COUNT = 240


@pytest.fixture
def node(cluster: Cluster) -> Node:
    """A running node with schedules of two tenants; every third of `acme` has a label, `other` has one too."""
    node = cluster.node().start()
    await_ready(node)
    yearly = {"trigger": {"cron": "0 0 1 1 *", "zone": "UTC"}}
    commands: list[dict[str, Any]] = [
        {
            "command": "create",
            "schedule_id": f"acme/s{number:03d}",
            "spec": {**yearly, "labels": {"team": "billing" if number % 3 == 0 else "web"}},
        }
        for number in range(COUNT)
    ]
    commands.append({"command": "create", "schedule_id": "other/s", "spec": {**yearly, "labels": {"team": "billing"}}})
    assert set(send(cluster, *commands)) == {"created"}
    return node


def bulk(node: Node, verb: str, *options: str) -> tuple[Result, dict[str, Any]]:
    """Run the command; its account, which is the last line."""
    arguments = ["--config", str(node.config), "schedule", verb, "--json", "--yes", *options]
    result = CliRunner().invoke(main, arguments)
    return result, json.loads(result.stdout.splitlines()[-1]) if result.stdout else {}


def changes(cluster: Cluster, tenant: str = "acme") -> Counter[str]:
    """How often the history has each kind of change."""
    with Reader(cluster, [cluster.catalogue.schedule_history]) as reader:
        return Counter(record.fields["change"] for record in reader.read_to_end() if record.fields["tenant"] == tenant)


def test_a_selector_changes_what_it_names_and_nothing_else(cluster: Cluster, node: Node) -> None:
    """By label, by prefix and state, all of a tenant: each account adds up, other tenants are not touched."""
    _, counted = bulk(node, "pause", "--tenant", "acme", "--label", "team=billing", "--dry-run")
    assert (counted["selected"], counted["tenants"]) == (COUNT // 3, 1)
    assert counted["sample"] == [f"acme/s{number:03d}" for number in (0, 3, 6, 9, 12)]
    done, account = bulk(node, "pause", "--tenant", "acme", "--label", "team=billing", "--reason", "audit")
    assert (done.exit_code, account["changed"], account["not_answered"]["count"]) == (0, COUNT // 3, 0)
    _, account = bulk(node, "cancel", "--tenant", "acme", "--name-prefix", "s00", "--state", "paused")
    assert (account["selected"], account["changed"]) == (4, 4)
    _, account = bulk(node, "resume", "--tenant", "acme", "--paused-for", "audit")
    assert (account["selected"], account["changed"]) == (COUNT // 3 - 4, COUNT // 3 - 4)
    _, account = bulk(node, "delete", "--tenant", "acme")
    assert (account["selected"], account["changed"], account["refused"]) == (COUNT, COUNT, 0)
    _, account = bulk(node, "delete", "--tenant", "acme")
    assert account["selected"] == 0
    wanted = {"created": COUNT, "paused": COUNT // 3, "cancelled": 4, "resumed": COUNT // 3 - 4, "deleted": COUNT}
    assert changes(cluster) == wanted
    assert changes(cluster, "other") == {"created": 1}


def test_a_run_that_was_cut_off_is_finished_by_its_id(cluster: Cluster, node: Node) -> None:
    """A third reached, then everything sent and nothing answered, then all of it: each is paused once, the account
    of the last run is the whole one's, and a later run with another id finds nothing left."""
    _, account = bulk(node, "pause", "--tenant", "acme", "--label", "team=billing", "--bulk-id", "stop-1")
    assert account["changed"] == COUNT // 3
    node.freeze()
    cut, account = bulk(node, "pause", "--tenant", "acme", "--bulk-id", "stop-1", "--timeout", "2")
    node.thaw()
    assert cut.exit_code == 3
    assert (account["reached_before"], account["changed"]) == (COUNT // 3, 0)
    assert account["not_answered"]["count"] == account["selected"] == COUNT
    assert len(account["not_answered"]["examples"]) == 5
    done, account = bulk(node, "pause", "--tenant", "acme", "--bulk-id", "stop-1")
    assert (done.exit_code, account["changed"], account["not_answered"]["count"]) == (0, COUNT, 0)
    assert changes(cluster) == {"created": COUNT, "paused": COUNT}
    _, account = bulk(node, "pause", "--tenant", "acme")
    assert account["selected"] == 0
    same_id, account = bulk(node, "resume", "--tenant", "acme", "--bulk-id", "stop-1")
    assert (same_id.exit_code, account["changed"]) == (0, COUNT), "an id belongs to its verb"


def test_a_refusal_is_counted_by_its_code_and_told(cluster: Cluster, node: Node) -> None:
    """Each is a line of its own, the account has its code, how many, and the first of them; the exit code is 1."""
    refused, account = bulk(node, "pause", "--all", "--actor", "x" * 300)
    assert refused.exit_code == 1, refused.output
    assert account["refused"] == account["selected"] == COUNT + 1
    (told,) = account["rejected"].values()
    assert (told["count"], len(told["examples"])) == (COUNT + 1, 5)
    assert len(refused.stdout.splitlines()) == COUNT + 2
    assert changes(cluster)["paused"] == 0
