"""Commands in the wrong partition: copied to the right one, and known again there when they come twice.

A copy is written by a plain producer, before the step that read the command commits. An owner that dies or is cut off
in between is followed by one that copies the same again; a frozen one may do so much later, beside its successor. The
command's id makes a repeat harmless as long as the schedule remembers it, but a schedule that was deleted meanwhile
remembers nothing: the repeat of its create would bring it back. So the shard that receives copies keeps, for each
partition they come from, the offset below which it has them all (`ShardRecord.forwarded`), and applies none of those
again.

For that it must not take one for had that is still to come, and copies may overtake each other or fail alone. So each
says two things of its source (`FORWARDED_AFTER_HEADER`):

    settled   where the source's committed position was: whatever it had to copy below that was acknowledged before
    gapless   from here to the copy itself there is no other one for the same partition

Everything below `settled` is in this partition before the copy. If the copies up to `gapless` are, too, all up to this
one are. If not, one before it has failed: it will be copied again, with this one, which is then the only repeat that is
not recognised by its offset. What an older release copies says neither, and moves no mark.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from scheduler.shard.step import Forward
from topics import catalog
from topics.messages import FORWARDED_AFTER_HEADER, FORWARDED_HEADER
from topics.partition import partition_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.shard.commands import Input
    from scheduler.shard.step import Step

MOST_SOURCES = 4  # a shard; more partitions than shards there are only by mistake
_PAIR = re.compile(r"(\d{1,10})-(\d{1,20})", re.ASCII)
_OFFSETS = re.compile(r"(\d{1,20})-(\d{1,20})", re.ASCII)


class Origin(NamedTuple):
    """Where a copy was read first, and what its source says of those before it: see the module's docstring."""

    partition: int
    offset: int
    settled: int = 0
    gapless: int | None = None

    @property
    def name(self) -> str:
        return name_of(self.partition, self.offset)


def name_of(partition: int, offset: int) -> str:
    """What a command is called that brought no id."""
    return f"{partition}-{offset}"


def origin_of(forwarded_from: str | None, forwarded_after: str | None) -> Origin | None:
    """What the headers of a command say; None if it is no copy of ours: anyone may write headers."""
    source = None if forwarded_from is None else _PAIR.fullmatch(forwarded_from)
    if source is None:
        return None
    origin = Origin(int(source[1]), int(source[2]))
    after = None if forwarded_after is None else _OFFSETS.fullmatch(forwarded_after)
    if after is None or not int(after[1]) <= int(after[2]) <= origin.offset:
        return origin
    return origin._replace(settled=int(after[1]), gapless=int(after[2]))


def forward(step: Step, record: Input, owner: bytes, home: int) -> None:
    """Copy a command to the partition of its owner key."""
    settled = step.record.positions.get(catalog.COMMANDS, 0)
    gapless = step.copied.get(home, settled)
    headers = said_of(record.partition, record.offset, settled, gapless)
    step.copied[home] = record.offset + 1
    step.forwards.append(Forward(owner, record.value or b"", home, headers))


def home_of(owner: object, key: bytes | None, partition: int, shards: int) -> int:
    """The shard of the schedule that a command names, else of its key, else one to say what is wrong with it."""
    name = owner.encode() if isinstance(owner, str) and owner else key
    return partition_for(name, shards) if name else partition % shards


def said_of(partition: int, offset: int, settled: int, gapless: int) -> list[tuple[str, bytes]]:
    """The headers of a copy: see the module's docstring."""
    return [
        (FORWARDED_HEADER, b"%d-%d" % (partition, offset)),
        (FORWARDED_AFTER_HEADER, b"%d-%d" % (settled, gapless)),
    ]


def is_known(forwarded: Mapping[int, int], origin: Origin) -> bool:
    """Whether a shard with these marks has had the copy before."""
    return origin.offset < forwarded.get(origin.partition, 0)


def receive(step: Step, origin: Origin) -> bool:
    """Whether the copy is new here; the step's record then knows it. The others are to be answered nothing."""
    marks = step.record.forwarded
    mark = max(marks.get(origin.partition, 0), origin.settled)
    known = origin.offset < mark
    if not known and origin.gapless is not None and origin.gapless <= mark:
        mark = origin.offset + 1
    # Anyone may write headers: what they can make a record remember has a bound.
    is_listed = origin.partition in marks or len(marks) < MOST_SOURCES * step.catalogue.shards
    if mark != marks.get(origin.partition, 0) and is_listed:
        step.record = step.record.moved(forwarded={**marks, origin.partition: mark})
    return not known
