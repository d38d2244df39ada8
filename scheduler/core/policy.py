"""Misfire policy: what becomes of the nominals that were reached and are not yet decided.

One pure resolver, used after an outage, under a throttle, and before every change of a schedule. It looks backwards
from now, so its cost does not depend on how long nobody looked.

Grace of a nominal is min(60 s, max_lateness, max(15 s, distance to the next nominal)), inclusive: what a takeover or a
restart costs is no misfire. If no overdue nominal is beyond its grace, all run. If one is, the schedule's policy covers
the whole overdue set: `fire_once` runs the newest (saying how many it stands for), `catch_up K` the newest K, oldest
first, `skip` those within `max_lateness`. What fell due while the shard was alive (`seen_until`) is only late, never a
misfire: it runs within `max_lateness` and is missed beyond it. Lateness is judged at the first look after the outage:
waiting for its turn or for a budget afterwards does not age a nominal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from scheduler.core.identity import occurrence_id
from scheduler.core.jitter import available_at
from scheduler.core.model import Gone, MisfireKind, Nominal, Origin, Run, Schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

# Nominals of one schedule that one decision may run, and of one version that may be owed; older ones are missed.
MAX_BACKLOG = 10_000


class Rules(Struct, frozen=True, gc=False):
    """Settings of the cluster that policies depend on."""

    grace_max_ms: int = 60_000
    grace_min_ms: int = 15_000


DEFAULT_RULES = Rules()


class Look(Struct, frozen=True, gc=False):
    """When the shard looks, and when nobody did: in (seen_until, looked_at]. `reason` names why.

    `looked_at` is the first look after the outage; what became available after it is only late again.
    """

    now: int
    seen_until: int
    rules: Rules = DEFAULT_RULES
    reason: str = "downtime"
    looked_at: int | None = None

    @property
    def first_look(self) -> int:
        return self.now if self.looked_at is None else min(self.looked_at, self.now)


class Settlement(Struct, frozen=True, gc=False):
    """What becomes of reached nominals: `runs` now, `catch_up` under the budget, `waiting` in its window, `gone`."""

    runs: tuple[Run, ...] = ()
    catch_up: tuple[Run, ...] = ()
    waiting: tuple[Nominal, ...] = ()
    gone: tuple[Gone, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Nothing but on-time work: no policy had to decide anything."""
        return not self.catch_up and not self.gone


NOTHING_OWED = Settlement()


def nominal_at(schedule: Schedule, scheduled_for: int, before: int | None = None) -> Nominal:
    """The nominal with its jitter: never past the next nominal, the same on every node.

    `before`: the next nominal as far as it is known from elsewhere; the rule may not name it any more.
    """
    window = schedule.spec.window_ms
    if not window:
        return Nominal(scheduled_for, scheduled_for)
    name = occurrence_id(schedule.schedule_id, schedule.version, scheduled_for)
    following = schedule.next_after(scheduled_for)
    if before is not None:
        following = before if following is None else min(following, before)
    return Nominal(scheduled_for, available_at(name, scheduled_for, window, following))


def grace_ms(schedule: Schedule, scheduled_for: int, rules: Rules) -> int:
    """How late this nominal may be and still count as punctual."""
    following = schedule.next_after(scheduled_for)
    distance = rules.grace_max_ms if following is None else following - scheduled_for
    grace = min(rules.grace_max_ms, max(rules.grace_min_ms, distance))
    limit = late_limit(schedule)
    return grace if limit is None else min(grace, limit)


def late_limit(schedule: Schedule) -> int | None:
    """How late a nominal may start that fell due while the shard was alive; None is unlimited."""
    return _lateness_limit(schedule, None)


def settle(schedule: Schedule, position: int | None, look: Look) -> Settlement:
    """Decide every nominal from `position` (the first undecided one) up to now."""
    reached = _reached(schedule, position, look.now)
    if reached is None:
        return NOTHING_OWED
    after, upto, waiting = reached
    if upto <= after:
        return Settlement(waiting=waiting)
    outage = replace(look, now=look.first_look)
    begun = max(after, _available_until(schedule, after, min(upto, look.seen_until), look.seen_until))
    ended = max(begun, _available_until(schedule, after, min(upto, outage.now), outage.now))
    before = _late(schedule, after, begun, outage)
    missed = _misfired(schedule, begun, ended, outage)
    since = _late(schedule, ended, upto, look)
    return Settlement(
        runs=before.runs + missed.runs + since.runs,
        catch_up=missed.catch_up,
        waiting=waiting,
        gone=before.gone + missed.gone + since.gone,
    )


def settle_one(schedule: Schedule, nominal: Nominal, look: Look) -> Settlement:
    """Decide one nominal that waited outside the due index, by the same rules."""
    after, upto = nominal.scheduled_for - 1, nominal.scheduled_for
    if look.seen_until < nominal.available_at <= look.first_look:
        return _misfired(schedule, after, upto, replace(look, now=look.first_look))
    return _late(schedule, after, upto, look)


def reached_as(state: str, reason: str, schedule: Schedule, position: int | None, now: int) -> tuple[Gone, ...]:
    """All reached and undecided nominals, those in their window too, as one record of `state`."""
    upto = _last_reachable(schedule, now)
    if position is None or position > upto:
        return ()
    trigger = schedule.spec.trigger
    count = trigger.count_between(position - 1, upto)
    return (Gone(state, reason, count, position, trigger.newest_before(upto, 1, position - 1)[-1]),)


