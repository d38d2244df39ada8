"""The page of commands is what the commands themselves say."""

from __future__ import annotations

from scheduler.cli import COMMANDS
from tests.support.command_page import PAGE, page


def test_the_page_is_what_the_help_says() -> None:
    """Renew it with `python -m tests.support.command_page`."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_command_and_exit_code_is_on_it() -> None:
    """Nobody has to start the program to find out what it can do."""
    text = page()
    assert [name for name in COMMANDS if f"\n## scheduler {name}" not in text] == []
    assert all(f"\n| {code} | " in text for code in range(4))
