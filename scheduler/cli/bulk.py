"""Bulk commands: a selector expanded to a command each, sent, and every answer accounted for.

Which schedules are meant is read once from `scheduler.schedules`, at a stated instant; ids wait on disk, so memory
holds those of one partition at most. All commands of a run share one id. A run that was cut off and is begun again with
it selects what it has reached before as well: the shards give those the answer they gave, so the account is always of
the whole run. What it has deleted is gone, and is counted by nobody any more.
"""

from __future__ import annotations

import sys
import tempfile
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click
import msgspec

from scheduler.cli.common import Shown, note, now_ms, print_json, progress
from scheduler.cli.kafka import command_client, kafka_errors
from scheduler.cli.replies import as_json as reply_json
from scheduler.core.model import State
from scheduler.core.time import format_instant
from scheduler.errors import BrokerUnavailable
from topics.reading import read_compacted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from scheduler.cli.selecting import Selector
    from scheduler.config import Settings
    from topics.messages import Command, Reply

EXAMPLES = 5
_ENDED = frozenset({"not_allowed", "not_found"})  # states are chosen such that only a later change gives these
_COUNT_EVERY = 1_000


@dataclass(slots=True)
class Snapshot:
    """What a selector took at `as_of` (ms). `reached`: how many of them an earlier part of the run had reached."""

    as_of: int
    spool: TextIO
    count: int = 0
    reached: int = 0
    tenants: set[str] = field(default_factory=set)
    sample: list[str] = field(default_factory=list)

    def add(self, taken: dict[bytes, bool]) -> None:
        """The schedules of one partition, and whether each was reached before."""
        names = sorted(key.decode() for key in taken)
        self.spool.writelines(f"{name}\n" for name in names)
        self.count += len(names)
        self.reached += sum(taken.values())
        self.tenants.update(name.split("/", 1)[0] for name in names)
        self.sample = sorted(self.sample + names[:EXAMPLES])[:EXAMPLES]

    def names(self) -> Iterator[str]:
        """All of them, read from where they wait."""
        self.spool.seek(0)
        for line in self.spool:
            yield line.rstrip("\n")

    @property
    def sample_lines(self) -> list[str]:
        """The first few, and how many there are besides."""
        rest = self.count - len(self.sample)
        return [f"  {name}" for name in self.sample] + ([f"  and {rest} more"] if rest else [])


@contextmanager
def snapshot(
    settings: Settings, chosen: Selector, *, timeout_s: float = 30.0, quiet: bool = False
) -> Iterator[Snapshot]:
    """Everything the selector takes, as it is now; errors as `kafka_errors` has them."""
    topic, kafka = settings.catalogue().schedules, settings.client_config()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as spool:
        found = Snapshot(now_ms(), spool)
        taken: dict[bytes, bool] = {}
        at: int | None = None
        with kafka_errors(), progress(None, "selecting", quiet=quiet) as step:
            records = read_compacted(kafka, topic, written_by_shards=True, one_by_one=True, timeout_s=timeout_s)
            for read, (key, value, number, _) in enumerate(records, start=1):
                if number != at:
                    found.add(taken)
                    taken, at = {}, number
                if key is None:
                    continue
                if value is not None and chosen.takes(key, value):
                    taken[key] = chosen.has_reached(value)
                else:
                    taken.pop(key, None)
                if read % _COUNT_EVERY == 0:
                    step(_COUNT_EVERY)
        found.add(taken)
        yield found


@dataclass(slots=True)
class Account:
    """What became of each command of a run. `waiting`: sent, not answered (yet)."""

    accepted: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, list[str]] = field(default_factory=dict)  # code -> the first few ids
    rejections: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, None] = field(default_factory=dict)
    answered: int = 0

    def sending(self, name: str) -> None:
        self.waiting[name] = None

    def answer(self, reply: Reply) -> None:
        self.waiting.pop(reply.schedule_id, None)
        self.answered += 1
        if reply.status == "accepted":
            self.accepted[reply.code] = self.accepted.get(reply.code, 0) + 1
            return
        self.rejections[reply.code] = self.rejections.get(reply.code, 0) + 1
        examples = self.rejected.setdefault(reply.code, [])
        if len(examples) < EXAMPLES:
            examples.append(reply.schedule_id)

    @property
    def unchanged(self) -> int:
        return self.accepted.get("unchanged", 0)

    @property
    def changed(self) -> int:
        return sum(self.accepted.values()) - self.unchanged

    @property
    def ended(self) -> int:
        """Deleted or over by the time the command came: no failure."""
        return sum(count for code, count in self.rejections.items() if code in _ENDED)

    @property
    def refused(self) -> int:
        return sum(self.rejections.values()) - self.ended

    def as_json(self) -> dict[str, Any]:
        """All counts, with examples of what did not go well."""
        return {
            "changed": self.changed,
            "unchanged": self.unchanged,
            "ended": self.ended,
            "refused": self.refused,
            "rejected": {
                code: {"count": count, "examples": self.rejected[code]} for code, count in self.rejections.items()
            },
        }


