"""The wheel as users get it: three import names that are ours alone, and all that is read at run time."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = {"scheduler", "topics", "consumers"}
DISTRIBUTION = "kafka-streaming-scheduler"

# Run by the clean environment's interpreter: what is on its path, and to whom it belongs.
LOOK = """
import importlib.metadata as metadata, importlib.util as util, json, pathlib, sys
owners = metadata.packages_distributions()
places = {name: str(pathlib.Path(util.find_spec(name).origin).resolve()) for name in %r}
print(json.dumps({"owners": {name: owners.get(name) for name in places}, "places": places, "prefix": sys.prefix}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as a release is built; the backend decides what goes in."""
    out = tmp_path_factory.mktemp("dist")
    # Without isolation: the pinned backend is installed already, and a test should need no network.
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_our_three_packages_and_nothing_else(files: set[str]) -> None:
    """No tests, no stray top-level module that could shadow somebody's."""
    tops = {name.split("/")[0] for name in files if ".dist-info/" not in name}
    assert tops == NAMES


def test_what_is_read_at_run_time_is_inside(files: set[str]) -> None:
    """Types, contracts and samples travel with the code."""
    assert {f"{name}/py.typed" for name in NAMES} <= files
    assert {"topics/README.md", "topics/schemas/dispatch.json", "topics/schemas/samples/dispatch.json"} <= files
    sources = {
        str(path.relative_to(ROOT))
        for name in NAMES
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    missing = {path for path in sources - files if Path(path).suffix in {".py", ".json", ".toml", ".lock", ".yaml"}}
    assert not missing


def test_installed_alone_each_name_is_ours_alone(wheel: Path, tmp_path: Path) -> None:
    """In a clean environment the names resolve to the installed files and to our distribution only."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    done = subprocess.run([*install, str(wheel)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    look = subprocess.run(
        [python, "-I", "-c", LOOK % sorted(NAMES)], capture_output=True, text=True, check=True, cwd=tmp_path, timeout=60
    )
    seen = json.loads(look.stdout)
    assert seen["owners"] == {name: [DISTRIBUTION] for name in NAMES}
    for name, place in seen["places"].items():
        assert Path(place).is_relative_to(Path(seen["prefix"]).resolve()), (name, place)


def test_no_other_installed_distribution_claims_one_of_our_names() -> None:
    """A dependency with a top-level `topics` or `consumers` would overwrite ours, or be overwritten."""
    owners = metadata.packages_distributions()
    for name in sorted(NAMES):
        assert set(owners.get(name, [])) <= {DISTRIBUTION}, f"{name} is also installed by {owners[name]}"


def test_the_console_script_leads_to_the_command_line(wheel: Path) -> None:
    """`scheduler` is on the path of whoever installs it."""
    with zipfile.ZipFile(wheel) as archive:
        (entry,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        assert "scheduler = scheduler.cli:main" in archive.read(entry).decode()
