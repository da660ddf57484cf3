"""The requests to a worker process: calls of a function, a reader or a writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from thalweg import _bridge

#: The bits of a request to a reader: the file ends with these bytes, the file begins with these bytes.
_AT_END, _BEGINS = 1, 2
#: The request to a writer to finish.
_FINISH = 1

#: Handles a request: its number and its body. Returns batches, and the number of bytes that a reader used.
Serve = Callable[[int, bytes], tuple[list[pa.RecordBatch], int]]


class Again(Exception):
    """A request that must be retried."""


def serving(sort: str, found: Any, options: dict[str, Any]) -> Serve:
    """Returns the handler of requests for a component."""
    if sort == "reader":
        return _reading(found(**options))
    if sort == "writer":
        return _writing(found(**options))
    function = getattr(found, "function", found)
    return lambda _, body: (list(_bridge.batches(function(_batch(body)))), 0)


def _reading(reader: Any) -> Serve:
    _bridge.reader(reader)

    def serve(mark: int, body: bytes) -> tuple[list[pa.RecordBatch], int]:
        rows, used = _bridge.read_bytes(reader, memoryview(body), bool(mark & _AT_END), bool(mark & _BEGINS))
        return ([] if rows is None else [pa.record_batch(rows)]), used

    return serve


def _writing(writer: Any) -> Serve:
    def serve(mark: int, body: bytes) -> tuple[list[pa.RecordBatch], int]:
        again = _bridge.write(writer, None if mark == _FINISH else _batch(body))
        if again is not None:
            raise Again(again)
        return [], 0

    return serve


def _batch(body: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(body)) as stream:
        return stream.read_next_batch()


def encoded(batch: pa.RecordBatch) -> pa.Buffer:
    """Returns a batch as a part of a reply."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()
