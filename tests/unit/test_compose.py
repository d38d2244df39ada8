"""The compose files: what can be known of them without a Docker engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from scheduler.local import settings
from scheduler.local.jars import KAFKA_VERSION

COMPOSE = Path(__file__).parents[2] / "compose"


def environment() -> dict[str, str]:
    lines = (COMPOSE / ".env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def document(name: str) -> Any:
    """A YAML file with the variables of `.env` put in; a variable that is not there is an error."""
    text = (COMPOSE / name).read_text()
    return yaml.safe_load(re.sub(r"\$\{(\w+)\}", lambda found: environment()[found[1]], text))


def services() -> dict[str, Any]:
    found: dict[str, Any] = document("compose.yaml")["services"]
    return found


def test_every_version_is_pinned_in_one_place() -> None:
    """Images take their version from `.env`, and each is an exact one."""
    raw = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    for service in raw.values():
        assert re.fullmatch(r"[\w./-]+:\$\{\w+_VERSION\}", service["image"])
    versions = {name: value for name, value in environment().items() if name.endswith("_VERSION")}
    assert len(versions) == len(raw)
    assert all(re.fullmatch(r"v?\d+\.\d+\.\d+", value) for value in versions.values())


def test_it_is_the_kafka_we_test_with() -> None:
    """The container and the embedded broker are one release."""
    assert services()["kafka"]["image"] == f"apache/kafka:{KAFKA_VERSION}"


def test_the_container_behaves_like_the_embedded_broker() -> None:
    """Where both set something, they set the same; what differs is where they listen and keep their data."""
    layout = settings.new_layout([(1, 2)], [bytes(16), bytes(16)])
    text = settings.server_properties(layout, layout.nodes[0], Path("/data"))
    embedded = dict(line.split("=", 1) for line in text.splitlines())
    given = services()["kafka"]["environment"]
    container = {name.removeprefix("KAFKA_").lower().replace("_", "."): value for name, value in given.items()}
    here = {"listeners", "advertised.listeners", "listener.security.protocol.map", "log.dirs"}
    common = (container.keys() & embedded.keys()) - here
    assert len(common) > 10
    assert {key: container[key] for key in common} == {key: embedded[key] for key in common}


def test_kafka_ui_shows_committed_records_only() -> None:
    """An operator must not see copies that no worker sees."""
    (cluster,) = document("kafka-ui.yaml")["kafka"]["clusters"]
    assert cluster["consumerProperties"] == {"isolation.level": "read_committed"}
    assert f"DOCKER://{cluster['bootstrapServers']}" in services()["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]


def test_nothing_is_published_beyond_this_machine() -> None:
    """Every published port is bound to the loopback address: none of them asks for a password."""
    for service in services().values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_every_mounted_file_exists() -> None:
    """A missing file would be mounted as an empty directory."""
    mounts = [mount for service in services().values() for mount in service.get("volumes", []) if mount[0] == "."]
    assert mounts
    assert all((COMPOSE / mount.split(":")[0]).is_file() for mount in mounts)


def test_dependants_wait_for_a_healthy_broker() -> None:
    """kafka-ui starts when the broker answers, which the health check asks on the listener it uses."""
    check = services()["kafka"]["healthcheck"]["test"]
    assert services()["kafka-ui"]["depends_on"]["kafka"]["condition"] == "service_healthy"
    assert check[-1].endswith(":29092")


def test_prometheus_scrapes_what_the_comment_says() -> None:
    """The port in the how-to of both files is the port that is scraped."""
    (job,) = document("prometheus.yml")["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    port = target.rpartition(":")[2]
    assert f"SCHEDULER_HTTP__PORT={port}" in (COMPOSE / "compose.yaml").read_text()
    assert f"SCHEDULER_HTTP__PORT={port}" in (COMPOSE / "prometheus.yml").read_text()
