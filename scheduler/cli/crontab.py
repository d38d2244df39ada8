"""A crontab as commands: what its lines mean, which of them can't be taken, and why. Pure: text in, values out.

Takes the user form (five fields, command) and the system form of `/etc/crontab` and `/etc/cron.d` (a user before the
command), as Vixie cron, Debian's cron and cronie read them:

    # comment                    only as the first character; directly above a job it becomes the description
    NAME = "value"               goes with every later job; `CRON_TZ` is the zone of the later jobs' times
    */5 9-17 * * mon-fri cmd     names, ranges, steps; `-` before the minute (no syslog) is dropped
    @daily cmd                   @yearly @annually @monthly @weekly @daily @midnight @hourly; not @reboot
    … cmd %line one%line two     the first `%` ends the command and begins its standard input; `\\%` is a `%`

A job's name is made from its command and user, its command id from everything it says. So a second import changes
nothing, and a job whose times were edited is recognised as the same job.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from topics.messages import MAX_PAYLOAD_BYTES, Command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MACROS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
HANDLER = "crontab"

_ASSIGNMENT = re.compile(r"""^("[^"]*"|'[^']*'|[^\s=]+)\s*=\s*(.*)$""", re.DOTALL)
_USER = re.compile(r"^[a-z_][a-z0-9_.-]*(:[a-z0-9_.-]+)?(/[a-z0-9_.-]+)?$", re.IGNORECASE)
_FIELD = re.compile(r"^[0-9A-Za-z*,/?#~-]+$")
_TIME = re.compile(r"^[0-9*][0-9A-Za-z*,/-]*$|^([a-z]{3}[,-]?)+$", re.IGNORECASE)
_SETUP = {"cd", "test", "[", "[[", "export", ".", "source", "set", "umask", "if", "sleep"}
_WRAPPERS = {"sudo", "env", "nice", "ionice", "nohup", "exec", "chronic", "timeout", "flock", "command", "setsid"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One line that can be taken, as the command that creates its schedule."""

    line: int
    command: Command


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something about one line: why it can't be taken, or what a reader should know."""

    line: int
    text: str
    why: str


@dataclass(slots=True)
class Crontab:
    """What a file says. Every line that is no comment, blank or assignment is in `jobs` or in `refused`."""

    jobs: list[Job] = field(default_factory=list)
    refused: list[Remark] = field(default_factory=list)
    warnings: list[Remark] = field(default_factory=list)


def no_check(_expression: str, _zone: str) -> Sequence[str]:
    """Takes every expression: for readers who only want the structure."""
    return ()


def parse_crontab(
    text: str, *, tenant: str, zone: str, system: bool = False, check: Callable[[str, str], Sequence[str]] = no_check
) -> Crontab:
    """Reads a whole crontab; `zone` holds until a `CRON_TZ` line. Never raises: what it can't take is in `refused`.

    Bytes that are no UTF-8 come decoded with `surrogateescape`, so that one old comment does not cost the whole file.

    `check(expression, zone)` gives the mistakes in a time expression; the command line passes the time engine's.
    """
    found = Crontab()
    environment: dict[str, str] = {}
    names: dict[str, int] = {}
    comment: str | None = None
    for number, raw in enumerate(text.split("\n"), start=1):  # as cron does: other separators are part of a command
        line = raw.strip(" \t\r\f")
        if not line:
            comment = None
            continue
        if not line.isascii() and (readable := _readable(line)) != line:
            comment = None
            if not line.startswith("#"):
                found.refused.append(Remark(line=number, text=readable, why="the line is not UTF-8 text; convert it"))
            continue
        if line.startswith("#"):
            comment = _description(line.lstrip("# \t"))
            continue
        assigned = _assignment(line)
        if assigned is not None:
            comment = None
            name, value = assigned
            if name == "TZ":
                why = "TZ is the command's own zone, as in cron; for the times use CRON_TZ or --zone"
                found.warnings.append(Remark(line=number, text=line, why=why))
            environment[name] = value
            continue
        entry = _entry(line, system=system)
        job_zone = environment.get("CRON_TZ") or zone
        mistakes = [entry] if isinstance(entry, str) else list(check(entry.expression, job_zone))
        if isinstance(entry, str) or mistakes:
            found.refused.append(Remark(line=number, text=line, why="; ".join(mistakes)))
            comment = None
            continue
        if not system and entry.command.split(None, 1)[0] == "root":
            why = "the command begins with `root`: is this a system crontab? then use --system"
            found.warnings.append(Remark(line=number, text=line, why=why))
        command = _create(entry, tenant, job_zone, environment, comment, names)
        comment = None
        if len(json.dumps(command.spec and command.spec["payload"])) > MAX_PAYLOAD_BYTES:
            found.refused.append(
                Remark(line=number, text=line[:80] + "…", why="command and environment are above 64 KiB")
            )
            continue
        found.jobs.append(Job(line=number, command=command))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    expression: str
    user: str | None
    command: str
    stdin: str | None


def _readable(line: str) -> str:
    """The line with what was not UTF-8 (decoded with `surrogateescape`) shown as a replacement character."""
    return line.encode(errors="surrogateescape").decode(errors="replace")


def _description(comment: str) -> str | None:
    """A comment as a description, unless it is a job switched off or the customary heading of the columns."""
    words = comment.split()
    switched_off = len(words) > 5 and all(_TIME.match(word) for word in words[:5])
    return None if not words or switched_off or words[:2] == ["m", "h"] or words[0].startswith("@") else comment


def _assignment(line: str) -> tuple[str, str] | None:
    found = _ASSIGNMENT.match(line)
    if found is None:
        return None
    return _unquote(found[1]), _unquote(found[2].rstrip())


def _unquote(text: str) -> str:
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'" else text


def _entry(line: str, *, system: bool) -> _Entry | str:
    """The parts of a job's line, or why there are none."""
    if line.startswith("@"):
        macro, *rest = line.split(None, 1)
        expression = macro.lower()
        if expression == "@reboot":
            return "@reboot is no time: it means when this machine starts; run it from the init system (systemd)"
        if expression not in MACROS:
            return f"{macro} is not one of {', '.join(MACROS)}"
    else:
        parts = line.split(None, 5)
        if len(parts) < 5:
            return (
                f"expected five time fields and a command, for example `*/5 * * * * backup`; found {len(parts)} words"
            )
        fields, rest = parts[:5], parts[5:]
        fields[0] = fields[0].removeprefix("-") or "-"
        for name, text in zip(("minute", "hour", "day of month", "month", "day of week"), fields, strict=True):
            if not _FIELD.match(text):
                return f"the {name} field is `{text}`: expected numbers, names, `*`, `,`, `-` and `/`"
            if "~" in text:
                return f"the {name} field is `{text}`: a random choice differs on every node; use H, a hash of the name"
        expression = " ".join(fields)
    user: str | None = None
    if system and rest:
        user, *rest = rest[0].split(None, 1)
        if not _USER.match(user):
            return (
                f"`{user}` is no user name: a system crontab has a user before the command; without one drop --system"
            )
    if not rest:
        return "expected a command after the times" + (" and the user" if system else "")
    command, stdin = _percent(rest[0])
    if not command.strip():
        return "expected a command before the first %"
    return _Entry(expression=expression, user=user, command=command.strip(), stdin=stdin)


def _percent(text: str) -> tuple[str, str | None]:
    """Splits at unescaped `%` as cron does: command, then lines of standard input."""
    command, *lines = (part.replace("\\%", "%") for part in re.split(r"(?<!\\)%", text))
    return command, "".join(line + "\n" for line in lines) if lines else None


def _create(
    entry: _Entry, tenant: str, zone: str, environment: dict[str, str], comment: str | None, names: dict[str, int]
) -> Command:
    payload: dict[str, Any] = {"command": entry.command}
    if entry.stdin is not None:
        payload["stdin"] = entry.stdin
    if entry.user is not None:
        payload["user"] = entry.user
    passed = {name: value for name, value in environment.items() if name != "CRON_TZ"}
    if passed:
        payload["environment"] = passed
    spec: dict[str, Any] = {
        "trigger": {"cron": entry.expression, "zone": zone},
        "handler": HANDLER,
        "payload": payload,
        "labels": {"source": "crontab"},
    }
    if comment:
        spec["description"] = comment[:500]
    if entry.user is not None:
        spec["owner"] = entry.user
    name = f"{_program(entry.command)}-{_digest([entry.user, entry.command, entry.stdin])[:8]}"
    names[name] = names.get(name, 0) + 1
    if names[name] > 1:  # the same command at several times: told apart by their order
        name = f"{name}-{names[name]}"
    schedule_id = f"{tenant}/{name}"
    return Command(
        command="create",
        schedule_id=schedule_id,
        command_id=f"crontab-{_digest([schedule_id, spec])[:32]}",
        actor="import crontab",
        spec=spec,
    )


def _program(command: str) -> str:
    """A word a person recognises the job by: the program's own name, without what leads up to it."""
    for segment in re.split(r"&&|\|\||;", command):
        words = segment.split()
        if not words or words[0] in _SETUP:
            continue
        while words and (
            words[0].rsplit("/", 1)[-1] in _WRAPPERS or "=" in words[0] or re.match(r"^(-|\d|/\S*\.lock$)", words[0])
        ):
            words = words[1:]
        if words:
            base = words[0].strip("\"'()").rstrip("/").rsplit("/", 1)[-1]
            slug = re.sub(r"[^A-Za-z0-9._-]+", "-", base).strip("-._")[:60]
            if slug:
                return slug
    return "job"


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
