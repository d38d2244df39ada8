"""Crontabs: every line is taken, or refused with its number and the reason; reading twice gives the same commands."""

from __future__ import annotations

import re

import pytest

from scheduler.cli.crontab import Crontab, parse_crontab
from topics.messages import COMMAND_ID_PATTERN, SCHEDULE_ID_PATTERN


def parse(text: str, **options: bool) -> Crontab:
    return parse_crontab(text, tenant="acme", zone="Europe/Berlin", **options)


def only(text: str, **options: bool) -> dict[str, object]:
    """The spec of the file's single job."""
    found = parse(text, **options)
    assert found.refused == []
    (job,) = found.jobs
    assert job.command.spec is not None
    return job.command.spec


def test_a_job_becomes_a_create_command() -> None:
    """Times, zone, handler and the command to run; the name is the program's."""
    (job,) = parse("30 2 * * mon-fri /usr/local/bin/backup.sh --full").jobs
    command = job.command
    assert command.command == "create"
    assert command.schedule_id.startswith("acme/backup.sh-")
    assert command.spec == {
        "trigger": {"cron": "30 2 * * mon-fri", "zone": "Europe/Berlin"},
        "handler": "crontab",
        "payload": {"command": "/usr/local/bin/backup.sh --full"},
        "labels": {"source": "crontab"},
    }


def test_a_second_reading_gives_the_same_ids_wherever_the_line_stands() -> None:
    """So that importing again is a no-op: neither order, comments nor blank lines count."""
    first = parse("0 1 * * * a\n0 2 * * * b\n")
    second = parse("\n\n0 2 * * * b\n\n0 1 * * * a\n")
    ids = {(job.command.schedule_id, job.command.command_id) for job in first.jobs}
    assert ids == {(job.command.schedule_id, job.command.command_id) for job in second.jobs}


def test_changed_times_are_the_same_job_with_another_command() -> None:
    """The name comes from the command, the command id from everything."""
    before, after = parse("0 1 * * * job").jobs[0].command, parse("0 2 * * * job").jobs[0].command
    assert before.schedule_id == after.schedule_id
    assert before.command_id != after.command_id


def test_one_command_at_two_times_is_two_schedules() -> None:
    """They are told apart by their order."""
    one, two = parse("0 1 * * * job\n0 2 * * * job").jobs
    assert two.command.schedule_id == one.command.schedule_id + "-2"


def test_assignments_hold_for_the_jobs_below() -> None:
    """Quotes and blanks around `=` are cron's; later values replace earlier ones; CRON_TZ is no variable of the job."""
    found = parse("MAILTO = \"ops@acme.test\"\n0 1 * * * a\nMAILTO=''\nCRON_TZ=Asia/Tokyo\n'X Y'=1\n0 1 * * * b\n")
    a, b = (job.command.spec or {} for job in found.jobs)
    assert a["payload"]["environment"] == {"MAILTO": "ops@acme.test"}
    assert a["trigger"]["zone"] == "Europe/Berlin"
    assert b["payload"]["environment"] == {"MAILTO": "", "X Y": "1"}
    assert b["trigger"]["zone"] == "Asia/Tokyo"


def test_an_equals_sign_in_a_command_is_no_assignment() -> None:
    """Only a single word before `=` is."""
    assert only("0 1 * * * A=1 job --x=2")["payload"] == {"command": "A=1 job --x=2"}


def test_tz_does_not_move_the_times() -> None:
    """In cron it is the command's variable; a reader who expects more is told."""
    found = parse("TZ=Asia/Tokyo\n0 1 * * * a")
    spec = found.jobs[0].command.spec or {}
    assert spec["trigger"]["zone"] == "Europe/Berlin"
    assert [(w.line, "CRON_TZ" in w.why) for w in found.warnings] == [(1, True)]


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        ("cat", {"command": "cat"}),
        ("mail -s hi%Hello%World", {"command": "mail -s hi", "stdin": "Hello\nWorld\n"}),
        (r"date +\%Y-\%m", {"command": "date +%Y-%m"}),
        (r"a \% b%in \% c", {"command": "a % b", "stdin": "in % c\n"}),
        ("cat%", {"command": "cat", "stdin": "\n"}),
        ("echo '#no comment'", {"command": "echo '#no comment'"}),
    ],
)
def test_percent_signs_split_off_standard_input(text: str, payload: dict[str, str]) -> None:
    """The first unescaped one ends the command, each further one is a new line; escaped ones are themselves."""
    assert only(f"0 1 * * * {text}")["payload"] == payload


def test_the_system_form_has_a_user() -> None:
    """It becomes owner and part of the payload; in the user form the same word would be the command."""
    spec = only("17 * * * * root cd / && run-parts --report /etc/cron.hourly", system=True)
    assert spec["owner"] == "root"
    assert spec["payload"] == {"command": "cd / && run-parts --report /etc/cron.hourly", "user": "root"}


def test_a_system_crontab_read_as_a_users_is_noticed() -> None:
    """A command that begins with `root` is suspicious."""
    (warning,) = parse("17 * * * * root run-parts /x").warnings
    assert "--system" in warning.why


