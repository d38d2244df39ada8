"""Reads the settings: file, environment, command line → `Settings`, or every mistake at once, one line each.

A line says where the value was given, what was given, what is expected and an example. Values of properties that may
be secrets are never repeated.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from scheduler.config import CONFIG_VARIABLE, ENV_PREFIX, Settings
from scheduler.config_client import is_secret_property
from scheduler.errors import ConfigInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

DEFAULT_FILE = Path("scheduler.toml")
Loc = tuple[str, ...]


def load_settings(path: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """The settings as file, environment and `overrides` (nested, from the command line) give them, later ones winning.

    Raises `ConfigInvalid` with every mistake of all three.
    """
    file = settings_file(path)
    problems: list[str] = []
    from_file = _read_file(file, problems) if file is not None else {}
    problems += _unknown_variables()
    merged = _merge(_merge(from_file, _environment()), overrides or {})
    origin = _Origin(file, overrides or {})
    try:
        settings = Settings(**merged)
    except ValidationError as error:
        problems += _explain(error, merged, origin)
        raise ConfigInvalid(problems) from None
    if problems:
        raise ConfigInvalid(problems)
    return settings


def settings_file(path: Path | None = None) -> Path | None:
    """The file that would be read: `path`, else the one `SCHEDULER_CONFIG` names, else `./scheduler.toml` if there."""
    if path is not None:
        return path
    named = os.environ.get(CONFIG_VARIABLE)
    if named:
        return Path(named)
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


def variables() -> dict[str, Loc]:
    """Every environment variable that is a setting → its place, `SCHEDULER_HTTP__PORT` → `("http", "port")`."""
    return {ENV_PREFIX + "__".join(loc).upper(): loc for loc, _ in fields()}


def fields(model: type[BaseModel] = Settings, above: Loc = ()) -> Iterator[tuple[Loc, FieldInfo]]:
    """Every setting with its place, sections flattened, in the order of declaration."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from fields(field.annotation, (*above, name))
        else:
            yield (*above, name), field


def _environment() -> dict[str, Any]:
    """What the variables give, as nested values; those of a whole section first, those inside it win."""
    found: dict[str, Any] = {}
    plain = {place for place, field in fields() if field.annotation in (str, Path)}
    for name, text in sorted(os.environ.items(), key=lambda given: given[0].count("__")):
        place = tuple(name[len(ENV_PREFIX) :].lower().split("__"))
        if not name.upper().startswith(ENV_PREFIX) or place[0] not in Settings.model_fields:
            continue  # what is no setting is told by `_unknown_variables`
        node = found
        for section in place[:-1]:
            node = node.setdefault(section, {})
            if not isinstance(node, dict):
                break  # the section's own variable is no table: that stays, so that validation can name it
        else:
            node[place[-1]] = text if place in plain else _read_value(text)
    return found


def _read_value(text: str) -> Any:
    """JSON where it is an object or a list; text that is neither stays text, so that validation can name it."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _read_file(file: Path, problems: list[str]) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            return tomllib.load(opened)
    except tomllib.TOMLDecodeError as error:
        problems.append(f"{file}: is not valid TOML: {error}")
    except UnicodeDecodeError:
        problems.append(f"{file}: is not UTF-8 text")
    except OSError as error:
        problems.append(
            f"{file}: can't be read: {error.strerror}; give an existing file with --config or {CONFIG_VARIABLE}"
        )
    return {}


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _unknown_variables() -> list[str]:
    """`SCHEDULER_*` names that are no setting. Inside a section validation finds them as unknown keys."""
    sections = tuple(f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields)
    unknown = [
        name
        for name in sorted(os.environ)
        if name.upper().startswith(ENV_PREFIX)
        and name.upper() != CONFIG_VARIABLE
        and not any(name.upper() == section or name.upper().startswith(section + "__") for section in sections)
    ]
    return [f"{name}: is no setting{_meant(name.upper(), [*variables(), CONFIG_VARIABLE])}" for name in unknown]


def _meant(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else f"; expected one of {', '.join(sorted(known))}"


class _Origin:
    """Says for a value's place where it was given: the command line, a variable, or a key of the file."""

    def __init__(self, file: Path | None, overrides: Mapping[str, Any]) -> None:
        self._file = file
        self._overrides = overrides
        self._given = {name.upper(): name for name in os.environ if name.upper().startswith(ENV_PREFIX)}

    def of(self, loc: Loc) -> str:
        if loc and loc[0] in self._overrides:
            return f"command line: {'.'.join(loc)}"
        for size in range(len(loc), 0, -1):
            variable = ENV_PREFIX + "__".join(loc[:size]).upper().replace(".", "_")
            if variable in self._given:
                return self._given[variable]
        inside = ENV_PREFIX + "__".join(loc).upper() + "__"
        for variable, name in self._given.items():
            if variable.startswith(inside):
                return name
        return f"{self._file}: {'.'.join(loc)}"


