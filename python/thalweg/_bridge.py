"""The functions that the engine calls: the layer between its batches and the functions of users."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from thalweg._errors import TemporaryError, text_of
from thalweg._thalweg import Batch, check_nesting

try:
    import pyarrow as pa
except ModuleNotFoundError:

    class _Missing:
        """Stands in for pyarrow if it is not installed. Messages of only text or bytes work without it."""

        def __getattr__(self, name: str) -> Any:
            raise ModuleNotFoundError("transforms and batches in Python need pyarrow: `pip install pyarrow`")

    pa = _Missing()


def apply(function: Callable[[pa.RecordBatch], object], batch: Batch) -> list[pa.RecordBatch]:
    """Calls a transform, and returns the batches that it made."""
    return list(batches(function(pa.record_batch(batch))))


def batches(made: object) -> Iterator[pa.RecordBatch]:
    """Yields the batches of a transform's result, whatever its form."""
    if made is None:
        return
    if isinstance(made, pa.RecordBatch):
        yield made
    elif hasattr(made, "__arrow_c_stream__"):
        yield from pa.table(made).to_batches()
    elif isinstance(made, Iterable) and not isinstance(made, str | bytes | dict):
        for one in made:
            yield from batches(one)
    else:
        raise TypeError(f"a transform returns a pyarrow.RecordBatch, several, or None, not {type(made).__name__}")


def rows(messages: list[dict[str, Any]]) -> pa.RecordBatch:
    """Converts messages to rows. Messages may have different fields; missing ones are NULL."""
    check_nesting(messages)
    # A dict instead of a set, because it keeps the order.
    names = list({name: None for message in messages for name in message})
    if not names:
        # Only an array of structs has rows without columns.
        return pa.RecordBatch.from_struct_array(pa.array(messages, type=pa.struct([])))
    if not all(isinstance(name, str) for name in names):
        return rows([{str(name): value for name, value in message.items()} for message in messages])
    columns = [pa.array([message.get(name) for message in messages]) for name in names]
    return pa.record_batch(columns, names=names)


def stream(object_: Any) -> Any:
    """Returns an object with Arrow's C stream interface, for an object with any of Arrow's C interfaces."""
    if hasattr(object_, "__arrow_c_stream__"):
        return object_
    if hasattr(object_, "__arrow_c_array__"):
        return pa.table(pa.record_batch(object_))
    raise TypeError(f"{type(object_).__name__} speaks neither `__arrow_c_stream__` nor `__arrow_c_array__`")


def reader(made: Any) -> bool:
    """True if a reader wants its files decompressed."""
    if not callable(getattr(made, "read", None)):
        raise TypeError(f"{type(made).__name__} is no reader: it has no method `read`")
    return bool(getattr(made, "unpacks", False))


def read(made: Any, batch: Batch, at_end: bool, begins: bool) -> tuple[pa.RecordBatch | None, int]:
    """Calls a reader. It sees the engine's own memory, without a copy."""
    column = pa.record_batch(batch).column(0)
    buffer = column.buffers()[1]
    data = memoryview(buffer if buffer is not None else b"")[column.offset : column.offset + len(column)]
    return read_bytes(made, data, at_end, begins)


def read_bytes(made: Any, data: memoryview, at_end: bool, begins: bool) -> tuple[pa.RecordBatch | None, int]:
    """Calls a reader with bytes."""
    if begins and hasattr(made, "begin"):
        made.begin()
    got, used = made.read(data, at_end)
    if isinstance(got, list):
        got = rows(got) if got else None
    return got, used


def write(made: Any, batch: Batch | None) -> str | None:
    """Calls a writer with a batch, or to finish. Returns why the call must be retried, or None."""
    try:
        if batch is not None:
            made.write(pa.record_batch(batch))
        elif hasattr(made, "finish"):
            made.finish()
    except TemporaryError as error:
        return text_of(error) or type(error).__name__
    return None
