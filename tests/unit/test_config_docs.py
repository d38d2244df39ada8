"""The settings' reference and example file are printed from the fields and never drift from them."""

from __future__ import annotations

import tomllib
from pathlib import Path

from scheduler.cli.config_docs import example, reference
from scheduler.config import Settings
from scheduler.config_load import fields

CONFIG = Path(__file__).parents[2] / "ops" / "config"


def test_the_reference_is_what_the_code_prints() -> None:
    """Renew it with `scheduler check-config --reference > ops/config/reference.md`."""
    assert (CONFIG / "reference.md").read_text(encoding="utf-8") == reference()


def test_the_example_is_what_the_code_prints() -> None:
    """Renew it with `scheduler check-config --example > ops/config/scheduler.toml`."""
    assert (CONFIG / "scheduler.toml").read_text(encoding="utf-8") == example()


def test_the_example_with_every_setting_uncommented_is_accepted() -> None:
    """Nobody learns the syntax from a file that does not work."""
    lines = example().splitlines()
    names = {loc[-1] for loc, _ in fields()}
    uncommented = [line[2:] if line.startswith("# ") and line[2:].split(" =")[0] in names else line for line in lines]
    values = tomllib.loads("\n".join(uncommented))
    values["kafka"]["client"] = {}  # its example refers to a file that is not here
    settings = Settings(**values)
    assert settings.kafka.bootstrap_servers == "broker-1:9092,broker-2:9092"
    assert len(names) == sum(line.split(" =")[0] in names for line in uncommented)
