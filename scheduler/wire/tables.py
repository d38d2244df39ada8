"""Calendars and tenants: tables that the cluster's owner writes, in versions. A bad one is a ValueError, not a fault.

Both have keys of `<name>@<version>`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from scheduler.core.calendar import CALENDAR_FIELDS, parse_calendar
from scheduler.core.tenants import Terms
from scheduler.wire.text import plain, to_json
from topics import messages as m
from topics.codec import decode

if TYPE_CHECKING:
    from scheduler.core.calendar import Calendar


def versioned_key(name: str, version: int) -> bytes:
    """The key on `scheduler.calendars` and `scheduler.tenants`."""
    return f"{name}@{version}".encode()


def split_versioned_key(key: bytes | None) -> tuple[str, int]:
    """(name, version). Raises ValueError for a key that names none."""
    name, _, version = (key or b"").decode().rpartition("@")
    if not name or not version.isdigit() or version[0] == "0":
        raise ValueError("the key is not <name>@<version>")
    return name, int(version)


def calendar_from_bytes(value: bytes, name: str, version: int) -> Calendar | None:
    """One version of a calendar, None if it says that there is none any more. Raises ValueError with every mistake."""
    record = decode(m.Calendar, value)
    if (record.name, record.version) != (name, version):
        raise ValueError(f"the value is of {record.name}@{record.version}, its key is {name}@{version}")
    if record.deleted:
        return None
    parsed = parse_calendar(calendar_fields(record))
    if parsed.calendar is None:
        raise ValueError("; ".join(problem.message for problem in parsed.problems))
    return parsed.calendar


def calendar_fields(record: m.Calendar) -> dict[str, object]:
    """What a calendar says about days, as its definition has it; name and version with it."""
    fields: dict[str, object] = plain(to_json(record))
    return {name: value for name, value in fields.items() if name in CALENDAR_FIELDS}


def tenant_from_bytes(value: bytes, tenant: str, version: int) -> Terms:
    """One version of a tenant's record. Raises ValueError with every mistake."""
    record = decode(m.Tenant, value)
    if (record.tenant, record.version) != (tenant, version):
        raise ValueError(f"the value is of {record.tenant}@{record.version}, its key is {tenant}@{version}")
    faults = tenant_faults(record)
    if faults:
        raise ValueError("; ".join(faults))
    return Terms(record.catch_up_per_s, record.weight)


def tenant_faults(record: m.Tenant) -> list[str]:
    """Everything that is wrong with the values of a tenant's record, a sentence each."""
    faults = []
    if not _TENANT.fullmatch(record.tenant):
        faults.append(f"tenant: {record.tenant[:60]!r} is none: 1 to 40 of a-z, 0-9 and '-', not beginning with '-'")
    if record.catch_up_per_s is not None and not 0 < record.catch_up_per_s <= MAX_CATCH_UP_PER_S:
        faults.append(f"catch_up_per_s: expected a number above 0, at most {MAX_CATCH_UP_PER_S}")
    if not 1 <= record.weight <= MAX_WEIGHT:
        faults.append(f"weight: expected a whole number from 1 to {MAX_WEIGHT}")
    faults += [f"quotas.{name[:60]}: expected a whole number >= 0" for name, q in record.quotas.items() if q < 0]
    return faults


MAX_CATCH_UP_PER_S = 100_000
MAX_WEIGHT = 1_000
_TENANT = re.compile(m.TENANT_PATTERN)
