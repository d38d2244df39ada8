"""Every topic there is, as data: its name, key, partitions, policy, who writes, who reads, and why each setting.

The source of truth for names and settings. `topics.admin` makes a cluster agree with it, `topics/README.md` is printed
from it, the scheduler asks it for every name. It talks to no broker.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from topics.messages import LANE_PATTERN, PRIORITIES, Priority
from topics.partition import murmur2

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMANDS: Final = "scheduler.commands"
REPLIES: Final = "scheduler.replies"
SCHEDULES: Final = "scheduler.schedules"
LIVE: Final = "scheduler.live"
SHARDS: Final = "scheduler.shards"
OCCURRENCES: Final = "scheduler.occurrences"
SCHEDULE_HISTORY: Final = "scheduler.schedule-history"
ATTEMPTS: Final = "scheduler.attempts"
GRANTS: Final = "scheduler.grants"
DEAD_LETTER: Final = "scheduler.dead-letter"
REJECTED: Final = "scheduler.rejected"
CLOCK: Final = "scheduler.clock"
TENANTS: Final = "scheduler.tenants"
CALENDARS: Final = "scheduler.calendars"

MAX_LANES: Final = 20  # four topics each; a transaction spans at most 24 partitions
MAX_SHARDS: Final = 1024
MAX_NAME: Final = 249  # Kafka's own limit: the name becomes a directory

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS

Partitions = Literal["P", "1", "k*P"]
Cleanup = Literal["compact", "delete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """One topic as it should be. `name` is the full name, `base` the name without the namespace.

    `partitions` is the number; `rule` where it comes from: exactly P (co-partitioned by owner), 1, or k times P.
    `config` holds every setting that is ours to decide, as text, and `why` a reason for each, plus for `partitions`.
    """

    base: str
    name: str
    key: str
    rule: Partitions
    partitions: int
    replication_factor: int
    cleanup: Cleanup
    retention_ms: int | None
    config: Mapping[str, str]
    why: Mapping[str, str]
    writer: str
    readers: str
    carries: str
    message: str | None  # the Struct of `topics.messages`, where there is one


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A line of the table below: what does not depend on the cluster."""

    key: str
    writer: str
    readers: str
    carries: str
    message: str | None = None
    rule: Partitions = "P"
    retention_ms: int | None = None  # None: compacted
    why_retention: str = ""
    broker_time: bool = False


