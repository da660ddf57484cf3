"""The decorator of transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

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
    """Makes a function a transform: it is given a `pyarrow.RecordBatch`, and gives one, several (a list, a generator)
    or None.

    Messages that have no fields have one column, `payload`; what stands in that column of a result are the payloads
    from then on. Where a result has as many rows and no such column, the payloads stay. What the function raises is
    why the messages of that batch leave by `errors`. The order of messages is kept.

    `workers` is for functions that hold the interpreter lock: so many processes call it, each a batch at a time. The
    function must then be found by its name in a module, as with `multiprocessing`. A process that dies is begun again;
    if it dies of the same batch once more, the messages of that leave by `errors`, and the run goes on.

    `name` is what it is called in statistics; by default as the function. With `payload`, messages that have fields
    have the column `payload` as well. With `views`, text and bytes are columns of views as the engine has them,
    without a copy; `pyarrow` has few functions that take these, so by default they are copied into columns of plain
    text and bytes.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"a transform has one worker or more, not {workers}")

    def made(function: Callable[..., Any]) -> Transform:
        return Transform(function, workers, name, views, payload)

    return made if function is None else made(function)
