"""`effective_from`: a change is accepted now and decided at its instant, as if it had been sent then."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.core.time import parse_instant
from tests.support.driver import Driver

DAY = "2026-01-01T"
HOURLY = {"cron": "0 * * * *", "zone": "UTC"}
HALF = {"cron": "30 * * * *", "zone": "UTC"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours pass here: an idle shard looks just often enough."""
    monkeypatch.setattr("tests.support.driver.LONGEST_LOOK_MS", 14_000)


def at(clock: str) -> str:
    return f"{DAY}{clock}:00Z"


def hourly(**spec: Any) -> Driver:
    driver = Driver(at("00:10"))
    driver.create(trigger=HOURLY, **spec)
    return driver


def later(driver: Driver, verb: str, when: str, **fields: Any) -> dict[str, Any]:
    return driver.do(verb, effective_from=at(when), **fields)


def changes(driver: Driver) -> list[str]:
    return [r["change"] for r in driver.topics.values("scheduler.schedule-history")]


@pytest.mark.parametrize("cold", [None, False, True])
def test_an_update_counts_strictly_after_its_instant(*, cold: bool | None) -> None:
    """The nominal at the instant is the old rule's; also after a restart, warm or cold, in between."""
    driver = hourly()
    reply = later(driver, "update", "03:00", spec={"trigger": HALF})
    assert (reply["status"], reply["code"], reply["effective_at"], reply["version"]) == (
        "accepted", "planned", at("03:00"), 1,
    )  # fmt: skip
    driver.run_until(at("01:10"))
    if cold is not None:
        driver.restart(wipe=cold, compacted=cold)
    driver.run_until(at("05:00"))
    assert driver.clocks() == ["01:00:00", "02:00:00", "03:00:00", "03:30:00", "04:30:00"]
    now = driver.schedule()
    assert now is not None
    assert (now["version"], now["effective_at"]) == (2, at("03:00"))
    assert changes(driver) == ["created", "updated"]
    assert len(driver.topics.values("scheduler.replies")) == 2
    assert driver.contents() == driver.cold_contents()


def test_pause_and_resume_for_the_night() -> None:
    """Both sent at once; the resume is not refused because nothing is paused yet."""
    driver = hourly()
    assert later(driver, "pause", "01:30")["code"] == "planned"
    assert later(driver, "resume", "04:30")["code"] == "planned"
    driver.run_until(at("06:30"))
    assert driver.clocks() == ["01:00:00", "05:00:00", "06:00:00"]
    assert driver.counts() == {"suppressed": 3}


def test_a_late_look_decides_it_as_of_its_instant() -> None:
    """A loop that comes late gives the change a step of its own: what lies behind its instant is the new rule's."""
    driver = hourly()
    later(driver, "update", "03:00", spec={"trigger": {"cron": "* * * * * *", "dialect": "seconds", "zone": "UTC"}})
    driver.run_until("2026-01-01T02:59:58Z")
    driver.now = parse_instant("2026-01-01T03:00:04Z")
    driver.run_until(driver.now)
    assert driver.clocks()[2:] == ["03:00:00", "03:00:01", "03:00:02", "03:00:03", "03:00:04"]
    assert [d["version"] for d in driver.dispatched()[2:]] == [1, 2, 2, 2, 2]


@pytest.mark.parametrize(("when", "clock"), [("03:00", ["01:00:00", "03:45:00"]), ("03:20", ["01:00:00", "03:30:00"])])
def test_of_two_writers_the_later_instant_wins(when: str, clock: list[str]) -> None:
    """Also when nobody was there at either: the command of 03:10 meets a change for 03:00, or is followed by one."""
    driver = hourly(misfire="skip")
    later(driver, "update", when, spec={"trigger": HALF})
    driver.run_until(at("01:10"))
    driver.kill()
    driver.send(
        {"command": "update", "schedule_id": "acme/a", "spec": {"trigger": {"cron": "45 * * * *", "zone": "UTC"}}},
        at=parse_instant(at("03:10")),
    )
    driver.outage(at("03:25"))
    driver.run_until(at("03:50"))
    assert driver.clocks() == clock


@pytest.mark.parametrize("verb", ["cancel", "delete"])
def test_the_end_of_a_schedule_drops_what_was_planned(verb: str) -> None:
    """Nothing of it comes back to life."""
    driver = hourly()
    later(driver, "update", "03:00", spec={"trigger": HALF})
    driver.do(verb)
    driver.run_until(at("05:00"))
    assert driver.times() == []
    assert changes(driver) == ["created", f"{verb}led" if verb == "cancel" else "deleted"]
    assert driver.contents() == driver.cold_contents()