_TABLE: Final[dict[str, _Row]] = {
    COMMANDS: _Row(
        key="owner key (schedule_id)", writer="anyone allowed", readers="shard", message="Command",
        carries="what producers ask: create, update, pause, resume, cancel, delete, trigger, preview, backfill, ...",
        retention_ms=7 * DAY_MS, why_retention="a shard that was down for a long weekend still finds every command",
        broker_time=True,
    ),
    REPLIES: _Row(
        key="owner key", writer="shard", readers="whoever sent the command", message="Reply",
        carries="one answer a command: accepted or rejected, with a code, a sentence and every mistake at once",
        retention_ms=DAY_MS, why_retention="an answer matters to a sender that still waits; history keeps the effect",
    ),
    SCHEDULES: _Row(
        key="schedule_id", writer="shard", readers="shard (restore), anyone", message="Schedule",
        carries="the whole schedule as it now is; a tombstone when deleted. Public, and a changelog",
    ),
    LIVE: _Row(
        key="<kind>:<owner>:<id>", writer="shard", readers="shard (restore)", message="Live",
        carries="everything owed that is not simply a schedule's next nominal. A changelog",
    ),
    SHARDS: _Row(
        key="shard, shard/zones, shard/queue/…, shard/repair", writer="shard, repair-cursor, repartition",
        readers="shard (restore), operators", message="Shard",
        carries="input positions, seen_until, cursor and token counter of a shard, rewritten by every step; the "
        "zones its schedules use ([Zones](#zones)), when they change; a [Lag](#lag) for each queue that lags; the last "
        "[Repair](#repair) of its cursor",
    ),
    OCCURRENCES: _Row(
        key="occurrence_id, in the partition of its owner", writer="shard", readers="anyone", message="Occurrence",
        carries="what became of nominals that were not simply dispatched: missed, suppressed, skipped, cancelled",
        retention_ms=30 * DAY_MS, why_retention="long enough to ask what happened last month; never restored from",
    ),
    SCHEDULE_HISTORY: _Row(
        key="schedule_id", writer="shard", readers="anyone", message="Revision",
        carries="every revision of every schedule, with who and why",
        retention_ms=365 * DAY_MS, why_retention="an audit asks about the last year",
    ),
    ATTEMPTS: _Row(
        key="owner key, in the partition named by the dispatch", writer="workers", readers="shard",
        carries="claims, starts, heartbeats, outcomes and passes of tracked occurrences",
        retention_ms=DAY_MS, why_retention="a lease lives for minutes; a day covers any outage a lease survives",
    ),
    GRANTS: _Row(
        key="worker id, in the partition named by the worker", writer="shard, after its commit", readers="workers",
        carries="granted, refused, deferred, please stop",
        retention_ms=HOUR_MS, why_retention="grants restate committed state; a worker that missed one asks again",
    ),
    DEAD_LETTER: _Row(
        key="occurrence_id", writer="shard", readers="operators",
        carries="exhausted or permanently failed occurrences with their history",
        retention_ms=30 * DAY_MS, why_retention="time for a person to look and to replay",
    ),
    REJECTED: _Row(
        key="the record's own key", writer="shard", readers="operators", message="Rejected",
        carries="undecodable or forbidden input, its bytes kept, with the reason",
        retention_ms=30 * DAY_MS, why_retention="time for a person to find the sender",
    ),
    CLOCK: _Row(
        key="process", writer="scheduler processes", readers="scheduler processes", message="ClockProbe", rule="1",
        carries="one probe a second of each process; the broker's append time of it drives the due clock",
        retention_ms=HOUR_MS, why_retention="a probe is old after a second; an hour is for people who look",
        broker_time=True,
    ),
    TENANTS: _Row(
        key="id@version", writer="operators, GitOps", readers="shard", rule="1", message="Tenant",
        carries="quotas, weights, lanes and keys of tenants",
    ),
    CALENDARS: _Row(
        key="id@version", writer="operators, GitOps", readers="shard", rule="1",
        carries="business calendars: dates, weekly rules, holidays; the highest version of a name counts",
        message="Calendar",
    ),
}  # fmt: skip

_DISPATCH: Final = _Row(
    key="owner key", writer="shard", readers="workers", message="Dispatch", rule="k*P",
    carries="what to run: one attempt of one occurrence; deduplicate on occurrence_id, read_committed",
    retention_ms=7 * DAY_MS, why_retention="workers that were down for a week still find their work",
    broker_time=True,
)  # fmt: skip

_WHY_PARTITIONS: Final[dict[Partitions, str]] = {
    "P": "partition p of every topic keyed by owner belongs to shard p, so all of them have exactly P",
    "1": "small, read whole by everybody",
    "k*P": "shard p alone writes p, p+P, ...: one writer a partition, so no other shard's open transaction hides work",
}

