"""What tenants may use, as far as a shard must know it: an immutable value, replaced as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LEAST_PER_S = 0.01  # of a shard's part of a budget: whatever is owed is paid some day


class Terms(Struct, frozen=True):
    """One version of a tenant's record. `catch_up_per_s`: None is the cluster's default."""

    catch_up_per_s: float | None = None
    weight: int = 1


class Tenants(Struct, frozen=True):
    """Tenant to version to terms; the highest version counts. A tenant without any has the defaults."""

    by_tenant: Mapping[str, Mapping[int, Terms]] = {}

    def put(self, tenant: str, version: int, terms: Terms) -> Tenants:
        return Tenants({**self.by_tenant, tenant: {**self.by_tenant.get(tenant, {}), version: terms}})

    def drop(self, tenant: str, version: int) -> Tenants:
        left = {number: terms for number, terms in self.by_tenant.get(tenant, {}).items() if number != version}
        rest = {name: versions for name, versions in self.by_tenant.items() if name != tenant}
        return Tenants({**rest, tenant: left} if left else rest)

    def newest(self) -> Iterator[tuple[str, Terms]]:
        """Every tenant that has a record, with the terms that count."""
        for tenant, versions in self.by_tenant.items():
            yield tenant, versions[max(versions)]

    def catch_up(self, default_per_s: float, shards: int) -> tuple[float, dict[str, float]]:
        """One shard's part of the budgets, in occurrences a second: the default, and those that differ."""
        own = {t: max(LEAST_PER_S, w.catch_up_per_s / shards) for t, w in self.newest() if w.catch_up_per_s is not None}
        return max(LEAST_PER_S, default_per_s / shards), own

    def weights(self) -> dict[str, int]:
        """Tenant to weight, of those that take larger turns than others."""
        return {tenant: terms.weight for tenant, terms in self.newest() if terms.weight > 1}


NO_TENANTS = Tenants()
