"""`scheduler demo`: a broker, the topics, a node of two processes and real schedules, and what arrives.

Everything it starts it stops, however it ends. The node is the same `scheduler run` a user would start, the schedules
enter through the command topic like anybody's.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scheduler.cli.arrivals import HEADING, Tally
from scheduler.cli.common import NOT_RUNNING, Cli, Shown, json_option, note, now_ms, pass_cli, print_json, progress
from scheduler.cli.config_docs import toml
from scheduler.cli.demo.verdict import Verdict
from scheduler.cli.documents import Located, read_commands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scheduler.cli.demo.node import DemoNode
    from scheduler.config import Settings
    from topics.messages import Reply

SHARDS = 8
READY_S = 60.0
# The embedded broker allows short sessions, so that a killed process is replaced in seconds.
EMBEDDED = {"session_timeout_ms": 2_500, "heartbeat_interval_ms": 400}


@click.command("demo", short_help="See it work: a broker, the scheduler, real schedules, occurrences.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    envvar="DEMO_SECONDS",
    show_envvar=True,
    help="End after this time with a summary; default: run until Ctrl-C.",
)
@click.option("--processes", type=click.IntRange(1, SHARDS), default=2, show_default=True, help="Of the scheduler.")
@json_option
@pass_cli
def command(cli: Cli, *, seconds: float | None, processes: int, as_json: bool) -> None:
    """Start a broker and the scheduler, load real schedules, show what arrives and how late.

    The broker is a real Kafka of this machine's own, in a temporary directory; with `kafka.bootstrap_servers` set it is
    that cluster, under the namespace `demo.`. Ends with a summary; the exit code is 1 if nothing arrived, or anything
    was early, came twice, was rejected or died.

    \b
    Examples:
      scheduler demo
      DEMO_SECONDS=60 scheduler demo --json
    """
    from scheduler.cli.kafka import kafka_errors
    from scheduler.cli.tail import stopping

    with ExitStack() as stack:
        stack.enter_context(kafka_errors())
        stop = stack.enter_context(stopping())
        folder = Path(tempfile.mkdtemp(prefix="scheduler-demo-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        settings, config = _prepare(cli, stack, folder)
        verdict = _run(settings, config, processes, seconds, stack, stop, as_json=as_json)
        note("stopping ...")
    if as_json:
        print_json({"summary": verdict.as_json()})
    else:
        click.echo("\n".join(verdict.as_lines()))
    sys.exit(verdict.exit_code)


def _prepare(cli: Cli, stack: ExitStack, folder: Path) -> tuple[Settings, Path]:
    """A broker, the topics on it, and a settings file that every command can use."""
    given = cli.settings()
    changes: dict[str, Any] = {"shards": SHARDS, "data_dir": str(folder / "data")}
    if given.kafka.bootstrap_servers:
        changes["namespace"] = given.namespace or "demo."
        note(f"using the broker at {given.kafka.bootstrap_servers}, namespace {changes['namespace']}")
    else:
        from scheduler.local import Broker

        note("starting Kafka ...")
        began = time.monotonic()
        broker = stack.enter_context(Broker.start(folder / "broker"))
        note(f"Kafka is up at {broker.bootstrap_servers} after {time.monotonic() - began:.1f} s")
        changes |= {"kafka": {"bootstrap_servers": broker.bootstrap_servers}, **EMBEDDED}
    settings = cli.settings(changes)
    config = folder / "demo.toml"
    config.write_text(_settings_file(settings), encoding="utf-8")

    from scheduler.cli.topics import proposed
    from topics.admin import TopicsWrong, apply, connect

    try:
        proposal = proposed(settings)
        apply(connect(settings.client_config()), proposal)
    except TopicsWrong as error:
        raise Shown(str(error)) from error
    if blocking := [str(drift) for drift in proposal.drift if drift.blocking]:
        raise Shown("the topics of an earlier run don't fit:\n  " + "\n  ".join(blocking))
    note(f"{len(proposal.changes)} topics made ready, {settings.shards} shards")
    return settings, config


def _settings_file(settings: Settings) -> str:
    """What differs from the defaults, as TOML; of secrets only the references."""
    values = settings.model_dump(mode="json", exclude_defaults=True, exclude={"kafka": {"client"}})
    references = {
        name: value.model_dump(mode="json", exclude_none=True) if hasattr(value, "model_dump") else value
        for name, value in settings.kafka.client.items()
        if isinstance(value, str) or hasattr(value, "model_dump")
    }
    if references:
        values.setdefault("kafka", {})["client"] = references
    flat = {name: value for name, value in values.items() if not isinstance(value, dict)}
    lines = ["# Written by `scheduler demo`; gone when the demo ends.", *(f"{k} = {toml(v)}" for k, v in flat.items())]
    for section, inner in values.items():
        if isinstance(inner, dict):
            lines += ["", f"[{section}]", *(f'"{name}" = {toml(value)}' for name, value in inner.items())]
    return "\n".join(lines) + "\n"


def _run(
    settings: Settings,
    config: Path,
    processes: int,
    seconds: float | None,
    stack: ExitStack,
    stop: Callable[[], bool],
    *,
    as_json: bool,
) -> Verdict:
    from scheduler.cli.demo.node import DemoNode

    began_ms = now_ms()
    node = stack.enter_context(DemoNode(config, processes, config.with_name("scheduler.log")))
    note(f"starting the scheduler: {processes} processes, log {node.log}")
    _await_ready(settings, node, stop)
    node.remember_children()
    replies = list(_load(settings, quiet=as_json))
    rejected = [reply for _, reply in replies if reply.status == "rejected" and reply.code != "already_exists"]
    for reply in rejected:
        note(f"rejected: {reply.schedule_id}: {reply.message}")
    note(f"{len(replies) - len(rejected)} schedules loaded, {len(rejected)} rejected")
    note(_second_terminal(config))
    began = time.monotonic()
    tally = Tally()
    deaths = _show(settings, node, tally, began_ms, _until(stop, seconds), as_json=as_json)
    return Verdict(
        tally=tally,
        loaded=len(replies) - len(rejected),
        rejected=len(rejected),
        seconds=time.monotonic() - began,
        deaths=deaths,
    )


def _until(stop: Callable[[], bool], seconds: float | None) -> Callable[[], bool]:
    deadline = None if seconds is None else time.monotonic() + seconds
    return lambda: stop() or (deadline is not None and time.monotonic() >= deadline)


def _await_ready(settings: Settings, node: DemoNode, stop: Callable[[], bool]) -> None:
    """Returns when a shard answers. Raises `Shown` when the node died, time ran out, or somebody wants to stop."""
    from scheduler.cli.kafka import command_client
    from scheduler.errors import BrokerUnavailable
    from topics.messages import Command

    # Answered with "not found": it asks for nothing but an answer.
    question = Command(command="pause", schedule_id="demo/is-anybody-there", command_id="demo-ready", dry_run=True)
    began = time.monotonic()
    while time.monotonic() - began < READY_S and not stop():
        if node.deaths():
            raise Shown(f"{node.deaths()[0]}; its last words:\n{node.last_words()}")
        try:
            with command_client(settings, timeout_s=2.0) as client:
                client.send(question)
        except BrokerUnavailable:
            continue  # nobody answered yet; the same command id makes asking again harmless
        note(f"the scheduler answers after {time.monotonic() - began:.1f} s")
        return
    if stop():
        raise Shown("stopped before the scheduler was ready")
    raise Shown(
        f"the scheduler did not answer within {READY_S:.0f} s; its last words:\n{node.last_words()}", NOT_RUNNING
    )


def _load(settings: Settings, *, quiet: bool) -> Iterator[tuple[Located, Reply]]:
    from scheduler.cli.send import exchange

    items = list(demo_commands(now_ms()))
    with progress(len(items), "loading schedules", quiet=quiet) as step:
        for pair in exchange(settings, items, timeout_s=READY_S, window=1_000):
            step()
            yield pair


def demo_commands(now: int) -> Iterator[Located]:
    """The shipped schedules; one-shots are relative to `now` (ms)."""
    files = (entry for entry in resources.files("scheduler.cli.demo").iterdir() if entry.name.endswith(".yaml"))
    for entry in sorted(files, key=lambda entry: entry.name):
        for found in read_commands(entry.read_text(encoding="utf-8"), entry.name, now):
            if not isinstance(found, Located):
                raise Shown(str(found))
            found.command.actor = "scheduler demo"
            yield found


def _show(
    settings: Settings, node: DemoNode, tally: Tally, began_ms: int, stop: Callable[[], bool], *, as_json: bool
) -> list[str]:
    """Prints what arrives until `stop`, or until something died; returns what did."""
    from scheduler.cli.tail import arrival_of
    from topics.reading import follow

    deaths: list[str] = []

    def ended() -> bool:
        deaths[:] = node.deaths()
        return bool(deaths) or stop()

    if not as_json:
        click.echo(HEADING)
    topics = settings.catalogue().dispatch_topics()
    for record in follow(settings.client_config(), topics, from_beginning=True, stop=ended):
        arrival = arrival_of(record) if record.append_ms >= began_ms else None
        if arrival is None:
            continue
        tally.add(arrival)
        if as_json:
            print_json(arrival.as_json())
        else:
            click.echo(arrival.as_line())
    if deaths:
        note(f"{deaths[0]}; the scheduler's last words:\n{node.last_words()}")
    return deaths


def _second_terminal(config: Path) -> str:
    program = "scheduler"
    if shutil.which(program) is None:
        here = Path(sys.executable).with_name(program)
        program = str(here) if here.exists() else f"{sys.executable} -m scheduler"
    return f"""
In a second terminal:
  export SCHEDULER_CONFIG={config}
  {program} schedule list
  {program} schedule create acme/ping --every 5s --payload '{{"hello": "world"}}'
  {program} tail --schedule acme/ping --count 2
  {program} schedule update acme/ping --every 2s
  {program} schedule cancel acme/ping
  {program} schedule pause nordbank/instant-payments-heartbeat
  {program} schedule resume nordbank/instant-payments-heartbeat
"""
