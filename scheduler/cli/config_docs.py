"""The settings for readers: the reference and the commented example, printed from the fields themselves.

`ops/config/reference.md` and `ops/config/scheduler.toml` are this module's output; a test holds them to it.
"""

from __future__ import annotations

from typing import Any

from scheduler.config import ENV_PREFIX, Settings
from scheduler.config_load import fields

_INTRODUCTION = """\
# Settings

Printed by `scheduler check-config --reference` from `scheduler/config.py`; don't edit.

The file is the one given by `--config`, else by `SCHEDULER_CONFIG`, else `./scheduler.toml`.
The environment wins over the file, options of the command line win over both.
A name that is no setting is refused, in the file and among `SCHEDULER_*` variables.
Lists in the environment are separated by commas; tables are JSON.
Every setting is read once at start: a change needs a restart of the node.
`scheduler check-config` reports every mistake at once.

| setting | variable | expected | default | why |
|---|---|---|---|---|
"""

_SECRETS = """
## Secrets

A property of `kafka.client` may be given by reference: `{ file = "/run/secrets/kafka-password" }` or
`{ env = "KAFKA_PASSWORD" }`. It is read when a client is built and is never logged, printed or stored.
"""


def reference() -> str:
    """The reference as Markdown: one row a setting."""
    rows = []
    for loc, field in fields():
        about = _about(field.json_schema_extra)
        name, variable = ".".join(loc), ENV_PREFIX + "__".join(loc).upper()
        cells = [f"`{name}`", f"`{variable}`", about["expected"], _default(field), about["reason"]]
        rows.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    return _INTRODUCTION + "\n".join(rows) + "\n" + _SECRETS


def example() -> str:
    """A settings file with every setting at its default, commented out, its reason above it."""
    lines = [
        "# Every setting at its default. Uncomment what should differ; `scheduler check-config` checks the result."
    ]
    ordered = sorted(fields(), key=lambda item: len(item[0]) > 1)  # TOML: top-level keys before the first table
    section: tuple[str, ...] = ()
    for loc, field in ordered:
        about = _about(field.json_schema_extra)
        if loc[:-1] != section:
            section = loc[:-1]
            lines += ["", f"[{'.'.join(section)}]"]
        value = about["example"] if field.default_factory is not None or field.default == "" else field.default
        lines += ["", f"# {about['reason']}", f"# Expected: {about['expected']}.", f"# {loc[-1]} = {toml(value)}"]
    return "\n".join(lines) + "\n"


def toml(value: object) -> str:
    """A value as TOML writes it, tables inline."""
    match value:
        case bool():
            return str(value).lower()
        case dict():
            return "{ " + ", ".join(f'"{key}" = {toml(item)}' for key, item in value.items()) + " }"
        case list() | tuple():
            return f"[{', '.join(toml(item) for item in value)}]"
        case int():
            return f"{value:_}" if value >= 10_000 else str(value)
        case _:
            text = str(value).replace("\\", "\\\\").replace('"', '\\"')
            return f'"{text}"'


def shown(settings: Settings) -> dict[str, Any]:
    """The settings in force as plain values, secrets as `**********` or as their reference."""
    dumped: dict[str, Any] = settings.model_dump(mode="json")
    return dumped


def _about(extra: object) -> dict[str, Any]:
    assert isinstance(extra, dict)  # noqa: S101 - every field is declared with one
    return extra


def _default(field: Any) -> str:
    if field.default_factory is not None:
        return "see why" if field.default_factory is not dict else "none"
    return f"`{toml(field.default)}`" if field.default != "" else "none"
