"""What the engine calls: it stands between batches as the engine gives them and functions of users."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from thalweg._errors import TemporaryError
from thalweg._thalweg import Batch

try:
    import pyarrow as pa
except ModuleNotFoundError:

    class _Missing:
        """What is not installed: messages that are only text or bytes can do without it."""

        def __getattr__(self, name: str) -> Any:
            raise ModuleNotFoundError("transforms and batches in Python need pyarrow: `pip install pyarrow`")

    pa = _Missing()


def apply(function: Callable[[pa.RecordBatch], object], batch: Batch) -> list[pa.RecordBatch]:
    """Calls a transform, and gives the batches that it made."""
    return list(batches(function(pa.record_batch(batch))))


def batches(made: object) -> Iterator[pa.RecordBatch]:
    """The batches that a transform made, in whatever form it gave them."""
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
        raise TypeError(f"a transform gives a pyarrow.RecordBatch, None, or several of them, not {type(made).__name__}")


def rows(messages: list[dict[str, Any]]) -> pa.RecordBatch:
    """Messages as rows. They may have different fields: those that one has not are NULL."""
    # A dict, and no set, since it keeps the order.
    names = list({str(name): None for message in messages for name in message})
    columns = [pa.array([message.get(name) for message in messages]) for name in names]
    return pa.record_batch(columns, names=names)


def stream(object_: Any) -> Any:
    """What speaks Arrow's C stream interface, for anything that speaks one of its interfaces."""
    if hasattr(object_, "__arrow_c_stream__"):
        return object_
    if hasattr(object_, "__arrow_c_array__"):
        return pa.table(pa.record_batch(object_))
    raise TypeError(f"{type(object_).__name__} speaks neither `__arrow_c_stream__` nor `__arrow_c_array__`")


def reader(made: Any) -> bool:
    """Whether a reader wants its files unpacked."""
    if not callable(getattr(made, "read", None)):
        raise TypeError(f"{type(made).__name__} is no reader: it has no method `read`")
    return bool(getattr(made, "unpacks", False))


def read(made: Any, batch: Batch, at_end: bool, begins: bool) -> tuple[pa.RecordBatch | None, int]:
    """Has a reader read; its bytes are those of the engine, not copied."""
    if begins and hasattr(made, "begin"):
        made.begin()
    column = pa.record_batch(batch).column(0)
    buffer = column.buffers()[1]
    data = memoryview(buffer if buffer is not None else b"")[column.offset : column.offset + len(column)]
    got, used = made.read(data, at_end)
    if isinstance(got, list):
        got = rows(got) if got else None
    return got, used


def write(made: Any, batch: Batch | None) -> str | None:
    """Has a writer write a batch, or finish; what it gives is why the same is to be tried again."""
    try:
        if batch is not None:
            made.write(pa.record_batch(batch))
        elif hasattr(made, "finish"):
            made.finish()
    except TemporaryError as error:
        return str(error) or type(error).__name__
    return None
