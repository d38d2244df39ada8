"""The README keeps its promises: every command in it is run here, or says why not."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.node import Cluster, await_ready

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.broker import BrokerUnderTest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:<!-- (run|not run here: [^>]+) -->\n)?```console\n(.*?)```", re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """(mark, text) of every console block."""
    return [(mark, text) for mark, text in BLOCK.findall(README)]


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a block with the output lines shown below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *shown = part.rstrip("\n").split("\n")
        yield command, shown


def test_every_block_is_marked() -> None:
    """A reader must know whether a command was tried."""
    assert blocks()
    assert all(mark for mark, _ in blocks()), [text for mark, text in blocks() if not mark]


def test_every_linked_file_exists() -> None:
    """Links into the repository lead somewhere."""
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.broker
def test_the_commands_work_as_written(broker: BrokerUnderTest, namespace: str, tmp_path: Path) -> None:
    """Run in the README's order against a running node; where output is shown, it is the output."""
    cluster = Cluster(broker.bootstrap_servers, namespace, 2, tmp_path).make_topics()
    node = cluster.node().start()
    await_ready(node)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "SCHEDULER_CONFIG": str(tmp_path / f"{node.node_id}.toml"),
    }
    try:
        for mark, text in blocks():
            for command, shown in commands(text) if mark == "run" else ():
                done = subprocess.run(
                    shlex.split(command),
                    cwd=ROOT,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=120,
                    check=False,
                )
                assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
                if shown:
                    assert done.stdout.rstrip("\n").split("\n") == shown, command
    finally:
        cluster.close()
