"""The command line's frame: the list, the exit codes, and what an error looks like."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from scheduler.cli import COMMANDS, main
from scheduler.errors import BrokerUnavailable

ASKING = [name for name in COMMANDS if name != "run"]  # a node answers nothing; what it logs is JSON anyway


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """No settings file, no configured broker, no local one."""
    monkeypatch.chdir(str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for name in ("SCHEDULER_CONFIG", "SCHEDULER_KAFKA__BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)


def walk(command: click.Command, path: tuple[str, ...], above: str = "") -> list[tuple[str, click.Command, str]]:
    """Every command that does something itself: its words, itself, and its help with that of the groups it is in."""
    text = above + (command.help or "")
    if isinstance(command, click.Group):
        return [item for name, below in command.commands.items() for item in walk(below, (*path, name), text)]
    return [(" ".join(path), command, text)]


def load(name: str) -> click.Command:
    assert isinstance(main, click.Group)
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return command


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_list_is_the_commands_own(name: str) -> None:
    """The list is printed without loading the commands; it may not drift from them."""
    command = load(name)
    assert command.get_short_help_str(200) == COMMANDS[name][1]


@pytest.mark.parametrize("name", ASKING)
def test_every_command_speaks_json_and_shows_examples(name: str) -> None:
    """A program can use each of them; its help, or that of its group, shows how it is used."""
    for words, command, text in walk(load(name), (name,)):
        options = {option for parameter in command.params for option in parameter.opts}
        assert "--json" in options, words
        assert "Example" in text, words


def test_the_exit_codes_are_in_the_help() -> None:
    """One table for all commands."""
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for code in ("  0  ", "  1  ", "  2  ", "  3  "):
        assert code in result.output


def test_help_starts_without_a_kafka_client() -> None:
    """Nor without the embedded broker, the store, or rich: what is slow to load waits until it is needed."""
    code = """
import sys
from click.testing import CliRunner
from scheduler.cli import main
assert CliRunner().invoke(main, ["--help"]).exit_code == 0
slow = {"confluent_kafka", "rocksdict", "jgo", "rich"} & set(sys.modules)
assert not slow, slow
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["schedule", "list"],
        ["schedule", "pause", "a/b"],
        ["topics", "plan"],
        ["tail"],
        ["doctor"],
    ],
)
def test_without_a_broker_the_next_step_is_named(arguments: list[str]) -> None:
    """Settings are missing: exit code 2, on standard error."""
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "scheduler broker start" in result.stderr
    assert result.stdout == ""


def test_wrong_settings_are_shown_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every mistake at once, exit code 2, no traceback."""
    monkeypatch.setenv("SCHEDULER_SHARDS", "0")
    monkeypatch.setenv("SCHEDULER_SHARD", "8")
    result = CliRunner().invoke(main, ["check-config"])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: the settings have 2 mistakes:\n")
    assert "SCHEDULER_SHARD: is no setting; did you mean SCHEDULER_SHARDS?" in result.stderr


def test_check_config_shows_what_is_in_force_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a table and as JSON."""
    monkeypatch.setenv("SCHEDULER_SHARDS", "8")
    monkeypatch.setenv("SCHEDULER_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("SCHEDULER_KAFKA__CLIENT__SASL_PASSWORD", "s3cret")
    for arguments in (["check-config"], ["check-config", "--json"]):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0
        assert "s3cret" not in result.output
        assert "8" in result.stdout


def test_a_property_the_kafka_client_does_not_know_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a node starts with it."""
    monkeypatch.setenv("SCHEDULER_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("SCHEDULER_KAFKA__CLIENT__SASL_USERNAM", "x")
    result = CliRunner().invoke(main, ["check-config"])
    assert result.exit_code == 2
    assert "sasl.usernam" in result.stderr


def test_an_unreachable_broker_is_exit_code_3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of ours carry their exit code."""
    from scheduler.cli import topics

    def nobody(_settings: object) -> None:
        raise BrokerUnavailable("nobody there")

    monkeypatch.setenv("SCHEDULER_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setattr(topics, "proposed", nobody)
    result = CliRunner().invoke(main, ["topics", "plan"])
    assert (result.exit_code, result.stderr) == (3, "error: nobody there\n")


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["schedule", "create", "a/b"], "a schedule needs a trigger"),
        (["schedule", "create", "a/b", "--cron", "x", "--window", "5"], "--window: '5' is no duration"),
        (["schedule", "create", "a/b", "--file", "absent.yaml"], "No such file"),
        (["schedule", "update", "a/b"], "nothing to change was given"),
        (["schedule", "pause"], "say which: --tenant"),
        (["schedule", "pause", "a/b", "--all"], "not both"),
        (["schedule", "pause", "--all", "--tenant", "a"], "leave out --all, or --tenant"),
        (["schedule", "pause", "--all", "--command-id", "x"], "names one command"),
        (["schedule", "trigger", "a/b", "--payload", "{"], "is not JSON"),
        (["import", "crontab", "-", "--tenant", "No!"], "--tenant"),
        (["import", "crontab", "-", "--tenant", "a", "--zone", "Mars/Base"], "--zone"),
        (["nothing"], "No such command"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], fragment: str) -> None:
    """It says what is expected, and nothing is asked of a broker."""
    result = CliRunner().invoke(main, arguments, input="")
    assert result.exit_code == 2
    assert fragment in result.stderr


def test_what_send_cannot_read_is_listed_and_nothing_is_sent() -> None:
    """Each mistake as file:line; no broker is looked for."""
    text = "command: pause\n---\ncommand: pause\nschedule_id: a/b\n---\ncommand: dance\nschedule_id: a/b\n"
    result = CliRunner().invoke(main, ["send", "-"], input=text)
    assert result.exit_code == 2
    assert [line.split(" ")[0] for line in result.stderr.splitlines()] == ["<stdin>:1:", "<stdin>:6:", "error:"]
    assert "nothing was sent" in result.stderr
