"""A process that calls a transform: it reads batches from its standard input and replies on its standard output.

Each batch is preceded by its length in bytes. A reply is any number of results followed by an end, or a reason for
failure. Each part of a reply has a header of two numbers: its kind and its length in bytes.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import types
from collections.abc import Callable
from typing import Any, BinaryIO

#: True while a script is run again to find a function in it. The script must not start a run then.
begins = False

_READY, _RESULT, _DONE, _FAILED = range(4)


def main(given: dict[str, Any]) -> None:
    """Serves until the input ends."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    # Output that the function prints must not reach the engine.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    try:
        function = _find(given)
        from thalweg import _bridge
    except BaseException as error:
        _reply(replies, _FAILED, _text(error))
        return
    _reply(replies, _READY)
    import pyarrow as pa

    while length := requests.read(8):
        request = requests.read(int.from_bytes(length, "little"))
        try:
            with pa.ipc.open_stream(pa.py_buffer(request)) as stream:
                batch = stream.read_next_batch()
            made = list(_bridge.batches(function(batch)))
        except Exception as error:
            _reply(replies, _FAILED, _text(error))
            continue
        for one in made:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, one.schema) as writer:
                writer.write_batch(one)
            _reply(replies, _RESULT, sink.getvalue())
        _reply(replies, _DONE)
    sys.stdout.flush()


def _reply(replies: BinaryIO, kind: int, body: Any = b"") -> None:
    replies.write(kind.to_bytes(8, "little") + len(memoryview(body)).to_bytes(8, "little"))
    replies.write(body)
    replies.flush()


def _text(error: BaseException) -> bytes:
    try:
        text = str(error)
    except Exception:
        text = "the exception has no text, because its `__str__` failed"
    # A text may have surrogates, which UTF-8 does not have.
    return f"{type(error).__name__}: {text}".encode(errors="backslashreplace")


def _find(given: dict[str, Any]) -> Callable[[Any], object]:
    global begins
    begins = True
    if given["main"] is not None:
        module = types.ModuleType("__mp_main__")
        # Code that looks up objects by module name, such as pickle, finds them under either name.
        sys.modules["__main__"] = sys.modules["__mp_main__"] = module
        module.__dict__.update(runpy.run_path(given["main"], run_name="__mp_main__"))
    else:
        module = importlib.import_module(given["module"])
    begins = False
    found: Any = module
    for name in given["name"].split("."):
        found = getattr(found, name)
    function: Callable[[Any], object] = getattr(found, "function", found)
    return function
