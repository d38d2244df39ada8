"""The group coordinator: members, generations, and which of them has which partition, handed over cooperatively.

A round begins when a member comes, goes, falls silent, or has given something back. It ends when every member has
joined it: the generation grows, and each is told its partitions. What a member is to give up stays with nobody until it
has joined again without it. Only a member of the current generation may commit offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.world.fibers import World


class UnknownMember(Exception):
    """It was silent for too long, or left."""


class OldGeneration(Exception):
    """The group has gone on."""


class Rejoin(Exception):
    """A round has begun: join it."""


@dataclass
class _Member:
    session: int
    client: str
    deadline: int = 0
    owned: frozenset[int] = frozenset()
    joined: bool = False
    given: frozenset[int] = field(default_factory=frozenset)


class Group:
    """One group on one topic of `partitions` partitions."""

    def __init__(self, world: World, partitions: int) -> None:
        self._world = world
        self._partitions = partitions
        self._members: dict[str, _Member] = {}
        self._known: set[str] = set()  # names of those about to join
        self._names = count(1)
        self._joining = False
        self.generation = 0
        self.committed: dict[int, int] = {}

    # --- what members ask

    def new_name(self) -> str:
        """To join with; asked for first, so that a join whose answer was lost makes no second member."""
        self._known.add(name := f"member-{next(self._names)}")
        return name

    def join(self, name: str, client: str, session: int, owned: frozenset[int]) -> None:
        """Take part in the next round."""
        if name in self._known:
            self._known.remove(name)
            self._members[name] = _Member(session, client)
        elif name not in self._members:
            raise UnknownMember
        member = self._members[name]
        member.owned, member.joined = owned, True
        self._begin()
        self._complete()

    def assigned(self, name: str) -> tuple[int, frozenset[int]] | None:
        """Generation and partitions of the round the member has joined; None while that lasts."""
        member = self._members.get(name)
        if member is None:
            raise UnknownMember
        if member.joined:
            return None
        member.deadline = self._world.now + member.session
        return self.generation, member.given

    def heartbeat(self, name: str, generation: int) -> None:
        member = self._current(name, generation)
        member.deadline = self._world.now + member.session
        if self._joining:
            raise Rejoin

    def leave(self, name: str) -> None:
        if self._members.pop(name, None) is not None:
            self._world.note("group", f"{name} leaves")
            self._begin()
            self._complete()

    def commit(self, name: str, generation: int, offsets: dict[int, int]) -> None:
        self._current(name, generation)
        self.committed |= offsets

    def reloaded(self) -> None:
        """The coordinator was away: nobody is blamed for the silence."""
        for member in self._members.values():
            member.deadline = self._world.now + member.session

    def expire(self) -> None:
        """Silent members are put out; called every few ms."""
        late = [n for n, m in self._members.items() if not m.joined and m.deadline < self._world.now]
        for name in late:
            self._world.note("group", f"{name} was silent for too long")
            del self._members[name]
        if late:
            self._begin()
            self._complete()

    def clients(self) -> set[str]:
        """What its members call themselves."""
        return {member.client for member in self._members.values()}

    # --- rounds

    def _current(self, name: str, generation: int) -> _Member:
        member = self._members.get(name)
        if member is None:
            raise UnknownMember
        if generation != self.generation:
            raise OldGeneration
        return member

    def _begin(self) -> None:
        self._joining = bool(self._members)

    def _complete(self) -> None:
        if not self._joining or not all(member.joined for member in self._members.values()):
            return
        self._joining = False
        self.generation += 1
        targets = self._targets()
        claimed = {p for member in self._members.values() for p in member.owned}
        for name, member in self._members.items():
            member.given = frozenset(p for p in targets[name] if p in member.owned or p not in claimed)
            member.joined = False
            member.deadline = self._world.now + member.session
        shown = {name: sorted(member.given) for name, member in self._members.items()}
        self._world.note("group", f"generation {self.generation}: {shown}")

    def _targets(self) -> dict[str, set[int]]:
        """As even as possible, each keeping what it has up to its share."""
        least, extra = divmod(self._partitions, len(self._members))
        free = set(range(self._partitions))
        targets: dict[str, set[int]] = {}
        for name in sorted(self._members, key=lambda n: -len(self._members[n].owned)):
            share = least + (1 if extra > 0 and len(self._members[name].owned) > least else 0)
            kept = set(sorted(self._members[name].owned & free)[:share])
            extra -= len(kept) > least
            targets[name] = kept
            free -= kept
        for name in sorted(targets, key=lambda n: len(targets[n])):
            while free and len(targets[name]) < least:
                targets[name].add(free.pop())
        for target in targets.values():
            if free and len(target) == least:
                target.add(free.pop())
        return targets
