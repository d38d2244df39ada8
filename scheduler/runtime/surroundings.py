"""What all shards of one process share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scheduler.core.policy import Rules
from scheduler.core.tenants import NO_TENANTS
from scheduler.runtime.pace import Pace
from scheduler.runtime.restore import Gate
from scheduler.shard.rebuild import Identity
from scheduler.shard.shard import ShardSettings

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.config import Settings
    from scheduler.runtime.clock import DueClock
    from scheduler.runtime.outside import Outside
    from scheduler.runtime.tables import Tables
    from scheduler.runtime.telemetry import Telemetry
    from topics.catalog import Catalogue


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The settings of the process, and what it has only one of. `cluster`: the brokers' id of themselves."""

    settings: Settings
    catalogue: Catalogue
    clock: DueClock
    telemetry: Telemetry
    cluster: str
    tables: Tables
    outside: Outside
    pace: Pace = field(init=False)
    gate: Gate = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pace", Pace(self.outside.monotonic, self.outside.cpu, self.outside.switch))
        object.__setattr__(self, "gate", Gate(self.outside.condition()))

    def shard_settings(self) -> ShardSettings:
        s = self.settings
        return ShardSettings(
            horizon_ms=s.horizon_ms,
            horizon_bytes=s.horizon_bytes,
            max_records=s.max_transaction_records,
            catch_up_per_s=NO_TENANTS.catch_up(s.catch_up_per_s, s.shards)[0],
            rules=Rules(grace_max_ms=s.grace_max_ms),
        )

    @property
    def stores(self) -> Path:
        """Where this node keeps its stores."""
        s = self.settings
        return s.data_dir / "stores" / f"{s.namespace or 'default'}-{s.node_id}"

    def store_path(self, shard: int) -> Path:
        """The first directory of a shard's store."""
        return self.stores / str(shard)

    def identity(self, shard: int) -> Identity:
        """Whose a shard's store must be."""
        s = self.settings
        return Identity(self.cluster, s.namespace, s.shards, shard)
