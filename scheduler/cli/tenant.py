"""`scheduler tenant`: what tenants may use, as records on the tenant topic; each change is a new version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from scheduler.cli.common import Cli, Shown, json_option, now_ms, pass_cli, print_json, print_table, stop_at
from scheduler.cli.documents import Mistake, read_named
from scheduler.cli.kafka import kafka_errors, settings_with_broker
from scheduler.cli.looking import table_versions
from scheduler.core.time import format_instant
from scheduler.wire import tenant_faults, tenant_from_bytes, versioned_key
from topics.codec import encode
from topics.messages import Tenant
from topics.tables import write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TextIO

    from scheduler.config import Settings

SAID = ("tenant", "catch_up_per_s", "weight", "quotas", "description")  # what a file may say
KEPT = 5  # versions of a tenant that stay on the topic, for people who compare


@click.group("tenant", short_help="Keep what tenants may use.")
def command() -> None:
    """Keep what tenants may use. A tenant without a record is accepted and has the cluster's defaults.

    \b
    Examples:
      scheduler tenant apply tenants.yaml
      scheduler tenant list
      scheduler tenant show acme
    """


@command.command("apply", short_help="Make the tenants in files what they say.")
@click.argument("files", nargs=-1, required=True, type=click.File("r", encoding="utf-8"), metavar="FILE")
@json_option
@click.option("--dry-run", is_flag=True, help="Say what would change; nothing does.")
@click.option("--actor", help="Who makes the change; stands in the record.")
@pass_cli
def apply(cli: Cli, files: Sequence[TextIO], *, as_json: bool, dry_run: bool, actor: str | None) -> None:
    """Make the tenants in FILE... (`-` is standard input) what they say; YAML documents or JSON, one or several.

    \b
      tenant: acme
      catch_up_per_s: 20        # missed work and backfills a second, over all shards
      weight: 2
      quotas: {schedules: 10000}
      description: the ledger's owners

    One that says the same as before is unchanged; a different one becomes the next version, taken up by running
    nodes within a second. If anything is wrong nothing is written: exit code 2 and every mistake as file:line.
    """
    asked, mistakes = _read(files)
    if mistakes:
        stop_at(mistakes, "nothing was written", as_json=as_json)
    settings = settings_with_broker(cli)
    with kafka_errors():
        there = versions_of(settings)
        rows: list[tuple[bytes, bytes | None]] = []
        for one in asked:
            versions = there.get(one.tenant, {})
            newest = max(versions, default=0)
            result = "created" if not newest else "updated" if _said(versions[newest]) != _said(one) else "unchanged"
            version = newest + (result != "unchanged")
            if result != "unchanged":
                made = msgspec.structs.replace(one, version=version, at=format_instant(now_ms()), actor=actor)
                rows.append((versioned_key(one.tenant, version), encode(made)))
                rows += [(versioned_key(one.tenant, old), None) for old in versions if old <= version - KEPT]
            if as_json:
                print_json({"tenant": one.tenant, "version": version, "result": result, "dry_run": dry_run})
            else:
                click.echo(f"{one.tenant}@{version} {'would be ' if dry_run else ''}{result}")
        if not dry_run:
            write_rows(settings.client_config(), settings.catalogue().tenants, rows)


@command.command("list", short_help="List the tenants that have a record.")
@json_option
@pass_cli
def list_(cli: Cli, *, as_json: bool) -> None:
    """List the tenants that have a record, the newest version of each."""
    settings = settings_with_broker(cli)
    with kafka_errors():
        found = [versions[max(versions)] for _, versions in sorted(versions_of(settings).items())]
    if as_json:
        for one in found:
            print_json(one)
        return
    rows = [(t.tenant, t.version, _rate(settings, t), t.weight, _quotas(t), t.description) for t in found]
    print_table(["tenant", "version", "catch-up/s", "weight", "quotas", "description"], rows)


@command.command("show", short_help="Show one tenant.")
@click.argument("tenant")
@json_option
@pass_cli
def show(cli: Cli, tenant: str, *, as_json: bool) -> None:
    """Show what TENANT may use. Exits with 1 if it has no record and therefore the defaults."""
    settings = settings_with_broker(cli)
    with kafka_errors():
        versions = versions_of(settings).get(tenant)
    if not versions:
        rate = settings.catch_up_per_s
        raise Shown(f"{tenant} has no record, so it has the defaults: catch-up {rate}/s, weight 1, no quotas")
    one = versions[max(versions)]
    if as_json:
        print_json(one)
        return
    rows: list[tuple[str, object]] = [
        ("tenant", one.tenant),
        ("version", one.version),
        ("catch-up/s", _rate(settings, one)),
        ("weight", one.weight),
        ("quotas", _quotas(one)),
        ("description", one.description),
        ("applied", one.at),
        ("by", one.actor),
    ]
    print_table(["field", "value"], [row for row in rows if row[1] is not None])


def versions_of(settings: Settings) -> dict[str, dict[int, Tenant]]:
    """Every version of every tenant's record on the topic; what is none is left out."""
    return table_versions(settings, settings.catalogue().tenants, Tenant, tenant_from_bytes)


def _read(files: Sequence[TextIO]) -> tuple[list[Tenant], list[Mistake]]:
    """The tenants of all files, or everything that is wrong with them."""
    found, mistakes = read_named(files, "tenant", _wrong)
    return [_made(fields) for _, _, fields in found], mistakes


def _wrong(fields: dict[str, Any]) -> Iterator[str]:
    for unknown in fields.keys() - set(SAID):
        yield f"{str(unknown)[:40]}: not a field of a tenant; there are {', '.join(SAID)}"
    try:
        yield from tenant_faults(_made({name: value for name, value in fields.items() if name in SAID}))
    except msgspec.ValidationError as error:
        yield str(error)


def _made(fields: dict[str, Any]) -> Tenant:
    return msgspec.convert({**fields, "version": 1}, Tenant)


def _said(one: Tenant) -> tuple[object, ...]:
    return tuple(getattr(one, name) for name in SAID)


def _rate(settings: Settings, one: Tenant) -> str:
    return f"{settings.catch_up_per_s} (default)" if one.catch_up_per_s is None else f"{one.catch_up_per_s:g}"


def _quotas(one: Tenant) -> str:
    return ", ".join(f"{name}={limit}" for name, limit in sorted(one.quotas.items()))
