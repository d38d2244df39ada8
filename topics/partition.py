"""Which partition a key belongs to: Kafka's own default, murmur2 of the key.

The single place where an owner key becomes a shard number. It must agree, bit for bit, with what Java producers,
kafka-ui and librdkafka's `murmur2_random` do, or commands of one schedule land on two shards; `self_test` compares it
with Kafka's published values at start-up, before anything is written.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

_MULTIPLIER: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFF_FFFF

# One compiled reader per number of whole 4-byte words; the longest legal schedule_id (192 bytes) has 48.
_WORDS: Final = tuple(Struct(f"<{count}I") for count in range(65))


def murmur2(key: bytes, _m: int = _MULTIPLIER, _mask: int = _MASK) -> int:  # the defaults are quick locals
    """Kafka's 32-bit murmur2 of `key`, as an unsigned integer (Java shows the same bits as a signed one)."""
    size = len(key)
    h = _SEED ^ size
    count = size >> 2
    reader = _WORDS[count] if count < len(_WORDS) else Struct(f"<{count}I")
    for word in reader.unpack_from(key):
        k = word * _m & _mask
        h = (h * _m ^ (k ^ k >> 24) * _m) & _mask
    tail = size & 3
    if tail:
        h = (h ^ int.from_bytes(key[-tail:], "little")) * _m & _mask
    h = (h ^ h >> 13) * _m & _mask
    return h ^ h >> 15


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of `key` among `partitions` ≥ 1, as Kafka's default partitioner chooses it.

    Raises ValueError on an empty key: clients spread those at random, so no answer would be right.
    """
    if not key:
        raise ValueError("an empty key has no partition of its own: Kafka clients spread such records at random")
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


# (key, the value Kafka's own unit test of its client expects)
KAFKA_VECTORS: Final[tuple[tuple[bytes, int], ...]] = (
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
)
# (key, partitions, partition): where a CRC32 partitioner would give another answer for all but the fourth
PARTITION_VECTORS: Final[tuple[tuple[bytes, int, int], ...]] = (
    (b"TT0124", 15, 10),
    (b"tenant-a/schedule-1", 12, 4),
    (b"tenant-a/schedule-2", 12, 10),
    (b"tenant-b/nightly", 12, 10),
    (b"a", 6, 4),
)


def self_test() -> None:
    """Raise RuntimeError, naming every wrong value, unless this module agrees with Kafka's published vectors."""
    wrong = [
        f"murmur2({key!r}) is {murmur2(key)}, Kafka has {expected & _MASK}"
        for key, expected in KAFKA_VECTORS
        if murmur2(key) != expected & _MASK
    ] + [
        f"{key!r} of {count} partitions is {partition_for(key, count)}, Kafka has {expected}"
        for key, count, expected in PARTITION_VECTORS
        if partition_for(key, count) != expected
    ]
    if wrong:
        raise RuntimeError(
            "the partitioner does not agree with Kafka's; nothing may be written with it: " + "; ".join(wrong),
        )