def new_bulk_id() -> str:
    return f"b{uuid.uuid4().hex[:12]}"


def run_bulk(settings: Settings, template: Command, chosen: Selector, bulk_id: str, options: dict[str, Any]) -> None:
    """Select, ask, send, account; `template` is the command without its schedule. Exits as the commands say."""
    verb, as_json = template.command, options["as_json"]
    kinds = "/".join(sorted(chosen.states)) if len(chosen.states) < len(State) else ""
    with snapshot(settings, chosen, timeout_s=options["timeout_s"], quiet=as_json) as found:
        what = f"{verb} {found.count} {kinds} schedules".replace("  ", " ")
        what += f" of {len(found.tenants)} tenants, as of {format_instant(found.as_of)}"
        head = {"bulk_id": bulk_id, "command": verb, "as_of": format_instant(found.as_of), "selected": found.count}
        head |= {"reached_before": found.reached, "tenants": len(found.tenants)}
        if options["dry_run"]:
            if as_json:
                print_json({"dry_run": True, **head, "sample": found.sample})
            else:
                click.echo("\n".join([f"would {what}; nothing was changed", *found.sample_lines]))
            return
        if found.count and not options["yes"]:
            note("\n".join(found.sample_lines))
            click.confirm(f"{what}?", abort=True, err=True)
        if found.count and not as_json:
            note(f"bulk id {bulk_id}: should this be cut off, the same command with --bulk-id {bulk_id} finishes it")
        account, trouble = _exchange(settings, template, found, options)
    _tell(account, head, found, as_json=as_json)
    if trouble is not None:
        raise trouble
    sys.exit(1 if account.refused else 0)


def _exchange(
    settings: Settings, template: Command, found: Snapshot, options: dict[str, Any]
) -> tuple[Account, BaseException | None]:
    account = Account()

    def commands() -> Iterator[Command]:
        for name in found.names():
            account.sending(name)
            yield msgspec.structs.replace(template, schedule_id=name)

    trouble: BaseException | None = None
    try:
        with (
            progress(found.count, template.command, quiet=options["as_json"]) as step,
            command_client(settings, timeout_s=options["timeout_s"]) as client,
        ):
            for _, reply in client.send_many(commands()):
                step()
                account.answer(reply)
                if reply.status == "rejected" and options["as_json"]:
                    print_json(reply_json(reply))
    except (BrokerUnavailable, Shown) as fault:
        trouble = fault
    except KeyboardInterrupt:
        trouble = click.Abort()
    return account, trouble


def _tell(account: Account, head: dict[str, Any], found: Snapshot, *, as_json: bool) -> None:
    silent = found.count - account.answered
    if as_json:
        examples = list(account.waiting)[:EXAMPLES]
        print_json({**head, **account.as_json(), "not_answered": {"count": silent, "examples": examples}})
        return
    if found.reached:
        click.echo(f"{found.reached} of {found.count} had been reached by an earlier run with this bulk id")
    for code, count in sorted(account.rejections.items()):
        more = ", ..." if count > len(account.rejected[code]) else ""
        click.echo(f"{count} {code}: {', '.join(account.rejected[code])}{more}")
    if account.waiting:
        click.echo(f"sent and not answered: {', '.join(list(account.waiting)[:EXAMPLES])}, ...")
    if silent:
        click.echo(f"{silent} not answered: run it again with --bulk-id {head['bulk_id']}")
    click.echo(
        f"{found.count} schedules: {account.changed} changed, {account.unchanged} unchanged, "
        f"{account.refused} refused, {account.ended} ended meanwhile, {silent} not answered"
    )
