"""Commands: input records in, decisions carried out in the step.

Every input record is accounted for: answered on the reply topic, forwarded to the partition it belongs to, or kept in
`scheduler.rejected`, as is the second copy of one that was forwarded twice. None stops the shard.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Raw, Struct
from msgspec.structs import replace

from scheduler import wire
from scheduler.core.calendars import Calendars, planned_by
from scheduler.core.command import Command, parse_command
from scheduler.core.decide import decide, decide_due
from scheduler.core.decision import Debt, Decision, ManualRun, Situation
from scheduler.core.due import look_at, position
from scheduler.core.model import Schedule, State
from scheduler.core.policy import Look
from scheduler.core.problem import Problem
from scheduler.core.replan import by_calendar
from scheduler.core.time import MAX_MS
from scheduler.shard import backfills, keys
from scheduler.shard.alike import Forms
from scheduler.shard.forwarding import forward, name_of, origin_of, receive
from scheduler.shard.texts import Alike
from topics.codec import Undecodable, split_command
from topics.partition import partition_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler.core.backfill import Backfill
    from scheduler.shard.forwarding import Origin
    from scheduler.shard.ground import Ground
    from scheduler.shard.step import Reader, Step
    from topics.messages import Live

_ALONE = frozenset({"create", "trigger", "preview"})  # verbs to which it does not matter what else is owed
MANY = 20  # commands of a step from which it is worth while to know who owes at all
FEW = 200  # live records that are read for it: as cheap as looking for those of ten schedules
URGENT = frozenset({"pause", "cancel"})
MAX_COMMAND_BYTES = 256 * 1024  # whatever is made of a command (copy, answer, change put off) must fit a Kafka record
KEPT_MARGIN_MS = 3_600_000  # a backfill must find out what ran before the dispatch topics forget it


_Given = Command | Alike


class Input(Struct, frozen=True, gc=False):
    """One record of `scheduler.commands`, as read."""

    partition: int
    offset: int
    appended_at: int
    key: bytes | None
    value: bytes | None
    forwarded_from: str | None = None  # what its headers say, if anything; see `shard/forwarding.py`
    forwarded_after: str | None = None


class Commands:
    """Applies commands to a step. One per shard; remembers nothing but forms and texts of what it has answered."""

    def __init__(self, ground: Ground) -> None:
        self._store = ground.store
        self._reader = ground.reader
        self._catalogue = ground.catalogue
        self._rules = ground.rules
        self._settler = ground.settler
        self._passed = ground.passed
        self._forms = Forms()

    def apply(self, step: Step, inputs: Sequence[Input]) -> None:
        """All of them, pauses and cancels first where no earlier command of this step names the same schedule."""
        commands: list[tuple[Input, _Given]] = []
        for record in inputs:
            command = self._recognised(step, record) or self._read(step, record)
            if command is not None:
                commands.append((record, command))
        self._reader.touch(step, (command.schedule_id for _, command in commands))
        if sum(command.verb not in _ALONE for _, command in commands) >= MANY:
            step.owners = self._owners()
        for record, command in _urgent_first(commands):
            self._apply(step, record, command)

    def _recognised(self, step: Step, record: Input) -> Alike | None:
        alike = self._forms.recognised(record)
        if alike is None or partition_for(alike.key, self._catalogue.shards) != step.record.shard:
            return None
        return alike

    def _read(self, step: Step, record: Input) -> Command | None:
        """The command, if it is one and is ours."""
        try:
            fields = split_command(record.value)
        except Undecodable as fault:
            self._reject(step, record, "undecodable", str(fault))
            return None
        origin = origin_of(record.forwarded_from, record.forwarded_after)
        default_id = name_of(record.partition, record.offset) if origin is None else origin.name
        command = parse_command(fields, default_id=default_id)
        if command.problems and any(problem.field == "schedule_id" for problem in command.problems):
            reasons = "; ".join(f"{problem.field}: {problem.message}" for problem in command.problems)
            self._reject(step, record, "bad_field", reasons)
            return None
        owner = command.schedule_id.encode()
        home = partition_for(owner, self._catalogue.shards)
        if home == step.record.shard:
            if origin is not None and not receive(step, origin):
                self._reject(step, record, "repeated", f"a second copy of {origin.name}, which was answered before")
                return None
            return self._checked(command, record, owner, origin)
        if (excess := _too_large(record)) is not None:
            self._reject(step, record, "too_large", f"belongs to partition {home} but cannot be copied there: {excess}")
            return None
        if origin is not None:
            self._reject(step, record, "misrouted", f"belongs to partition {home} but was forwarded here")
            return None
        forward(step, record, owner, home)
        return None

    def _checked(self, command: Command, record: Input, owner: bytes, origin: Origin | None) -> Command:
        """With what only this cluster knows: its lanes, its reply topics, and how the record came here."""
        problems = list(self._with_lane(command).problems)
        if command.reply_to is not None and command.reply_to != self._catalogue.replies:
            text = f"{command.reply_to!r} is not an allowed reply topic; leave it out for {self._catalogue.replies}"
            problems.append(Problem("reply_to", "bad_field", text))
        if (excess := _too_large(record)) is not None:
            problems.append(Problem("", "too_large", excess))
        warnings = command.warnings
        if origin is not None:
            text = (
                f"this command was sent to the wrong partition ({origin.partition}) and forwarded: "
                "set partitioner=murmur2_random on librdkafka producers and key records by schedule_id"
            )
            if origin.partition >= self._catalogue.shards and record.key == owner:
                text = (
                    f"this command came by partition {origin.partition}, which belongs to no shard: its topic was "
                    f"given more partitions than the {self._catalogue.shards} shards, see `scheduler doctor`"
                )
            warnings += (Problem("", "forwarded", text),)
        elif record.key != owner:
            warnings += (Problem("", "key", "key the record by its schedule_id, so that it needs no forwarding"),)
        if warnings == command.warnings and len(problems) == len(command.problems):
            return command
        return replace(command, problems=tuple(problems), warnings=warnings)

    def _with_lane(self, command: Command) -> Command:
        lane = _lane(command)
        if not isinstance(lane, str) or lane in self._catalogue.lanes:
            return command
        known = ", ".join(self._catalogue.lanes)
        problem = Problem("spec.lane", "bad_field", f"no lane {lane[:40]!r} here; lanes are {known}")
        return replace(command, problems=(*command.problems, problem))

    def _against(self, command: Command, schedule: Schedule) -> Command:
        """With what this cluster cannot do for the stored definition: a lane it no longer has, a zone it lacks."""
        fault = self._settler.fault(schedule)
        if fault is None:
            return command
        problem = None
        if command.verb == "trigger":
            problem = Problem("", "not_allowed", fault)
        elif command.verb == "update" and schedule.spec.lane not in self._catalogue.lanes:
            given = command.spec or {}
            problem = None if "lane" in given else Problem("spec.lane", "bad_field", fault)
        return command if problem is None else replace(command, problems=(*command.problems, problem))

    def _reject(self, step: Step, record: Input, code: str, reason: str) -> None:
        source = wire.Source(self._catalogue.commands, record.partition, record.offset)
        value = wire.rejected_to_bytes(source, record.key, record.value, code, reason, step.now)
        step.emit(self._catalogue.rejected, wire.readable_key(record.key), value)
        step.answered.append(code)

    # --- carrying a decision out

    def _apply(self, step: Step, record: Input, given: _Given) -> None:
        if self._forms.apply(step, record, given):
            return
        command = self._read(step, record) if isinstance(given, Alike) else given
        if command is None:
            return  # it has its answer; not so one that was recognised, which reads as a create of ours
        found = self._live(step, command.schedule_id) if command.verb not in _ALONE else ()
        if found:
            for change in _changes(found, min(record.appended_at, step.now)):
                self.apply_change(step, change)  # its instant came first, although nobody was there
            if _changes(found, step.now):
                found = self._live(step, command.schedule_id)
        if self._is_outdated(step, command.schedule_id):
            self.replan(step, command.schedule_id, by_calendar)
            found = self._live(step, command.schedule_id)
        situation = self._situation(step, record.appended_at, command, found)
        if situation.schedule is not None:
            command = self._against(command, situation.schedule)
        decision = decide(command, situation)
        self._carry_out(step, command, situation, decision)
        if decision.effects.later is not None and record.value is not None:
            self._put_off(step, command, record.value, decision.effects.later)
        if decision.backfill is not None and decision.after is not None:
            backfills.put(step, decision.backfill)
            if command.dry_run:
                return  # answered when it is known what ran
            backfills.note(step, decision.after, "backfill", decision.backfill, command)
        step.answer(command, decision.code, wire.reply_to_bytes(command, decision, step.now))
        self._forms.learn(step, command, decision)

    def apply_change(self, step: Step, change: Live) -> None:
        """Decide a change whose instant has come. It has its answer; only the history tells what became of it."""
        command_id = change.command_id or ""
        _drop_change(step, change)
        self._reader.touch(step, [change.owner])
        if self._is_outdated(step, change.owner):
            self.replan(step, change.owner, by_calendar)
        if not isinstance(change.command, Raw):
            return
        command = parse_command(split_command(bytes(change.command)), default_id=command_id)
        command = replace(self._with_lane(command), effective_from=None)
        found = self._live(step, change.owner)
        situation = self._situation(step, wire.available_at(change), command, found)
        if situation.schedule is None:
            return
        command = self._against(command, situation.schedule)
        decision = decide_due(command, situation)
        self._carry_out(step, command, situation, decision)
        if not decision.accepted:
            refused = replace(situation.schedule, actor=command.actor, reason=f"{decision.code}: {decision.message}")
            value = wire.revision_to_bytes(refused, "change_refused", command_id, step.now)
            step.emit(self._catalogue.schedule_history, change.owner.encode(), value)

    def _is_outdated(self, step: Step, schedule_id: str) -> bool:
        """Whether a schedule's calendar has a newer version: a command must not meet the old one."""
        schedule = step.touched[schedule_id].schedule
        if schedule is None or schedule.spec.calendar is None:
            return False
        return planned_by(schedule.spec.trigger) != self._reader.calendars.newest(schedule.spec.calendar)

    def replan(self, step: Step, schedule_id: str, decide_anew: Callable[[Situation], Decision | None]) -> None:
        """Plan a schedule of this step anew, if `decide_anew` says so: carried out as a change by command is."""
        if step.touched[schedule_id].schedule is None:
            return
        command = Command(verb="update", schedule_id=schedule_id, command_id="")
        situation = self._situation(step, step.now, command, self._live(step, schedule_id))
        decision = decide_anew(situation)
        if decision is not None:
            self._carry_out(step, command, situation, decision)
            if decision.code == "broken":
                step.broke.append("calendar")

    def _carry_out(self, step: Step, command: Command, situation: Situation, decision: Decision) -> None:
        effects = decision.effects
        if effects.save and decision.after is not None:
            step.save(decision.after)
        elif effects.delete:
            step.remove(command.schedule_id)
        before = decision.before
        if effects.revised and before is not None and _moves_floor(before, decision):
            for gone in self._passed.through(before, situation.position, step.now):
                self._settler.record(step, before, gone)
        if effects.revised:
            self._absorb_floor(step, command.schedule_id, decision)
            self._write_history(step, command, decision)
        for definition, settlement in effects.settled:
            self._settler.settle(step, definition, settlement)
        if effects.drop_debts:
            for debt in situation.debts:
                step.drop_live(debt.key.encode())
        elif effects.freeze_debts and decision.before is not None:
            self._freeze(step, situation.debts, decision.before)
        if effects.manual is not None and decision.before is not None:
            self._run_manually(step, decision.before, effects.manual)
        if effects.end_backfills:
            for backfill in situation.backfills:
                backfills.drop(step, backfill)
        if effects.drop_changes:
            for change in _changes(self._live(step, command.schedule_id), MAX_MS):
                _drop_change(step, change)

    def _put_off(self, step: Step, command: Command, value: bytes, instant: int) -> None:
        key = wire.live_key("change", command.schedule_id, command.command_id)
        replaced = step.live(key)  # of a command so old that its id was forgotten
        if replaced is not None:
            step.paid.append(command.schedule_id)
        step.put_live(key, wire.change_record(command.schedule_id, command.command_id, value, instant, step.now))

    def _situation(self, step: Step, appended_at: int, command: Command, found: Sequence[_Owed]) -> Situation:
        schedule = step.touched[command.schedule_id].schedule
        look = Look(step.now, step.now, self._rules)
        nominal: int | None = None
        asks = command.verb == "backfill"
        kept_since = backfills.kept_since(self._catalogue, step, KEPT_MARGIN_MS) if asks else None
        if schedule is not None:
            if schedule.state is State.ACTIVE:
                due = position(schedule, step.record)
                if due is not None:
                    nominal = due.nominal.scheduled_for
                    look = look_at(due.key, step.record, step.now, self._rules)
            elif schedule.state is State.PAUSED:
                nominal = schedule.next_after(schedule.floor)
        return Situation(
            schedule=schedule,
            position=nominal,
            look=look,
            appended_at=appended_at,
            next_version=step.record.next_version,
            debts=_debts(found, self._reader) if found else (),
            backfills=_backfills(found, self._reader.calendars) if found else (),
            calendars=self._reader.calendars,
            kept_since=kept_since,
        )

    def _owners(self) -> frozenset[str] | None:
        """All who have live records, if these are few; None if they are not."""
        found = list(islice(self._store.keys(keys.LIVE, keys.after_prefix(keys.LIVE)), FEW + 1))
        return None if len(found) > FEW else frozenset(keys.owner_of(key) for key in found)

    def _live(self, step: Step, owner: str) -> tuple[_Owed, ...]:
        """The live records of a schedule as this step leaves them, its floor left out."""
        start, end = keys.live_of(owner)
        owes = step.owners is None or owner in step.owners
        found: dict[bytes, bytes | None] = dict(self._store.items(start, end)) if owes else {}
        if owner in step.debtors:
            found |= {key: value for key, value in step.batch.ops.items() if start <= key < end}
        records = [
            (key, wire.live_from_bytes(v)) for key, v in found.items() if v is not None and not keys.is_floor(key)
        ]
        return tuple(_Owed(keys.live_topic_key(key).decode(), record) for key, record in records)

    @staticmethod
    def _freeze(step: Step, debts: Sequence[Debt], before: Schedule) -> None:
        """What is still owed belongs to the old version: keep that definition beside it."""
        for debt in debts:
            if debt.version != before.version:
                continue
            key = debt.key.encode()
            stored = step.live(key)
            if stored is not None:
                step.put_live(key, wire.frozen_record(stored, before))

    def _absorb_floor(self, step: Step, schedule_id: str, decision: Decision) -> None:
        floor = step.floors.get(schedule_id, self._reader.floor(schedule_id))
        if floor is not None and (decision.after is None or decision.effects.delete or decision.after.floor >= floor):
            step.drop_floor(schedule_id)

    def _write_history(self, step: Step, command: Command, decision: Decision) -> None:
        if decision.after is None:
            return
        deleted = decision.effects.delete
        value = wire.revision_to_bytes(
            decision.after,
            decision.code,
            command.command_id or None,
            step.now,
            deleted=deleted,
            definition=None if deleted else step.definition(decision.after.spec),
        )
        step.emit(self._catalogue.schedule_history, command.schedule_id.encode(), value)

    def _run_manually(self, step: Step, schedule: Schedule, run: ManualRun) -> None:
        value = wire.DispatchTemplate(schedule, step.record).value(
            step.now, step.now, "manual", name=f"m-{run.command_id}", payload=run.payload
        )
        step.send(self._settler.target(schedule, step.record.shard), value, "manual", step.now)


