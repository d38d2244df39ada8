"""Where commands meet Kafka: which broker, and what its errors mean for the exit code."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from scheduler.cli.common import Shown
from scheduler.errors import BrokerUnavailable
from topics.client import CommandClient, NotDelivered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.cli.common import Cli
    from scheduler.config import Settings


def settings_with_broker(cli: Cli) -> Settings:
    """The settings; without a configured broker, those of the local one that `scheduler broker start` left running."""
    settings = cli.settings()
    if settings.kafka.bootstrap_servers:
        return settings
    address = _local_broker()
    if address is None:
        settings.client_config()  # raises, naming the ways to have a broker
        return settings
    return cli.settings({"kafka": {"bootstrap_servers": address}})


def _local_broker() -> str | None:
    try:
        from scheduler.local.broker import Broker, default_data_dir
    except ImportError:  # the `local` extra is not installed
        return None
    try:
        broker = Broker.attach(default_data_dir())
    except BrokerUnavailable:
        return None
    return broker.bootstrap_servers if broker is not None else None


_AWAY = frozenset(
    {
        KafkaError._TRANSPORT,  # noqa: SLF001 - the client's own constants
        KafkaError._TIMED_OUT,  # noqa: SLF001 - as above
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - as above
    }
)


@contextmanager
def kafka_errors() -> Iterator[None]:
    """Not reachable and no reply are exit code 3, a refused write is 1."""
    try:
        yield
    except (ConnectionError, TimeoutError) as error:
        raise BrokerUnavailable(str(error)) from error
    except NotDelivered as error:
        raise Shown(str(error)) from error
    except KafkaException as error:
        cause = error.args[0]
        text = f"{cause.str()}; check kafka.bootstrap_servers, the brokers and the security settings"
        raise (BrokerUnavailable(text) if cause.code() in _AWAY else Shown(text)) from error


@contextmanager
def command_client(settings: Settings, *, timeout_s: float) -> Iterator[CommandClient]:
    """A connected client; errors as `kafka_errors` has them."""
    with (
        kafka_errors(),
        CommandClient(settings.client_config(), namespace=settings.namespace, timeout_s=timeout_s) as client,
    ):
        yield client
