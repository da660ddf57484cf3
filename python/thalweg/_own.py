"""Components that users write themselves: transforms, readers and writers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from thalweg import _processes


@dataclass(frozen=True)
class Own:
    """A Python object that is a component."""

    sort: str
    object: object
    views: bool = False
    payload: bool = False
    #: True if a reader in worker processes receives compressed files decompressed.
    unpacks: bool = False
    #: The number of worker processes; 0 if the object is called in this process.
    workers: int = 0
    #: Builds the command line of a worker process.
    command: Callable[[], list[str]] | None = None


class Transform:
    """A function that is a transform: see `thalweg.transform`. It can still be called as a function."""

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
        workers = _processes.checked(self.workers, "function")
        if not workers:
            return Own("function", self.function, self.views, self.payload)
        command = partial(_processes.command, "function", self, self.name)
        return Own("function", None, self.views, self.payload, workers=workers, command=command)


class Reader(ABC):
    """The base class of readers, which make rows out of the bytes of files. Each worker has its own instance.

    A pipeline that receives files (`sources.files`, `sources.objects`) lists a reader among its transforms. It is
    given as the class or, with options, as `transforms.reader(MyReader, option=…)`. The options are the arguments
    for each new instance. `transforms.reader(MyReader, workers=4)` runs it in four processes.
    """

    #: True if compressed files (gzip, zstd) are recognised by their first bytes and decompressed. With `workers`, this
    #: is an attribute of the class.
    unpacks: bool = False

    def begin(self) -> None:  # noqa: B027 (who needs it defines it)
        """Called at the start of each file."""

    @abstractmethod
    def read(self, data: memoryview, at_end: bool) -> tuple[Any, int]:
        """Makes rows out of some bytes. Returns the rows and the number of bytes used.

        The rows are a `pyarrow.RecordBatch`, a list of dicts, or None. Unused bytes are passed again, followed by
        more; at the end of the file all must be used. An exception says why the rest of the file cannot be read:
        the file becomes a dead letter with that reason, and the rows read before it continue. `data` is valid only
        during the call.
        """


class Writer(ABC):
    """The base class of writers, which are sinks.

    A writer is given as the class or, with options, as `sinks.writer(MyWriter, option=…)`. The options are the
    arguments for the instance. `sinks.writer(MyWriter, workers=4)` runs it in four processes, each with an instance.
    """

    #: True to receive text and bytes as columns of views, without a copy. Few functions of `pyarrow` accept these.
    views: bool = False
    #: True to receive the column `payload` also for messages that have fields.
    payload: bool = False

    @abstractmethod
    def write(self, batch: Any) -> None:
        """Writes a `pyarrow.RecordBatch`. When it returns, the rows count as durable.

        Messages without fields have one column, `payload`. After a `TemporaryError` the engine passes the same
        batch again, after a pause; any other exception ends the run.
        """

    def finish(self) -> None:  # noqa: B027 (who needs it defines it)
        """Called after the last batch."""


class Calling(Writer):
    def __init__(self, function: Callable[[Any], object]) -> None:
        self.function = function

    def write(self, batch: Any) -> None:
        self.function(batch)
