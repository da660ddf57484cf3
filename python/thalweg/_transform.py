"""The decorator of transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from thalweg import _processes
from thalweg._own import Transform


@overload
def transform(function: Callable[..., Any], /) -> Transform: ...
@overload
def transform(
    function: None = None,
    /,
    *,
    workers: int | None = None,
    name: str | None = None,
    views: bool = False,
    payload: bool = False,
) -> Callable[[Callable[..., Any]], Transform]: ...
def transform(
    function: Callable[..., Any] | None = None,
    /,
    *,
    workers: int | None = None,
    name: str | None = None,
    views: bool = False,
    payload: bool = False,
) -> Transform | Callable[[Callable[..., Any]], Transform]:
    """Makes a function a transform. It receives a `pyarrow.RecordBatch`, and returns one, several (a list, a
    generator) or None.

    Messages without fields have one column, `payload`. A column `payload` in the result becomes the new payloads.
    Without this column, the payloads stay if the result has as many rows as the batch; otherwise they are empty.
    If the function raises an exception, the messages of that batch leave by `errors`, with the exception as the
    reason. The order of messages is kept.

    `workers` is for functions that hold the interpreter lock: the function runs in this number of processes, one
    batch at a time in each. It must then be importable by its name in a module, as with `multiprocessing`. A
    process that dies is restarted and gets its batch again. If it dies again, the messages of that batch leave by
    `errors`, and the run continues.

    `name` is the name in statistics; by default that of the function. With `payload`, messages that have fields
    have the column `payload` as well. With `views`, text and bytes are columns of views as in the engine, without
    a copy. Few functions of `pyarrow` accept these, so by default they are copied into columns of plain text and
    bytes.
    """
    _processes.checked(workers, "function")

    def made(function: Callable[..., Any]) -> Transform:
        return Transform(function, workers, name, views, payload)

    return made if function is None else made(function)
