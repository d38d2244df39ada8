"""The command line: one group, each command in its own module, loaded only when it is called.

So `scheduler next` and `scheduler --help` start without a Kafka client. Every command takes `--json`; the exit codes
are the same everywhere (the table below, in `--help` too).
"""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from typing import Any

import click

from scheduler.cli.common import Cli, Shown
from scheduler.errors import SchedulerError

EXIT_CODES = """\b
Exit codes:
  0  done as asked
  1  something was rejected, refused or found wrong; the output says what
  2  wrong usage, settings or input; nothing was done
  3  the broker or the scheduler can't be reached or isn't running"""

# name → (module, the line in the list); a test holds the line against the command's own help
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "See it work: a broker, the scheduler, real schedules, occurrences."),
    "run": ("run", "Run a node: the scheduler itself."),
    "broker": ("broker", "Start, stop and look at a local Kafka broker."),
    "topics": ("topics", "Plan and apply the topics the scheduler needs."),
    "send": ("send", "Send commands from YAML or JSON lines and wait for the replies."),
    "schedule": ("schedule", "Create, look at and change schedules."),
    "calendar": ("calendar", "Keep the business calendars that schedules name."),
    "tenant": ("tenant", "Keep what tenants may use."),
    "import": ("importing", "Turn what other schedulers have into schedules."),
    "next": ("next", "Show when an expression fires, and why then."),
    "simulate": ("simulate", "Play a scenario in virtual time: what would happen?"),
    "forecast": ("forecast", "Show the load to come, its peaks, and what is behind them."),
    "why": ("why", "Say why a schedule did or did not run at an instant."),
    "tail": ("tail", "Follow the dispatch topics."),
    "repair-cursor": ("repair_cursor", "Set back shards that a wrong clock drove into the future."),
    "repartition": ("repartition", "Move a cluster to another number of shards."),
    "check-config": ("check_config", "Check the settings and show them."),
    "doctor": ("doctor", "Check broker, topics, clock and consumer settings."),
}


class LazyGroup(click.Group):
    """Finds a command's module by the table; turns our errors into their text and exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table: what a newcomer needs first stands first."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, its module imported now; None for a name that is none."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"scheduler.cli.{COMMANDS[cmd_name][0]}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list without importing anything."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; an error of ours ends with its text on standard error and its exit code."""
        try:
            return super().invoke(ctx)
        except SchedulerError as error:
            raise Shown(str(error), error.exit_code) from error


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog=EXIT_CODES,
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Settings as TOML; else $SCHEDULER_CONFIG, else ./scheduler.toml. SCHEDULER_… variables win over the file.",
)
@click.version_option(package_name="kafka-streaming-scheduler", prog_name="scheduler")
@click.pass_context
def main(ctx: click.Context, config: Path | None) -> None:
    """A Kafka-native scheduler: standing orders in, occurrences on durable topics, on time, once.

    \b
    Examples:
      scheduler demo
      scheduler schedule create acme/report --cron '0 9 * * mon-fri' --zone Europe/Berlin
      scheduler tail
    """
    # The Kafka client repeats itself while a broker is away; what matters of it is in our own errors.
    logging.getLogger("topics.kafka").addHandler(logging.NullHandler())
    ctx.obj = Cli(config)
