"""The short set, each bench in a process of its own, one JSON line each: `make bench`."""

from __future__ import annotations

import subprocess
import sys

SHORT = (
    ("tests.bench.next_after",),
    ("tests.bench.load", "--count", "100000"),
    ("tests.bench.burst", "--count", "100000"),
    ("tests.bench.burst", "--count", "100000", "--kind", "every"),
    ("tests.bench.idle", "--count", "100000"),
)


def main() -> int:
    """The number of benches that failed outright; a slow one is no failure of the run."""
    failed = 0
    for module, *arguments in SHORT:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments], check=False, stdout=subprocess.PIPE, text=True
        )
        lines = done.stdout.strip().splitlines()
        print(lines[-1] if lines else f"{module}: no result", flush=True)
        failed += done.returncode != 0 or '"WRONG"' in (lines[-1] if lines else "")
    return failed


if __name__ == "__main__":
    sys.exit(main())
