"""The command line against a real broker; a stand-in answers for the shards, so only the command line is judged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from scheduler.cli import main
from tests.support.responder import Responder
from topics.admin import apply, connect, plan
from topics.catalog import Catalogue
from topics.messages import STEP_HEADER
from topics.partition import partition_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.broker import BrokerUnderTest

pytestmark = pytest.mark.broker

SHARDS = 4
HELD = {
    "tenant": "acme",
    "version": 3,
    "revision": 5,
    "created_at": "2027-01-01T00:00:00Z",
    "updated_at": "2027-01-02T00:00:00Z",
    "effective_at": "2027-01-02T00:00:00Z",
}


@pytest.fixture
def catalogue(broker: BrokerUnderTest, namespace: str) -> Catalogue:
    """All topics of a cluster with four shards."""
    made = Catalogue(namespace=namespace, shards=SHARDS)
    apply(connect({"bootstrap.servers": broker.bootstrap_servers}), plan(made.specs(), {}))
    return made


@pytest.fixture
def run(
    broker: BrokerUnderTest, namespace: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Result]:
    """Runs the command line with this broker and namespace."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCHEDULER_KAFKA__BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.setenv("SCHEDULER_NAMESPACE", namespace)
    monkeypatch.setenv("SCHEDULER_SHARDS", str(SHARDS))

    def invoke(*arguments: str, text: str | None = None) -> Result:
        return CliRunner().invoke(main, arguments, input=text)

    return invoke


