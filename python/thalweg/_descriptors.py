"""Waiting for descriptors, reading from them and writing to them, without blocking other evaluations."""

import io
import os
import socket
import ssl
from collections.abc import Coroutine
from typing import IO, Any, TypeAlias, cast

from thalweg._thalweg import Wait

File: TypeAlias = int | socket.socket | IO[Any] | io.RawIOBase
Bytes: TypeAlias = bytes | bytearray | memoryview

# The bits of poll.
_READ, _WRITE = 1, 4
# Marks an argument that was not passed.
RAISE: Any = object()


def _wait(file: File, mask: int, within: float | None, timeout_result: Any) -> Coroutine[Any, Any, Any]:
    descriptor = file if isinstance(file, int) else file.fileno()
    if descriptor < 0:
        raise ValueError(f"{file!r} is closed, so that nothing can wait for it")
    if timeout_result is RAISE:
        return cast("Coroutine[Any, Any, Any]", Wait(within, descriptor, mask))
    return cast("Coroutine[Any, Any, Any]", Wait(within, descriptor, mask, timeout_result))


def await_readable(file: File, within: float | None = None, timeout_result: Any = RAISE) -> Coroutine[Any, Any, Any]:
    """Waits until a descriptor, or a file that has one, can be read from or is at its end. Returns `True`.

    Several tasks may wait for the same descriptor, and readers that the program adds to its event loop stay. After
    `within` seconds returns `timeout_result`, or raises `TimedOut` if none is given.
    """
    return _wait(file, _READ, within, timeout_result)


def await_writable(file: File, within: float | None = None, timeout_result: Any = RAISE) -> Coroutine[Any, Any, Any]:
    """Waits until a descriptor, or a file that has one, can be written to. Returns `True`.

    Several tasks may wait for the same descriptor, and writers that the program adds to its event loop stay. After
    `within` seconds returns `timeout_result`, or raises `TimedOut` if none is given.
    """
    return _wait(file, _WRITE, within, timeout_result)


async def await_read(file: File, size: int) -> bytes:
    """Reads at most `size` bytes, as soon as there are any. Returns `b""` at the end of the file.

    The file is a descriptor, a socket, a pipe or another file opened in binary mode. Except for a socket, it stays
    non-blocking afterwards.
    """
    while (data := _read(file, size)) is None:
        await await_readable(file)
    return data


async def await_read_into(file: File, buffer: bytearray | memoryview) -> int:
    """Reads into a buffer as soon as there are bytes. Returns their number, 0 at the end of the file."""
    view = memoryview(buffer).cast("B")
    data = await await_read(file, len(view))
    view[: len(data)] = data
    return len(data)


async def await_written(file: File, data: Bytes) -> int:
    """Writes bytes as soon as there is room. Returns how many were written, which may be fewer than given.

    The file is as for `await_read`. What a buffered file holds is written before.
    """
    while (count := _written(file, data)) is None:
        await await_writable(file)
    return count


def _read(file: File, size: int) -> bytes | None:
    """Reads without waiting. Returns `None` if nothing is there."""
    try:
        if isinstance(file, ssl.SSLSocket):
            file.setblocking(False)
            return file.recv(size)
        if isinstance(file, socket.socket):
            return file.recv(size, socket.MSG_DONTWAIT)
        if isinstance(file, io.TextIOBase):
            raise TypeError(f"{file!r} is a text file; open it in binary mode, or pass its `buffer`")
        os.set_blocking(file if isinstance(file, int) else file.fileno(), False)
        if isinstance(file, int):
            return os.read(file, size)
        if isinstance(file, io.BufferedReader | io.BufferedRandom):
            # Bytes that the buffer holds come first. An empty answer means that it holds none.
            return file.read1(size) if file.peek(1) else file.raw.read(size)
        return cast("bytes | None", file.read(size))
    except (BlockingIOError, ssl.SSLWantReadError):
        return None


def _written(file: File, data: Bytes) -> int | None:
    """Writes without waiting. Returns `None` if there is no room."""
    try:
        if isinstance(file, ssl.SSLSocket):
            file.setblocking(False)
            return file.send(data)
        if isinstance(file, socket.socket):
            return file.send(data, socket.MSG_DONTWAIT)
        if isinstance(file, io.TextIOBase):
            raise TypeError(f"{file!r} is a text file; open it in binary mode, or pass its `buffer`")
        os.set_blocking(file if isinstance(file, int) else file.fileno(), False)
        if isinstance(file, int):
            return os.write(file, data)
        if isinstance(file, io.BufferedWriter | io.BufferedRandom):
            file.flush()
            return file.raw.write(data)
        return cast("int | None", file.write(data))
    except (BlockingIOError, ssl.SSLWantWriteError):
        return None
