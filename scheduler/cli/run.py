"""`scheduler run`: a node."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from scheduler.cli.common import Cli, Shown, pass_cli
from scheduler.core.zones import keep_tables
from scheduler.errors import SchedulerError
from scheduler.runtime import process
from scheduler.runtime.supervisor import Supervisor
from scheduler.runtime.telemetry import set_up_logging

if TYPE_CHECKING:
    from scheduler.config import Settings


@click.command("run", short_help="Run a node: the scheduler itself.")
@click.option("--processes", type=click.IntRange(1, 64), help="How many processes; default: the setting `processes`.")
@click.option("--child", type=int, hidden=True, help="Be this process of a node, without a supervisor: for tests.")
@pass_cli
def command(cli: Cli, *, processes: int | None, child: int | None) -> None:
    """Run a node of the scheduler until SIGTERM or Ctrl-C.

    Several processes under one parent share the shards; more nodes on other machines share them with these. Logs go to
    standard error as JSON lines; each process serves /live, /ready and /metrics on an address it logs.

    \b
    Examples:
      scheduler run
      scheduler --config scheduler.toml run --processes 2
    """
    settings = cli.settings({} if processes is None else {"processes": processes})
    settings.client_config()  # says now, once, that no broker is configured
    keep_tables()
    if child is not None:
        sys.exit(_serve(settings, child))
    set_up_logging(settings.log_level, settings.log_format)
    sys.exit(Supervisor(partial(_serve, settings), settings.processes).run())


def _serve(settings: Settings, index: int) -> int:
    """The body of one process: its exit code; what is wrong goes to standard error."""
    set_up_logging(settings.log_level, settings.log_format)
    try:
        return process.main(settings, index)
    except SchedulerError as error:
        Shown(str(error), error.exit_code).show()
        return error.exit_code
