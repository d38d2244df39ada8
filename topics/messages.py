"""The values on the wire: one Struct per message, the only place where field names are spelled.

Every value is a UTF-8 JSON object. Optional fields are left out when they hold their default; unknown fields are
tolerated and ignored; a name is never reused. Instants are RFC 3339 UTC text (`Instant`), durations whole
milliseconds (`*_ms`). `payload` is the producer's own JSON, carried byte for byte and never decoded.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

Instant = Annotated[str, Meta(description="RFC 3339, UTC, `Z`; three digits of fraction only when not zero")]
Priority = Literal["critical", "high", "normal", "background"]
PRIORITIES: tuple[Priority, ...] = ("critical", "high", "normal", "background")

TENANT_PATTERN = r"[a-z0-9][a-z0-9-]{0,39}"
SCHEDULE_ID_PATTERN = TENANT_PATTERN + r"/[A-Za-z0-9][A-Za-z0-9._~/-]{0,150}"
COMMAND_ID_PATTERN = r"[A-Za-z0-9._-]{1,64}"
LANE_PATTERN = r"[a-z0-9-]{1,40}"
MAX_PAYLOAD_BYTES = 64 * 1024

STEP_HEADER = "step"  # on changelog records: the number of the shard's step that wrote them
COMMAND_ID_HEADER = "command_id"  # on replies
FORWARDED_HEADER = "fwd"  # on commands copied to the right partition: `<partition>-<offset>` they came from
FORWARDED_AFTER_HEADER = "fwd-after"  # on these, too: `<offset>-<offset>`; see `scheduler/shard/forwarding.py`


class Message(Struct, omit_defaults=True, kw_only=True, gc=False):
    """Base of all wire values: defaults stay off the wire, unknown fields are ignored on decode."""


class Spec(Message):
    """What a schedule does and when; see the reference in `topics/README.md` for each field's default."""

    trigger: Raw
    start: Instant | None = None
    end: Instant | None = None
    calendar: str | None = None
    roll: Literal["skip", "next", "previous"] = "skip"
    priority: Priority = "normal"
    lane: str = "default"
    window_ms: int = 0
    misfire: Any = "fire_once"  # "fire_once" | "skip" | {"catch_up": K}
    max_lateness_ms: int | UnsetType | None = UNSET  # unset: 86,400,000 (skip: the grace); null: unlimited
    overlap: Literal["allow", "skip_if_running", "queue_one"] = "allow"
    tracking: Literal["none", "lease"] = "none"
    retry: dict[str, int] | None = None
    timeout_ms: int | None = None
    deadline_ms: int | None = None
    handler: str | None = None
    payload: Raw | UnsetType = UNSET
    labels: dict[str, str] = {}
    owner: str | None = None
    description: str | None = None
    impact: str | None = None
    runbook: str | None = None


class Command(Message):
    """`scheduler.commands`: what a producer asks of a schedule. `command_id` makes it idempotent."""

    command: Literal[
        "create", "update", "pause", "resume", "cancel", "delete", "trigger", "preview", "backfill",
        "cancel-backfill", "replay", "submit-run", "cancel-run", "retry-run",
    ]  # fmt: skip
    schedule_id: str
    command_id: str | None = None
    expected_revision: int | None = None
    actor: str | None = None
    reason: str | None = None
    reply_to: str | None = None
    preview: int | None = None
    dry_run: bool = False
    effective_from: Instant | None = None
    spec: dict[str, Any] | None = None
    catch_up: bool = False
    supersede: bool = False
    payload: Raw | UnsetType = UNSET
    from_: Instant | None = msgspec.field(name="from", default=None)
    until: Instant | None = None
    only_missing: bool = True
    per_s: int | None = None


class Problem(Message):
    """One mistake (or warning) in a command: where, which kind, and a sentence that says what to do."""

    field: str
    code: str
    message: str


class Planned(Message):
    """One future occurrence in a preview."""

    scheduled_for: Instant
    available_at: Instant


class Reply(Message):
    """`scheduler.replies`: the shard's one answer to one command, committed with the command's effect."""

    command: str
    schedule_id: str
    command_id: str
    status: Literal["accepted", "rejected"]
    code: str
    message: str
    at: Instant
    version: int | None = None
    revision: int | None = None
    state: str | None = None
    effective_at: Instant | None = None
    occurrence_id: str | None = None  # trigger: the manual occurrence
    dry_run: bool = False
    counts: dict[str, int] = {}  # what a change settled: dispatched, suppressed, cancelled, kept
    preview: list[Planned] = []
    errors: list[Problem] = []
    warnings: list[Problem] = []


class RecentCommand(Message):
    """One of the last eight commands a schedule remembers, with the answer a repeat gets."""

    command_id: str
    command: str
    status: Literal["accepted", "rejected"]
    code: str
    message: str
    at: Instant
    version: int
    revision: int
    effective_at: Instant | None = None
    occurrence_id: str | None = None
    counts: dict[str, int] = {}


