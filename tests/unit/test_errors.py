"""The error tree: one drawing, one set of classes, no difference between them."""

from __future__ import annotations

import pickle
import re

from scheduler import errors


def drawn_tree() -> dict[str, str]:
    """Child name → parent name, read from the drawing in the module's docstring by its indentation."""
    parents: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^    ([│├└─ ]*)([A-Z]\w+) {2,}\S", line)
        if found is None:
            continue
        depth, name = len(found[1]), found[2]
        above = [(d, n) for d, n in above if d < depth]
        parents[name] = above[-1][1] if above else "Exception"
        above.append((depth, name))
    return parents


def test_the_drawing_is_the_tree() -> None:
    """Every class stands in the drawing under its base, and the drawing names nothing else."""
    classes = {
        name: value.__bases__[0].__name__
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert drawn_tree() == classes


def test_config_invalid_keeps_every_problem_across_processes() -> None:
    """A child process's configuration error reaches the parent with all its lines."""
    error = errors.ConfigInvalid(["a: wrong", "b: wrong"])
    copy = pickle.loads(pickle.dumps(error))
    assert copy.problems == ("a: wrong", "b: wrong")
    assert str(copy) == "the settings have 2 mistakes:\n  a: wrong\n  b: wrong"


def test_the_next_step_is_no_mistake() -> None:
    """It stands below the mistakes, is not counted as one, and crosses processes with them."""
    error = pickle.loads(pickle.dumps(errors.ConfigInvalid(["a topic: is missing"], "do this")))
    assert str(error) == "the settings have a mistake:\n  a topic: is missing\ndo this"
