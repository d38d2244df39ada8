"""The plan from what there is to what should be: pure, explained, never destructive."""

import dataclasses
from typing import Any

import pytest

from topics.admin import AddPartitions, Create, ObservedTopic, SetConfig, TopicsWrong, plan, verify
from topics.catalog import Catalogue, TopicSpec

WANTED = Catalogue(shards=4, dispatch_factor=2).specs()
COMMANDS = WANTED[0]
SCHEDULES = next(spec for spec in WANTED if spec.base == "scheduler.schedules")
DISPATCH = WANTED[-1]
CLOCK = next(spec for spec in WANTED if spec.base == "scheduler.clock")


def as_wanted(spec: TopicSpec, **changes: Any) -> ObservedTopic:
    """A topic exactly as the catalogue has it, but for `changes`; the broker reports other settings as well."""
    exact = ObservedTopic(
        partitions=spec.partitions,
        replication_factor=spec.replication_factor,
        config={**spec.config, "flush.ms": "9223372036854775807"},
    )
    return dataclasses.replace(exact, **changes)


def cluster(**changes: ObservedTopic) -> dict[str, ObservedTopic]:
    return {spec.name: as_wanted(spec) for spec in WANTED} | changes


def test_a_cluster_as_wanted_needs_nothing() -> None:
    """Topics of others are not looked at."""
    proposal = plan(WANTED, {**cluster(), "somebody.elses": ObservedTopic(7, 3, {})})
    assert proposal.empty
    assert str(proposal) == "every topic is as it should be"
    verify(WANTED, cluster())


def test_missing_topics_are_created_with_reasons() -> None:
    """An empty cluster gets all of them; the text says how many partitions and why."""
    proposal = plan(WANTED, {})
    assert proposal.changes == tuple(Create(spec) for spec in WANTED)
    assert "create scheduler.commands: 4 partition(s) (partition p of every topic keyed by owner" in str(proposal)


@pytest.mark.parametrize("found", [1, 3, 5, 16])
def test_co_partitioned_topics_never_change_their_number(found: int) -> None:
    """More partitions would move keys to other shards, so it is explained and left, and the start is refused."""
    observed = cluster(**{SCHEDULES.name: as_wanted(SCHEDULES, partitions=found)})
    proposal = plan(WANTED, observed)
    assert proposal.changes == ()
    (drift,) = proposal.drift
    assert drift.blocking
    assert f"has {found} partitions, exactly 4 are needed: adding some would move keys" in str(proposal)
    with pytest.raises(TopicsWrong, match=f"schedules: has {found} partitions, exactly 4"):
        verify(WANTED, observed)


def test_partitions_added_to_the_command_topic_stop_nobody() -> None:
    """What is stored must go on firing; that the number of shards is wrong shows in the other topics."""
    more = cluster(**{COMMANDS.name: as_wanted(COMMANDS, partitions=5)})
    assert plan(WANTED, more).changes == ()
    assert "has 5 partitions for 4 shards: commands in the others take a detour" in str(plan(WANTED, more))
    verify(WANTED, more)
    with pytest.raises(TopicsWrong, match="commands: has 3 partitions, exactly 4"):
        verify(WANTED, cluster(**{COMMANDS.name: as_wanted(COMMANDS, partitions=3)}))


def test_a_dispatch_topic_may_grow_but_not_shrink() -> None:
    """k may be raised; partitions beyond k*P are left alone and do no harm."""
    fewer = cluster(**{DISPATCH.name: as_wanted(DISPATCH, partitions=4)})
    assert plan(WANTED, fewer).changes == (AddPartitions(DISPATCH, 4),)
    assert "add partitions to dispatch.default.background: 4 -> 8" in str(plan(WANTED, fewer))
    with pytest.raises(TopicsWrong, match="has 4 partitions, at least 8"):
        verify(WANTED, fewer)
    more = cluster(**{DISPATCH.name: as_wanted(DISPATCH, partitions=12)})
    assert plan(WANTED, more).changes == ()
    assert "partitions can't be removed" in str(plan(WANTED, more))
    verify(WANTED, more)


def test_a_differing_setting_is_changed_and_explained() -> None:
    """Old value, new value and the reason."""
    config = {**COMMANDS.config, "retention.ms": "1000"}
    del config["segment.ms"]
    observed = cluster(**{COMMANDS.name: as_wanted(COMMANDS, config=config)})
    proposal = plan(WANTED, observed)
    assert proposal.changes == (
        SetConfig(COMMANDS, "retention.ms", "1000"),
        SetConfig(COMMANDS, "segment.ms", None),
    )
    assert "set retention.ms of scheduler.commands: 1000 -> 604800000 (a shard that was down" in str(proposal)
    assert "set segment.ms of scheduler.commands: unset -> 86400000" in str(proposal)
    verify(WANTED, observed)  # a setting that costs no correctness does not stop anybody


def test_a_differing_replication_factor_is_drift() -> None:
    """Moving replicas is an operator's decision; the tool for it is named."""
    proposal = plan(WANTED, cluster(**{COMMANDS.name: as_wanted(COMMANDS, replication_factor=3)}))
    assert proposal.changes == ()
    assert "left alone: scheduler.commands: replication factor is 3, 1 is wanted" in str(proposal)
    assert "kafka-reassign-partitions" in str(proposal)


def test_a_single_partition_topic_with_more_is_left_alone() -> None:
    """It is read whole, so nothing is lost, but somebody should know."""
    observed = cluster(**{CLOCK.name: as_wanted(CLOCK, partitions=6)})
    assert "scheduler.clock: has 6 partitions, exactly 1 are needed: it is read whole" in str(plan(WANTED, observed))
    verify(WANTED, observed)


def test_the_start_up_check_names_everything_at_once() -> None:
    """Missing, wrong number, wrong policy, wrong clock: one list, and the next command."""
    observed = cluster(
        **{
            WANTED[1].name: as_wanted(WANTED[1], partitions=5),
            WANTED[2].name: as_wanted(WANTED[2], config={**WANTED[2].config, "cleanup.policy": "delete"}),
            DISPATCH.name: as_wanted(DISPATCH, config={**DISPATCH.config, "message.timestamp.type": "CreateTime"}),
        }
    )
    del observed[COMMANDS.name]
    with pytest.raises(TopicsWrong) as caught:
        verify(WANTED, observed)
    problems = [problem.split(": adding", 1)[0] for problem in caught.value.problems]
    assert problems == [
        "dispatch.default.background: message.timestamp.type is CreateTime, LogAppendTime is needed",
        "scheduler.commands: is missing (4 partitions)",
        "scheduler.replies: has 5 partitions, exactly 4 are needed",
        "scheduler.schedules: cleanup.policy is delete, compact is needed",
    ]
    assert "scheduler topics apply" in str(caught.value)


def test_a_plan_is_a_function_of_its_inputs() -> None:
    """Same wishes, same cluster: same plan. It holds nothing of the world."""
    observed = cluster(**{COMMANDS.name: as_wanted(COMMANDS, partitions=2)})
    assert plan(WANTED, observed) == plan(WANTED, dict(reversed(observed.items())))
