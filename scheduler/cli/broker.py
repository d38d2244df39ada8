"""`scheduler broker`: a local Kafka that stays until it is told to stop."""

from __future__ import annotations

import logging
import signal
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scheduler.cli.common import NOT_RUNNING, Shown, json_option, note, now_ms, print_json

if TYPE_CHECKING:
    from typing import TextIO

    from scheduler.local import Broker

FIRST_PORT = 9092  # where a newcomer's clients look
LOOK_EVERY_S = 0.2

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where its data and logs are [a folder of this user's data directory].",
)


@click.group(short_help="Start, stop and look at a local Kafka broker.")
def command() -> None:
    """Start, stop and look at a local Kafka broker: a real one, on this machine only, for trying things out.

    Its data survives a stop. The first start fetches Apache Kafka (60 MB) into this user's cache; later ones need no
    network.

    \b
    Examples:
      scheduler broker start
      scheduler broker status --json
      scheduler broker logs --follow
      scheduler broker stop
    """


@command.command()
@data_dir_option
@click.option("--nodes", type=click.Choice(["1", "3"]), help="Size of a new cluster [1]; an old one keeps its size.")
@click.option("--port", type=click.IntRange(1, 65_533), help="First client port [the same as last time, else 9092].")
@click.option("--heap-mb", type=click.IntRange(256), default=512, show_default=True, help="Java heap of each node.")
@click.option("--foreground", is_flag=True, help="Stay until Ctrl-C and stop the broker then.")
@json_option
def start(
    *, data_dir: Path | None, nodes: str | None, port: int | None, heap_mb: int, foreground: bool, as_json: bool
) -> None:
    """Start a broker and leave it running.

    \b
    Examples:
      scheduler broker start
      scheduler broker start --nodes 3 --port 19092
      scheduler broker start --data-dir ./kafka --foreground
    """
    from scheduler.local import Broker
    from scheduler.local.broker import recorded
    from scheduler.local.ports import free_ports_from

    _show_progress()
    folder = _folder(data_dir)
    layout = recorded(folder)
    count = int(nodes or 0) or (len(layout.nodes) if layout else 1)
    ports = [port + n for n in range(count)] if port else None
    if layout is None and ports is None:
        ports = free_ports_from(FIRST_PORT, count)
    if not foreground:
        _print_status(Broker.start(folder, nodes=count, ports=ports, heap_mb=heap_mb, detached=True), as_json=as_json)
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Broker.start(folder, nodes=count, ports=ports, heap_mb=heap_mb) as broker:
            _print_status(broker, as_json=as_json)
            _stay(broker)
    except KeyboardInterrupt:
        note("stopped")


@command.command()
@data_dir_option
@json_option
def stop(*, data_dir: Path | None, as_json: bool) -> None:
    """Stop the broker; its data stays. Stopping a broker that does not run is no error."""
    folder = _folder(data_dir)
    broker = _running(folder)
    if broker is not None:
        broker.stop()
    if as_json:
        print_json({"stopped": broker is not None, "data_dir": str(folder)})
    else:
        click.echo(f"stopped; its data stays in {folder}" if broker else f"no broker runs in {folder}")


@command.command()
@data_dir_option
@json_option
def restart(*, data_dir: Path | None, as_json: bool) -> None:
    """Stop the broker if it runs and start it again on the same data, nodes and ports."""
    from scheduler.local import Broker

    _show_progress()
    folder = _folder(data_dir)
    broker = _running(folder)
    if broker is not None:
        broker.stop()
    _print_status(Broker.start(folder, detached=True), as_json=as_json)


@command.command()
@data_dir_option
@json_option
def status(*, data_dir: Path | None, as_json: bool) -> None:
    """Show whether the broker runs, and where. Exits with 0 if it does and with 3 if not."""
    folder = _folder(data_dir)
    broker = _running(folder)
    if broker is not None:
        _print_status(broker, as_json=as_json)
        return
    if as_json:
        print_json({"running": False, "data_dir": str(folder)})
    else:
        click.echo(f"no broker runs in {folder}; `scheduler broker start` starts one")
    raise click.exceptions.Exit(NOT_RUNNING)


@command.command()
@data_dir_option
@click.option(
    "-n", "--lines", type=click.IntRange(0), default=50, show_default=True, help="How many of the last lines."
)
@click.option("--node", type=click.IntRange(1, 3), default=1, show_default=True, help="Which node.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on, until Ctrl-C.")
@json_option
def logs(*, data_dir: Path | None, lines: int, node: int, follow: bool, as_json: bool) -> None:
    """Show the broker's log, also when it no longer runs."""
    from scheduler.local import Broker
    from scheduler.local.broker import recorded

    folder = _folder(data_dir)
    layout = recorded(folder)
    if layout is None:
        raise Shown(f"there is no broker in {folder}; `scheduler broker start` makes one", NOT_RUNNING)
    files = Broker(folder, layout).logs
    if node > len(files):
        raise click.BadParameter(f"this cluster has {len(files)} node(s)", param_hint="--node")
    try:
        with files[node - 1].open(encoding="utf-8", errors="replace") as file:
            for line in deque(file, lines):
                _print_line(node, line, as_json=as_json)
            if follow:
                _follow(file, node, as_json=as_json)
    except FileNotFoundError as error:
        raise Shown(f"node {node} has written no log yet: {files[node - 1]}", NOT_RUNNING) from error


def _folder(data_dir: Path | None) -> Path:
    from scheduler.local import default_data_dir

    return (data_dir or default_data_dir()).expanduser().resolve()


def _running(folder: Path) -> Broker | None:
    from scheduler.local import Broker

    return Broker.attach(folder)


def _print_status(broker: Broker, *, as_json: bool) -> None:
    started_ms = broker.started_ms
    uptime_ms = 0 if started_ms is None else max(0, now_ms() - started_ms)
    shown: dict[str, Any] = {
        "running": True,
        "bootstrap_servers": broker.bootstrap_servers,
        "pids": broker.pids,
        "nodes": len(broker.layout.nodes),
        "uptime_ms": uptime_ms,
        "data_dir": str(broker.data_dir),
    }
    if as_json:
        print_json(shown)
        return
    down = len(broker.layout.nodes) - len(broker.pids)
    click.echo(f"broker   {broker.bootstrap_servers}" + (f"  ({down} node(s) down)" if down else ""))
    click.echo(f"pid      {' '.join(map(str, broker.pids))}")
    click.echo(f"uptime   {uptime_ms // 1000} s")
    click.echo(f"data     {broker.data_dir}")


def _stay(broker: Broker) -> None:
    while len(broker.pids) == len(broker.layout.nodes):
        time.sleep(LOOK_EVERY_S)
    raise Shown(f"a node ended by itself; its last words:\n{broker.log_tail(15)}", NOT_RUNNING)


def _follow(file: TextIO, node: int, *, as_json: bool) -> None:
    try:
        while True:
            line = file.readline()
            if line:
                _print_line(node, line, as_json=as_json)
            else:
                time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        return


def _print_line(node: int, line: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"node": node, "line": line.rstrip("\n")})
    else:
        click.echo(line.rstrip("\n"))


class _Notes(logging.Handler):
    """What takes long while a broker starts, said to the person who waits."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def _show_progress() -> None:
    logger = logging.getLogger("scheduler.local")
    logger.setLevel(logging.INFO)
    if not any(isinstance(handler, _Notes) for handler in logger.handlers):
        logger.addHandler(_Notes())
