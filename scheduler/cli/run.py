"""`scheduler run`: a node."""

from __future__ import annotations

import os
import sys

import click

from scheduler.cli.common import Cli, pass_cli


@click.command("run", short_help="Run a node: the scheduler itself.")
@click.option("--processes", type=click.IntRange(1, 64), help="How many processes; default: the setting `processes`.")
@click.option("--child", type=int, hidden=True, help="Be one process of a node.")
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
    from scheduler.runtime.telemetry import set_up_logging

    overrides = {} if processes is None else {"processes": processes}
    settings = cli.settings(overrides)
    set_up_logging(settings.log_level, settings.log_format)
    if child is not None:
        from scheduler.runtime import process

        sys.exit(process.main(settings, child))
    from scheduler.runtime.supervisor import Supervisor, child_command

    settings.client_config()  # says now, once, that no broker is configured
    if processes is not None:
        os.environ["SCHEDULER_PROCESSES"] = str(processes)
    sys.exit(Supervisor(child_command(str(cli.config) if cli.config else None), settings.processes).run())
