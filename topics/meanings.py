"""What each field of each message means, in words: printed into the schemas and the README, beside the types.

Kept apart from `messages` so that the types can be read on a screen. A test refuses a field without a meaning and a
meaning without a field.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_SCHEDULE_ID = "`<tenant>/<name>`, the owner key of everything about it"
_TENANT = "the part of `schedule_id` before the first `/`"
_VERSION = "of the schedule's meaning; part of every occurrence id"
_REVISION = "grows with every change; what `expected_revision` checks"
_OCCURRENCE_ID = "`<schedule_id>:<version>:<nominal>`, or `<schedule_id>:<version>:m-<command_id>` of a manual run"
_SCHEDULED_FOR = "the nominal: what the rule says"
_AVAILABLE_AT = "`scheduled_for` plus the deterministic jitter of `window_ms`; nothing starts before it"
_COMMAND_ID = "the idempotency key: 1 to 64 letters, digits, `.`, `_`, `-`"
_EFFECTIVE_AT = "the change counts for nominals strictly after this instant"
_ACTOR = "who asked, as given in the command"
_REASON = "why, as given in the command"

MEANINGS: Final[dict[str, dict[str, str]]] = {
    "Spec": {
        "trigger": (
            "the time rule: `{at}`, `{at_local, zone, fold?}`, `{cron, zone, dialect?, gap?, fold?}` or "
            "`{every_ms, anchor?}`"
        ),
        "start": "first instant that counts, inclusive; never reaches before the create",
        "end": "first instant that no longer counts; bounds nominals, not starts",
        "calendar": "name of a business calendar that nominals must fall into",
        "roll": "what happens to a nominal outside of the calendar",
        "priority": "which of the lane's four topics it goes to",
        "lane": "the set of dispatch topics; without one the tenant's, else `default`",
        "window_ms": "spread starts over this long after the nominal, the same way on every node; 0 is strict",
        "misfire": '`"fire_once"`, `"skip"` or `{"catch_up": K}`: about nominals nobody could look at in time',
        "max_lateness_ms": (
            "later than this after `available_at` it is missed; absent: a day (`skip`: the grace), null: never too late"
        ),
        "overlap": "what happens while an earlier occurrence still runs",
        "tracking": "`none`: the dispatch is final; `lease`: followed until it ends",
        "retry": "`max_attempts` (5), `base_ms` (1000), `cap_ms` (300000)",
        "timeout_ms": "longest run of one attempt",
        "deadline_ms": "from `available_at`: later it is not worth starting",
        "handler": "the name by which workers choose their code",
        "payload": "any JSON up to 64 KiB, handed to workers byte for byte",
        "labels": "free names and values for people and filters",
        "owner": "the team to ask",
        "description": "what it is for",
        "impact": "what happens if it does not run",
        "runbook": "where it says what to do then",
    },
    "Command": {
        "command": "what is asked",
        "schedule_id": _SCHEDULE_ID + "; decides the shard, whatever the record's key is",
        "command_id": _COMMAND_ID + "; a repeat gets the same answer and has one effect",
        "expected_revision": "refuse unless the schedule is at this revision; with `effective_from`: now and then",
        "actor": "who asks; kept in the history",
        "reason": "why; kept in the history",
        "reply_to": "another allowed topic for the reply",
        "preview": "put the next so many occurrences into the reply",
        "dry_run": "answer as if, change nothing",
        "effective_from": (
            "let the change count from a later instant: it is decided then, as if it had been sent then; "
            "create, update, pause, resume, cancel, delete"
        ),
        "spec": "create: the whole spec; update: the top-level fields to replace, null restores a default",
        "catch_up": "resume: run what the pause suppressed",
        "supersede": "update: cancel what the old definition still owes",
        "payload": "trigger: instead of the schedule's own",
        "from": "backfill: first instant of the range, inclusive",
        "until": "backfill: first instant that is not included; cut to what has passed and is decided",
        "only_missing": (
            "backfill: leave out what was dispatched, under whatever version; false: run it again, as a new attempt"
        ),
        "per_s": "backfill: at most so many a second; the tenant's catch-up budget bounds it as well",
    },
    "Problem": {
        "field": "path of the field, as in `spec.trigger.cron`; empty for the command as a whole",
        "code": "machine code of the mistake",
        "message": "what is wrong, what was expected, what to do",
    },
    "Planned": {"scheduled_for": _SCHEDULED_FOR, "available_at": _AVAILABLE_AT},
    "Reply": {
        "command": "the command answered",
        "schedule_id": _SCHEDULE_ID,
        "command_id": "the command's, or `<partition>-<offset>` if it had none; also the header `command_id`",
        "status": "whether it took effect",
        "code": "machine code: `created`, `unchanged`, `not_found`, ...",
        "message": "the same for people",
        "at": "when it was decided",
        "version": _VERSION,
        "revision": _REVISION,
        "state": "the schedule's state after the command",
        "effective_at": _EFFECTIVE_AT,
        "occurrence_id": "trigger: the manual occurrence",
        "dry_run": "nothing was changed",
        "counts": "what the change settled: occurrences dispatched, suppressed, cancelled, kept, missed",
        "preview": "the next occurrences, if asked for",
        "errors": "every mistake of the command at once, at most 20",
        "warnings": "accepted, but perhaps not what was meant",
    },
    "RecentCommand": {
        "command_id": _COMMAND_ID,
        "command": "what was asked",
        "status": "as in its reply",
        "code": "as in its reply",
        "message": "as in its reply",
        "at": "as in its reply",
        "version": "as in its reply",
        "revision": "as in its reply",
        "effective_at": "as in its reply",
        "occurrence_id": "as in its reply",
        "counts": "as in its reply",
    },
    "Schedule": {
        "schedule_id": _SCHEDULE_ID,
        "tenant": _TENANT,
        "state": (
            "`active` fires; `paused` waits for resume; `completed` has no nominal left; `cancelled` is over for good; "
            "`broken` cannot be evaluated"
        ),
        "version": _VERSION,
        "revision": _REVISION,
        "created_at": "when it was first accepted",
        "updated_at": "when it last changed",
        "effective_at": "nominals of this version are strictly later",
        "spec": "the definition, defaults left out",
        "floor": "nominals up to here are decided, whatever the shard's cursor says",
        "completed_at": "when its last nominal was decided; a tombstone follows a day later",
        "broken_reason": "why it cannot be evaluated",
        "actor": _ACTOR + ", of the last change",
        "reason": _REASON + ", of the last change",
        "recent": "the last eight commands with their answers, for repeats",
        "calendar_version": "the version of `spec.calendar` its nominals follow",
        "older": "short hashes of earlier command ids: their repeats are answered `stale_command`",
    },
    "Stretch": {
        "first": "the oldest nominal",
        "last": "the newest nominal",
        "attempt": "their last attempt under the backfill's version; 0: they ran under another version only",
    },
    "OwedRun": {
        "scheduled_for": "the first nominal: what the rule says",
        "available_at": "when the first may start; for the others it follows from the definition",
        "stands_for": "how many nominals each of them stands for, itself included",
        "count": "how many they are",
        "every_ms": "how far their nominals lie apart",
    },
    "Live": {
        "kind": "see the table of kinds",
        "owner": "schedule_id",
        "floor": "floor: nominals up to here are decided",
        "occurrence_id": "owed: the occurrence that waits",
        "scheduled_for": "owed: " + _SCHEDULED_FOR,
        "available_at": "owed: when it may start",
        "topic": "owed: the dispatch topic it will go to",
        "dispatch": "owed: the dispatch value, ready to be sent",
        "version": "of the schedule it belongs to",
        "priority": "catchup, backfill: 0 (critical) to 3 (background)",
        "runs": "catchup: what is still to run, oldest first",
        "definition": (
            "the schedule record it belongs to; catchup, owed: once that has a newer version, backfill: always"
        ),
        "seen_at": (
            "catchup: the first look after the outage, where lateness is judged; backfill, change: when it was accepted"
        ),
        "command": "change: the command as it was sent",
        "command_id": "backfill, change: of the command that asked for it",
        "first": "backfill: the first instant of its range",
        "until": "backfill: the first instant behind its range",
        "after": "backfill: nominals up to here are dealt with",
        "per_s": "backfill: at most so many a second",
        "only_missing": "backfill: what ran before is left out; else run again as a new attempt",
        "counted": "backfill: a dry run, which only counts",
        "informed": "backfill: whether it is known what ran before; until then nothing is dispatched",
        "ran": "backfill: what ran before, behind `after`",
        "owed": "backfill: nominals that were owed in another way when it was accepted, and are left to that",
        "total": "backfill: nominals in its range",
        "dispatched": "backfill: how many it has run",
        "left_out": "backfill: how many it leaves out",
        "remaining": "backfill: how many it has still to run; at most, until `informed`",
    },
    "Cursor": {
        "available_at": "the instant reached",
        "priority": "with `schedule_id`: how far inside that instant",
        "schedule_id": "absent: all of the instant",
    },
    "Backlog": {
        "priority": "whose keys wait",
        "after": "the last key that is decided",
        "until": "the last key that waits",
        "reason": "why nobody looked in time",
        "seen_until": "the last instant at which the shard had been alive and looked, before that",
        "since": "up to here only queues that lagged when the outage began; absent: everything from `after` on",
    },
    "KeyRange": {"after": "the last key before it", "until": "its last key"},
    "Lag": {
        "shard": "its number",
        "step": "number of the step that wrote this",
        "priority": "of the queue: with the tenant it names which schedules wait",
        "tenant": "of the queue",
        "after": "what of the queue has been fired; what lies between this and the shard's cursor waits for its turn",
        "closed": "where the queue lagged when an outage began: decided with the backlog of its priority",
    },
    "Shard": {
        "format": "record format of all that the shard writes; a reader refuses a newer one than its own",
        "shard": "its number, and the partition of every topic it owns",
        "step": "number of the step that wrote this; the header `step` of each changelog record names its own",
        "positions": "input topic without namespace -> the next offset to read",
        "cursor": "everything up to this key of the due index is decided, but for `backlogs` and for queues that lag",
        "seen_until": "the last instant at which the shard was alive and looked",
        "backlogs": "ranges behind the cursor that are still to be decided after an outage",
        "token": "the last fencing token handed out",
        "deleted_version": "the highest version ever deleted here; a re-created schedule starts above it",
        "tz_version": "the time-zone tables in use",
        "generation": "of the region",
        "at": "when the step was decided",
        "calendars": "name -> the version of the calendar by which the shard's schedules are planned",
        "zones_step": "the step that last wrote the record `<shard>/zones` beside this one; 0: there is none",
        "forwarded": "partition of the command topic -> below this offset every command copied from there is applied",
        "absence": "the last time nobody looked, if it left no backlog, until what fell due in it is decided",
        "moved_to": "`scheduler repartition` ended the shard: what was its own is in that namespace",
        "moved_from": "the namespace from which `scheduler repartition` filled the shard",
        "queues": "how many records `<shard>/queue/<priority>/<tenant>` there are beside this one",
        "queues_step": "the oldest of the steps that wrote those: a restore reads back to it",
    },
    "Absence": {
        "since": "the shard was alive and looked until then",
        "until": "when it was opened again; how late anything was is judged by this instant",
    },
    "Move": {
        "namespace": "the other namespace",
        "shards": "its number of shards",
        "at": "the old shard decided nothing after it; in a new shard: no old one did",
        "filling": "the new shard is not whole yet, and is not served before it is",
    },
    "ZoneMark": {
        "zone": "its IANA name",
        "taken_at": "the instant from which the next 400 days are described",
        "fingerprint": "a digest of `offsets`; other tables that give another one re-plan the zone's schedules",
        "offsets": "from each instant on: local time minus UTC in seconds",
    },
    "Zones": {
        "shard": "its number",
        "step": "number of the step that wrote this",
        "tz_version": "the time-zone tables by which `zones` was taken",
        "zones": "every zone a schedule of the shard has used",
        "replan_since": (
            "newer tables were found then, and schedules are being re-planned: those with an earlier `effective_at` "
            "may still be planned by `tz_version`"
        ),
    },
    "Repair": {
        "shard": "its number",
        "step": "number of the step that wrote this, the last of the repair",
        "at": "when, by the brokers' time",
        "was": "the cursor before: in the future",
        "now": "the cursor since",
        "reason": "the operator's words",
        "actor": "who did it",
        "schedules": (
            "how many schedules had nominals fired or given up beyond `now`: they go on after those; each has a "
            "`cursor_repaired` in scheduler.schedule-history"
        ),
        "missed": "occurrences that waited to be caught up before their time: recorded as missed, reason `clock`",
    },
    "DateRange": {"from": "the first date, as `2026-12-24`", "to": "the last date, included"},
    "HolidaysOf": {
        "country": "its ISO 3166-1 code, as `DE`",
        "subdivision": "its ISO 3166-2 code without the country, as `BY`; absent: the holidays of the whole country",
    },
    "Calendar": {
        "name": "what `spec.calendar` names: 1 to 100 of `a-z`, `0-9`, `.`, `_`, `-`, a letter or digit first",
        "version": "grows with every change; the highest one counts",
        "working_days": "the weekdays that are worked, as `MON`; absent: all",
        "exclude_dates": "dates on which nothing runs, as `2026-12-24`",
        "exclude_ranges": "the same, from one date to another",
        "include_dates": "dates that are worked whatever else says",
        "holidays": "public holidays of countries, on which nothing runs",
        "description": "for people",
        "deleted": "the calendar is gone: schedules that name it are broken until a later version brings it back",
        "at": "when this version was made",
        "actor": "who made it",
    },
    "Dispatch": {
        "occurrence_id": _OCCURRENCE_ID + "; the same after every retry, crash and replay: deduplicate on it",
        "schedule_id": _SCHEDULE_ID,
        "tenant": _TENANT,
        "version": _VERSION,
        "shard": "who decided it; attempts go to this partition",
        "lane": "the lane it was dispatched on",
        "priority": "its priority",
        "attempt": "numbered from 1",
        "scheduled_for": _SCHEDULED_FOR,
        "available_at": _AVAILABLE_AT,
        "origin": "what brought it about",
        "stands_for": "how many nominals it stands for, itself included: above 1 after an outage under `fire_once`",
        "tz_version": "the time-zone tables it was computed with",
        "generation": "of the region",
        "deadline": "later it is not worth starting",
        "handler": "the name by which workers choose their code",
        "payload": "the producer's own JSON, byte for byte",
    },
    "Occurrence": {
        "state": "what became of it",
        "schedule_id": _SCHEDULE_ID,
        "tenant": _TENANT,
        "version": _VERSION,
        "reason": "`downtime`, `throttled`, `clock`, `paused`, `calendar`, `gap`, `deleted`, `superseded`, ...",
        "at": "when it was decided",
        "count": "above 1: a summary of so many nominals",
        "occurrence_id": _OCCURRENCE_ID,
        "scheduled_for": _SCHEDULED_FOR,
        "first": "summary: the oldest nominal it covers",
        "last": "summary: the newest nominal it covers",
    },
    "Revision": {
        "schedule_id": _SCHEDULE_ID,
        "tenant": _TENANT,
        "version": _VERSION,
        "revision": _REVISION,
        "change": (
            "the command's effect, or what the scheduler did by itself: `completed`, `expired`, `broken`, "
            "`re-planned`, `backfilled`, `change_refused`"
        ),
        "state": "after the change",
        "at": "when it was decided",
        "effective_at": _EFFECTIVE_AT,
        "command_id": "of the command that changed it",
        "actor": _ACTOR,
        "reason": _REASON,
        "spec": "the whole definition after the change",
        "calendar_version": "the version of `spec.calendar` its nominals follow after the change",
        "counts": "of a backfill: `nominals` in its range, `dispatched`, `left_out`",
    },
    "Rejected": {
        "reason": "what is wrong with it, in words",
        "code": "the same for machines: `undecodable`; `bad_field`, no schedule_id by which it could be answered; "
        "`too_large` or `misrouted`, in the wrong partition and not to be copied; `repeated`, a copy answered before",
        "topic": "where it was read",
        "partition": "where it was read",
        "offset": "where it was read",
        "at": "when it was set aside",
        "key_base64": "the record's key",
        "value_base64": "the record's value; absent: it was null",
        "value_text": "the value again, where it is UTF-8",
    },
    "Tenant": {
        "tenant": "whose it is",
        "version": "grows by one with each record; the highest counts",
        "catch_up_per_s": "catch-up and backfill occurrences a second over all shards; absent: the cluster's default",
        "weight": "its share where tenants compete",
        "quotas": "limits by name",
        "description": "who they are",
        "at": "when it was applied",
        "actor": "who applied it",
    },
    "ClockProbe": {
        "process": "the scheduler process that sent it",
        "sequence": "counts up by one with each probe of the process",
        "tz_version": "the zone tables the process has: one with newer ones waits until no older one is left",
        "format": "the record format the process writes: one with a newer one waits until no older one is left",
        "waits": "the process owns no shards yet, because of others with another record format or older zone tables, "
        "or it is leaving",
    },
}


class LiveKind(NamedTuple):
    """One kind of record on `scheduler.live`."""

    kind: str
    key: str
    value: str
    written: str
    tombstoned: str


LIVE_KINDS: Final = (
    LiveKind(
        kind="floor",
        key="`floor:<schedule_id>:`",
        value="`floor`",
        written="an outage was decided for the schedule",
        tombstoned="the cursor passed it, or a change of the schedule absorbed it",
    ),
    LiveKind(
        kind="owed",
        key="`owed:<schedule_id>:<occurrence_id>`",
        value="`dispatch`, `topic`, `scheduled_for`, `available_at`",
        written="a nominal waits outside of the due index: in its window, or of an old version",
        tombstoned="it is dispatched, suppressed or cancelled",
    ),
    LiveKind(
        kind="catchup",
        key="`catchup:<schedule_id>:<version>`",
        value="`runs`, `version`, `priority`, `seen_at`, `definition`",
        written="missed nominals are to run under a budget",
        tombstoned="the last one is dispatched or dropped",
    ),
    LiveKind(
        kind="backfill",
        key="`backfill:<schedule_id>:<command_id>`",
        value="`first`, `until`, `after`, `definition`, `ran`, `owed`, and its progress in `dispatched`, `remaining`",
        written="a backfill is accepted; again when it is known what ran, and with every step that dispatches of it",
        tombstoned="nothing remains, or it is cancelled, or the schedule is cancelled or deleted",
    ),
    LiveKind(
        kind="change",
        key="`change:<schedule_id>:<command_id>`",
        value="`command`, `available_at` (its `effective_from`), `seen_at`",
        written="a change with an `effective_from` in the future is accepted",
        tombstoned="it is decided, or the schedule is cancelled or deleted",
    ),
)
