"""Properties of Kafka clients as users give them: any spelling in, dotted librdkafka names out; secrets by reference.

A secret is read when a client is built and is in no `repr`, log or report before that.
"""

from __future__ import annotations

import os
import re
from pathlib import Path  # noqa: TC003 - pydantic reads it at run time
from typing import Annotated, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from scheduler.errors import ConfigInvalid

# librdkafka properties a user may not pass: the scheduler sets them and its guarantees rest on them.
OWNED_CLIENT_PROPERTIES = {
    "bootstrap.servers": "use kafka.bootstrap_servers",
    "metadata.broker.list": "use kafka.bootstrap_servers",
    "transactional.id": "it fences the former owner of a shard",
    "transaction.timeout.ms": "use transaction_timeout_ms",
    "enable.idempotence": "always on",
    "acks": "always all",
    "group.id": "ownership of the shards depends on it",
    "group.protocol": "ownership of the shards depends on it",
    "partition.assignment.strategy": "ownership of the shards depends on it",
    "session.timeout.ms": "use session_timeout_ms",
    "heartbeat.interval.ms": "use heartbeat_interval_ms",
    "enable.auto.commit": "positions are committed with the step's results",
    "isolation.level": "always read_committed",
    "auto.offset.reset": "always earliest",
    "partitioner": "always murmur2_random, as Kafka's own clients do",
}
_SECRET_PROPERTY = re.compile(r"password|secret|\.pem$|token|jaas|ssl\.certificate$|ssl\.key$")


def is_secret_property(name: str) -> bool:
    """Whether a librdkafka property's value must never be shown."""
    return _SECRET_PROPERTY.search(name) is not None


def expand_user(value: object) -> object:
    return os.path.expanduser(value) if isinstance(value, str) else value  # noqa: PTH111 - before it is a Path


class SecretRef(BaseModel):
    """Where a secret is kept: `{ file = "/run/secrets/kafka" }` or `{ env = "KAFKA_PASSWORD" }`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: Annotated[Path | None, BeforeValidator(expand_user)] = None
    env: str | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> SecretRef:
        if (self.file is None) == (self.env is None):
            raise PydanticCustomError("secret_ref", "a secret has either a file or an env")
        return self

    def read(self) -> str:
        """The secret itself, without the file's final newline; raises `ConfigInvalid` if it isn't there."""
        if self.env is not None:
            value = os.environ.get(self.env)
            if value is None:
                raise ConfigInvalid([f"the environment variable {self.env}, named as a secret, is not set"])
            return value
        try:
            return str(self.file and self.file.read_text(encoding="utf-8")).removesuffix("\n").removesuffix("\r")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "is not UTF-8 text"
            raise ConfigInvalid([f"the secret file {self.file} can't be read: {reason}"]) from None


ClientValue: TypeAlias = str | SecretStr | SecretRef


def _client_properties(value: object) -> object:
    """Dotted names from whatever spelling: TOML's bare `security.protocol = …` nests, the environment has `_`."""
    if not isinstance(value, dict):
        return value
    flat: dict[str, object] = {}
    for key, item in value.items():
        name = str(key).lower().replace("_", ".")
        if isinstance(item, dict) and not item.keys() <= {"file", "env"}:
            nested = _client_properties(item)
            assert isinstance(nested, dict)  # noqa: S101 - a dict gives a dict
            flat |= {f"{name}.{inner}": v for inner, v in nested.items()}
        elif isinstance(item, dict | SecretRef | SecretStr):
            flat[name] = item
        else:
            text = str(item).lower() if isinstance(item, bool) else str(item)
            flat[name] = SecretStr(text) if is_secret_property(name) else text
    return flat


ClientProperties = Annotated[dict[str, ClientValue], BeforeValidator(_client_properties)]


def resolve(value: ClientValue) -> str:
    """The text a client gets; raises `ConfigInvalid` if a referenced secret isn't there."""
    match value:
        case SecretRef():
            return value.read()
        case SecretStr():
            return value.get_secret_value()
        case _:
            return value
