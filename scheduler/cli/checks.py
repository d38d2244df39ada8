"""What `scheduler doctor` checks: each check asks the cluster one question and gives one finding with the next step."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from scheduler.cli.common import now_ms
from scheduler.cli.kafka import command_client
from scheduler.errors import BrokerUnavailable
from topics.admin import Create, connect, observe, plan
from topics.client import log
from topics.messages import Command
from topics.partition import partition_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import Message

    from scheduler.config import Settings

CLOCK_WARN_MS = 500
CLOCK_FAIL_MS = 2_000  # a node whose clocks differ by more is not ready
WAIT_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The answer to one question; `then` is the next step where there is one."""

    check: str
    status: Literal["ok", "warn", "fail"]
    text: str
    then: str = ""


def check_broker(settings: Settings) -> Finding:
    """Does a broker answer? Everything else needs this."""
    address = settings.kafka.bootstrap_servers
    began = time.monotonic()
    try:
        found = connect(settings.client_config()).list_topics(timeout=WAIT_S)
    except KafkaException as error:
        return Finding(
            check="broker",
            status="fail",
            text=f"no broker answered at {address} within {WAIT_S:.0f} s: {error.args[0].str()}",
            then="check the address, the network, and kafka.client's TLS and SASL settings; is the broker running?",
        )
    took = (time.monotonic() - began) * 1000
    return Finding(check="broker", status="ok", text=f"{len(found.brokers)} broker(s) at {address}, {took:.0f} ms")


def check_topics(settings: Settings) -> Finding:
    """Are the topics as the catalogue wants them?"""
    wanted = settings.catalogue().specs()
    proposal = plan(wanted, observe(connect(settings.client_config()), wanted))
    missing = [change.spec.name for change in proposal.changes if isinstance(change, Create)]
    blocking = [str(drift) for drift in proposal.drift if drift.blocking]
    if blocking:
        return Finding(
            check="topics",
            status="fail",
            text="; ".join(blocking),
            then="set `shards` and `namespace` to what the cluster has: `scheduler topics plan` shows both",
        )
    if missing:
        text = f"{len(missing)} of {len(wanted)} are missing, first {missing[0]}"
        return Finding(check="topics", status="fail", text=text, then="scheduler topics apply")
    if proposal.drift:
        text = "; ".join(map(str, proposal.drift))
        return Finding(check="topics", status="warn", text=text, then="scheduler topics plan")
    if not proposal.empty:
        text = f"{len(proposal.changes)} settings differ from the catalogue"
        return Finding(check="topics", status="warn", text=text, then="scheduler topics plan")
    return Finding(check="topics", status="ok", text=f"all {len(wanted)} are as they should be")


def check_clock(settings: Settings, topic: str) -> Finding:
    """Does the broker's append time agree with this machine's clock? `topic` has LogAppendTime."""
    before = now_ms()
    appended = _append_time(settings, topic)
    after = now_ms()
    off = max(before - appended, appended - after, 0)
    status: Literal["ok", "warn", "fail"] = "fail" if off > CLOCK_FAIL_MS else "warn" if off > CLOCK_WARN_MS else "ok"
    text = f"the broker's clock is {off} ms outside the {after - before} ms the question took"
    if status == "ok":
        text = f"the broker's clock and this machine's agree (within {after - before + off} ms)"
    then = (
        "" if status == "ok" else "set the clocks of broker and nodes with NTP; the broker's decides when things fire"
    )
    return Finding(check="clock", status=status, text=text, then=then)


def _append_time(settings: Settings, topic: str) -> int:
    times: list[int] = []
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            times.append(message.timestamp()[1])

    producer = Producer({**settings.client_config(), "message.timeout.ms": int(WAIT_S * 1000)}, logger=log)
    producer.produce(topic, b"{}", b"doctor", on_delivery=delivered)
    producer.flush(WAIT_S)
    if not times:
        silence = KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001 - the client's own constant
        raise KafkaException(errors[0] if errors else silence)
    return times[0]


