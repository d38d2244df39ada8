"""The consumers: one that reads given partitions, and one that is a member of the group."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_END, KafkaError, TopicPartition

from tests.support.world import messages
from tests.support.world.fibers import MILLISECOND, SECOND, Signal, us
from tests.support.world.group import OldGeneration, Rejoin, UnknownMember
from tests.support.world.network import Expired

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.world.log import Log
    from tests.support.world.messages import Message
    from tests.support.world.network import Link

FETCH_US = 2 * MILLISECOND
NOT_YET = 0.1  # of the seeks, which find no fetcher started
FORGOTTEN = 0.05  # of the seeks: the place assigned is found afterwards, and read from
STARTS_US = 500 * MILLISECOND
JOIN_LOOK_US = 5 * MILLISECOND
ANSWER_US = 10 * SECOND


@dataclass
class _Place:
    """How far a partition was read. `told` is the offset at which its end was last announced."""

    log: Log
    offset: int
    paused: bool = False
    told: int | None = None
    is_logical: bool = False  # assigned at "the beginning": the client looks up in the background where that is


class Consumer:
    """Reads committed records of assigned partitions from given offsets."""

    def __init__(self, link: Link) -> None:
        self._link, self._world, self._brokers = link, link.world, link.brokers
        self._news = Signal(self._world)
        self._places: dict[tuple[str, int], _Place] = {}

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._forget(list(self._places))
        self._add(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self._add(partitions)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        self._forget([(one.topic, one.partition) for one in partitions])

    def pause(self, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            self._places[one.topic, one.partition].paused = True

    def resume(self, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            self._places[one.topic, one.partition].paused = False
        self._news.send()

    def _add(self, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            log = self._brokers.log(one.topic, one.partition)
            offset = log.lso if one.offset == OFFSET_END else max(0, one.offset)  # below 0: the beginning
            self._places[one.topic, one.partition] = _Place(log, offset, is_logical=one.offset < 0)
            log.readers.append(self._news)

    def _forget(self, keys: list[tuple[str, int]]) -> None:
        for key in keys:
            place = self._places.pop(key, None)
            if place is not None:
                place.log.readers.remove(self._news)

    def poll(self, timeout: float) -> Message | None:
        return next(iter(self._consume(1, timeout)), None)

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        return self._consume(num_messages, timeout)

    def _consume(self, most: int, timeout: float) -> list[Message]:
        """Waits the whole time unless there are as many, as the client does."""
        end = self._world.now + us(timeout)
        found: list[Message] = []
        while True:
            self._serve()
            found += self._fetch(most - len(found))
            left = end - self._world.now
            if len(found) >= most or left <= 0:
                return found
            if self._news.wait(left):
                self._world.sleep(min(left, int(self._world.random.random() * FETCH_US)))

    def _serve(self) -> None:
        """Call back whoever waits for news of the group."""

    def _fetch(self, most: int) -> list[Message]:
        if not self._link.works:
            return []
        found: list[Message] = []
        places = [place for place in self._places.values() if not place.paused]
        if len(places) > 1:
            self._world.random.shuffle(places)
        for place in places:
            if len(found) >= most:
                break
            entries, place.offset = place.log.read(place.offset, most - len(found))
            found += [messages.record(place.log, entry) for entry in entries]
            if len(found) < most and place.offset >= place.log.lso and place.told != place.offset:
                place.told = place.offset
                found.append(messages.end_of(place.log, place.offset))
        return found

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = 5.0, *, cached: bool = False
    ) -> tuple[int, int]:
        log = self._brokers.log(partition.topic, partition.partition)
        if cached:
            return (0, log.lso)
        try:
            return self._link.request(lambda: (0, log.lso), self._world.now + us(timeout))
        except Expired:
            raise messages.unreachable() from None

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        """A look at who leads: here that never changes, and every partition is there."""
        try:
            self._link.request(lambda: None, self._world.now + us(timeout))
        except Expired:
            raise messages.unreachable() from None
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=range(2**31))})

    def close(self) -> None:
        self._forget(list(self._places))


class GroupConsumer(Consumer):
    """A member of the group: partitions come and go by callbacks, served while it is polled.

    `times_ms` are the session's time-out and the time between heartbeats.
    """

    def __init__(self, link: Link, client: str, on_commit: Callable[..., None], times_ms: tuple[int, int]) -> None:
        super().__init__(link)
        self._on_commit = on_commit
        self._client = client
        self._session, self._heartbeat = (ms * MILLISECOND for ms in times_ms)
        self._group = link.brokers.group
        self._name: str | None = None
        self._generation = -1
        self._owned: frozenset[int] = frozenset()
        self._wants_join = True
        self._left = False
        self._answered = 0
        self._tasks: deque[tuple[str, frozenset[int]]] = deque()  # rebalances not yet served
        self._results: deque[tuple[KafkaError | None, list[TopicPartition]]] = deque()
        self._served = Signal(self._world)

    def subscribe(
        self,
        topics: list[str],
        on_assign: Callable[..., None],
        on_revoke: Callable[..., None],
        on_lost: Callable[..., None],
    ) -> None:
        (self._topic,) = topics
        self._callbacks = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost}
        self._world.spawn(self._link.process, self._be_member, "member")

    def seek(self, partition: TopicPartition) -> None:
        place = self._places.get((partition.topic, partition.partition))
        if place is None or self._world.chance(NOT_YET):
            raise messages.wrong_state("Failed to seek to offset: Local: Erroneous state")
        start, place.offset, place.told = place.offset, max(0, partition.offset), None
        if place.is_logical and self._world.chance(FORGOTTEN):
            self._world.call_in(int(self._world.random.random() * STARTS_US), lambda: self._start_late(place, start))

    def _start_late(self, place: _Place, start: int) -> None:
        place.offset, place.told = min(place.offset, start), None
        self._news.send()

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        """Ask the coordinator; its answer is given to `on_commit`."""
        name, generation = self._name or "", self._generation
        self._world.spawn(self._link.process, lambda: self._ask(name, generation, offsets), "commit")

    def close(self) -> None:
        """Give everything back and leave, so that the others need not wait."""
        self._left = True
        if self._owned:
            self._call_back("revoke", self._owned)
        super().close()
        name, self._name = self._name, None
        if name is not None:
            try:
                self._link.request(lambda: self._group.leave(name), self._world.now + SECOND)
            except Expired:
                return

    # --- served while polled

    def _serve(self) -> None:
        while self._results:
            error, partitions = self._results.popleft()
            self._on_commit(error, partitions)
        while self._tasks:
            what, numbers = self._tasks[0]
            self._call_back(what, numbers)
            self._tasks.popleft()
            self._served.send()

    def _call_back(self, what: str, numbers: frozenset[int]) -> None:
        partitions = [TopicPartition(self._topic, number) for number in sorted(numbers)]
        self._callbacks[what](self, partitions)
        self._owned = self._owned | numbers if what == "assign" else self._owned - numbers

    # --- in the background

    def _ask(self, name: str, generation: int, offsets: list[TopicPartition]) -> None:
        positions = {one.partition: one.offset for one in offsets}
        error = None
        try:
            until = self._world.now + ANSWER_US
            self._link.request(lambda: self._group.commit(name, generation, positions), until)
        except UnknownMember:
            error = KafkaError(KafkaError.UNKNOWN_MEMBER_ID)
        except OldGeneration:
            error = KafkaError(KafkaError.ILLEGAL_GENERATION)
        except Expired:
            error = KafkaError(KafkaError._TIMED_OUT)
        self._results.append((error, offsets))
        self._news.send()

    def _be_member(self) -> None:
        while not self._left:
            try:
                if self._wants_join and not self._tasks:
                    self._join()
                elif self._wants_join:
                    self._served.wait(self._heartbeat)
                else:
                    self._world.sleep(self._heartbeat)
                self._beat()
            except (UnknownMember, OldGeneration):
                self._lose("is put out of the group")
            except Expired:
                self._lose("hears nothing of the group")
            except Rejoin:
                self._wants_join = True

    def _beat(self) -> None:
        name, generation = self._name, self._generation
        if name is None or self._left or generation < 0:
            return
        self._link.request(lambda: self._group.heartbeat(name, generation), self._answered + self._session)
        self._answered = self._world.now

    def _join(self) -> None:
        if self._name is None:
            self._name = self._link.request(self._group.new_name)
        name, owned = self._name, self._owned
        self._answered = self._world.now
        until = self._answered + self._session
        self._link.request(lambda: self._group.join(name, self._client, self._session, owned), until)
        self._wants_join = False
        while (round_ := self._link.request(lambda: self._group.assigned(name))) is None:
            self._world.sleep(JOIN_LOOK_US)
        self._answered = self._world.now
        self._generation, given = round_
        if owned - given:
            self._tasks.append(("revoke", owned - given))
            self._wants_join = True  # once they are given back
        if given - owned:
            self._tasks.append(("assign", given - owned))
        self._news.send()

    def _lose(self, why: str) -> None:
        self._world.note(self._link.process.name, f"{self._name} {why}")
        self._name, self._generation = None, -1
        self._wants_join = True
        # What was to be told is void now; what is owned, or about to be, is lost.
        while self._tasks:
            self._served.wait()
        if self._owned:
            self._tasks.append(("lost", self._owned))
            self._news.send()