@pytest.mark.parametrize("verb", ["cancel", "delete"])
def test_the_end_may_be_planned_too(verb: str) -> None:
    """As if it had been sent then."""
    driver = hourly()
    later(driver, verb, "02:30")
    driver.run_until(at("05:00"))
    assert driver.clocks() == ["01:00:00", "02:00:00"]


def test_an_expected_revision_is_checked_now_and_then() -> None:
    """A change that was based on what has gone is not made; the history says why, and there is no second reply."""
    driver = hourly()
    assert later(driver, "update", "03:00", expected_revision=7, spec={"trigger": HALF})["code"] == "revision_conflict"
    assert later(driver, "update", "03:00", expected_revision=1, spec={"trigger": HALF})["code"] == "planned"
    driver.do("update", spec={"description": "changed meanwhile"})
    driver.run_until(at("05:00"))
    assert driver.clocks() == ["01:00:00", "02:00:00", "03:00:00", "04:00:00", "05:00:00"]
    refused = driver.topics.values("scheduler.schedule-history")[-1]
    assert refused["change"] == "change_refused"
    assert refused["reason"].startswith("revision_conflict")
    assert len(driver.topics.values("scheduler.replies")) == 4


@pytest.mark.parametrize(
    "fields",
    [
        {"verb": "update", "spec": {"trigger": {"cron": "61 * * * *", "zone": "UTC"}}},
        {"verb": "update", "spec": {"trigger": {"at": at("02:00")}}},
        {"verb": "update", "spec": {"end": at("03:00")}},
        {"verb": "update", "spec": {"lane": "no-such-lane"}},
    ],
)
def test_what_would_be_refused_then_is_refused_now(fields: dict[str, Any]) -> None:
    """Mistakes are told to the sender, who waits for the answer, and nothing is planned."""
    driver = hourly()
    reply = later(driver, when="03:00", **fields)
    assert reply["status"] == "rejected"
    assert not any(key.startswith(b"change:") for key, _, _, _ in driver.topics.records.get("scheduler.live", []))


def test_a_dry_run_and_a_repeat() -> None:
    """A dry run plans nothing; a repeated command id plans once; a preview shows the times behind the instant."""
    driver = hourly()
    reply = later(driver, "update", "03:00", dry_run=True, preview=2, spec={"trigger": HALF})
    assert [p["scheduled_for"] for p in reply["preview"]] == [at("03:30"), at("04:30")]
    for _ in range(2):
        assert later(driver, "update", "03:00", command_id="one", spec={"trigger": HALF})["code"] == "planned"
    driver.run_until(at("04:00"))
    written = [json.loads(v) for k, v, _, _ in driver.topics.records["scheduler.live"] if v and k.startswith(b"change")]
    assert len(written) == 1
    assert later(driver, "update", "03:00", command_id="one", spec={"trigger": HALF})["code"] == "planned"
    driver.run_until(at("05:00"))
    assert changes(driver) == ["created", "updated"]


@pytest.mark.parametrize("after_commit", [False, True])
def test_a_crash_at_the_instant(*, after_commit: bool) -> None:
    """Before or after the commit of the step that decides it: made once."""
    driver = hourly()
    later(driver, "update", "03:00", spec={"trigger": HALF})
    driver.run_until("2026-01-01T02:59:59Z")
    driver.now = parse_instant(at("03:00"))
    (driver.crash_after_commit if after_commit else driver.crash_before_commit)()
    driver.start(wipe=True)
    driver.run_until(at("04:40"))
    assert driver.clocks() == ["01:00:00", "02:00:00", "03:00:00", "03:30:00", "04:30:00"]
    assert changes(driver) == ["created", "updated"]


def test_a_schedule_with_nothing_left_waits_for_its_change() -> None:
    """It is not completed, nor forgotten, while a change may bring it back."""
    driver = Driver(at("00:10"))
    driver.create(trigger={"at": at("01:00")})
    later(driver, "update", "05:00", spec={"trigger": {"at": at("06:00")}})
    driver.run_until(at("02:00"))
    assert (driver.schedule() or {})["state"] == "active"
    driver.run_until(at("07:00"))
    assert driver.clocks() == ["01:00:00", "06:00:00"]
    assert (driver.schedule() or {})["state"] == "completed"
