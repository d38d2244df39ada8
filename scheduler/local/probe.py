"""Ask a broker whether it is ready, with nothing but a socket.

The Kafka client library stays out of this package, and a client would be slow and loud against a broker that is still
starting. One `Metadata` request says all there is to know: a node answers it only after it has caught up with the
cluster, and lists only brokers that are registered and not fenced.
"""

from __future__ import annotations

import socket
import struct

METADATA, VERSION = 3, 1  # the oldest version with "no topics, please"
LONGEST_ANSWER = 1 << 20


def registered_brokers(port: int, *, host: str = "127.0.0.1", timeout_s: float = 1.0) -> frozenset[int]:
    """Return the node ids that the broker at `port` sees as registered and unfenced.

    Raises `OSError` (refused, timed out, closed) or `ValueError` (whoever answers does not speak Kafka).
    """
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(metadata_request())
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        if not 0 < size <= LONGEST_ANSWER:
            raise ValueError(f"what listens on {host}:{port} does not speak Kafka: an answer of {size} bytes")
        return parse_metadata(_exactly(connection, size))


def metadata_request() -> bytes:
    """A `Metadata` v1 request for no topic: size, header (api, version, correlation, client), empty topic array."""
    client = b"scheduler-probe"
    body = struct.pack(">hhih", METADATA, VERSION, 1, len(client)) + client + struct.pack(">i", 0)
    return struct.pack(">i", len(body)) + body


def parse_metadata(answer: bytes) -> frozenset[int]:
    """Read the node ids out of a `Metadata` v1 answer. Raises `ValueError` if it is none."""
    try:
        correlation, count = struct.unpack_from(">ii", answer)
        at, nodes = 8, set()
        for _ in range(count):
            (node,) = struct.unpack_from(">i", answer, at)
            nodes.add(node)
            at = _after_text(answer, at + 4) + 4  # host, port
            at = _after_text(answer, at)  # rack, nullable
    except struct.error as error:
        raise ValueError(f"not a metadata answer: {answer[:40]!r}") from error
    if correlation != 1:
        raise ValueError(f"an answer to another question: correlation {correlation}")
    return frozenset(nodes)


def _after_text(data: bytes, at: int) -> int:
    (length,) = struct.unpack_from(">h", data, at)
    return int(at + 2 + max(length, 0))


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionResetError("closed in the middle of an answer")
        data += more
    return data
