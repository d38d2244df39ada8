"""`python -m scheduler` is the command line."""

from scheduler.cli import main

if __name__ == "__main__":
    main(prog_name="scheduler")
