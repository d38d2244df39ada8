"""What all parts of a shard stand on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.core.policy import Rules
    from scheduler.shard.passed import Passed
    from scheduler.shard.settle import Settler
    from scheduler.shard.step import Reader
    from scheduler.state.store import Store
    from topics.catalog import Catalogue


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Built once by the shard. Nothing in it remembers anything but the store and the reader's calendars and floors."""

    store: Store
    reader: Reader
    catalogue: Catalogue
    rules: Rules
    settler: Settler
    passed: Passed