def _explain(error: ValidationError, merged: dict[str, Any], origin: _Origin) -> list[str]:
    """One line a mistake; then, with the mistaken values taken out, the contradictions among the rest."""
    lines: dict[Loc, str] = {}
    contradictory: list[str] = []
    for detail in error.errors(include_url=False):
        if detail["type"] == "contradictions":
            contradictory += [text for _, text in detail["ctx"]["found"]]
            continue
        loc = _place(tuple(str(part) for part in detail["loc"]))
        lines.setdefault(loc, _line(detail, loc, origin))
    if lines:
        contradictory += _contradictions_without(merged, set(lines))
    return [*lines.values(), *contradictory]


def _place(loc: Loc) -> Loc:
    """Cuts what pydantic adds below a setting: list positions, union branches."""
    for place, _ in fields():
        if loc[: len(place)] == place:
            named = place in {("kafka", "client"), ("retention",)}  # tables of free names: the entry is the place
            return loc[: len(place) + 1] if named else place
    return loc


def _line(detail: ErrorDetails, loc: Loc, origin: _Origin) -> str:
    where = origin.of(loc)
    if detail["type"] == "extra_forbidden":
        siblings = [place for place in _names(loc[:-1]) if place]
        return f"{where}: is no setting{_meant(loc[-1], siblings)}"
    known = dict(fields())
    field = known.get(loc) or known.get(loc[:-1])
    if field is None:  # a section that is no table
        return f"{where}: expected a table with {', '.join(_names(loc))}"
    about = field.json_schema_extra
    assert isinstance(about, dict)  # noqa: S101 - every field is declared with one
    # The whole table of client properties, given as broken JSON, may hold a password anywhere.
    hidden = loc == ("kafka", "client") or is_secret_property(loc[-1])
    given = "(hidden)" if hidden else _shown(detail["input"])
    return f"{where} = {given}: expected {about['expected']}, for example {_shown(about['example'])}"


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{key}" = {_shown(item)}' for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_shown(item) for item in value)}]"
    text = f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 80 else text[:77] + '…"'


def _names(section: Loc) -> list[str]:
    model: type[BaseModel] = Settings
    for name in section:
        annotation = model.model_fields[name].annotation if name in model.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)


def _contradictions_without(merged: dict[str, Any], wrong: set[Loc]) -> list[str]:
    """Validates again without the wrong values; a contradiction with a default in their place is nobody's mistake."""
    try:
        Settings(**_without(merged, wrong, ()))
    except ValidationError as error:
        found = [
            pair for detail in error.errors() if detail["type"] == "contradictions" for pair in detail["ctx"]["found"]
        ]
        names = {".".join(loc) for loc in wrong}
        return [text for involved, text in found if not names & set(involved)]
    return []


def _without(values: dict[str, Any], wrong: set[Loc], above: Loc) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in values.items():
        loc = (*above, key)
        if loc in wrong:
            continue
        kept[key] = _without(value, wrong, loc) if isinstance(value, dict) else value
    return kept
