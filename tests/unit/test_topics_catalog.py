"""The catalogue: every topic of the contract as data, each setting with its reason."""

import dataclasses

import pytest

from topics import catalog, messages
from topics.catalog import DAY_MS, HOUR_MS, Catalogue
from topics.partition import partition_for

DEFAULT = Catalogue(namespace="prod.", shards=8, lanes=("default", "reports"), dispatch_factor=3)


def test_every_topic_of_the_contract_is_there_once() -> None:
    """Fourteen fixed ones, and four priorities a lane."""
    names = [spec.base for spec in DEFAULT.specs()]
    assert len(names) == len(set(names)) == 14 + 2 * 4
    fixed = {value for name, value in vars(catalog).items() if name.isupper() and str(value).startswith("scheduler.")}
    assert {name for name in names if name.startswith("scheduler.")} == fixed
    assert all(spec.name == "prod." + spec.base for spec in DEFAULT.specs())


def test_the_names_are_the_properties() -> None:
    """Whoever needs a name asks the catalogue, which knows the namespace."""
    properties = [
        DEFAULT.commands, DEFAULT.replies, DEFAULT.schedules, DEFAULT.live, DEFAULT.shard_records, DEFAULT.occurrences,
        DEFAULT.schedule_history, DEFAULT.attempts, DEFAULT.grants, DEFAULT.dead_letter, DEFAULT.rejected,
        DEFAULT.clock, DEFAULT.tenants, DEFAULT.calendars,
    ]  # fmt: skip
    dispatch = [DEFAULT.dispatch(lane, priority) for lane in DEFAULT.lanes for priority in messages.PRIORITIES]
    assert [*properties, *dispatch] == [spec.name for spec in DEFAULT.specs()]
    assert [DEFAULT.base(name) for name in properties] == [spec.base for spec in DEFAULT.specs()][:14]
    assert DEFAULT.dispatch_topics() == tuple(dispatch)
    assert DEFAULT.dispatch_topics("reports") == tuple(dispatch[4:])


def test_partitions_follow_the_rule() -> None:
    """Keyed by owner: exactly P. Dispatch: k times P. The rest: one."""
    counts = {"P": 8, "k*P": 24, "1": 1}
    assert all(spec.partitions == counts[spec.rule] for spec in DEFAULT.specs())
    assert [spec.base for spec in DEFAULT.specs() if spec.rule == "1"] == [
        "scheduler.clock",
        "scheduler.tenants",
        "scheduler.calendars",
    ]


def test_every_setting_has_its_reason_and_the_other_way_round() -> None:
    """A setting nobody can explain is not kept."""
    for spec in DEFAULT.specs():
        assert set(spec.why) == {"partitions", *spec.config}
        assert all(spec.why.values())
        assert all(isinstance(value, str) for value in spec.config.values())


def test_compacted_topics_are_compacted_early_and_delete_topics_have_a_retention() -> None:
    """Section 3's numbers."""
    for spec in DEFAULT.specs():
        if spec.cleanup == "compact":
            assert spec.config["segment.ms"] == "3600000"
            assert spec.config["segment.bytes"] == "67108864"
            assert spec.config["min.cleanable.dirty.ratio"] == "0.1"
            assert "retention.ms" not in spec.config
            assert spec.retention_ms is None
        else:
            assert spec.config["retention.ms"] == str(spec.retention_ms)
            # A segment that closes late would keep records long after their time.
            assert int(spec.config["segment.ms"]) <= (spec.retention_ms or 0) / 6
    compacted = {spec.base.removeprefix("scheduler.") for spec in DEFAULT.specs() if spec.cleanup == "compact"}
    assert compacted == {"schedules", "live", "shards", "tenants", "calendars"}


def test_the_broker_stamps_what_is_timed_by_it() -> None:
    """LogAppendTime on commands, dispatch and the clock, as measured latencies and the due clock need."""
    stamped = {spec.base for spec in DEFAULT.specs() if "message.timestamp.type" in spec.config}
    assert stamped == {
        "scheduler.commands",
        "scheduler.clock",
        *(spec.base for spec in DEFAULT.specs() if spec.base.startswith("dispatch.")),
    }