def check_scheduler(settings: Settings, *, timeout_s: float = 5.0) -> Finding:
    """Does every shard answer? Asks each one about a schedule that does not exist."""
    questions = [_question(shard, settings.shards) for shard in range(settings.shards)]
    answered = 0
    try:
        with command_client(settings, timeout_s=timeout_s) as client:
            for _ in client.send_many(questions):
                answered += 1
    except BrokerUnavailable:
        pass  # the rest did not answer in time: that is the finding
    text = f"{answered} of {settings.shards} shards answer"
    if answered == settings.shards:
        return Finding(check="scheduler", status="ok", text=text)
    then = (
        "start one with `scheduler run`, with this namespace and these shards; a node's /ready says what it waits for"
    )
    return Finding(check="scheduler", status="warn" if answered == 0 else "fail", text=text, then=then)


def _question(shard: int, shards: int) -> Command:
    number = 0
    while partition_for(f"doctor/{number}".encode(), shards) != shard:
        number += 1
    return Command(command="pause", schedule_id=f"doctor/{number}", dry_run=True)


def check_aborted(settings: Settings, consumer: Mapping[str, str]) -> Finding:
    """Does a consumer with these settings hide what a transaction took back?

    `consumer` holds a worker's own settings in Kafka's names, as in a Java properties file. What it doesn't set has
    Kafka's default here, which shows aborted records: other clients' defaults are no contract.
    """
    name = f"{settings.namespace}scheduler.doctor-{secrets.token_hex(4)}"
    admin = connect(settings.client_config())
    options = {"retention.ms": "3600000", "min.insync.replicas": "1"}  # one copy is enough for a canary
    made = admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1, config=options)])
    made[name].result(WAIT_S)
    try:
        _canary(settings, name)
        seen = _read_all(settings, name, consumer)
    finally:
        admin.delete_topics([name])[name].result(WAIT_S)
    isolation = consumer.get("isolation.level", "not set (Kafka's default is read_uncommitted)")
    if b"aborted" in seen:
        return Finding(
            check="consumer",
            status="fail",
            text=f"it shows records of aborted transactions; isolation.level is {isolation}",
            then="set isolation.level=read_committed in every consumer of dispatch topics",
        )
    if b"committed" not in seen:
        return Finding(
            check="consumer",
            status="warn",
            text=f"it does not show what was there before it came; auto.offset.reset is "
            f"{consumer.get('auto.offset.reset', 'not set (the default is latest)')}",
            then="set auto.offset.reset=earliest, or a new group misses what was dispatched before its first poll",
        )
    return Finding(check="consumer", status="ok", text="it shows committed records and hides aborted ones")


def _canary(settings: Settings, topic: str) -> None:
    """One aborted and one committed record, in this order."""
    producer = Producer(
        {**settings.client_config(), "transactional.id": topic, "transaction.timeout.ms": 10_000}, logger=log
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"{}", b"aborted")
    producer.flush(WAIT_S)  # on the broker before it is taken back
    producer.abort_transaction(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"{}", b"committed")
    producer.commit_transaction(WAIT_S)


def _read_all(settings: Settings, topic: str, given: Mapping[str, str]) -> set[bytes]:
    """The keys this consumer shows from where it would begin by itself to the end."""
    config: dict[str, Any] = {
        **settings.client_config(),
        "isolation.level": given.get("isolation.level", "read_uncommitted"),
        "group.id": f"{topic}-reader",  # asked for by the library, never joined
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(config, logger=log)
    try:
        earliest = given.get("auto.offset.reset", "latest") == "earliest"
        low_high = consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S)
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING if earliest else low_high[1])])
        seen: set[bytes] = set()
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            for message in consumer.consume(100, 0.2):
                error = message.error()
                if error is None:
                    seen.add(message.key() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's own constant
                    return seen
                else:
                    raise KafkaException(error)
        raise BrokerUnavailable(f"the end of {topic} was not reached within {WAIT_S:.0f} s")
    finally:
        consumer.close()
