"""A standby of a driver's shard, fed by hand: how much of each changelog shows is the test's to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.runtime.standby import Follower
from scheduler.shard import keys
from scheduler.shard.rebuild import ORDER, Rebuild
from scheduler.state.store import Batch, MemoryStore
from tests.support.driver import changes

if TYPE_CHECKING:
    from scheduler.state.store import Store
    from tests.support.driver import Driver


class Copy:
    """Another node's store of the driver's shard, and who follows the changelogs into it."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.store: Store = MemoryStore()
        self.begin()

    def begin(self) -> None:
        """The follower is begun anew where the store is."""
        self.follower = Follower(0, self.store, Rebuild(self.store, 0, self._driver.calendars), self._driver.now)
        self._read = {topic: self.follower.rebuild.position(topic) for topic in ORDER}

    def read(self, *counts: int, topics: tuple[str, ...] = ORDER) -> None:
        """So many more records of each of these topics show; all of them where no number is given."""
        found = {}
        for index, topic in enumerate(topics):
            records = changes(self._driver.topics, topic, self._read[topic])
            found[topic] = records[: counts[index]] if counts else records
            self._read[topic] += len(found[topic])
        self.follower.rebuild.use(self._driver.calendars)
        self.follower.whole_ms = self._driver.now
        self.follower.apply({topic: some for topic, some in found.items() if some}, {}, self._driver.now)

    def sweep(self, chunk: int = 500) -> None:
        """Derive anew whatever the cursor has passed."""
        place: bytes | None = keys.DUE
        while place is not None:
            place = self.follower.rebuild.sweep(place, chunk)

    def taken_over(self) -> dict[bytes, bytes]:
        """What an owner that took over a store like this one would have; this one goes on."""
        twin, batch = MemoryStore(), Batch()
        for key, value in self.store.items(b"", b"\xff"):
            batch.put(key, value)
        twin.write(batch)
        return self._driver.after_takeover(twin)

    def swap(self) -> None:
        """Another node takes over with this store; what the former owner left is followed from here on."""
        self._driver.store, self.store = self.store, self._driver.store
        self.begin()
