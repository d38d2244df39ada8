"""What texts point at is there: the six hops of a command, the modules of a package, the commands that advice names."""

from __future__ import annotations

import importlib
import re
from functools import reduce
from pathlib import Path

import pytest

import scheduler
from scheduler.cli import COMMANDS

ROOT = Path(__file__).parents[2]
HOP = re.compile(r"^    (\S+)/(\w+)\.py +([\w.]+) {2,}\S", re.MULTILINE)
ADVISED = re.compile(r"`scheduler ([a-z][a-z-]*)")
README_HOP = re.compile(r"Follow a command in six hops:.*?\n\n", re.DOTALL)


def hops() -> list[tuple[str, str, str]]:
    """(folder, module, what is to be found in it) of each line of the drawing."""
    return HOP.findall(scheduler.__doc__ or "")


def test_each_hop_of_a_command_stands_where_it_says() -> None:
    """The file exists, and the function or class is in it."""
    found = hops()
    assert len(found) == 6
    for folder, module, name in found:
        home = importlib.import_module(f"{folder.replace('/', '.')}.{module}")
        assert Path(home.__file__ or "") == ROOT / folder / f"{module}.py"
        assert callable(reduce(getattr, name.split("."), home)), name


def test_the_readme_names_the_same_hops() -> None:
    """In the same order."""
    (text,) = README_HOP.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert re.findall(r"\]\(([\w/]+\.py)\)", text) == [f"{folder}/{module}.py" for folder, module, _ in hops()]


@pytest.mark.parametrize("package", ["scheduler.local", "scheduler.runtime", "scheduler.shard", "scheduler.wire"])
def test_a_list_of_modules_names_all_of_them(package: str) -> None:
    """What a package's docstring says of its files: none is missing, and none is named that is not there."""
    home = importlib.import_module(package)
    text = home.__doc__ or ""
    files = {path.stem for path in Path(home.__file__ or "").parent.glob("*.py")} - {"__init__"}
    first_cells = "".join(re.findall(r"^\| (`[^|]+)", text, re.MULTILINE))
    named = set(re.findall(r"\b(\w+)\.py\b", text)) | set(re.findall(r"`(\w+)`", first_cells))
    assert named == files


def test_the_commands_that_texts_name_exist() -> None:
    """Advice such as "run `scheduler doctor`" can be followed, in errors, docstrings and pages alike."""
    texts = [*ROOT.glob("*.md")]
    for home in ("scheduler", "topics", "consumers", "ops", "compose"):
        texts += [path for path in (ROOT / home).rglob("*") if path.suffix in {".py", ".md", ".toml", ".yaml"}]
    named = {name for path in texts for name in ADVISED.findall(path.read_text(encoding="utf-8"))}
    assert "doctor" in named
    assert named <= set(COMMANDS)
