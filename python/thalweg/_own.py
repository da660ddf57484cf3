"""What users write themselves to be components: transforms, readers and writers."""

from __future__ import annotations

import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thalweg._errors import ConfigurationError


@dataclass(frozen=True)
class Own:
    """An object of Python that is a component."""

    sort: str
    object: object
    views: bool = False
    payload: bool = False
    workers: int = 0
    #: Makes the command line of a worker process.
    command: Callable[[], list[str]] | None = None


class Transform:
    """A function that is a transform: see `thalweg.transform`. It can be called as before."""

    def __init__(
        self, function: Callable[..., Any], workers: int | None, name: str | None, views: bool, payload: bool
    ) -> None:
        self.function = function
        self.workers = workers
        self.name: str = name or str(getattr(function, "__name__", type(function).__name__))
        self.views = views
        self.payload = payload
        for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
            if hasattr(function, attribute):
                setattr(self, attribute, getattr(function, attribute))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def own(self) -> Own:
        if self.workers is None:
            return Own("function", self.function, self.views, self.payload)
        return Own("workers", None, self.views, self.payload, self.workers, self._command)

    def _command(self) -> list[str]:
        module = getattr(self, "__module__", None)
        path = getattr(self, "__qualname__", "<")
        if "<" in path or not isinstance(module, str):
            raise ConfigurationError(
                f"`{self.name}` cannot be found by worker processes: with `workers`, a transform is a function of a "
                "module, not one within another function"
            )
        given: dict[str, Any] = {"path": sys.path, "module": module, "name": path, "main": None}
        if module == "__main__":
            main = sys.modules["__main__"]
            spec = getattr(main, "__spec__", None)
            if spec is not None and spec.name:
                given["module"] = spec.name
            elif getattr(main, "__file__", None):
                given["main"] = os.path.abspath(str(main.__file__))
            else:
                raise ConfigurationError(
                    f"`{self.name}` cannot be found by worker processes: it was written in a notebook or at a prompt. "
                    "Put it into a file and import it, or leave out `workers`"
                )
        code = "import json, sys; given = json.loads(sys.argv[1]); sys.path[:] = given['path']; \
from thalweg._worker import main; main(given)"
        return [sys.executable, "-c", code, json.dumps(given)]


class Reader(ABC):
    """Makes rows of the bytes of files: the base of one's own. There is an instance for each worker.

    A pipeline that is fed by files (`sources.files`, `sources.objects`) has it among its transforms, as the class or,
    with options, as `transforms.reader(MyReader, option=…)`: they are the arguments that instances are made with.
    """

    #: Whether files that are compressed (gzip, zstd) are recognised by their first bytes, and unpacked before.
    unpacks: bool = False

    def begin(self) -> None:  # noqa: B027 (who needs it defines it)
        """A file begins."""

    @abstractmethod
    def read(self, data: memoryview, at_end: bool) -> tuple[Any, int]:
        """Makes rows of some bytes: gives them, and how many bytes were used.

        The rows are a `pyarrow.RecordBatch`, a list of dicts, or None. What was not used is given again, with more
        behind it; at the end of the file all must be used. What this raises is why the rest of the file cannot be
        read: it goes to the dead letters with that reason, and what was read before goes on. `data` is only there
        during the call.
        """


class Writer(ABC):
    """Puts rows somewhere: the base of one's own.

    It is a sink, as the class or, with options, as `sinks.writer(MyWriter, option=…)`: they are the arguments that
    the instance is made with.
    """

    #: Text and bytes come as columns of views, without a copy; `pyarrow` has few functions that take these.
    views: bool = False
    #: Messages that have fields come with their payload as well, as the column `payload`.
    payload: bool = False

    @abstractmethod
    def write(self, batch: Any) -> None:
        """Writes a `pyarrow.RecordBatch`; when it returns the rows are in safety.

        Messages without fields have one column, `payload`. After a `TemporaryError` the same batch is given again,
        after a pause; any other exception ends the run.
        """

    def finish(self) -> None:  # noqa: B027 (who needs it defines it)
        """All has come."""


class Calling(Writer):
    def __init__(self, function: Callable[[Any], object]) -> None:
        self.function = function

    def write(self, batch: Any) -> None:
        self.function(batch)
