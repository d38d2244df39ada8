"""Make a cluster's topics agree with the catalogue, or say exactly where they do not.

`plan` is pure: what is wanted against what is there. It only ever creates topics, changes settings and adds partitions
to dispatch topics (no order is promised across those); it never shrinks or deletes. Everything else that differs is
drift: explained, left alone, and for a person to decide. `observe` and `apply` are the only I/O.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not declared so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from topics.catalog import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from topics.catalog import TopicSpec

log: Final = logging.getLogger("topics.kafka")


@dataclass(frozen=True, slots=True)
class ObservedTopic:
    """One topic as it is: `config` holds every setting the broker reports, defaults included."""

    partitions: int
    replication_factor: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Create:
    """The topic is missing."""

    spec: TopicSpec

    def __str__(self) -> str:
        spec = self.spec
        return (
            f"create {spec.name}: {spec.partitions} partition(s) ({spec.why['partitions']}), "
            f"replication factor {spec.replication_factor}, "
            + ", ".join(f"{name}={value}" for name, value in sorted(spec.config.items()))
        )


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """A dispatch topic has fewer partitions than k*P; adding keeps each owner's order from then on."""

    spec: TopicSpec
    observed: int

    def __str__(self) -> str:
        return f"add partitions to {self.spec.name}: {self.observed} -> {self.spec.partitions}"


@dataclass(frozen=True, slots=True)
class SetConfig:
    """One setting differs."""

    spec: TopicSpec
    setting: str
    observed: str | None

    def __str__(self) -> str:
        wanted = self.spec.config[self.setting]
        before = "unset" if self.observed is None else self.observed
        return f"set {self.setting} of {self.spec.name}: {before} -> {wanted} ({self.spec.why[self.setting]})"


@dataclass(frozen=True, slots=True)
class Drift:
    """A difference that is not repaired from here. `blocking`: the scheduler refuses to start with it."""

    topic: str
    what: str
    blocking: bool

    def __str__(self) -> str:
        return f"{self.topic}: {self.what}"


Change = Create | AddPartitions | SetConfig


@dataclass(frozen=True, slots=True)
class Plan:
    """What `apply` would do, in order, and what it would leave for a person."""

    changes: tuple[Change, ...]
    drift: tuple[Drift, ...]

    @property
    def empty(self) -> bool:
        """Nothing to do and nothing to explain."""
        return not self.changes and not self.drift

    def __str__(self) -> str:
        if self.empty:
            return "every topic is as it should be"
        lines = [str(change) for change in self.changes]
        return "\n".join(lines + [f"left alone: {drift}" for drift in self.drift])


class TopicsWrong(RuntimeError):
    """Some topics are missing or not as they must be. `problems` has one sentence each, `str()` all of them."""

    def __init__(self, problems: Sequence[str], advice: str) -> None:
        super().__init__("the topics are not as they must be:\n  " + "\n  ".join(problems) + f"\n{advice}")
        self.problems = tuple(problems)


def plan(wanted: Sequence[TopicSpec], observed: Mapping[str, ObservedTopic]) -> Plan:
    """The way from `observed` (full name -> topic) to `wanted`. Topics that are not wanted are not looked at."""
    changes: list[Change] = []
    drift: list[Drift] = []
    for spec in wanted:
        found = observed.get(spec.name)
        if found is None:
            changes.append(Create(spec))
            continue
        if found.partitions != spec.partitions:
            if spec.rule == "k*P" and found.partitions < spec.partitions:
                changes.append(AddPartitions(spec, found.partitions))
            else:
                drift.append(_partition_drift(spec, found.partitions))
        changes += [
            SetConfig(spec, setting, found.config.get(setting))
            for setting, value in spec.config.items()
            if found.config.get(setting) != value
        ]
        if found.replication_factor != spec.replication_factor:
            drift.append(
                Drift(
                    spec.name,
                    f"replication factor is {found.replication_factor}, {spec.replication_factor} is wanted; move the "
                    "replicas with Kafka's own kafka-reassign-partitions tool",
                    blocking=False,
                ),
            )
    return Plan(tuple(changes), tuple(drift))


def _partition_drift(spec: TopicSpec, found: int) -> Drift:
    if spec.rule == "k*P":
        advice = f"shards write only the first {spec.partitions}; partitions can't be removed, so nothing is done"
        return Drift(spec.name, f"has {found} partitions, {spec.partitions} are wanted: {advice}", blocking=False)
    if spec.base == COMMANDS and found > spec.partitions:
        advice = (
            "commands in the others take a detour to their shards; partitions can't be removed, so move to another "
            "namespace with `scheduler repartition`, whose topics have as many as there are shards"
        )
        return Drift(spec.name, f"has {found} partitions for {spec.partitions} shards: {advice}", blocking=False)
    advice = (
        "adding some would move keys to other shards; set `shards` to the cluster's number, or use another namespace"
        if spec.rule == "P"
        else "it is read whole by everybody from partition 0"
    )
    return Drift(
        spec.name, f"has {found} partitions, exactly {spec.partitions} are needed: {advice}", blocking=spec.rule == "P"
    )


