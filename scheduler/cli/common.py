"""What every command shares: the settings it runs with, and how it prints for a person or for a program."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import click
import msgspec

from scheduler.config_load import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from scheduler.cli.documents import Mistake
    from scheduler.config import Settings


MISUSED = 2  # exit codes; `scheduler --help` has the table
NOT_RUNNING = 3


class Shown(click.ClickException):
    """An error that is only its text and an exit code; the text goes to standard error as it is."""

    def __init__(self, text: str, exit_code: int = 1) -> None:
        super().__init__(text)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it here too

    def show(self, file: Any = None) -> None:
        """`error:` and the text."""
        click.echo(f"error: {self.message}", file=file or sys.stderr)


class Cli:
    """The global options, and the settings read once when the first command needs them."""

    def __init__(self, config: Path | None) -> None:
        self.config = config

    def settings(self, overrides: Mapping[str, Any] | None = None) -> Settings:
        """The settings, options of the command line last; raises `ConfigInvalid` with every mistake."""
        return load_settings(self.config, overrides)


pass_cli = click.make_pass_decorator(Cli)
json_option = click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object a line.")


def now_ms() -> int:
    """This machine's wall clock: what a person means by now. Nothing fires by it."""
    return time.time_ns() // 1_000_000


def print_json(value: object) -> None:
    """One value as one line of JSON; Structs and `Raw` as they are on the wire."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def stop_at(mistakes: Iterable[Mistake], so: str, *, as_json: bool) -> NoReturn:
    """Tell what is wrong with the files given, a line of JSON each, or file:line and a sentence on standard error.

    Then `so`, what follows from it, and the end of the program with exit code 2.
    """
    for mistake in mistakes:
        if as_json:
            print_json({"file": mistake.file, "line": mistake.line, "error": mistake.why})
        else:
            note(str(mistake))
    note(f"error: {so}")
    sys.exit(2)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table: drawn on a terminal, tab-separated with a heading elsewhere, so that `cut` and `awk` work."""
    texts = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in [list(columns), *texts]:
            click.echo("\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in row))
        return
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in texts:
        table.add_row(*map(escape, row))
    Console().print(table)


def note(text: str) -> None:
    """A remark for a person: standard error, so that standard output stays data."""
    click.echo(text, err=True)


@contextmanager
def progress(total: int | None, what: str, *, quiet: bool = False) -> Iterator[Callable[..., None]]:
    """Gives the function that counts up, by one or by its argument; a bar on standard error if somebody watches.

    `total` None: nobody knows how many there will be.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda _count=1: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count=1: bar.advance(task, count)