def publish(broker: BrokerUnderTest, topic: str, *records: tuple[str, object]) -> None:
    """Writes records as the shards would: by Kafka's partitioner, with the number of a step."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for key, value in records:
        text = None if value is None else json.dumps(value).encode()
        producer.produce(topic, text, key.encode(), partition_for(key.encode(), SHARDS), headers={STEP_HEADER: b"1"})
    assert producer.flush(30) == 0


def held(schedule_id: str, state: str = "active", **spec: object) -> tuple[str, object]:
    """A schedule as `scheduler.schedules` has it."""
    trigger = {"cron": "0 9 * * *", "zone": "Europe/Berlin"}
    return schedule_id, {"schedule_id": schedule_id, "state": state, **HELD, "spec": {"trigger": trigger, **spec}}


def test_topics_are_planned_applied_and_then_right(run: Callable[..., Result]) -> None:
    """Plan is 1 while something differs, apply makes it so, then plan is 0; JSON says each change."""
    planned = run("topics", "plan", "--json")
    assert planned.exit_code == 1
    changes = [json.loads(line) for line in planned.stdout.splitlines()]
    assert {change["change"] for change in changes} == {"Create"}
    applied = run("topics", "apply")
    assert applied.exit_code == 0, applied.output
    assert f"{len(changes)} changes made" in applied.stdout
    again = run("topics", "plan")
    assert (again.exit_code, again.stdout) == (0, "every topic is as it should be\n")


def test_send_reports_each_rejection_with_its_line(
    broker: BrokerUnderTest, catalogue: Catalogue, run: Callable[..., Result], tmp_path: Path
) -> None:
    """YAML and JSON lines in one call; accepted ones are counted; exit code 1."""
    first, second = tmp_path / "a.yaml", tmp_path / "b.jsonl"
    first.write_text("command: pause\nschedule_id: acme/one\n---\ncommand: pause\nschedule_id: acme/bad\n")
    lines = [{"command": "resume", "schedule_id": f"acme/n{number}"} for number in range(30)]
    second.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def answer(command: dict[str, object]) -> tuple[str, str]:
        return ("rejected", "not_found") if command["schedule_id"] == "acme/bad" else ("accepted", "done")

    with Responder(broker.bootstrap_servers, catalogue, answer=answer) as shards:
        plain = run("send", str(first), str(second), "--actor", "ci")
        machine = run("send", str(first), "--json")
    assert plain.exit_code == 1
    assert f"{first}:4: acme/bad: not_found" in plain.stdout
    assert plain.stdout.splitlines()[-1] == "31 accepted, 1 rejected"
    assert {command["actor"] for _, command in shards.seen[:32]} == {"ci"}
    replies = [json.loads(line) for line in machine.stdout.splitlines()]
    assert {(reply["line"], reply["status"]) for reply in replies} == {(1, "accepted"), (4, "rejected")}


def test_a_schedule_is_created_from_options(
    broker: BrokerUnderTest, catalogue: Catalogue, run: Callable[..., Result]
) -> None:
    """The command on the topic is what was typed; the reply decides the exit code."""
    with Responder(broker.bootstrap_servers, catalogue) as shards:
        result = run(
            "schedule", "create", "acme/report", "--cron", "0 9 * * mon-fri", "--zone", "Europe/Berlin",
            "--priority", "high", "--payload", '{"n":1}', "--command-id", "c1", "--actor", "me", "--reason", "new",
        )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("acme/report: created")
    ((_, command),) = shards.seen
    assert json.loads(command["spec"].pop("payload")) == {"n": 1}
    assert command == {
        "command": "create",
        "schedule_id": "acme/report",
        "command_id": "c1",
        "actor": "me",
        "reason": "new",
        "preview": 3,
        "spec": {"trigger": {"cron": "0 9 * * mon-fri", "zone": "Europe/Berlin"}, "priority": "high"},
    }


def test_list_show_and_history_read_what_is_published(
    broker: BrokerUnderTest, catalogue: Catalogue, run: Callable[..., Result]
) -> None:
    """The newest value of each id, tombstones gone, with the next times; no scheduler is needed."""
    publish(
        broker,
        catalogue.schedules,
        held("acme/old", "paused"),
        held("acme/gone"),
        held("acme/old", "active", labels={"team": "x"}),
        held("other/one", "paused"),
        ("acme/gone", None),
    )
    revision = {"schedule_id": "acme/old", "tenant": "acme", "version": 1, "revision": 1, "change": "create"}
    publish(broker, catalogue.schedule_history, ("acme/old", {**revision, "state": "active", "at": HELD["created_at"]}))
    listed = [line.split("\t") for line in run("schedule", "list").stdout.splitlines()]
    assert [row[:2] for row in listed[1:]] == [["acme/old", "active"], ["other/one", "paused"]]
    assert listed[1][4].endswith("Z")
    assert listed[2][4] == "-"
    assert len(run("schedule", "list", "--tenant", "acme", "--json").stdout.splitlines()) == 1
    assert "acme/old" in run("schedule", "list", "--label", "team=x").stdout
    shown = json.loads(run("schedule", "show", "acme/old", "--json", "--next", "2").stdout)
    assert shown["revision"] == 5
    assert [planned["scheduled_for"][11:] for planned in shown["next"]] in (["08:00:00Z"] * 2, ["07:00:00Z"] * 2)
    assert run("schedule", "show", "acme/gone").exit_code == 1
    history = run("schedule", "history", "acme/old")
    assert history.exit_code == 0
    assert history.stdout.splitlines()[1].split("\t")[:2] == [HELD["created_at"], "create"]
    assert run("schedule", "history", "acme/never").exit_code == 1


def test_what_somebody_else_put_on_the_changelog_stops_no_command(
    broker: BrokerUnderTest, catalogue: Catalogue, run: Callable[..., Result]
) -> None:
    """The shards pass over such records, so the command line does: it shows what they go by, and the switch works."""
    publish(broker, catalogue.schedules, held("acme/a"))
    stranger = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for key, value in ((b"acme/b", b"\xff"), (b"\xff", b"{}"), (b"acme/c", b'{"schedule_id": 5}'), (b"acme/a", None)):
        stranger.produce(catalogue.schedules, value, key, partition_for(b"acme/a", SHARDS))
        stranger.produce(catalogue.live, value, key, partition_for(b"acme/a", SHARDS))
        stranger.produce(catalogue.shard_records, value, key, partition_for(b"acme/a", SHARDS))
    assert stranger.flush(30) == 0
    listed = run("schedule", "list", "--json")
    assert [json.loads(line)["schedule_id"] for line in listed.stdout.splitlines()] == ["acme/a"]
    counted = run("schedule", "pause", "--all", "--dry-run")
    assert counted.stdout.startswith("would pause 1 active schedules of 1 tenants, as of 20")
    assert run("forecast", "--to", "+1h").exit_code == 0
    assert json.loads(run("why", "acme/a", "--at", "now", "--json").stdout)["schedule_id"] == "acme/a"


def test_the_stop_switch_counts_asks_and_pauses(
    broker: BrokerUnderTest, catalogue: Catalogue, run: Callable[..., Result]
) -> None:
    """A dry run only counts, a no changes nothing, a yes pauses the active ones; one that just ended is no fault."""
    publish(
        broker,
        catalogue.schedules,
        *(held(f"acme/s{number}") for number in range(5)),
        held("acme/quiet", "paused"),
        held("other/one"),
    )
    counted = run("schedule", "pause", "--tenant", "acme", "--dry-run")
    assert counted.stdout.startswith("would pause 5 active schedules of 1 tenants, as of 20")
    assert counted.stdout.splitlines()[1:] == [f"  acme/s{number}" for number in range(5)]
    refused = run("schedule", "pause", "--tenant", "acme", text="n\n")
    assert refused.exit_code == 1

    def answer(command: dict[str, object]) -> tuple[str, str]:
        return ("rejected", "not_allowed") if command["schedule_id"] == "other/one" else ("accepted", "paused")

    with Responder(broker.bootstrap_servers, catalogue, answer=answer) as shards:
        done = run("schedule", "pause", "--tenant", "acme", "--reason", "incident", text="y\n")
        everything = run("schedule", "pause", "--all", "--yes")
    assert done.exit_code == 0, done.output
    summary = "5 schedules: 5 changed, 0 unchanged, 0 refused, 0 ended meanwhile, 0 not answered"
    assert done.stdout.splitlines()[-1] == summary
    paused = [command["schedule_id"] for _, command in shards.seen[:5]]
    assert sorted(paused) == [f"acme/s{number}" for number in range(5)]
    assert everything.exit_code == 0
    assert everything.stdout.splitlines() == [
        "1 not_allowed: other/one",
        "6 schedules: 5 changed, 0 unchanged, 0 refused, 1 ended meanwhile, 0 not answered",
    ]


def test_resume_finds_what_a_stop_switch_paused(
    broker: BrokerUnderTest, catalogue: Catalogue, run: Callable[..., Result]
) -> None:
    """Not what somebody had paused before, for another reason."""
    name, value = held("acme/stopped", "paused")
    assert isinstance(value, dict)
    publish(broker, catalogue.schedules, (name, {**value, "reason": "incident"}), held("acme/resting", "paused"))
    with Responder(broker.bootstrap_servers, catalogue) as shards:
        done = run("schedule", "resume", "--all", "--paused-for", "incident", "--yes")
    assert done.exit_code == 0, done.output
    assert [command["schedule_id"] for _, command in shards.seen] == ["acme/stopped"]


def test_a_second_import_sends_the_same_commands(
    broker: BrokerUnderTest, catalogue: Catalogue, run: Callable[..., Result]
) -> None:
    """The shards recognise them by id; with --update a line that was edited becomes an update."""
    seen: set[object] = set()

    def answer(command: dict[str, object]) -> tuple[str, str]:
        known = command["schedule_id"] in seen
        seen.add(command["schedule_id"])
        exists = known and command["command"] == "create"
        return ("rejected", "already_exists") if exists else ("accepted", f"{command['command']}d")

    arguments = ("import", "crontab", "-", "--tenant", "ops", "--zone", "UTC")
    with Responder(broker.bootstrap_servers, catalogue, answer=answer) as shards:
        first = run(*arguments, text="0 1 * * * job\n")
        second = run(*arguments, "--update", text="0 2 * * * job\n")
    assert (first.exit_code, second.exit_code) == (0, 0), first.output + second.output
    commands = [command for _, command in shards.seen]
    assert [command["command"] for command in commands] == ["create", "create", "update"]
    assert len({command["schedule_id"] for command in commands}) == 1
    assert len({command["command_id"] for command in commands}) == 3


def test_tail_shows_dispatches_and_ends_after_a_count(
    broker: BrokerUnderTest, catalogue: Catalogue, run: Callable[..., Result]
) -> None:
    """Filters by schedule and priority; what is no dispatch is named and skipped."""
    dispatch = {
        "tenant": "acme", "version": 1, "shard": 0, "lane": "default", "priority": "high", "attempt": 1,
        "scheduled_for": "2027-01-01T00:00:00Z", "available_at": "2027-01-01T00:00:00Z", "origin": "schedule",
        "stands_for": 1, "tz_version": "", "generation": 0,
    }  # fmt: skip
    publish(
        broker,
        catalogue.dispatch("default", "high"),
        ("acme/x", "not a dispatch"),
        *(
            (name, {**dispatch, "schedule_id": name, "occurrence_id": f"{name}:1:20270101T000000.000Z"})
            for name in ("acme/x", "acme/y", "other/z")
        ),
    )
    result = run("tail", "--from-beginning", "--count", "3", "--json", "--priority", "high")
    assert result.exit_code == 0, result.output
    arrivals = [json.loads(line) for line in result.stdout.splitlines()]
    assert {arrival["schedule_id"] for arrival in arrivals} == {"acme/x", "acme/y", "other/z"}
    assert all(arrival["partition"] == partition_for(arrival["schedule_id"].encode(), SHARDS) for arrival in arrivals)
    assert "not a Dispatch" in result.stderr
    one = run("tail", "--from-beginning", "--count", "1", "--schedule", "acme/y")
    assert "acme/y:1:20270101T000000.000Z" in one.stdout
    assert run("tail", "--lane", "fast").exit_code == 2


def test_doctor_finds_a_group_that_reads_aborted_records(
    broker: BrokerUnderTest, catalogue: Catalogue, run: Callable[..., Result], tmp_path: Path
) -> None:
    """The shipped settings are right; Kafka's defaults are not, and the step that cures it is named."""
    properties = tmp_path / "worker.properties"
    properties.write_text("# java\nauto.offset.reset=earliest\n")
    with Responder(broker.bootstrap_servers, catalogue):
        good = [json.loads(line) for line in run("doctor", "--json").stdout.splitlines()]
        bad = run("doctor", "--consumer", str(properties))
        latest = run("doctor", "-X", "isolation.level=read_committed")
    assert {finding["check"]: finding["status"] for finding in good} == {
        "broker": "ok", "topics": "ok", "clock": "ok", "scheduler": "ok", "consumer": "ok",
    }  # fmt: skip
    assert bad.exit_code == 1
    assert "set isolation.level=read_committed" in bad.stdout
    assert latest.exit_code == 0
    assert "set auto.offset.reset=earliest" in latest.stdout
    topics = connect({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=30).topics
    assert not [name for name in topics if name.startswith(f"{catalogue.namespace}scheduler.doctor")]


def test_doctor_names_missing_topics_and_a_silent_scheduler(
    broker: BrokerUnderTest, run: Callable[..., Result]
) -> None:
    """Without topics that is the first thing to do; with them, starting a node."""
    missing = run("doctor")
    assert missing.exit_code == 1
    assert "next: scheduler topics apply" in missing.stdout
    assert run("topics", "apply").exit_code == 0
    silent = run("doctor")
    assert silent.exit_code == 0
    assert f"warn  scheduler  0 of {SHARDS} shards answer" in silent.stdout


def test_a_check_that_cannot_be_made_stops_no_other(
    broker: BrokerUnderTest, catalogue: Catalogue, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken topic check is a finding; the consumer check is made all the same."""
    from scheduler.cli import doctor

    del broker, catalogue

    def refused(_settings: object) -> None:
        raise ConnectionError("not authorised")

    monkeypatch.setattr(doctor, "check_topics", refused)
    result = run("doctor", "--json")
    findings = {finding["check"]: finding for finding in map(json.loads, result.stdout.splitlines())}
    assert result.exit_code == 1
    assert findings["topics"]["text"] == "could not be checked: not authorised"
    assert findings["consumer"]["status"] == "ok"


def test_an_address_nobody_answers_at_is_exit_code_3(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing else is asked."""
    from scheduler.cli import checks

    monkeypatch.setattr(checks, "WAIT_S", 1.0)
    monkeypatch.setenv("SCHEDULER_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    result = run("doctor")
    assert result.exit_code == 3
    assert [line.split()[:2] for line in result.stdout.splitlines()] == [["fail", "broker"], ["next:", "check"]]


def test_no_reply_is_exit_code_3(catalogue: Catalogue, run: Callable[..., Result]) -> None:
    """Delivered, but no shard runs: the text says that sending again is harmless."""
    del catalogue
    result = run("schedule", "pause", "acme/one", "--timeout", "3")  # connecting takes its time too
    assert result.exit_code == 3
    assert "harmless" in result.stderr