def verify(wanted: Sequence[TopicSpec], observed: Mapping[str, ObservedTopic]) -> None:
    """The check at start-up. Raises TopicsWrong, naming everything at once, unless the scheduler may run.

    It may when every topic exists, every co-partitioned one has exactly P partitions, dispatch topics have at least
    k*P, and the cleanup policy and timestamp type are right. Other settings that differ do not stop it.
    """
    proposal = plan(wanted, observed)
    problems = []
    for change in proposal.changes:
        match change:
            case Create(spec):
                problems.append(f"{spec.name}: is missing ({spec.partitions} partitions)")
            case AddPartitions(spec, found):
                problems.append(f"{spec.name}: has {found} partitions, at least {spec.partitions} are needed")
            case SetConfig(spec, setting, found_value) if setting in {"cleanup.policy", "message.timestamp.type"}:
                problems.append(f"{spec.name}: {setting} is {found_value}, {spec.config[setting]} is needed")
            case SetConfig():
                pass
    problems += [str(drift) for drift in proposal.drift if drift.blocking]
    if problems:
        raise TopicsWrong(
            sorted(problems),
            "`scheduler topics plan` shows what would be done, `scheduler topics apply` does what can be done",
        )


def connect(kafka: Mapping[str, str]) -> AdminClient:
    """An admin client from plain librdkafka settings, its logs going through Python's logging."""
    settings: dict[str, Any] = {"reconnect.backoff.max.ms": 2000, **kafka}
    return AdminClient(settings, logger=log)


def observe(admin: AdminClient, wanted: Sequence[TopicSpec], *, timeout_s: float = 30.0) -> dict[str, ObservedTopic]:
    """Those of the wanted topics that exist, as they are. Raises KafkaException when the cluster does not answer."""
    metadata = admin.list_topics(timeout=timeout_s)
    # A name asked for twice would make the client misread the answer.
    names = [name for name in dict.fromkeys(spec.name for spec in wanted) if name in metadata.topics]
    if not names:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    configs = {
        resource.name: future.result(timeout_s)
        for resource, future in admin.describe_configs(resources, request_timeout=timeout_s).items()
    }
    observed = {}
    for name in names:
        partitions = metadata.topics[name].partitions
        observed[name] = ObservedTopic(
            partitions=len(partitions),
            replication_factor=min((len(one.replicas) for one in partitions.values()), default=0),
            config={setting: str(entry.value) for setting, entry in configs[name].items() if entry.value is not None},
        )
    return observed


def apply(admin: AdminClient, proposal: Plan, *, timeout_s: float = 60.0) -> None:
    """Carry out the changes of a plan and wait (10 s at most) until a look shows them.

    A topic somebody else created meanwhile is no error.
    Raises TopicsWrong with one sentence for each change the cluster refused; the others are done.
    """
    refused: dict[str, str] = {}
    creates = [change.spec for change in proposal.changes if isinstance(change, Create)]
    if creates:
        new = [
            NewTopic(
                spec.name,
                num_partitions=spec.partitions,
                replication_factor=spec.replication_factor,
                config=dict(spec.config),
            )
            for spec in creates
        ]
        refused |= _refusals(admin.create_topics(new, operation_timeout=timeout_s), "create", timeout_s)
    grow = [change.spec for change in proposal.changes if isinstance(change, AddPartitions)]
    if grow:
        more = [NewPartitions(spec.name, spec.partitions) for spec in grow]
        refused |= _refusals(admin.create_partitions(more, operation_timeout=timeout_s), "add partitions to", timeout_s)
    settings: dict[str, dict[str, str]] = {}
    for change in proposal.changes:
        if isinstance(change, SetConfig):
            settings.setdefault(change.spec.name, {})[change.setting] = change.spec.config[change.setting]
    if settings:
        resources = [
            ConfigResource(
                ResourceType.TOPIC,
                name,
                incremental_configs=[
                    ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
                    for setting, value in wanted.items()
                ],
            )
            for name, wanted in settings.items()
        ]
        futures = {
            resource.name: future
            for resource, future in admin.incremental_alter_configs(resources, request_timeout=timeout_s).items()
        }
        refused |= _refusals(futures, "configure", timeout_s)
    done = [change for change in proposal.changes if change.spec.name not in refused]
    _await_visible(admin, done, timeout_s)
    if refused:
        advice = "the other changes are done; repair the cause and run `scheduler topics apply` again"
        raise TopicsWrong(sorted(refused.values()), advice)


def _await_visible(admin: AdminClient, changes: Sequence[Change], timeout_s: float) -> None:
    """Return when a look at the cluster shows the changes: brokers learn of them a moment after they are accepted."""
    deadline = time.monotonic() + min(timeout_s, 10.0)
    specs = [change.spec for change in changes]
    while specs and time.monotonic() < deadline:
        observed = observe(admin, specs, timeout_s=timeout_s)
        specs = [change.spec for change in plan(specs, observed).changes]
        if specs:
            time.sleep(0.05)


def _refusals(futures: Mapping[str, Future[Any]], verb: str, timeout_s: float) -> dict[str, str]:
    """Topic -> why the cluster refused the change."""
    refused = {}
    names = {future: name for name, future in futures.items()}
    for future in as_completed(names, timeout=timeout_s):
        error = future.exception()
        if error is None:
            continue
        why = str(error)
        if isinstance(error, KafkaException):
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                continue
            why = error.args[0].str()
        refused[names[future]] = f"could not {verb} {names[future]}: {why}"
    return refused
