"""`scheduler check-config`: are the settings right, and what are they?"""

from __future__ import annotations

import click

from scheduler.cli.common import Cli, json_option, pass_cli, print_json, print_table
from scheduler.cli.config_docs import example, reference, shown
from scheduler.config_load import fields, settings_file


@click.command("check-config", short_help="Check the settings and show them.")
@json_option
@click.option("--reference", "as_reference", is_flag=True, help="Print the reference of all settings (Markdown).")
@click.option("--example", "as_example", is_flag=True, help="Print a commented settings file to begin with.")
@pass_cli
def command(cli: Cli, *, as_json: bool, as_reference: bool, as_example: bool) -> None:
    """Check the settings of file and environment and show what is in force.

    Exits with 2 and one line for every mistake, or with 0. Secrets are not shown.

    \b
    Examples:
      scheduler check-config
      scheduler --config production.toml check-config --json
      scheduler check-config --example > scheduler.toml
    """
    if as_reference or as_example:
        click.echo(reference() if as_reference else example(), nl=False)
        return
    settings = cli.settings()
    _check_client_properties(settings.client_config() if settings.kafka.bootstrap_servers else {})
    values = shown(settings)
    if as_json:
        print_json(values)
        return
    rows = []
    for loc, _ in fields():
        value: object = values
        for name in loc:
            assert isinstance(value, dict)  # noqa: S101 - sections are tables
            value = value[name]
        rows.append((".".join(loc), ", ".join(map(str, value)) if isinstance(value, list) else value))
    print_table(["setting", "value"], rows)
    file = settings_file(cli.config)
    click.echo(f"ok: read from {file} and the environment" if file else "ok: read from the environment, no file")


def _check_client_properties(config: dict[str, str]) -> None:
    """Lets the client library judge its own properties; it knows names and values without a connection."""
    if not config:
        return
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    from scheduler.errors import ConfigInvalid

    properties: dict[str, str | int | float | bool] = {**config}
    try:
        AdminClient(properties, logger=_silent())
    except KafkaException as error:
        raise ConfigInvalid([f"kafka.client: the Kafka client refuses it: {error.args[0].str()}"]) from None


def _silent() -> object:
    import logging

    logger = logging.getLogger("scheduler.check-config")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
