"""Waiting for descriptors, and concurrent reads and writes."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from evaluated import waiting

from thalweg.evaluations import (
    TimedOut,
    await_read,
    await_read_into,
    await_readable,
    await_writable,
    await_written,
    concurrent_proc,
    concurrently,
    concurrently_read,
    concurrently_write,
    wait,
)

pytestmark = pytest.mark.usefixtures("any_loop")


def test_readers_and_writers_of_the_program_stay() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            seen: list[str] = []
            loop.add_reader(ours, seen.append, "reader")
            assert await await_readable(ours, within=0.001, timeout_result=None) is None
            awaited = concurrently(await_readable, ours)
            await wait(0)
            theirs.send(b"x")
            assert await awaited is True
            await asyncio.sleep(0.001)
            assert "reader" in seen
            assert loop.remove_reader(ours)
            loop.add_writer(ours, seen.append, "writer")
            assert await await_writable(ours) is True
            await asyncio.sleep(0.001)
            assert "writer" in seen
            assert loop.remove_writer(ours)
            assert not loop.remove_writer(ours)

    asyncio.run(main())


def test_a_wait_for_a_descriptor_ends_when_it_is_ready_and_not_before() -> None:
    async def main() -> None:
        reader, writer = os.pipe()
        waits = [concurrently(await_readable, reader) for _ in range(3)]
        await asyncio.sleep(0.005)
        assert not any(evaluation.is_concluded() for evaluation in waits)
        asyncio.get_running_loop().call_later(0.001, os.write, writer, b"x")
        assert await asyncio.gather(*waits) == [True] * 3
        os.read(reader, 1)
        assert await await_readable(reader, 0.001, "nothing") == "nothing"
        os.close(writer)
        # A closed peer is the end of the file, which can be read.
        assert await await_readable(reader) is True
        os.close(reader)

    asyncio.run(main())


def test_a_descriptor_number_that_is_used_again_is_waited_for_again() -> None:
    async def main() -> None:
        for _ in range(3):
            reader, writer = os.pipe()
            evaluation = concurrently(await_readable, reader)
            await asyncio.sleep(0.001)
            evaluation.cancel()
            # The number is free again while the event loop may still know it.
            os.close(reader)
            os.close(writer)
            reader, writer = os.pipe()
            again = concurrently(await_readable, reader)
            await asyncio.sleep(0.001)
            os.write(writer, b"x")
            assert await again.await_result(within=60) is True
            os.close(reader)
            os.close(writer)

    asyncio.run(main())


def test_a_descriptor_that_is_not_open_is_an_error() -> None:
    async def main() -> None:
        reader, writer = os.pipe()
        os.close(reader)
        os.close(writer)
        with pytest.raises(OSError, match=r"Bad file descriptor|bad"):
            await await_readable(reader)
        ours, _theirs = socket.socketpair()
        ours.close()
        with pytest.raises(ValueError, match="is closed"):
            await await_readable(ours)
        _theirs.close()

    asyncio.run(main())


def test_reads_and_writes_of_pipes_wait_where_they_must() -> None:
    async def main() -> None:
        reader, writer = os.pipe()
        with os.fdopen(reader, "rb") as source, os.fdopen(writer, "wb") as target:
            reading = concurrently_read(source, 1024)
            await asyncio.sleep(0.001)
            assert not reading.is_concluded()
            assert await concurrently_write(target, b"Hello!") == 6
            assert await reading == b"Hello!"
            room = await await_written(target, bytes(1 << 20))
            assert 0 < room < 1 << 20
            writing = concurrently_write(target, b"more")
            await asyncio.sleep(0.001)
            assert not writing.is_concluded()
            buffer = bytearray(1 << 20)
            assert await await_read_into(source, buffer) > 0
            assert await writing == 4
        with pytest.raises(ValueError, match="closed"):
            await await_read(source, 1)

    asyncio.run(main())


def test_a_buffered_file_gives_first_what_its_buffer_holds() -> None:
    async def main() -> None:
        reader, writer = os.pipe()
        with os.fdopen(reader, "rb") as source:
            os.write(writer, b"one line\nrest")
            assert source.readline() == b"one line\n"
            assert await await_read(source, 100) == b"rest"
            os.close(writer)
            assert await await_read(source, 100) == b""

    asyncio.run(main())


def test_sockets_and_descriptors_are_read_and_written() -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            reading = concurrently_read(ours, 5)
            assert await await_written(theirs, b"sound") == 5
            assert await reading == b"sound"
            # A socket keeps its mode.
            assert ours.getblocking()
        reader, writer = os.pipe()
        assert await await_written(writer, memoryview(b"depth")) == 5
        assert await await_read(reader, 100) == b"depth"
        os.close(reader)
        os.close(writer)

    asyncio.run(main())


def test_a_text_file_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        with open(tmp_path / "text", "w+") as file:
            with pytest.raises(TypeError, match="open it in binary mode"):
                await await_read(file, 1)
            with pytest.raises(TypeError, match="open it in binary mode"):
                await await_written(file, b"x")

    asyncio.run(main())


def test_many_descriptors_are_waited_for_at_once() -> None:
    async def main() -> None:
        pairs = [os.pipe() for _ in range(300)]
        proc: Any = concurrent_proc(await_readable)
        waits = [waiting(proc.call_nonblock(reader)) for reader, _ in pairs]
        await asyncio.sleep(0)
        for _, writer in reversed(pairs):
            os.write(writer, b"x")
        assert await asyncio.gather(*waits) == [True] * len(pairs)
        os.read(pairs[0][0], 1)
        with pytest.raises(TimedOut):
            await await_readable(pairs[0][0], within=0)
        for pair in pairs:
            for descriptor in pair:
                os.close(descriptor)

    asyncio.run(main())
