"""The pinned jars: what the lock promises, and what happens when the world does not keep it."""

from __future__ import annotations

import http.server
import re
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from scheduler.local import BrokerUnavailable, jars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_the_lock_holds_what_was_asked_for() -> None:
    """Each coordinate of the code is in the lock with its version, before what it pulled in."""
    first = [f"{jar.group}:{jar.artifact}:{jar.version}" for jar in jars.locked()[: len(jars.COORDINATES)]]
    assert tuple(first) == jars.COORDINATES


def test_the_lock_is_one_kafka() -> None:
    """All of Kafka's own jars have the broker's version: a mix starts and fails later."""
    assert {jar.version for jar in jars.locked() if jar.group == "org.apache.kafka"} == {jars.KAFKA_VERSION}


def test_every_jar_is_pinned_once_by_content() -> None:
    """File names are unique, so one folder holds them all; every line has a SHA-256."""
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in jars.locked())
    assert max(Counter(jar.file_name for jar in jars.locked()).values()) == 1
    assert max(Counter(jar.artifact for jar in jars.locked()).values()) == 1


def test_a_full_cache_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every jar in the cache no network is touched: a start offline is a start."""
    folder = tmp_path / "jars"
    folder.mkdir()
    for jar in jars.locked():
        (folder / jar.file_name).touch()
    monkeypatch.setattr(jars, "_fetch", lambda *_: pytest.fail("went to the network"))
    assert [path.name for path in jars.classpath(tmp_path)] == [jar.file_name for jar in jars.locked()]


def test_no_network_and_nothing_cached_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error counts what is missing, names the folder, the cause and the ways out."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    two = jars.locked()[:2]
    monkeypatch.setattr(jars, "locked", lambda: two)
    with pytest.raises(BrokerUnavailable) as caught:
        jars.classpath(tmp_path)
    assert "2 of the jars of Apache Kafka" in caught.value.what
    assert str(tmp_path / "jars") in caught.value.what
    assert "Error" in caught.value.why
    assert "SCHEDULER_KAFKA__BOOTSTRAP_SERVERS" in caught.value.then
    assert list((tmp_path / "jars").iterdir()) == []


@pytest.fixture
def wrong_mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A repository that answers every request with a page, as a login portal does."""

    class Portal(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>please log in</html>")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Portal) as server:
        threading.Thread(target=server.serve_forever).start()
        monkeypatch.setattr("jgo.constants.MAVEN_CENTRAL_URL", f"http://127.0.0.1:{server.server_port}")
        yield
        server.shutdown()


def test_a_wrong_file_never_enters_the_cache(tmp_path: Path, wrong_mirror: None) -> None:
    """What is not byte for byte the pinned file is refused and leaves nothing behind."""
    with pytest.raises(BrokerUnavailable, match="is not the file this version was built with"):
        jars.classpath(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
