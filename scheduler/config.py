"""The settings: one frozen value, read once from a TOML file and the environment, wrong or right as a whole.

This is the source of truth for every setting's name, unit, range, default and reason; `ops/config/reference.md` and
`ops/config/scheduler.toml` are generated from it. The environment wins over the file, the command line over both:

    [kafka]                                     SCHEDULER_KAFKA__BOOTSTRAP_SERVERS=broker-1:9092,broker-2:9092
    bootstrap_servers = "broker-1:9092"         SCHEDULER_LANES=default,reports

The file is the one named by `--config`, else by `SCHEDULER_CONFIG`, else `./scheduler.toml` if it exists. A name that
is no setting is refused wherever it stands. Reading happens in `scheduler.config_load`; this module only says what a
setting may be. Secrets are given by reference and read when a client is built: they are in no value, log or report.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from scheduler.config_client import OWNED_CLIENT_PROPERTIES, ClientProperties, SecretRef, expand_user, resolve
from scheduler.errors import ConfigInvalid
from topics.catalog import DAY_MS, Catalogue

ENV_PREFIX = "SCHEDULER_"
CONFIG_VARIABLE = "SCHEDULER_CONFIG"
LAST_PORT = 65_535
MIB = 1024 * 1024


def _about(reason: str, *, expected: str, example: object, unit: str = "") -> dict[str, Any]:
    return {"reason": reason, "expected": expected, "example": example, "unit": unit}


def _number(default: int, low: int, high: int, unit: str, reason: str) -> Any:
    """A whole number of `unit` from `low` to `high`."""
    expected = f"a whole number{' of ' + unit if unit else ''} from {low} to {high}"
    about = _about(reason, expected=expected, example=default, unit=unit)
    return Field(default, ge=low, le=high, json_schema_extra=about)


def _text(default: str, pattern: str, reason: str, *, expected: str, example: str) -> Any:
    about = _about(reason, expected=expected, example=example)
    return Field(default, pattern=pattern, json_schema_extra=about)


def _no_bool(value: object) -> object:
    """`true` would pass as the number 1."""
    if isinstance(value, bool):
        raise PydanticCustomError("int_type", "a boolean is no number")
    return value


def _split(value: object) -> object:
    """`a, b` in the environment is the list `["a", "b"]`."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


Int = Annotated[int, BeforeValidator(_no_bool)]
Lane = Annotated[str, Field(pattern=r"^[a-z0-9-]{1,40}$")]


class Kafka(BaseModel):
    """The cluster and how to reach it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bootstrap_servers: str = _text(
        "",
        r"^$|^[^\s,:]+:\d+(,[^\s,:]+:\d+)*$|^\[[0-9a-fA-F:]+\]:\d+$",
        "The brokers a client asks first. Empty: none given; `scheduler demo` and `scheduler broker start` bring one.",
        expected="host:port, several separated by commas without spaces",
        example="broker-1:9092,broker-2:9092",
    )
    client: ClientProperties = Field(
        default_factory=dict,
        json_schema_extra=_about(
            "Further librdkafka properties for every client: TLS, SASL, buffers. Secrets by reference.",
            expected='librdkafka names with text, or { file = "…" } or { env = "…" } for a secret',
            example={"security.protocol": "SASL_SSL", "sasl.password": {"file": "/run/secrets/kafka-password"}},
        ),
    )
    replication_factor: Int = _number(
        1,
        1,
        15,
        "copies",
        "Replicas of every topic `scheduler topics apply` creates. Production: 3. 1 loses data with its disk.",
    )
    min_insync_replicas: Int = _number(
        1, 1, 15, "copies", "Replicas that must have a record before it counts. Production: 2 with 3 replicas."
    )


class Http(BaseModel):
    """Where a node answers `/live`, `/ready` and `/metrics`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = _text(
        "127.0.0.1",
        r"^\S{1,253}$",
        "The address to listen on. Loopback by default: the endpoints have no login.",
        expected="a host name or an IP address",
        example="0.0.0.0",  # noqa: S104 - an example, not what we listen on
    )
    port: Int = _number(
        0,
        0,
        LAST_PORT,
        "",
        "The first process listens here, the others on the next ports; 0 takes free ones and logs them.",
    )


def _dotted(value: object) -> object:
    """TOML reads a bare `scheduler.occurrences = 1` as a table in a table; the name is meant."""
    if not isinstance(value, dict):
        return value
    flat: dict[str, object] = {}
    for key, item in value.items():
        below = _dotted(item)
        flat |= {f"{key}.{name}": inner for name, inner in below.items()} if isinstance(below, dict) else {key: below}
    return flat