def test_a_dispatch_partition_belongs_to_its_shard_alone() -> None:
    """p, p+P, p+2P, ...: all of them are used, and one owner always has the same one."""
    for factor in (2, 3, 8):  # a factor that shares divisors with P must not leave partitions empty
        catalogue = dataclasses.replace(DEFAULT, dispatch_factor=factor)
        used: set[int] = set()
        for number in range(2000):
            key = f"acme/job-{number}".encode()
            shard = partition_for(key, catalogue.shards)
            partition = catalogue.dispatch_partition(key, shard)
            assert partition % catalogue.shards == shard
            assert partition == catalogue.dispatch_partition(key, shard)
            used.add(partition)
        assert used == set(range(8 * factor))
    assert Catalogue(shards=8).dispatch_partition(b"acme/job", 5) == 5


def test_the_message_of_a_topic_is_a_struct_of_ours() -> None:
    """The contract tables and schemas are printed from this link."""
    for spec in DEFAULT.specs():
        assert spec.message is None or issubclass(getattr(messages, spec.message), messages.Message)


def test_retention_can_be_set_by_topic_and_by_lane() -> None:
    """A lane's own retention holds for all of its priorities, unless one has its own."""
    made = Catalogue(
        lanes=("default", "reports"),
        retention_ms={
            "scheduler.replies": 2 * HOUR_MS,
            "dispatch.reports": 3 * DAY_MS,
            "dispatch.reports.critical": 5 * DAY_MS,
        },
    )
    kept = {spec.base: spec.retention_ms for spec in made.specs()}
    assert kept["scheduler.replies"] == 2 * HOUR_MS
    assert kept["dispatch.reports.critical"] == 5 * DAY_MS
    assert kept["dispatch.reports.background"] == 3 * DAY_MS
    assert kept["dispatch.default.background"] == 7 * DAY_MS


def test_every_mistake_is_named_at_once() -> None:
    """One start-up, one list."""
    with pytest.raises(ValueError, match="the topic catalogue cannot be built") as caught:
        Catalogue(
            namespace="a b/",
            shards=0,
            lanes=("Big", "x", "x"),
            replication_factor=0,
            min_isr=2,
            dispatch_factor=0,
            retention_ms={"scheduler.schedules": DAY_MS, "scheduler.replies": 5},
        )
    text = str(caught.value)
    for part in [
        "namespace 'a b/'", "shards is 0", "a lane is named twice", "lane 'Big'", "replication_factor is 0",
        "min_isr is 2", "dispatch_factor is 0", "'scheduler.schedules', which is no topic with a retention",
        "retention of scheduler.replies is 5 ms",
    ]:  # fmt: skip
        assert part in text


def test_a_name_never_exceeds_what_kafka_takes() -> None:
    """249 characters: the name becomes a directory."""
    longest = len("dispatch.") + 40 + len(".background")
    Catalogue(namespace="n" * (249 - longest), lanes=("l" * 40,))
    with pytest.raises(ValueError, match="longer than Kafka's 249"):
        Catalogue(namespace="n" * (250 - longest), lanes=("l" * 40,))


def test_at_most_twenty_lanes() -> None:
    """A transaction spans at most 24 partitions; more lanes would only wait for each other."""
    Catalogue(lanes=tuple(f"lane-{n}" for n in range(20)))
    with pytest.raises(ValueError, match="21 lanes"):
        Catalogue(lanes=tuple(f"lane-{n}" for n in range(21)))
    with pytest.raises(ValueError, match="0 lanes"):
        Catalogue(lanes=())


def test_an_unknown_lane_or_namespace_is_named_with_the_known_ones() -> None:
    """The error says what would have been right."""
    with pytest.raises(KeyError, match="lanes are default, reports"):
        DEFAULT.dispatch("nowhere", "high")
    with pytest.raises(ValueError, match=r"not in the namespace 'prod\.'"):
        DEFAULT.base("test.scheduler.commands")
