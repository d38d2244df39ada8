"""The next fire, measured beside croniter and cronsim in one run: `python -m tests.bench.next_after`.

Prints one JSON line. Expressions: the given cases, and 500 mixed ones (plain, steps, lists, special forms, seconds)
over 40 zones with the harshest clock changes among them. Peers see a sample, since they are slow; each is asked only
what it accepts, and the ratio compares means over just those questions. Times are processor time of this process,
so that a busy machine distorts less; the percentile is per call, by the wall clock.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim, CronSimError

from scheduler.core.batch import answer
from scheduler.core.cron import compile_cron
from scheduler.core.cron_clock import WallClock
from scheduler.core.trigger import parse_trigger
from scheduler.core.zones import pin_tables
from tests.support.time_checks import cases, ms

if TYPE_CHECKING:
    from collections.abc import Callable

ZONES = (
    *("UTC", "America/New_York", "America/Los_Angeles", "America/Sao_Paulo", "America/Havana", "America/Santiago"),
    *("America/St_Johns", "America/Nuuk", "America/Phoenix", "America/Mexico_City", "Europe/London", "Europe/Dublin"),
    *("Europe/Paris", "Europe/Berlin", "Europe/Kyiv", "Europe/Istanbul", "Europe/Moscow", "Africa/Cairo"),
    *("Africa/Casablanca", "Africa/El_Aaiun", "Africa/Lagos", "Asia/Beirut", "Asia/Tehran", "Asia/Kathmandu"),
    *("Asia/Kolkata", "Asia/Tokyo", "Asia/Shanghai", "Asia/Amman", "Asia/Gaza", "Asia/Jerusalem"),
    *("Australia/Sydney", "Australia/Lord_Howe", "Pacific/Auckland", "Pacific/Chatham", "Pacific/Apia"),
    *("Pacific/Kwajalein", "Antarctica/Troll", "Atlantic/Azores", "Etc/GMT+5", "EST"),
)
EXPRESSIONS = 500
PEER_QUESTIONS = 1500


def mixed(rnd: random.Random) -> tuple[str, str]:
    """An expression and its dialect, as people write them."""
    minute = rnd.choice(["0", "*/5", "*", "30", "*/15", f"{rnd.randrange(60)}", "0,30", "5-25/5"])
    hour = rnd.choice(["*", "9", "9-17", "*/2", f"{rnd.randrange(24)}", "0", "22-2", "8,20"])
    days = rnd.choice(["* *", "* *", "* *", "* *", "1 *", "1,15 *", "* JAN-MAR", "L *", "15W *", "*/10 *", "29 2"])
    weekday = "*" if "29 2" in days else rnd.choice(["*", "*", "*", "MON-FRI", "MON-FRI", "SUN", "5L", "FRI#2"])
    unix = f"{minute} {hour} {days} {weekday}"
    return (f"{rnd.choice(['0', '*/10', '30'])} {unix}", "seconds") if rnd.random() < 0.1 else (unix, "unix")


def questions() -> list[tuple[str, str, str, int]]:
    """(expression, dialect, zone, instant): each expression in each zone, at an instant of 2020 to 2030."""
    rnd = random.Random(7)
    expressions = [mixed(rnd) for _ in range(EXPRESSIONS)]
    low, high = ms("2020-01-01T00:00:00Z"), ms("2030-01-01T00:00:00Z")
    return [(expr, dialect, zone, rnd.randrange(low, high)) for zone in ZONES for expr, dialect in expressions]


def timed(calls: list[Callable[[], Any]]) -> float:
    """Microseconds of processor time a call, on average."""
    began = time.process_time_ns()
    for call in calls:
        call()
    return (time.process_time_ns() - began) / 1000 / len(calls)


def next_after(asked: list[tuple[str, str, str, int]]) -> dict[str, float]:
    """Mean and percentile of one step, and what a repeat of the parser costs."""
    triggers = [(compile_cron(expr, zone, dialect).trigger, t) for expr, dialect, zone, t in asked]
    steps = [(trigger.next_after, t) for trigger, t in triggers if trigger is not None]
    means = []
    for _ in range(3):
        began = time.process_time_ns()
        for step, t in steps:
            step(t)
        means.append((time.process_time_ns() - began) / 1000 / len(steps))
    single = []
    for step, t in steps:
        one = time.perf_counter_ns()
        step(t)
        single.append(time.perf_counter_ns() - one)
    single.sort()
    spec = {"cron": "0 9 * * MON-FRI", "zone": "Europe/Paris"}
    hits = timed([lambda: parse_trigger(spec, schedule_id="a/b", effective_at=0)] * 20_000)
    return {
        "mean_us": round(min(means), 2),
        "mean_us_median_of_3": round(statistics.median(means), 2),
        "p99_us": round(single[int(len(single) * 0.99)] / 1000, 1),
        "parse_repeat_us": round(hits, 2),
    }


def parsing(asked: list[tuple[str, str, str, int]]) -> float:
    """Microseconds to compile an expression that was never seen, its fields included half of the time."""
    rnd = random.Random(11)
    texts = {
        f"{rnd.randrange(60)},{rnd.randrange(60)} {expr.split(' ', 1)[1]}"
        for expr, dialect, *_ in asked
        if dialect == "unix"
    }
    compile_cron.cache_clear()
    return timed([lambda text=text: compile_cron(text, "Europe/Paris") for text in sorted(texts)])


def size() -> int:
    """Bytes of the largest compiled expression, without its text and what expressions share."""
    largest = 0
    for expr, dialect, zone, _ in questions()[:EXPRESSIONS]:
        trigger: Any = compile_cron(expr, zone, dialect).trigger
        if trigger is None:
            continue
        wall: WallClock = trigger.search.wall
        parts = [trigger, trigger.search, wall, wall.clock, wall.clock.rule, *wall.clock, *wall.clock.rule]
        parts += [getattr(wall, name) for name in WallClock.__slots__ if name not in {"_days", "clock"}]
        largest = max(largest, sum(sys.getsizeof(part) for part in {id(part): part for part in parts}.values()))
    return largest


def against(asked: list[tuple[str, str, str, int]]) -> dict[str, float]:
    """How many times longer each peer takes over the same questions, expression ready, one step."""
    found = {}
    for name, peer in (("croniter", by_croniter), ("cronsim", by_cronsim)):
        ours: list[Callable[[], Any]] = []
        theirs: list[Callable[[], Any]] = []
        for expr, dialect, zone, t in asked:
            trigger = compile_cron(expr, zone, dialect).trigger
            start = datetime.fromtimestamp(t / 1000, UTC).astimezone(ZoneInfo(zone))
            call = peer(expr, start) if dialect == "unix" and trigger is not None else None
            if call is not None and trigger is not None:
                ours.append(lambda trigger=trigger, t=t: trigger.next_after(t))
                theirs.append(call)
        if theirs:
            # The best of three for either side: the peers then take their second and third step, which cost the same.
            slow, quick = (min(timed(calls) for _ in range(3)) for calls in (theirs, ours))
            found[f"{name}_us"] = round(slow, 1)
            found[f"times_{name}"] = round(slow / quick, 1)
    return found


def by_croniter(expr: str, start: datetime) -> Callable[[], Any] | None:
    """A step of the peer, or None when it refuses or has not four of them."""
    try:
        walk = croniter(expr, start)
        for _ in range(4):
            walk.get_next(datetime)
    except (ValueError, KeyError):
        return None
    walk.set_current(start)
    return lambda: walk.get_next(datetime)


def by_cronsim(expr: str, start: datetime) -> Callable[[], Any] | None:
    """A step of the peer, or None when it refuses or has not four of them."""
    try:
        trial = CronSim(expr, start)
        for _ in range(4):
            next(trial)
    except (CronSimError, StopIteration, OverflowError):
        return None
    walk = CronSim(expr, start)
    return lambda: next(walk)


def batch() -> dict[str, int]:
    """Cases a second through the batch contract: the given ones over and over, and mixed ones all different."""
    given = [
        {
            "id": case["id"],
            "expr": case["expr"],
            "zone": case["tz"],
            "start": case["start"],
            "count": len(case["expect"]),
        }
        | {"dialect": "seconds" if case.get("seconds") else "unix", **case["dst"]}
        for case in cases()
        if case["kind"] == "cron"
    ]
    fresh = [
        {"id": 1, "expr": expr, "zone": zone, "dialect": dialect, "start": "2026-03-01T00:00:00Z", "count": 2}
        for expr, dialect, zone, _ in questions()
    ]
    return {
        "batch_given_per_s": round(1e6 / timed([lambda case=case: answer(case) for case in given * 60])),
        "batch_fresh_per_s": round(1e6 / timed([lambda case=case: answer(case) for case in fresh])),
    }


def main() -> None:
    """Measure and print."""
    pin_tables()
    asked = questions()
    given = [
        (case["expr"], "seconds" if case.get("seconds") else "unix", case["tz"], ms(case["start"]))
        for case in cases()
        if case["kind"] == "cron"
    ]
    gc.disable()
    sample = random.Random(3).sample(asked, PEER_QUESTIONS)
    result = {
        "bench": "next_after",
        "questions": len(asked),
        **next_after(asked),
        "parse_new_us": round(parsing(asked), 1),
        "compiled_bytes": size(),
        "mixed": against(sample),
        "cases": {"mean_us": next_after(given * 20)["mean_us"], **against(given)},
        **batch(),
    }
    result["targets"] = {
        "mean_us <= 5": result["mean_us"] <= 5,
        "p99_us <= 30": result["p99_us"] <= 30,
        "parse_new_us <= 30": result["parse_new_us"] <= 30,
        "compiled_bytes <= 1024": result["compiled_bytes"] <= 1024,
        "times_croniter >= 20": result["mixed"]["times_croniter"] >= 20,
        "times_cronsim >= 10": result["mixed"]["times_cronsim"] >= 10,
        "batch_given_per_s >= 20000": result["batch_given_per_s"] >= 20_000,
    }
    result["verdict"] = "ok" if all(result["targets"].values()) else "slow"
    print(json.dumps(result))


if __name__ == "__main__":
    main()
