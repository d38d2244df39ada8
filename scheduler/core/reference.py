"""The syntax reference, generated from the parser's own tables, so that it cannot say what the parser does not do.

`scheduler next --reference` prints it; `ops/time.md` contains it, and a test holds the two together.
"""

from scheduler.core.cron import EXAMPLES, LONGEST, MACROS
from scheduler.core.cron_fields import DIALECTS, LAST_HASHED_DAY, MARKS

_FORMS = (
    ("`*`", "every value"),
    ("`5`, `FRI`, `JAN`", "one value; leading zeros are fine, names have three letters in any case"),
    ("`9-17`, `MON-FRI`", "a range, both ends included"),
    ("`22-2`, `FRI-MON`, `NOV-FEB`", "a range that wraps around the field's end"),
    ("`*/15`", "every 15th value from the first; a step of the field's size or more is refused"),
    ("`5/15`", "every 15th value from 5 to the field's end"),
    ("`10-40/15`", "every 15th value of the range; a step wider than the range leaves its first value, with a warning"),
    ("`0,30`", "a list of any of these"),
    ("`H`, `H/15`, `H(0-29)`, `H(0-29)/10`", "a value (or start) by a hash of the schedule id, the same for ever"),
)


def reference() -> str:
    """The reference as Markdown, without a heading of its own."""
    parts = [
        "### Dialects\n",
        (
            "Fields stand in this order, parted by spaces or tabs, on one line of at most "
            f"{LONGEST} ASCII characters; blanks at either end are ignored.\n"
        ),
        _table(
            ("dialect", "fields", "example"),
            [
                (f"`{name}`", ", ".join(kind.name for kind in kinds), f"`{EXAMPLES[name]}`")
                for name, kinds in DIALECTS.items()
            ],
        ),
        (
            "In `quartz` the year may be left out; in `aws` the wrapper `cron(...)` may. In both, exactly one of the "
            "day fields is `?`. `aws` also reads `rate(5 minutes)`, as a fixed rate.\n"
        ),
        "### Values\n",
        _table(
            ("dialect", "field", "values", "special forms"),
            [
                (f"`{name}`", kind.name, kind.allowed, ", ".join(f"`{mark}`" for mark in sorted(kind.marks)) or "-")
                for name, kinds in DIALECTS.items()
                for kind in kinds
            ],
        ),
        "### Forms\n",
        _table(("form", "meaning"), list(_FORMS)),
        f"`H` in the day of the month is 1 to {LAST_HASHED_DAY}, so that every month has it.\n",
        "### Special forms\n",
        _table(
            ("form", "example", "meaning"), [(f"`{mark}`", example, text) for mark, (text, example) in MARKS.items()]
        ),
        "### Macros (unix and seconds, in any case)\n",
        _table(("macro", "is"), [(f"`{macro}`", f"`{text}`") for macro, text in MACROS.items()]),
    ]
    return "\n".join(parts)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)
