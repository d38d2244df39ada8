"""Topics on a real broker: made as the catalogue says, differences found, nothing destroyed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from topics.admin import AddPartitions, SetConfig, TopicsWrong, apply, connect, observe, plan, verify
from topics.catalog import Catalogue

if TYPE_CHECKING:
    from tests.support.broker import BrokerUnderTest

pytestmark = pytest.mark.broker


def test_an_empty_cluster_gets_every_topic_exactly_as_wanted(broker: BrokerUnderTest, namespace: str) -> None:
    """After one apply, the plan is empty and the start-up check is content."""
    wanted = Catalogue(namespace=namespace, shards=2).specs()
    admin = connect({"bootstrap.servers": broker.bootstrap_servers})
    with pytest.raises(TopicsWrong, match="is missing"):
        verify(wanted, observe(admin, wanted))
    apply(admin, plan(wanted, observe(admin, wanted)))
    observed = observe(admin, wanted)
    assert plan(wanted, observed).empty
    verify(wanted, observed)
    for spec in wanted:
        assert observed[spec.name].partitions == spec.partitions
        assert spec.config.items() <= dict(observed[spec.name].config).items()


def test_settings_and_dispatch_partitions_are_repaired_co_partitioned_ones_never(
    broker: BrokerUnderTest, namespace: str
) -> None:
    """A lane may grow (k) and a retention change in place; P is fixed for the life of the cluster."""
    small = Catalogue(namespace=namespace, shards=2)
    admin = connect({"bootstrap.servers": broker.bootstrap_servers})
    apply(admin, plan(small.specs(), observe(admin, small.specs())))

    wider = dataclasses.replace(small, dispatch_factor=2, retention_ms={"dispatch.default": 9 * 3_600_000}).specs()
    proposal = plan(wider, observe(admin, wider))
    assert {type(change) for change in proposal.changes} == {AddPartitions, SetConfig}
    apply(admin, proposal)
    assert plan(wider, observe(admin, wider)).empty

    other_p = dataclasses.replace(small, shards=4).specs()
    proposal = plan(other_p, observe(admin, other_p))
    apply(admin, proposal)
    observed = observe(admin, other_p)
    assert observed[small.commands].partitions == 2
    with pytest.raises(TopicsWrong, match=r"commands: has 2 partitions, exactly 4") as caught:
        verify(other_p, observed)
    assert len(caught.value.problems) == sum(spec.rule == "P" for spec in other_p)


def test_a_topic_somebody_else_created_meanwhile_is_no_error(broker: BrokerUnderTest, namespace: str) -> None:
    """Two nodes that start together both apply the same plan."""
    wanted = Catalogue(namespace=namespace, shards=1).specs()[:3]
    admin = connect({"bootstrap.servers": broker.bootstrap_servers})
    proposal = plan(wanted, {})
    apply(admin, proposal)
    apply(admin, proposal)
    verify(wanted, observe(admin, wanted))


def test_every_change_the_cluster_refuses_is_named(broker: BrokerUnderTest, namespace: str) -> None:
    """One refusal does not hide another, and what could be done is done."""
    good, bad, worse = Catalogue(namespace=namespace, shards=1).specs()[:3]
    wanted = [
        good,
        dataclasses.replace(bad, config={"cleanup.policy": "sometimes"}),
        dataclasses.replace(worse, replication_factor=1000),
    ]
    admin = connect({"bootstrap.servers": broker.bootstrap_servers})
    with pytest.raises(TopicsWrong) as caught:
        apply(admin, plan(wanted, {}))
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        f"could not create {bad.name}",
        f"could not create {worse.name}",
    ]
    assert good.name in observe(admin, wanted)
