"""A broker in a container, through testcontainers, where a Docker engine answers."""

from __future__ import annotations

import gc
import socket
import warnings
from typing import TYPE_CHECKING

import docker
import pytest
from docker.errors import DockerException
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from scheduler.local.jars import KAFKA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

IMAGE = f"apache/kafka:{KAFKA_VERSION}"


def in_docker() -> Iterator[str]:
    """Yield the address of a node in a container; skip, saying why, if there is no engine or no image."""
    silence = engine_silence()
    if silence:
        pytest.skip(f"no Docker engine answers: {silence}")
    port = _free_port()  # must be known before the start: the broker tells its clients where to connect
    container = DockerContainer(IMAGE).with_bind_ports(9092, port).with_envs(**_settings(port))
    container.waiting_for(LogMessageWaitStrategy("Kafka Server started").with_startup_timeout(60))
    try:
        container.start()
    except DockerException as error:
        pytest.skip(f"{IMAGE} can't be run here: {error}")
    try:
        yield f"127.0.0.1:{port}"
    finally:
        container.stop()


def engine_silence() -> str | None:
    """Why no engine can be reached; `None` if one answers."""
    with warnings.catch_warnings():
        # The client leaves its socket to the garbage collector when the engine does not answer.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            docker.from_env(timeout=5).close()  # asks the engine for its version
        except DockerException as error:
            reason = str(error)
        else:
            reason = None
        gc.collect()
    return reason


def _settings(port: int) -> dict[str, str]:
    return {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