class Schedule(Message):
    """`scheduler.schedules`: the whole schedule as it now is. Public, and the changelog of the store's `s` keys."""

    schedule_id: str
    tenant: str
    state: Literal["active", "paused", "completed", "cancelled", "broken"]
    version: int
    revision: int
    created_at: Instant
    updated_at: Instant
    effective_at: Instant  # nominals of this version are strictly later
    spec: Spec
    floor: Instant | None = None  # nominals up to here are decided, whatever the cursor says
    completed_at: Instant | None = None
    broken_reason: str | None = None
    actor: str | None = None
    reason: str | None = None
    recent: list[RecentCommand] = []
    calendar_version: int | None = None  # of `spec.calendar`: the version its nominals follow
    older: str = ""  # short hashes of command ids before `recent`, so that a very late repeat is `stale_command`


class Stretch(Message):
    """Neighbouring nominals that were dispatched before, as a backfill found them."""

    first: Instant
    last: Instant
    attempt: int = 1


class OwedRun(Message):
    """What an outage delayed and is still to run: `count` nominals, `every_ms` apart."""

    scheduled_for: Instant
    available_at: Instant
    stands_for: int = 1
    count: int = 1
    every_ms: int = 0


class Live(Message):
    """`scheduler.live`: something owed that is not simply a schedule's next nominal. Key `<kind>:<owner>:<id>`.

    The kinds, with when each is written and tombstoned, stand in `topics/meanings.py` and in the generated README.
    """

    kind: Literal["floor", "owed", "catchup", "backfill", "change"]
    owner: str
    floor: Instant | None = None
    occurrence_id: str | None = None
    scheduled_for: Instant | None = None
    available_at: Instant | None = None
    topic: str | None = None
    dispatch: Raw | UnsetType = UNSET  # owed: the dispatch value, ready to be sent
    version: int | None = None
    priority: int = 2  # catchup: 0 (critical) to 3
    runs: list[OwedRun] = []  # catchup: what is still to run, oldest first
    definition: Raw | UnsetType = UNSET  # the schedule record it belongs to; catchup: once that has a newer version
    seen_at: Instant | None = None  # catchup: the first look after the outage, where lateness is judged; else accepted
    command: Raw | UnsetType = UNSET  # change: the command as it was sent
    command_id: str | None = None  # backfill, change
    first: Instant | None = None  # backfill: the range [first, until)
    until: Instant | None = None
    after: Instant | None = None  # backfill: dealt with up to here
    per_s: int | None = None
    only_missing: bool = True
    counted: bool = False  # backfill: a dry run, which only counts
    informed: bool = False  # backfill: what ran is known
    ran: list[Stretch] = []
    owed: list[Instant] = []
    total: int = 0
    dispatched: int = 0
    left_out: int = 0
    remaining: int = 0


class Cursor(Message):
    """A key of the due index. Without a schedule: the last one of its instant."""

    available_at: Instant
    priority: Priority | None = None
    schedule_id: str | None = None


class Backlog(Message):
    """Keys of one priority that the cursor has passed and that are not decided yet: (after, until]."""

    priority: Priority
    after: Cursor
    until: Cursor
    reason: str = "downtime"
    seen_until: Instant = "1970-01-01T00:00:00Z"
    since: Cursor | None = None  # up to here only keys of queues that lagged there


class KeyRange(Message):
    """Keys of the due index in (after, until]."""

    after: Cursor
    until: Cursor


class Lag(Message):
    """`scheduler.shards`, key `<shard>/queue/<priority>/<tenant>`: what of a queue is undecided behind the cursor.

    Written by steps that change it; a tombstone follows when the queue has caught up.
    """

    shard: int
    step: int
    priority: Priority
    tenant: str
    after: Cursor | None = None  # the queue's own cursor, which counts instead of the shard's
    closed: list[KeyRange] = []  # where it lagged when an outage began, until that is decided


class Move(Message):
    """In a shard record: the move of its cluster to another namespace, or from one."""

    namespace: str
    shards: int
    at: Instant
    filling: bool = False


class Absence(Message):
    """Nobody looked in (since, until], and what was due then is younger than the least grace: the cursor goes on."""

    since: Instant
    until: Instant


class Shard(Message):
    """`scheduler.shards`: the shard record, rewritten by every step that changes anything."""

    format: int  # record-format version; a newer one than the reader's is refused
    shard: int
    step: int
    positions: dict[str, int]  # input topic without namespace -> next offset
    cursor: Cursor
    seen_until: Instant
    backlogs: list[Backlog] = []
    token: int = 0
    deleted_version: int = 0  # the highest version ever deleted here
    tz_version: str = ""
    generation: int = 0
    at: Instant | None = None
    calendars: dict[str, int] = {}  # name -> the version its schedules are planned by
    zones_step: int = 0  # the step that last wrote the record `<shard>/zones`
    forwarded: dict[int, int] = {}  # partition of the command topic -> below it every copy from there is applied
    absence: Absence | None = None  # until what fell due in it is decided
    moved_to: Move | None = None  # the shard is over: what was its own is in that namespace
    moved_from: Move | None = None
    queues: int = 0  # how many records `<shard>/queue/...` there are
    queues_step: int = 0  # the oldest of the steps that wrote them


