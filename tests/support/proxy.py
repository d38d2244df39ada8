"""A TCP proxy that understands just enough of Kafka's framing to lose chosen answers, or all of the network.

A broker with a proxied listener has two addresses: the direct one, and the proxy's, under which it also announces
itself to whoever came that way. So one node can be cut off while others and the verifier see the broker as it is.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Self

from scheduler.local import Broker, settings
from scheduler.local.settings import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    import pytest

END_TXN = 26
_HEAD = struct.Struct(">ihhi")  # size, api key, api version, correlation id
_ANSWER = struct.Struct(">ii")  # size, correlation id


class Proxy:
    """Forwards connections to `target`. `lose` and `cut` change what happens; both may be called at any time."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server((HOST, 0))
        self._open = threading.Event()
        self._open.set()
        self._lock = threading.Lock()
        self._lose: dict[int, int] = {}
        self._hang_up = False
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def lose(self, api: int, times: int, *, hang_up: bool) -> None:
        """Swallow the next answers to requests of this kind; with `hang_up` the connection ends instead of silence."""
        with self._lock:
            self._lose[api] = times
            self._hang_up = hang_up

    def losing(self, api: int) -> bool:
        """Whether an answer is still to be swallowed."""
        return self._lose.get(api, 0) > 0

    def cut(self) -> None:
        """Nothing passes any more, in either direction; connections stay up, as when a cable is pulled."""
        self._open.clear()

    def mend(self) -> None:
        self._open.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.mend()
        self._listener.close()
        for one in self._sockets:
            _close(one)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.wait()
            try:
                server = socket.create_connection((HOST, self._target))
            except OSError:
                _close(client)
                continue
            self._sockets += [client, server]
            asked: dict[int, int] = {}
            for pump in (self._requests, self._answers):
                threading.Thread(target=pump, args=(client, server, asked), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, asked: dict[int, int]) -> None:
        for frame in _frames(client):
            _, api, _, correlation = _HEAD.unpack_from(frame)
            asked[correlation] = api
            self._open.wait()
            if not _send(server, frame):
                break
        _close(client, server)

    def _answers(self, client: socket.socket, server: socket.socket, asked: dict[int, int]) -> None:
        for frame in _frames(server):
            _, correlation = _ANSWER.unpack_from(frame)
            self._open.wait()
            if self._is_lost(asked.pop(correlation, -1)):
                if self._hang_up:
                    break
                continue
            if not _send(client, frame):
                break
        _close(client, server)

    def _is_lost(self, api: int) -> bool:
        with self._lock:
            left = self._lose.get(api, 0)
            if left:
                self._lose[api] = left - 1
            return left > 0


def _frames(source: socket.socket) -> Iterator[bytes]:
    """Whole frames, their length in front, until the connection ends."""
    with contextlib.suppress(OSError), source.makefile("rb") as stream:
        while len(head := stream.read(4)) == 4:
            (size,) = struct.unpack(">i", head)
            body = stream.read(size)
            if len(body) < size:
                return
            yield head + body


def _send(target: socket.socket, frame: bytes) -> bool:
    try:
        target.sendall(frame)
    except OSError:
        return False
    return True


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


@contextlib.contextmanager
def proxied_broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Broker, Proxy]]:
    """An embedded node with a second listener that it announces as the proxy."""
    with socket.create_server((HOST, 0)) as free:
        behind = int(free.getsockname()[1])
    with Proxy(behind) as proxy:
        original = settings.server_properties

        def with_listener(layout: settings.ClusterLayout, node: settings.NodeLayout, data: Path) -> str:
            added = {
                "listeners=": f"PROXIED://{HOST}:{behind}",
                "advertised.listeners=": f"PROXIED://{HOST}:{proxy.port}",
                "listener.security.protocol.map=": "PROXIED:PLAINTEXT",
            }
            lines = original(layout, node, data).splitlines()
            for index, line in enumerate(lines):
                for name, value in added.items():
                    if line.startswith(name):
                        lines[index] = f"{line},{value}"
            return "\n".join([*lines, "inter.broker.listener.name=PLAINTEXT", ""])

        monkeypatch.setattr(settings, "server_properties", with_listener)
        with Broker.start() as broker:
            yield broker, proxy
