"""A process that calls a component of Python: it reads requests from its standard input and replies on its standard
output.

A request is three parts: a number whose meaning depends on the component, the length of the body in bytes, and the
body. A reply is any number of batches followed by an end, or a reason for failure. Each part of a reply has a header of
two numbers: its kind and its length in bytes.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import types
from typing import Any, BinaryIO

from thalweg._errors import text_of
from thalweg._thalweg import end_with_parent

#: True while a script is run again to find a component in it. The script must not start a run then.
begins = False

_READY, _RESULT, _DONE, _FAILED, _AGAIN = range(5)


def main(given: dict[str, Any], options: dict[str, Any], parent: int) -> None:
    """Serves until the input ends, or the process `parent`, which started this one."""
    end_with_parent(parent)
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    # Output that the component prints must not reach the engine.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    try:
        found = _find(given)
        # Imports pyarrow, which the process that starts the workers may not need.
        from thalweg import _serving

        serve = _serving.serving(given["sort"], found, options)
    except BaseException as error:
        _reply(replies, _FAILED, _text(error))
        return
    _reply(replies, _READY)

    while header := requests.read(16):
        mark, length = (int.from_bytes(part, "little") for part in (header[:8], header[8:]))
        try:
            made, used = serve(mark, requests.read(length))
            parts = [_serving.encoded(one) for one in made]
            end = used.to_bytes(8, "little")
        except _serving.Again as error:
            _reply(replies, _AGAIN, str(error).encode())
            continue
        except Exception as error:
            _reply(replies, _FAILED, _text(error))
            continue
        for part in parts:
            _reply(replies, _RESULT, part)
        _reply(replies, _DONE, end)
    sys.stdout.flush()


def _reply(replies: BinaryIO, kind: int, body: Any = b"") -> None:
    replies.write(kind.to_bytes(8, "little") + len(memoryview(body)).to_bytes(8, "little"))
    replies.write(body)
    replies.flush()


def _text(error: BaseException) -> bytes:
    return f"{type(error).__name__}: {text_of(error)}".encode()


def _find(given: dict[str, Any]) -> Any:
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
    return found
