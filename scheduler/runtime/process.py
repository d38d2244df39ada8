"""One process of a node: a member of the group, with its health. Ends on SIGTERM, SIGINT or when its parent is gone."""

from __future__ import annotations

import ctypes
import gc
import logging
import multiprocessing
import os
import signal
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from scheduler.errors import BrokerUnavailable, ConfigInvalid, SchedulerError, StateCorrupted
from scheduler.runtime.clock import SystemClock
from scheduler.runtime.health import Health
from scheduler.runtime.member import Member
from scheduler.runtime.outside import Outside
from scheduler.runtime.supervisor import SIGNALS
from scheduler.runtime.telemetry import Telemetry, event
from topics.admin import TopicsWrong, observe, verify
from topics.partition import self_test

if TYPE_CHECKING:
    from scheduler.config import Settings
    from scheduler.runtime.kafka import Inquiry
    from topics.catalog import Catalogue

START_S = 30.0
TOPICS_S = 10.0  # for what topics are like; whoever is told to stop meanwhile ends no sooner
LARGE_BLOCK = 1024 * 1024  # bytes
_M_MMAP_THRESHOLD = -3  # of malloc.h


class PortTaken(SchedulerError):
    """Nobody could look at the process."""


class Process:
    """Runs until told to stop. `run` returns the exit code."""

    def __init__(self, settings: Settings, index: int) -> None:
        self._settings = settings
        self._index = index
        self._stopping = False  # no event: setting one in a signal handler may wait for a lock for ever
        parent = multiprocessing.parent_process()
        self._parent = os.getppid() if parent is None else parent.pid

    def stop(self, *_: object) -> None:
        """Drain and leave; safe in a signal handler."""
        self._stopping = True

    def run(self) -> int:
        """Raises BrokerUnavailable, ConfigInvalid or StateCorrupted when it cannot start."""
        settings = self._settings
        self_test()
        outside = Outside(settings)
        try:
            _ = outside.plain  # finds the brokers, which takes it half a second, while we look at the topics
        except KafkaException as fault:
            if fault.args[0].code() != KafkaError._INVALID_ARG:  # noqa: SLF001 - librdkafka spells it so
                raise
            raise ConfigInvalid([f"kafka.client: {fault.args[0].str()}"]) from fault
        cluster = check_topics(settings, settings.catalogue(), outside.inquiry)
        telemetry = Telemetry()
        member = Member(settings, self._index, cluster, outside, SystemClock(), telemetry, self._stopped)
        health = self._health(member, telemetry)
        event("process_started", process=member.name, pid=os.getpid(), health=health.address)
        drained = False
        try:
            drained = member.run()
        finally:
            health.close()
            event("process_stopped", process=member.name, drained=drained)
        return 0

    def _health(self, member: Member, telemetry: Telemetry) -> Health:
        host, port = self._settings.http.host, self._settings.http.port
        port = port + self._index if port else 0
        try:
            return Health(host, port, member.state, telemetry.registry)
        except OSError as fault:
            raise PortTaken(
                f"{host}:{port} can't be served: {fault.strerror}. Tried again, in case it is a former process that "
                "ends; else choose another http.port, 0 for a free one: process N of a node takes http.port + N"
            ) from fault

    def _stopped(self) -> bool:
        if not self._stopping and os.getppid() != self._parent:
            event("parent_gone", logging.WARNING)
            self._stopping = True
        return self._stopping


def check_topics(settings: Settings, catalogue: Catalogue, inquiry: Inquiry) -> str:
    """The cluster's id, once all topics are there as they must be. Raises with every mistake and the next step."""
    try:
        admin = inquiry.client(START_S)
        wanted = catalogue.specs()
        verify(wanted, observe(admin, wanted, timeout_s=TOPICS_S))
        cluster: str | None = admin.list_topics(timeout=START_S).cluster_id
    except TopicsWrong as fault:
        hint = "`scheduler topics plan` shows what `scheduler topics apply` would do"
        raise ConfigInvalid(fault.problems, hint) from fault
    except (KafkaException, TimeoutError) as fault:
        why = fault.args[0].str() if isinstance(fault, KafkaException) else f"no answer within {TOPICS_S:.0f} s"
        raise BrokerUnavailable(
            f"no broker answers at {settings.kafka.bootstrap_servers} ({why}): check that it runs and "
            "kafka.bootstrap_servers; `scheduler doctor` looks closer"
        ) from fault
    if cluster is None:
        raise StateCorrupted("the brokers do not say which cluster they are: a store could not be told apart")
    return cluster


def spare_collector() -> None:
    """Look for reference cycles in small portions, and hardly ever at everything: nothing else runs meanwhile.

    A shard's values form none, but a horizon has a million of them, which live for half a minute: looked through in
    portions of 100,000 allocations they took 0.1 to 0.3 s each *(20,000 firings a second; 0.02 s so)*.
    """
    gc.freeze()
    gc.set_threshold(5_000, 1, 100_000)


def return_memory() -> bool:
    """Give large blocks back to the system as soon as they are free. False where the C library can't be told.

    The stores' write buffers are blocks of 1 MiB that the shards' threads take and others free. Once GNU's library has
    seen some freed it takes such from each thread's heap, which then keeps what it had at most *(twenty million creates
    by eight shards: 1,079 MB, and 716 MB so)*.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK))


def main(settings: Settings, index: int) -> int:
    """The body of a child process."""
    spare_collector()
    return_memory()
    process = Process(settings, index)
    for number in SIGNALS:
        signal.signal(number, process.stop)
    return process.run()
