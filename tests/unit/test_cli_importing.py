"""`scheduler import crontab --dry-run`, and which zone a machine is in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from scheduler.cli import main
from scheduler.cli.importing import local_zone

if TYPE_CHECKING:
    from pathlib import Path

CRONTAB = """\
MAILTO=ops@acme.example
# nightly backup
30 2 * * * /usr/local/bin/backup.sh
61 * * * * broken
@reboot warm-up
0 0 31 feb * never
CRON_TZ=Mars/Base
0 1 * * * lost
"""


def test_a_dry_run_prints_the_commands_and_lists_what_cannot_be_taken() -> None:
    """The time engine judges the times; no broker is needed; exit code 1 because something was refused."""
    result = CliRunner().invoke(
        main, ["import", "crontab", "-", "--tenant", "ops", "--zone", "UTC", "--dry-run"], input=CRONTAB
    )
    assert result.exit_code == 1
    (command,) = (json.loads(line) for line in result.stdout.splitlines())
    assert command["command"] == "create"
    assert command["spec"]["description"] == "nightly backup"
    refused = [line for line in result.stderr.splitlines() if "refused:" in line]
    assert [line.split(":")[1] for line in refused] == ["4", "5", "6", "8"]
    for line, reason in zip(refused, ("61 is out of range", "@reboot", "never fires", "Mars/Base"), strict=True):
        assert reason in line


def test_a_clean_crontab_is_exit_code_0() -> None:
    """Comments, blanks and assignments are nothing to complain about."""
    result = CliRunner().invoke(
        main,
        ["import", "crontab", "-", "--tenant", "ops", "--zone", "UTC", "--dry-run"],
        input="#x\n\nA=1\n@daily job\n",
    )
    assert result.exit_code == 0


def test_bytes_that_are_no_text_cost_their_line_or_the_file() -> None:
    """A line in an old encoding is refused with its number; a file with a zero byte is no crontab at all."""
    call = ["import", "crontab", "-", "--tenant", "ops", "--zone", "UTC", "--dry-run"]
    old = CliRunner().invoke(main, call, input=b"# gr\xfc\xdfe\n0 1 * * * \xff\n@daily job\n")
    assert (old.exit_code, len(old.stdout.splitlines())) == (1, 1)
    assert "<stdin>:2: refused: the line is not UTF-8 text" in old.stderr
    binary = CliRunner().invoke(main, call, input=b"\x7fELF\0\0")
    assert (binary.exit_code, "zero byte" in binary.stderr) == (2, True)


@pytest.mark.parametrize(
    ("target", "zone"),
    [
        ("zoneinfo/Europe/Berlin", "Europe/Berlin"),
        ("zoneinfo/posix/Asia/Tokyo", "Asia/Tokyo"),
        ("elsewhere/copy", None),
    ],
)
def test_the_machines_zone_is_where_localtime_points(tmp_path: Path, target: str, zone: str | None) -> None:
    """A copied file has no name."""
    file = tmp_path / target
    file.parent.mkdir(parents=True)
    file.touch()
    link = tmp_path / "localtime"
    link.symlink_to(file)
    assert local_zone("", link) == zone


def test_tz_wins_and_no_file_is_utc(tmp_path: Path) -> None:
    """As the C library has it."""
    assert local_zone(":America/New_York", tmp_path / "absent") == "America/New_York"
    assert local_zone("", tmp_path / "absent") == "UTC"