class ZoneMark(Message):
    """One zone as a shard's schedules were planned by it: its clock over the 400 days from `taken_at`."""

    zone: str
    taken_at: Instant
    fingerprint: str
    offsets: dict[Instant, int]  # from this instant on -> local time minus UTC, in seconds


class Zones(Message):
    """`scheduler.shards`, key `<shard>/zones`: the zones a shard's schedules use, by the tables they are planned by."""

    shard: int
    step: int
    tz_version: str
    zones: list[ZoneMark] = []
    replan_since: Instant | None = None  # schedules older than this are still planned by `tz_version`


class Repair(Message):
    """`scheduler.shards`, key `<shard>/repair`: how an operator last set back a shard that a wrong clock misled."""

    shard: int
    step: int
    at: Instant
    was: Cursor
    now: Cursor
    reason: str
    actor: str | None = None
    schedules: int = 0
    missed: int = 0


class DateRange(Message):
    """Dates from `from` to `to`, both included, as `2026-12-24`."""

    from_: str = msgspec.field(name="from")
    to: str


class HolidaysOf(Message):
    """The public holidays of a country, or of one of its subdivisions, by their ISO codes."""

    country: str
    subdivision: str | None = None


class Calendar(Message):
    """`scheduler.calendars`: one version of a business calendar. Key `<name>@<version>`; the highest version counts."""

    name: str
    version: int
    working_days: list[str] | None = None
    exclude_dates: list[str] = []
    exclude_ranges: list[DateRange] = []
    include_dates: list[str] = []
    holidays: list[HolidaysOf] = []
    description: str | None = None
    deleted: bool = False
    at: Instant | None = None
    actor: str | None = None


class Dispatch(Message):
    """`dispatch.<lane>.<priority>`: one attempt of one occurrence, to be deduplicated on `occurrence_id`."""

    occurrence_id: str
    schedule_id: str
    tenant: str
    version: int
    shard: int
    lane: str
    priority: Priority
    attempt: int
    scheduled_for: Instant
    available_at: Instant
    origin: Literal["schedule", "catch_up", "backfill", "manual", "retry", "queued"]
    stands_for: int
    tz_version: str
    generation: int
    deadline: Instant | None = None
    handler: str | None = None
    payload: Raw | UnsetType = UNSET


class Occurrence(Message):
    """`scheduler.occurrences`: what happened to nominals that were not simply dispatched. `count` > 1 is a summary."""

    state: Literal["missed", "suppressed", "skipped_overlap", "cancelled"]
    schedule_id: str
    tenant: str
    version: int
    reason: str  # downtime, throttled, clock, paused, calendar, gap, deleted, superseded, ...
    at: Instant
    count: int = 1
    occurrence_id: str | None = None
    scheduled_for: Instant | None = None
    first: Instant | None = None  # summary: the oldest and the newest nominal it covers
    last: Instant | None = None


class Revision(Message):
    """`scheduler.schedule-history`: one revision of one schedule, with who and why."""

    schedule_id: str
    tenant: str
    version: int
    revision: int
    change: str  # the command's effect, or what the scheduler did by itself: completed, backfilled, broken, ...
    state: str
    at: Instant
    effective_at: Instant | None = None
    command_id: str | None = None
    actor: str | None = None
    reason: str | None = None
    spec: Spec | None = None
    calendar_version: int | None = None
    counts: dict[str, int] = {}  # of a backfill: nominals, dispatched, left_out


class Rejected(Message):
    """`scheduler.rejected`: input that could not be taken, its bytes kept."""

    reason: str
    code: str
    topic: str
    partition: int
    offset: int
    at: Instant
    key_base64: str | None = None
    value_base64: str | None = None
    value_text: str | None = None  # when the bytes are UTF-8


class Tenant(Message):
    """`scheduler.tenants`, key `<tenant>@<version>`: what a tenant may use. The newest version counts."""

    tenant: str
    version: int
    catch_up_per_s: float | None = None
    weight: int = 1
    quotas: dict[str, int] = {}
    description: str | None = None
    at: Instant | None = None
    actor: str | None = None


class ClockProbe(Message):
    """`scheduler.clock`: one probe a second of one process; the broker's append time of it drives the due clock."""

    process: str
    sequence: int
    tz_version: str = ""
    format: int = 1  # the record format it writes
    waits: bool = False  # it owns no shards: because of somebody with other tables or records, or it leaves
