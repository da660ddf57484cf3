"""Waiting for descriptors, of which an event loop has one reader and one writer each."""

import asyncio
from typing import IO, Any
from weakref import WeakKeyDictionary

Waiting = dict[tuple[int, bool], list["asyncio.Future[bool]"]]

# Who waits, for which descriptor, and whether to write.
_waiting: "WeakKeyDictionary[asyncio.AbstractEventLoop, Waiting]" = WeakKeyDictionary()


async def await_descriptor(file: int | IO[Any], to_write: bool, within: float | None) -> bool:
    """Waits until something can be read from or written to, and says whether that came in time."""
    descriptor = file if isinstance(file, int) else file.fileno()
    loop = asyncio.get_running_loop()
    waiting = _waiting.setdefault(loop, {})
    place = (descriptor, to_write)
    ready: asyncio.Future[bool] = loop.create_future()
    others = waiting.setdefault(place, [])
    others.append(ready)
    try:
        if len(others) == 1:
            add = loop.add_writer if to_write else loop.add_reader
            try:
                add(descriptor, _tell, others)
            except PermissionError:
                # A regular file, for which the system waits by itself.
                return True
        await asyncio.wait((ready,), timeout=None if within is None else max(within, 0))
        return ready.done()
    finally:
        others.remove(ready)
        if not others:
            del waiting[place]
            (loop.remove_writer if to_write else loop.remove_reader)(descriptor)


def _tell(waiting: "list[asyncio.Future[bool]]") -> None:
    for ready in waiting:
        if not ready.done():
            ready.set_result(True)
