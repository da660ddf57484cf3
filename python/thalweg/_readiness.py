"""Waits for descriptors. An event loop allows one reader and one writer per descriptor; this module shares them."""

import asyncio
from typing import IO, Any
from weakref import WeakKeyDictionary

Waiting = dict[tuple[int, bool], list["asyncio.Future[bool]"]]

# The waiting futures by descriptor and direction (true for writing).
_waiting: "WeakKeyDictionary[asyncio.AbstractEventLoop, Waiting]" = WeakKeyDictionary()


async def await_descriptor(file: int | IO[Any], to_write: bool, within: float | None) -> bool:
    """Waits until a descriptor can be read from or written to. Returns whether that happened in time."""
    descriptor = file if isinstance(file, int) else file.fileno()
    loop = asyncio.get_running_loop()
    waiting = _waiting.setdefault(loop, {})
    key = (descriptor, to_write)
    ready: asyncio.Future[bool] = loop.create_future()
    others = waiting.setdefault(key, [])
    others.append(ready)
    try:
        if len(others) == 1:
            add = loop.add_writer if to_write else loop.add_reader
            try:
                add(descriptor, _wake, others)
            except PermissionError:
                # A regular file is always ready: the system blocks in the read or write itself.
                return True
        await asyncio.wait((ready,), timeout=None if within is None else max(within, 0))
        return ready.done()
    finally:
        others.remove(ready)
        if not others:
            del waiting[key]
            (loop.remove_writer if to_write else loop.remove_reader)(descriptor)


def _wake(waiting: "list[asyncio.Future[bool]]") -> None:
    for ready in waiting:
        if not ready.done():
            ready.set_result(True)