def default_node_id() -> str:
    """The host's short name, in the characters a node id may have."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname().split(".")[0])[:64].strip("-.")
    return name or "node"


def default_data_dir() -> Path:
    """The user's data directory, as the XDG base directory rules place it."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "kafka-streaming-scheduler"


class Settings(BaseModel):
    """Every setting of a node. Frozen; construct it in tests as a plain value, it reads nothing by itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kafka: Kafka = Kafka()
    namespace: str = _text(
        "",
        r"^[A-Za-z0-9._-]{0,60}$",
        "Prefix of every topic, group and transactional id, so that several schedulers can share a cluster.",
        expected="up to 60 of A-Z a-z 0-9 . _ - (end it with a dot), or nothing",
        example="billing.",
    )
    shards: Int = _number(
        16,
        1,
        1_024,
        "partitions",
        "Partitions of every co-partitioned topic, one owner each. Fixed for the life of a cluster.",
    )
    lanes: Annotated[tuple[Lane, ...], BeforeValidator(_split)] = Field(
        ("default",),
        min_length=1,
        max_length=20,
        json_schema_extra=_about(
            "The sets of dispatch topics, four topics each. Every cluster-wide transaction pays for each one.",
            expected="1 to 20 different names of a-z 0-9 -, at most 40 characters each",
            example=["default", "reports"],
        ),
    )
    node_id: str = Field(
        default_factory=default_node_id,
        pattern=r"^[A-Za-z0-9._-]{1,64}$",
        json_schema_extra=_about(
            "Name of this node in logs and metrics and the key of its store. Default: the host's short name.",
            expected="1 to 64 of A-Z a-z 0-9 . _ -",
            example="scheduler-1",
        ),
    )
    data_dir: Annotated[Path, BeforeValidator(expand_user)] = Field(
        default_factory=default_data_dir,
        json_schema_extra=_about(
            "Where stores and the embedded broker live; a local disk. Disposable: it is rebuilt from the topics. "
            "Default: `kafka-streaming-scheduler` in the user's data directory.",
            expected="a directory path",
            example="/var/lib/kafka-streaming-scheduler",
        ),
    )
    processes: Int = _number(1, 1, 64, "processes", "Processes of this node; about one a core that it may use.")
    standby: bool = Field(
        True,
        json_schema_extra=_about(
            "Keep warm copies of the shards that other nodes own, so that a takeover reads seconds of changelogs, not "
            "all. Each node then reads and stores the state of every shard: turn it off beyond three nodes.",
            expected="true or false",
            example=False,
        ),
    )
    horizon_ms: Int = _number(
        30_000,
        1_000,
        600_000,
        "milliseconds",
        "How far ahead occurrences are read and encoded, so that firing is only producing: "
        "at most; less the fuller `horizon_bytes` is.",
    )
    horizon_bytes: Int = _number(
        64 * MIB,
        MIB,
        4_096 * MIB,
        "bytes",
        "Upper bound of what one shard prepares ahead; memory is this times the shards owned.",
    )
    grace_max_ms: Int = _number(
        60_000,
        15_000,
        600_000,
        "milliseconds",
        "Upper bound of the grace: what a restart or a takeover may cost without a misfire.",
    )
    catch_up_per_s: Int = _number(
        100,
        1,
        100_000,
        "occurrences a second",
        "Missed work a tenant may have dispatched per second beside what is on time.",
    )
    max_transaction_records: Int = _number(
        20_000, 100, 20_000, "records", "Most records in one transaction; what readers of committed records wait for."
    )
    join_ms: Int = _number(
        50, 0, 1_000, "milliseconds", "Steps without due work are joined to this length: fewer transactions."
    )
    join_due_ms: Int = _number(20, 0, 1_000, "milliseconds", "Steps with due work are joined to this length.")
    session_timeout_ms: Int = _number(
        6_000,
        500,
        1_800_000,
        "milliseconds",
        "Silence after which a process counts as dead and its shards move. Not below the broker's minimum (6000).",
    )
    heartbeat_interval_ms: Int = _number(
        1_500,
        100,
        600_000,
        "milliseconds",
        "How often a process says it is alive; at most a third of the session timeout.",
    )
    transaction_timeout_ms: Int = _number(
        5_000,
        1_000,
        900_000,
        "milliseconds",
        "After this the broker aborts what a dead owner left open; readers wait behind it.",
    )
    http: Http = Http()
    dispatch_factor: Int = _number(
        1,
        1,
        64,
        "",
        "Partitions of a dispatch topic per shard: more than 1 when a lane needs more workers than shards.",
    )
    retention: Annotated[dict[str, Int], BeforeValidator(_dotted)] = Field(
        default_factory=dict,
        json_schema_extra=_about(
            "How long single topics keep their records, where it differs from the catalogue (`topics/README.md`); "
            "`dispatch.<lane>` stands for all four topics of a lane.",
            expected="a table of topic names without the namespace, each with milliseconds, at least an hour",
            example={"scheduler.occurrences": 30 * DAY_MS, "dispatch.default": 7 * DAY_MS},
        ),
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info",
        json_schema_extra=_about(
            "Least severity that is logged.", expected="one of debug, info, warning, error", example="info"
        ),
    )
    log_format: Literal["json", "text"] = Field(
        "json",
        json_schema_extra=_about(
            "`json`: one object a line, for machines; `text`: for a person at a terminal.",
            expected="json or text",
            example="text",
        ),
    )

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        found = list(contradictions(self))
        if found:
            raise PydanticCustomError(
                "contradictions", "{text}", {"text": "; ".join(t for _, t in found), "found": found}
            )
        return self

    def catalogue(self) -> Catalogue:
        """The topics of this cluster, as these settings want them."""
        return Catalogue(
            namespace=self.namespace,
            shards=self.shards,
            lanes=self.lanes,
            replication_factor=self.kafka.replication_factor,
            min_isr=self.kafka.min_insync_replicas,
            dispatch_factor=self.dispatch_factor,
            retention_ms=self.retention,
        )

    def client_config(self) -> dict[str, str]:
        """What every Kafka client of this node starts from, secrets included: never log it.

        Raises `ConfigInvalid` when no broker is configured or a secret can't be read.
        """
        if not self.kafka.bootstrap_servers:
            text = (
                "no broker is configured: set kafka.bootstrap_servers (or SCHEDULER_KAFKA__BOOTSTRAP_SERVERS) "
                "to host:port, or start a local one with `scheduler broker start`"
            )
            raise ConfigInvalid([text])
        config = {
            "client.id": self.node_id,
            # Without a broker ten clients print thousands of lines a minute at the library's own pace.
            "reconnect.backoff.ms": "100",
            "reconnect.backoff.max.ms": "5000",
            "retry.backoff.ms": "10",
        }
        config |= {name: resolve(value) for name, value in self.kafka.client.items()}
        config["bootstrap.servers"] = self.kafka.bootstrap_servers
        return config


def contradictions(settings: Settings) -> list[tuple[tuple[str, ...], str]]:
    """What is wrong between fields that are each right: (the fields involved, a sentence)."""
    s = settings
    found: list[tuple[tuple[str, ...], str]] = []
    if s.heartbeat_interval_ms * 3 > s.session_timeout_ms:
        text = (
            f"heartbeat_interval_ms = {s.heartbeat_interval_ms} is more than a third of "
            f"session_timeout_ms = {s.session_timeout_ms}; expected at most {s.session_timeout_ms // 3}"
        )
        found.append((("heartbeat_interval_ms", "session_timeout_ms"), text))
    if s.join_due_ms > s.join_ms:
        text = f"join_due_ms = {s.join_due_ms} is more than join_ms = {s.join_ms}; expected at most that"
        found.append((("join_due_ms", "join_ms"), text))
    if s.processes > s.shards:
        text = f"processes = {s.processes} is more than shards = {s.shards}; a process without a shard does nothing"
        found.append((("processes", "shards"), text))
    if s.http.port + s.processes - 1 > LAST_PORT:
        text = f"http.port = {s.http.port} leaves no ports for {s.processes} processes, which take one each from it on"
        found.append((("http.port", "processes"), text))
    if len(set(s.lanes)) < len(s.lanes):
        twice = sorted({lane for lane in s.lanes if s.lanes.count(lane) > 1})
        found.append((("lanes",), f"lanes names {', '.join(twice)} twice; expected each lane once"))
    if s.kafka.min_insync_replicas > s.kafka.replication_factor:
        text = (
            f"kafka.min_insync_replicas = {s.kafka.min_insync_replicas} is more than "
            f"kafka.replication_factor = {s.kafka.replication_factor}; no write would ever succeed"
        )
        found.append((("kafka.min_insync_replicas", "kafka.replication_factor"), text))
    try:
        Catalogue(lanes=tuple(dict.fromkeys(s.lanes)), retention_ms=s.retention)
    except ValueError as error:
        found.append((("retention", "lanes"), str(error).removeprefix("the topic catalogue cannot be built: ")))
    for name, value in s.kafka.client.items():
        where = f"kafka.client.{name}"
        if name in OWNED_CLIENT_PROPERTIES:
            found.append(((where,), f"{where} is set by the scheduler ({OWNED_CLIENT_PROPERTIES[name]}); remove it"))
        if isinstance(value, SecretRef):
            try:
                value.read()
            except ConfigInvalid as error:
                found.append(((where,), f"{where}: {error.problems[0]}"))
    return found
