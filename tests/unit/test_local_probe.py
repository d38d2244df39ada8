"""The readiness question over a plain socket, against every kind of answerer."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.local.probe import parse_metadata, registered_brokers

if TYPE_CHECKING:
    from collections.abc import Iterator


def text(value: bytes | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value


def answer(nodes: dict[int, bytes | None], *, correlation: int = 1) -> bytes:
    """A metadata answer with `nodes` (id → rack), the controller and no topics behind them."""
    listed = b"".join(
        struct.pack(">i", node) + text(b"127.0.0.1") + struct.pack(">i", 9092) + text(rack)
        for node, rack in nodes.items()
    )
    return struct.pack(">ii", correlation, len(nodes)) + listed + struct.pack(">ii", 1, 0)


@contextmanager
def answering(data: bytes) -> Iterator[int]:
    """A server that answers the first request with `data` and closes; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def test_registered_brokers_are_read_with_and_without_racks() -> None:
    """A rack is an optional text; both forms are walked over."""
    assert parse_metadata(answer({1: None, 2: b"rack", 3: b""})) == {1, 2, 3}


def test_no_broker_is_an_answer() -> None:
    """A node that has admitted nobody yet is understood, not refused."""
    assert parse_metadata(answer({})) == frozenset()


@given(st.integers(0, 40))
def test_a_cut_answer_is_a_value_error(length: int) -> None:
    """Whatever is cut off, no half list is taken for the whole."""
    whole = answer({1: None, 2: b"rack"})[:-8]
    with pytest.raises(ValueError, match="not a metadata answer"):
        parse_metadata(whole[: min(length, len(whole) - 1)])


def test_an_answer_to_another_question_is_refused() -> None:
    """The correlation id must be ours."""
    with pytest.raises(ValueError, match="another question"):
        parse_metadata(answer({1: None}, correlation=2))


def test_the_question_is_asked_over_a_socket() -> None:
    """Size, then that many bytes: the answer is read whole."""
    body = answer({7: None})
    with answering(struct.pack(">i", len(body)) + body) as port:
        assert registered_brokers(port) == {7}


def test_another_server_on_the_port_is_named() -> None:
    """A web server on the broker's port is a value error that says so, not a wait for gigabytes."""
    with (
        answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port,
        pytest.raises(ValueError, match="does not speak Kafka"),
    ):
        registered_brokers(port)


def test_a_closed_connection_is_an_os_error() -> None:
    """A broker that goes away in the middle of its answer is not ready."""
    with answering(struct.pack(">i", 100) + b"half") as port, pytest.raises(ConnectionResetError):
        registered_brokers(port)


def test_nobody_there_is_an_os_error() -> None:
    """A refused connection is the ordinary answer of a broker that is still starting."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        registered_brokers(port)
