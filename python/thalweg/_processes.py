"""The command lines of worker processes, which find a function or class by its name."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from thalweg._errors import ConfigurationError

#: What a component is called in messages, and what it must be.
_KINDS = {
    "function": ("transform", "a function of a module, not one within another function"),
    "reader": ("reader", "a class of a module, not one within a function"),
    "writer": ("writer", "a class of a module, not one within a function"),
}


def checked(workers: int | None, sort: str) -> int:
    """Returns a number of processes; 0 for none."""
    if workers is not None and workers < 1:
        raise ValueError(f"a {_KINDS[sort][0]} has one worker or more, not {workers}")
    return workers or 0


def command(sort: str, found: object, name: str) -> list[str]:
    """Returns the command line of a process that calls a function or an instance of a class."""
    kind, what = _KINDS[sort]
    module = getattr(found, "__module__", None)
    path = getattr(found, "__qualname__", "<")
    if "<" in path or not isinstance(module, str):
        raise ConfigurationError(f"`{name}` cannot be found by worker processes: with `workers`, a {kind} is {what}")
    given: dict[str, Any] = {"sort": sort, "path": sys.path, "module": module, "name": path, "main": None}
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        if spec is not None and spec.name:
            given["module"] = spec.name
        elif getattr(main, "__file__", None):
            given["main"] = os.path.abspath(str(main.__file__))
        else:
            raise ConfigurationError(
                f"`{name}` cannot be found by worker processes: it was written in a notebook or at a prompt. "
                "Put it into a file and import it, or leave out `workers`"
            )
    # The engine adds the options and the id of its process.
    code = "import json, sys; given, options, parent = map(json.loads, sys.argv[1:]); sys.path[:] = given['path']; \
from thalweg._worker import main; main(given, options, parent)"
    return [sys.executable, "-c", code, json.dumps(given)]
