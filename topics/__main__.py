"""`python -m topics`: print the contract page; `--write` brings the generated files up to date, `--check` compares."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from topics.reference import HERE, render

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 1 when `--check` finds a file that is not as it would be written."""
    parser = argparse.ArgumentParser(
        prog="python -m topics", description="The topic contracts: page, schemas, AsyncAPI."
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--write", action="store_true", help="write the generated files")
    group.add_argument("--check", action="store_true", help="compare them with what would be written")
    options = parser.parse_args(arguments)
    files = render()
    if options.write:
        for path, text in files.items():
            (HERE / path).write_text(text, encoding="utf-8")
    elif options.check:
        stale = drift(files)
        for path in stale:
            print(f"topics/{path} is out of date: run `python -m topics --write`", file=sys.stderr)  # noqa: T201
        return 1 if stale else 0
    else:
        sys.stdout.write(files["README.md"])
    return 0


def drift(files: dict[str, str]) -> list[str]:
    """The files that are not what `render` gives, and schemas that no message has any more."""
    different = [path for path, text in files.items() if not _same(path, text)]
    left_over = [
        f"schemas/{path.name}" for path in (HERE / "schemas").glob("*.json") if f"schemas/{path.name}" not in files
    ]
    return sorted(different + left_over)


def _same(path: str, text: str) -> bool:
    try:
        return (HERE / path).read_text(encoding="utf-8") == text
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main())
