"""What a process says about itself over HTTP: `/live`, `/ready` (by shard, with its trouble if any), `/metrics`."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

if TYPE_CHECKING:
    from collections.abc import Callable


class Health:
    """Serves on a thread of its own. `state` gives {"live": bool, "ready": bool, ...}, shown whole."""

    def __init__(self, host: str, port: int, state: Callable[[], dict[str, Any]], registry: CollectorRegistry) -> None:
        self._server = _Server((host, port), _Handler)
        self._server.state = state
        self._server.registry = registry
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host if isinstance(host, str) else host.decode()}:{port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    state: Callable[[], dict[str, Any]]
    registry: CollectorRegistry


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:  # the name is http.server's
        if self.path == "/metrics":
            self._answer(200, generate_latest(self.server.registry), CONTENT_TYPE_LATEST)
        elif self.path in ("/live", "/ready"):
            state = self.server.state()
            status = 200 if state[self.path[1:]] else 503
            self._answer(status, json.dumps(state).encode(), "application/json")
        else:
            self._answer(404, b'{"try": ["/live", "/ready", "/metrics"]}', "application/json")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Scrapes are no events."""
