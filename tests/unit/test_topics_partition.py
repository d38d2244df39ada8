"""The partitioner: Kafka's own, bit for bit."""

import pytest

from topics import partition
from topics.partition import KAFKA_VECTORS, PARTITION_VECTORS, murmur2, partition_for, self_test


@pytest.mark.parametrize(("key", "signed"), KAFKA_VECTORS)
def test_murmur2_has_the_values_of_kafkas_own_unit_test(key: bytes, signed: int) -> None:
    """A Java client and we must agree about every bit."""
    assert murmur2(key) == signed % 2**32


@pytest.mark.parametrize(("key", "partitions", "expected"), PARTITION_VECTORS)
def test_a_key_lies_where_a_java_producer_puts_it(key: bytes, partitions: int, expected: int) -> None:
    """Case P40: CRC32, the default of librdkafka, would give another partition for most of these."""
    assert partition_for(key, partitions) == expected


def test_an_empty_key_is_refused() -> None:
    """Clients spread records without a key at random, so there is no right answer to give."""
    with pytest.raises(ValueError, match="empty key"):
        partition_for(b"", 8)


def test_a_key_longer_than_any_schedule_id_still_has_its_partition() -> None:
    """Keys come from outside and may be of any length; the shard forwards by them only after looking at the value."""
    assert 0 <= partition_for(b"x" * 5000, 16) < 16
    assert murmur2(b"x" * 261) != murmur2(b"x" * 262)


def test_the_self_test_names_every_wrong_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partitioner that disagrees with Kafka stops the start, and the text says where it disagrees."""
    self_test()
    monkeypatch.setattr(partition, "KAFKA_VECTORS", ((b"21", 1), (b"abc", 479470107)))
    monkeypatch.setattr(partition, "PARTITION_VECTORS", ((b"a", 6, 3),))
    with pytest.raises(RuntimeError, match=r"b'21'.*; b'a' of 6 partitions is 4, Kafka has 3"):
        self_test()