def _last_reachable(schedule: Schedule, now: int) -> int:
    end = schedule.spec.end
    return now if end is None else min(now, end - 1)


def _reached(schedule: Schedule, position: int | None, now: int) -> tuple[int, int, tuple[Nominal, ...]] | None:
    """(after, upto, waiting): the overdue nominals are in (after, upto]; only the newest can still be in its window."""
    upto = _last_reachable(schedule, now)
    if position is None or position > upto:
        return None
    after = position - 1
    if not schedule.spec.window_ms:
        return after, upto, ()
    newest = nominal_at(schedule, schedule.spec.trigger.newest_before(upto, 1, after)[-1])
    if newest.available_at <= now:
        return after, upto, ()
    return after, newest.scheduled_for - 1, (newest,)


def _available_until(schedule: Schedule, after: int, upto: int, instant: int) -> int:
    """The end of the nominals in (after, upto] that were available at `instant`: the newest may not have been."""
    if upto <= after or not schedule.spec.window_ms:
        return upto
    newest = schedule.spec.trigger.newest_before(upto, 1, after)
    if newest and nominal_at(schedule, newest[-1]).available_at > instant:
        return newest[-1] - 1
    return upto


def _late(schedule: Schedule, after: int, upto: int, look: Look) -> Settlement:
    """Nominals that fell due while the shard was alive: run, however throttled, up to max_lateness."""
    if upto <= after:
        return NOTHING_OWED
    trigger = schedule.spec.trigger
    within = _within(schedule, upto, MAX_BACKLOG, after, look.now, late_limit(schedule))
    total = trigger.count_between(after, upto)
    runs = tuple(Run(n.scheduled_for, n.available_at) for n in within)
    return Settlement(runs=runs, gone=_rest(schedule, after, upto, total - len(runs), within, "throttled"))


def _misfired(schedule: Schedule, after: int, upto: int, look: Look) -> Settlement:
    trigger = schedule.spec.trigger
    oldest = trigger.next_after(after)
    if oldest is None or oldest > upto:
        return NOTHING_OWED
    if not _beyond_grace(schedule, oldest, after, upto, look):
        all_of_them = (nominal_at(schedule, n) for n in trigger.between(after, upto, MAX_BACKLOG))
        return Settlement(runs=tuple(Run(n.scheduled_for, n.available_at) for n in all_of_them))
    total = trigger.count_between(after, upto)
    misfire = schedule.spec.misfire
    keep = {MisfireKind.FIRE_ONCE: 1, MisfireKind.CATCH_UP: misfire.newest, MisfireKind.SKIP: MAX_BACKLOG}[misfire.kind]
    kept = _within(schedule, upto, keep, after, look.now, _lateness_limit(schedule, look.rules.grace_max_ms))
    if misfire.kind == MisfireKind.SKIP and not schedule.spec.lateness_given:
        kept = [n for n in kept if _punctual(schedule, n, look)]
        runs = tuple(Run(n.scheduled_for, n.available_at) for n in kept)
        catch_up: tuple[Run, ...] = ()
    else:
        stands_for = total if misfire.kind == MisfireKind.FIRE_ONCE else 1
        runs = ()
        catch_up = tuple(Run(n.scheduled_for, n.available_at, Origin.CATCH_UP, stands_for) for n in kept)
    return Settlement(
        runs=runs, catch_up=catch_up, gone=_rest(schedule, after, upto, total - len(kept), kept, look.reason)
    )


def _beyond_grace(schedule: Schedule, oldest: int, after: int, upto: int, look: Look) -> bool:
    if look.now - nominal_at(schedule, oldest).available_at > look.rules.grace_max_ms:
        return True
    recent = schedule.spec.trigger.between(after, upto, MAX_BACKLOG)  # all within the last grace_max: few
    return any(not _punctual(schedule, nominal_at(schedule, n), look) for n in recent)


def _punctual(schedule: Schedule, nominal: Nominal, look: Look) -> bool:
    return look.now - nominal.available_at <= grace_ms(schedule, nominal.scheduled_for, look.rules)


def _lateness_limit(schedule: Schedule, skip_default: int | None) -> int | None:
    """`max_lateness_ms`; under `skip` its default is not a number but the grace, for which `skip_default` stands."""
    spec = schedule.spec
    if spec.misfire.kind == MisfireKind.SKIP and not spec.lateness_given:
        return skip_default
    return spec.max_lateness_ms


def _within(schedule: Schedule, upto: int, newest: int, after: int, now: int, limit: int | None) -> list[Nominal]:
    """The newest nominals in (after, upto] that are not later than the limit, ascending."""
    if limit is not None:
        after = max(after, now - limit - schedule.spec.window_ms - 1)
    if upto <= after:
        return []
    nominals = (nominal_at(schedule, n) for n in schedule.spec.trigger.newest_before(upto, newest, after))
    return [n for n in nominals if limit is None or now - n.available_at <= limit]


def _rest(
    schedule: Schedule, after: int, upto: int, count: int, kept: Sequence[Nominal], reason: str
) -> tuple[Gone, ...]:
    """The missed ones of (after, upto], which are all older than those kept, as one record."""
    if not count:
        return ()
    trigger = schedule.spec.trigger
    first = trigger.next_after(after)
    last = trigger.prev_before(kept[0].scheduled_for if kept else upto + 1)
    return (Gone("missed", reason, count, first if first is not None else upto, last if last is not None else upto),)
