"""Terms of tenants: which record counts, what a shard's part of a budget is, and what is no record."""

from __future__ import annotations

import pytest

from scheduler import wire
from scheduler.core.tenants import LEAST_PER_S, NO_TENANTS, Terms
from scheduler.shard.shard import ShardSettings
from tests.support.driver import Driver


def test_the_highest_version_counts_whatever_comes_last() -> None:
    """Compaction keeps keys in any order; a version that goes uncovers the one before."""
    tenants = NO_TENANTS.put("acme", 2, Terms(8.0)).put("acme", 1, Terms(4.0)).put("b", 1, Terms(None, 3))
    assert dict(tenants.newest()) == {"acme": Terms(8.0), "b": Terms(None, 3)}
    assert dict(tenants.drop("acme", 2).newest())["acme"] == Terms(4.0)
    assert dict(tenants.drop("acme", 2).drop("acme", 1).drop("b", 1).drop("c", 1).newest()) == {}


def test_budgets_are_split_over_the_shards_and_never_nothing() -> None:
    """A shard's part is the P-th of it; a tenant without a rate has the default."""
    tenants = NO_TENANTS.put("acme", 1, Terms(8.0)).put("b", 1, Terms()).put("slow", 1, Terms(0.001))
    assert tenants.catch_up(100, 16) == (6.25, {"acme": 0.5, "slow": LEAST_PER_S})


def test_a_shard_takes_other_budgets_between_steps() -> None:
    """What was spent stays spent; from then on the new rate fills the bucket."""
    driver = Driver("2026-01-01T00:00:00Z", ShardSettings(catch_up_per_s=0.0001))
    driver.create(trigger={"cron": "0 * * * *", "zone": "UTC"}, misfire={"catch_up": 5})
    driver.outage("2026-01-01T05:30:00Z")
    driver.advance(60_000)
    assert len(driver.times()) == 1
    assert driver.shard is not None
    driver.shard.set_catch_up(100.0, {"acme": 1.0})
    driver.advance(2_500)
    assert len(driver.times()) == 3


def test_a_record_reads_as_it_was_written() -> None:
    """Key and value say the same tenant and version."""
    value = b'{"tenant":"acme","version":3,"catch_up_per_s":20.5,"weight":2}'
    assert wire.tenant_from_bytes(value, "acme", 3) == Terms(20.5, 2)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"{", "truncated"),
        (b'{"tenant":"acme","version":2}', "acme@2"),
        (b'{"tenant":"acme","version":3,"catch_up_per_s":0}', "catch_up_per_s"),
        (b'{"tenant":"acme","version":3,"weight":0,"catch_up_per_s":-1}', "weight"),
        (b'{"tenant":"acme","version":3,"quotas":{"schedules":-1}}', "schedules"),
    ],
)
def test_what_is_no_record_is_said(value: bytes, words: str) -> None:
    """The reader passes it over with an alarm that names what is wrong."""
    with pytest.raises(ValueError, match=words):
        wire.tenant_from_bytes(value, "acme", 3)