_COMPACTED: Final[dict[str, tuple[str, str]]] = {
    "segment.ms": (str(HOUR_MS), "only closed segments are compacted; a restore reads at most an hour of repeats"),
    "segment.bytes": (str(64 * 1024 * 1024), "a busy shard closes its segment long before the hour"),
    "min.cleanable.dirty.ratio": ("0.1", "compact early: a cold restore reads the log from its start"),
    "delete.retention.ms": (str(DAY_MS), "tombstones outlive any reader; a store older than half of it is wiped"),
}


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """The topics of one cluster of schedulers. Raises ValueError, naming every mistake at once.

    `namespace` is put before every name as it stands (say "prod." or ""). `shards` is P, fixed for the life of the
    cluster. `dispatch_factor` is k: a dispatch topic has k*P partitions. `retention_ms` overrides the retention of
    single topics, by base name, or of all topics of a lane by `dispatch.<lane>`.
    """

    namespace: str = ""
    shards: int = 16
    lanes: tuple[str, ...] = ("default",)
    replication_factor: int = 1
    min_isr: int = 1
    dispatch_factor: int = 1
    retention_ms: Mapping[str, int] = field(default_factory=dict)
    _dispatch: Mapping[tuple[str, str], str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise ValueError("the topic catalogue cannot be built: " + "; ".join(problems))
        names = {
            (lane, priority): f"{self.namespace}dispatch.{lane}.{priority}"
            for lane in self.lanes
            for priority in PRIORITIES
        }
        object.__setattr__(self, "_dispatch", names)

    @property
    def commands(self) -> str:
        return self.namespace + COMMANDS

    @property
    def replies(self) -> str:
        return self.namespace + REPLIES

    @property
    def schedules(self) -> str:
        return self.namespace + SCHEDULES

    @property
    def live(self) -> str:
        return self.namespace + LIVE

    @property
    def shard_records(self) -> str:
        """`scheduler.shards`; `shards` is the number P."""
        return self.namespace + SHARDS

    @property
    def occurrences(self) -> str:
        return self.namespace + OCCURRENCES

    @property
    def schedule_history(self) -> str:
        return self.namespace + SCHEDULE_HISTORY

    @property
    def attempts(self) -> str:
        return self.namespace + ATTEMPTS

    @property
    def grants(self) -> str:
        return self.namespace + GRANTS

    @property
    def dead_letter(self) -> str:
        return self.namespace + DEAD_LETTER

    @property
    def rejected(self) -> str:
        return self.namespace + REJECTED

    @property
    def clock(self) -> str:
        return self.namespace + CLOCK

    @property
    def tenants(self) -> str:
        return self.namespace + TENANTS

    @property
    def calendars(self) -> str:
        return self.namespace + CALENDARS

    def dispatch(self, lane: str, priority: Priority | str) -> str:
        """The dispatch topic of a lane and priority. Raises KeyError for a lane this cluster does not have."""
        try:
            return self._dispatch[lane, priority]
        except KeyError:
            raise KeyError(
                f"no dispatch topic for lane {lane!r}, priority {priority!r}: lanes are {', '.join(self.lanes)}, "
                f"priorities {', '.join(PRIORITIES)}",
            ) from None

    def dispatch_topics(self, lane: str | None = None) -> tuple[str, ...]:
        """The dispatch topics of one lane, most urgent first, or of all lanes."""
        return tuple(name for (of, _), name in self._dispatch.items() if lane in (None, of))

    def dispatch_partition(self, owner_key: bytes, shard: int) -> int:
        """The partition of a dispatch topic that `shard` writes for this owner: one of shard, shard+P, ..."""
        factor = self.dispatch_factor
        if factor == 1:
            return shard
        # The remainder by P is the same for all keys of a shard; the quotient is what still differs.
        return shard + self.shards * ((murmur2(owner_key) & 0x7FFF_FFFF) // self.shards % factor)

    def base(self, name: str) -> str:
        """The name without the namespace. Raises ValueError for a name of another namespace."""
        if not name.startswith(self.namespace):
            raise ValueError(f"topic {name!r} is not in the namespace {self.namespace!r}")
        return name[len(self.namespace) :]

    def specs(self) -> tuple[TopicSpec, ...]:
        """Every topic as it should be on this cluster, in the order of the contract's table."""
        rows = [(base, row, base) for base, row in _TABLE.items()]
        lanes = [
            (f"dispatch.{lane}.{priority}", _DISPATCH, f"dispatch.{lane}")
            for lane in self.lanes
            for priority in PRIORITIES
        ]
        return tuple(self._spec(base, row, override) for base, row, override in rows + lanes)

    def _spec(self, base: str, row: _Row, override: str) -> TopicSpec:
        retention_ms = self.retention_ms.get(base, self.retention_ms.get(override, row.retention_ms))
        settings = _settings(row, retention_ms)
        settings["min.insync.replicas"] = (
            str(self.min_isr),
            "as many copies as must exist before a write counts; with acks=all",
        )
        partitions = {"P": self.shards, "1": 1, "k*P": self.dispatch_factor * self.shards}[row.rule]
        return TopicSpec(
            base=base,
            name=self.namespace + base,
            key=row.key,
            rule=row.rule,
            partitions=partitions,
            replication_factor=self.replication_factor,
            cleanup="compact" if row.retention_ms is None else "delete",
            retention_ms=retention_ms,
            config={name: value for name, (value, _) in settings.items()},
            why={"partitions": _WHY_PARTITIONS[row.rule], **{name: reason for name, (_, reason) in settings.items()}},
            writer=row.writer,
            readers=row.readers,
            carries=row.carries,
            message=row.message,
        )

    def _problems(self) -> list[str]:
        problems = []
        if not re.fullmatch(r"[A-Za-z0-9._-]*", self.namespace):
            problems.append(f"namespace {self.namespace!r} may hold only letters, digits, '.', '_' and '-'")
        if not 1 <= self.shards <= MAX_SHARDS:
            problems.append(f"shards is {self.shards}; expected 1 to {MAX_SHARDS}")
        if not 1 <= len(self.lanes) <= MAX_LANES:
            problems.append(f"there are {len(self.lanes)} lanes; expected 1 to {MAX_LANES}")
        if len(set(self.lanes)) != len(self.lanes):
            problems.append(f"a lane is named twice in {', '.join(self.lanes)}")
        problems += [
            f"lane {lane!r} must match {LANE_PATTERN}" for lane in self.lanes if not re.fullmatch(LANE_PATTERN, lane)
        ]
        longest = max([*_TABLE, *(f"dispatch.{lane}.background" for lane in self.lanes)], key=len)
        if len(self.namespace + longest) > MAX_NAME:
            problems.append(f"{self.namespace + longest!r} is longer than Kafka's {MAX_NAME} characters a topic name")
        if self.replication_factor < 1:
            problems.append(f"replication_factor is {self.replication_factor}; expected at least 1")
        if not 1 <= self.min_isr <= max(1, self.replication_factor):
            problems.append(
                f"min_isr is {self.min_isr}; expected 1 to the replication factor {self.replication_factor}"
            )
        if self.dispatch_factor < 1:
            problems.append(f"dispatch_factor is {self.dispatch_factor}; expected at least 1")
        return problems + self._retention_problems()

    def _retention_problems(self) -> list[str]:
        deleted = {base for base, row in _TABLE.items() if row.retention_ms is not None}
        lanes = {f"dispatch.{lane}" for lane in self.lanes}
        single = {f"{lane}.{priority}" for lane in lanes for priority in PRIORITIES}
        problems = []
        for base, retention in self.retention_ms.items():
            if base not in deleted | lanes | single:
                known = ", ".join(sorted(deleted | lanes))
                problems.append(f"retention is given for {base!r}, which is no topic with a retention ({known})")
            elif retention < HOUR_MS:
                problems.append(f"retention of {base} is {retention} ms; expected at least an hour ({HOUR_MS})")
        return problems


def _settings(row: _Row, retention_ms: int | None) -> dict[str, tuple[str, str]]:
    """Setting -> (value, reason) of what follows from the policy alone."""
    settings: dict[str, tuple[str, str]]
    if retention_ms is None:
        settings = {"cleanup.policy": ("compact", "the newest record of a key is the truth about it"), **_COMPACTED}
    else:
        settings = {
            "cleanup.policy": ("delete", "a log of events: nothing is restored from it"),
            "retention.ms": (str(retention_ms), row.why_retention),
            "segment.ms": (
                str(min(DAY_MS, retention_ms // 6)),
                "only closed segments are deleted; at most a sixth more than promised is kept",
            ),
        }
    if row.broker_time:
        settings["message.timestamp.type"] = (
            "LogAppendTime",
            "the broker's clock says when a record counts, not the sender's",
        )
    return settings
