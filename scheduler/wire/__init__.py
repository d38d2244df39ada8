"""Wire values to core values and back; nothing else. Everything a shard reads or writes as JSON passes here.

    schedules.py  schedules and their definitions      shards.py    the shard record, its cursor, its zones
    live.py       what is owed outside the due index   dispatch.py  dispatch values, encoded ahead
    answers.py    replies, history, rejected input     tables.py    calendars and tenants, in versions
    text.py       JSON and instants as text

Bytes that this service cannot have written are StateCorrupted; of what others may write (tables) they are a ValueError.
"""

from __future__ import annotations

from scheduler.wire.answers import (
    KEPT_BYTES,
    KEPT_KEY_BYTES,
    Source,
    occurrence_key,
    occurrence_to_bytes,
    readable_key,
    rejected_to_bytes,
    reply_to_bytes,
    revision_to_bytes,
)
from scheduler.wire.dispatch import DispatchTemplate, ran_of
from scheduler.wire.live import (
    accepted_at,
    available_at,
    backfill_key,
    backfill_of,
    backfill_record,
    catch_up_record,
    catch_up_rest,
    catch_up_runs,
    change_key,
    change_record,
    floor_of,
    floor_record,
    frozen_record,
    live_from_bytes,
    live_key,
    owed_instants,
    owed_nominal,
    owed_record,
    readdressed_record,
    split_live_key,
    version_of,
)
from scheduler.wire.schedules import needle, plan_from_bytes, schedule_from_bytes, schedule_to_bytes, spec_value
from scheduler.wire.shards import (
    record_from_bytes,
    record_to_bytes,
    zones_from_bytes,
    zones_key,
    zones_step,
    zones_to_bytes,
)
from scheduler.wire.tables import (
    MAX_CATCH_UP_PER_S,
    MAX_WEIGHT,
    calendar_fields,
    calendar_from_bytes,
    split_versioned_key,
    tenant_faults,
    tenant_from_bytes,
    versioned_key,
)

__all__ = [
    "KEPT_BYTES",
    "KEPT_KEY_BYTES",
    "MAX_CATCH_UP_PER_S",
    "MAX_WEIGHT",
    "DispatchTemplate",
    "Source",
    "accepted_at",
    "available_at",
    "backfill_key",
    "backfill_of",
    "backfill_record",
    "calendar_fields",
    "calendar_from_bytes",
    "catch_up_record",
    "catch_up_rest",
    "catch_up_runs",
    "change_key",
    "change_record",
    "floor_of",
    "floor_record",
    "frozen_record",
    "live_from_bytes",
    "live_key",
    "needle",
    "occurrence_key",
    "occurrence_to_bytes",
    "owed_instants",
    "owed_nominal",
    "owed_record",
    "plan_from_bytes",
    "ran_of",
    "readable_key",
    "readdressed_record",
    "record_from_bytes",
    "record_to_bytes",
    "rejected_to_bytes",
    "reply_to_bytes",
    "revision_to_bytes",
    "schedule_from_bytes",
    "schedule_to_bytes",
    "spec_value",
    "split_live_key",
    "split_versioned_key",
    "tenant_faults",
    "tenant_from_bytes",
    "version_of",
    "versioned_key",
    "zones_from_bytes",
    "zones_key",
    "zones_step",
    "zones_to_bytes",
]
