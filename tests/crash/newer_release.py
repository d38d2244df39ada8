"""A process of a release that does not exist yet: this code, but of the next record format.

python -m tests.crash.newer_release --config ... run
"""

from __future__ import annotations

from scheduler.core import record

record.FORMAT += 1  # before anything takes it over

from scheduler.cli import main  # noqa: E402 - see above

if __name__ == "__main__":
    main(prog_name="scheduler")
