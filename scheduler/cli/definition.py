"""Options of `scheduler schedule create|update` → spec fields. `now` is an argument; only `--file` is read."""

from __future__ import annotations

import json
from typing import Any

from scheduler.cli.documents import read_mapping
from scheduler.cli.values import absolute, parse_duration_ms

# option → spec field, taken as they are
PLAIN = ("calendar", "roll", "priority", "lane", "handler", "owner", "description", "impact", "runbook")
# option → spec field, a duration
DURATIONS = {
    "window": "window_ms",
    "timeout": "timeout_ms",
    "deadline": "deadline_ms",
    "max_lateness": "max_lateness_ms",
}


def definition(options: dict[str, Any], now: int) -> dict[str, Any]:
    """The fields of `--file` with the options over them. Raises ValueError naming every mistake of both at once."""
    spec: dict[str, Any] = {}
    mistakes: list[str] = []
    file = options.get("file")
    if file is not None:
        try:
            spec = read_mapping(file.read_text(encoding="utf-8"))
        except OSError as error:
            mistakes.append(f"--file {file}: {error.strerror}")
        except ValueError as error:
            mistakes.append(f"--file {file}: {error}")
    try:
        spec |= spec_from_options(options, now)
    except ValueError as error:
        mistakes.append(str(error))
    if mistakes:
        raise ValueError("\n".join(mistakes))
    return spec


def spec_from_options(options: dict[str, Any], now: int) -> dict[str, Any]:
    """The spec fields that were given, in wire form. Raises ValueError naming every mistaken option at once."""
    spec: dict[str, Any] = {}
    mistakes: list[str] = []

    def put(field: str, option: str, make: Any) -> None:
        if options.get(option) is None:
            return
        try:
            spec[field] = make(options[option])
        except ValueError as error:
            mistakes.append(f"--{option.replace('_', '-')}: {error}")

    try:
        trigger = _trigger(options, now)
    except ValueError as error:
        mistakes.append(str(error))
    else:
        if trigger is not None:
            spec["trigger"] = trigger
    for name in PLAIN:
        put(name, name, str)
    for option, field in DURATIONS.items():
        put(field, option, _lateness if option == "max_lateness" else parse_duration_ms)
    for name in ("start", "end"):
        put(name, name, lambda text: absolute(text, now))
    put("misfire", "misfire", _misfire)
    put("payload", "payload", _json)
    if options.get("label"):
        put("labels", "label", _labels)
    for field in options.get("unset") or ():
        spec[field] = None
    if mistakes:
        raise ValueError("\n".join(mistakes))
    return spec


def _trigger(options: dict[str, Any], now: int) -> dict[str, Any] | None:
    given = [name for name in ("cron", "every", "at") if options.get(name) is not None]
    zone = options.get("zone")
    if len(given) > 1:
        raise ValueError(f"--{' and --'.join(given)} are both triggers; a schedule has one")
    if not given:
        if zone or options.get("dialect") or options.get("gap") or options.get("fold"):
            raise ValueError("--zone, --dialect, --gap and --fold belong to --cron or --at; repeat the trigger")
        return None
    (kind,) = given
    text = options[kind]
    if kind == "every":
        try:
            trigger: dict[str, Any] = {"every_ms": parse_duration_ms(text)}
            if options.get("anchor"):
                trigger["anchor"] = absolute(options["anchor"], now)
        except ValueError as error:
            raise ValueError(f"--every: {error}") from None
        return trigger
    if kind == "cron":
        rules = {name: options.get(name) for name in ("dialect", "gap", "fold")}
        return {"cron": text, "zone": zone or "UTC", **{k: v for k, v in rules.items() if v is not None}}
    if zone is None:
        try:
            return {"at": absolute(text, now)}
        except ValueError as error:
            raise ValueError(f"--at: {error}; for a local time give --zone too") from None
    fold = {"fold": options["fold"]} if options.get("fold") else {}
    return {"at_local": text, "zone": zone, **fold}


def _misfire(text: str) -> object:
    """`fire_once`, `skip`, or `catch_up:K`."""
    if text in {"fire_once", "skip"}:
        return text
    kind, _, count = text.partition(":")
    if kind == "catch_up" and count.isascii() and count.isdecimal() and int(count) > 0:
        return {"catch_up": int(count)}
    raise ValueError(f"{text!r} is no misfire policy; expected fire_once, skip or catch_up:K, like catch_up:3")


def _lateness(text: str) -> int | None:
    return None if text == "unlimited" else parse_duration_ms(text)


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not JSON ({error}); text needs quotes of its own, like '\"hello\"'") from None


def _labels(pairs: tuple[str, ...]) -> dict[str, str]:
    wrong = [pair for pair in pairs if "=" not in pair]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is no label; expected name=value")
    return dict(pair.split("=", 1) for pair in pairs)