def _drop_change(step: Step, change: Live) -> None:
    step.drop_live(wire.change_key(change))
    step.paid.append(change.owner)


class _Owed(NamedTuple):
    """A live record with its key on the topic."""

    key: str
    record: Live


def _debts(found: Sequence[_Owed], reader: Reader) -> tuple[Debt, ...]:
    debts = []
    for key, record in found:
        if record.kind in ("owed", "catchup"):
            kept = reader.kept(record.definition)
            debts.append(Debt(key, wire.version_of(record), wire.owed_instants(record), kept))
    return tuple(debts)


def _backfills(found: Sequence[_Owed], calendars: Calendars) -> tuple[Backfill, ...]:
    """Those that run; dry runs only count."""
    made = [wire.backfill_of(record, calendars) for _, record in found if record.kind == "backfill"]
    return tuple(backfill for backfill in made if not backfill.counted)


def _changes(found: Sequence[_Owed], until: int) -> list[Live]:
    """Changes whose instant is not later than `until`, in the order of their instants and of their acceptance."""
    due = [r for _, r in found if r.kind == "change" and wire.available_at(r) <= until]
    return sorted(due, key=lambda r: (wire.available_at(r), wire.accepted_at(r)))


def _moves_floor(before: Schedule, decision: Decision) -> bool:
    """Whether nothing up to now will fall due any more for a schedule that was running or paused."""
    if before.state not in (State.ACTIVE, State.PAUSED):
        return False
    return decision.effects.delete or (decision.after is not None and decision.after.floor > before.floor)


def _lane(command: Command) -> object:
    """The lane a command asks for, by name or by leaving it out."""
    if command.spec is None or command.verb not in ("create", "update", "preview"):
        return None
    lane = command.spec.get("lane", "default" if command.verb == "create" else None)
    return "default" if lane is None and "lane" in command.spec else lane


def _too_large(record: Input) -> str | None:
    size = len(record.value or b"")
    if size <= MAX_COMMAND_BYTES:
        return None
    return f"a command of {size} bytes; at most {MAX_COMMAND_BYTES}: put the data elsewhere and pass a reference"


def _urgent_first(commands: Sequence[tuple[Input, _Given]]) -> Sequence[tuple[Input, _Given]]:
    if not any(command.verb in URGENT for _, command in commands):
        return commands
    first: list[tuple[Input, _Given]] = []
    rest: list[tuple[Input, _Given]] = []
    waiting: set[str] = set()
    for record, command in commands:
        if command.verb in URGENT and command.schedule_id not in waiting:
            first.append((record, command))
        else:
            waiting.add(command.schedule_id)
            rest.append((record, command))
    return first + rest