@pytest.mark.parametrize("macro", ["@yearly", "@annually", "@monthly", "@weekly", "@DAILY", "@midnight", "@hourly"])
def test_macros_are_taken(macro: str) -> None:
    """In any case; the expression stays readable."""
    assert only(f"{macro} job")["trigger"] == {"cron": macro.lower(), "zone": "Europe/Berlin"}


@pytest.mark.parametrize(
    ("line", "fragment"),
    [
        ("@reboot job", "init system"),
        ("@every 5m job", "@every is not one of"),
        ("@daily", "expected a command"),
        ("* * * * *", "expected a command"),
        ("* * *", "found 3 words"),
        ("* * * * * %in", "before the first %"),
        ("0~59 * * * * job", "random choice"),
        ("* * ! * * job", "day of month field is `!`"),
        ("٣ * * * * job", "minute field"),
        ("just some words in a row", "found 6 words"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_its_line(line: str, fragment: str) -> None:
    """And the lines around it are taken."""
    found = parse(f"0 1 * * * a\n{line}\n0 2 * * * b")
    if fragment.startswith("found 6"):
        # six words that look like fields are a job for the structure; the time engine's check refuses them
        found = parse_crontab(f"0 1 * * * a\n{line}\n0 2 * * * b", tenant="acme", zone="UTC", check=_only_stars)
        fragment = "not a time"
    assert [job.line for job in found.jobs] == [1, 3]
    (refused,) = found.refused
    assert refused.line == 2
    assert fragment in refused.why


def _only_stars(expression: str, _zone: str) -> list[str]:
    return [] if "*" in expression else ["not a time"]


def test_a_system_line_without_a_user_is_refused() -> None:
    """A path where the user should be gives the hint."""
    (refused,) = parse("0 1 * * * /bin/job", system=True).refused
    assert "drop --system" in refused.why


def test_the_comment_directly_above_describes_the_job() -> None:
    """A blank line ends that; a job switched off, the columns' heading and an assignment are no description."""
    assert only("# nightly copy to tape\n0 1 * * * a")["description"] == "nightly copy to tape"
    for above in ("# header of the file\n", "# m h  dom mon dow   command", "# 5 4 * * sun old-job", "# old\nX=1", "#"):
        assert "description" not in only(f"{above}\n0 1 * * * a"), above


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("cd /srv/app && ./manage.py clearsessions", "manage.py"),
        ("/usr/bin/flock -n /run/x.lock /opt/sync.sh", "sync.sh"),
        ("flock -n /run/x.lock /opt/sync.sh", "sync.sh"),
        ("nice -n 19 ionice -c3 /usr/bin/updatedb", "updatedb"),
        ("PATH=/x LANG=C report", "report"),
        ("test -x /usr/sbin/anacron || ( cd / && run-parts )", "run-parts"),
        ('[ -x /bin/x ] && "/opt/my tool"', "my"),
        ("$(echo)", "echo"),
    ],
)
def test_names_are_the_programs(command: str, name: str) -> None:
    """A person recognises the job; a hash keeps names apart."""
    (job,) = parse(f"0 1 * * * {command}").jobs
    assert job.command.schedule_id.rpartition("-")[0] == f"acme/{name}"


def test_ids_are_allowed_on_the_wire() -> None:
    """Whatever the command looks like."""
    for job in parse("0 1 * * * /opt/ü ö\n0 1 * * * '../'\n@daily a/b/c").jobs:
        assert re.fullmatch(SCHEDULE_ID_PATTERN, job.command.schedule_id)
        assert re.fullmatch(COMMAND_ID_PATTERN, job.command.command_id or "")


def test_nothing_raises_and_every_line_is_accounted_for() -> None:
    """Control characters, endless lines, Windows line ends: a job, a refusal, an assignment or a comment."""
    text = "\x00\x01\r\n" + "9" * 10_000 + "\r\n0 1 * * * a\r\n" + "0 1 * * * " + "x" * 70_000 + "\n=\n=x\n\ufeff# hi\n"
    found = parse(text)
    assert [job.line for job in found.jobs] == [3]
    assert {1, 2, 4} <= {remark.line for remark in found.refused}


def test_a_line_that_is_no_utf8_costs_only_itself() -> None:
    """Old crontabs hold Latin-1: such a comment is passed over, such a job is refused, all others are taken."""
    text = b"# gr\xfc\xdfe\n0 1 * * * a\n0 2 * * * echo \xe9\n".decode(errors="surrogateescape")
    found = parse(text)
    assert [job.line for job in found.jobs] == [2]
    assert [(remark.line, remark.text) for remark in found.refused] == [(3, "0 2 * * * echo \N{REPLACEMENT CHARACTER}")]
    assert (found.jobs[0].command.spec or {}).get("description") is None


def test_only_a_line_feed_ends_a_line() -> None:
    """Other separators of Unicode belong to the command, as in cron."""
    assert only("0 1 * * * echo a\x85b\u2028c\r\n")["payload"] == {"command": "echo a\x85b\u2028c"}
