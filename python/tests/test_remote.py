import asyncio
import io
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from web import Web

import thalweg

DATA = bytes(range(251)) * 20_000


def test_only_what_is_read_is_fetched(web: Web) -> None:
    with thalweg.open(web.put("large", DATA)) as file:
        assert (file.size, file.etag, file.mode) == (len(DATA), '"1"', "rb")
        assert file.read_at(3_000_000, 100) == DATA[3_000_000:3_000_100]
        assert file.read_at(len(DATA) - 5, 100) == DATA[-5:]
        assert file.read_at(len(DATA) + 5, 100) == b""
        assert web.given < 40_000
        asked = len(web.requests)
        assert file.read_at(3_000_010, 50) == DATA[3_000_010:3_000_060]
        assert len(web.requests) == asked
        statistics = file.statistics()
        assert statistics["fetched"] == web.given
        assert statistics["held"] == sum(length for _, length in file.held())


def test_it_is_a_file_object(web: Web) -> None:
    data = b"first\nsecond\n" + b"x" * 100_000 + b"\nlast"
    file = thalweg.open(web.put("lines", data))
    assert isinstance(file, io.BufferedIOBase)
    assert file.readable()
    assert file.seekable()
    assert not file.writable()
    assert file.readline() == b"first\n"
    assert file.readline(3) == b"sec"
    assert file.tell() == 9
    assert file.readlines() == [b"ond\n", b"x" * 100_000 + b"\n", b"last"]
    assert file.read() == b""
    assert file.seek(-4, os.SEEK_END) == len(data) - 4
    assert file.read(2) + file.read1(9) == b"last"
    file.seek(0)
    assert list(file) == data.splitlines(keepends=True)
    file.seek(6)
    into = bytearray(6)
    assert (file.readinto(into), bytes(into)) == (6, b"second")
    assert file.seek(-3, os.SEEK_CUR) == 9
    for offset, whence in ((-1, os.SEEK_SET), (-10, os.SEEK_CUR), (-len(data) - 1, os.SEEK_END)):
        with pytest.raises(ValueError, match=rf"^`offset` is {offset}: the new position would be before the start"):
            file.seek(offset, whence)
    with pytest.raises(ValueError, match=r"^`whence` is -1: it must be 0, 1 or 2$"):
        file.seek(0, -1)
    for call in (lambda: file.read_ranges([(0, -1)]), lambda: file.prefetch([(0, -1)]), lambda: file.read_at(0, -1)):
        with pytest.raises(ValueError, match=r"^`length` is -1: it must be 0 or more$"):
            call()
    assert file.tell() == 9
    assert file.read(-1) == data[9:]
    assert (file.seek(0), file.read(None), file.read(-1)) == (0, data, b"")
    with pytest.raises(io.UnsupportedOperation):
        file.write(b"x")
    with pytest.raises(io.UnsupportedOperation):
        file.fileno()
    text = io.TextIOWrapper(file)
    text.seek(0)
    assert text.readline() == "first\n"
    text.close()
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        file.read(1)


def test_ranges_are_fetched_together(web: Web) -> None:
    file = thalweg.open(web.put("large", DATA), shortest=1, read_ahead=0)
    spans = [(at, 50) for at in range(0, 4_000_000, 1_000_000)] + [(len(DATA) - 10, 50), (10, 0)]
    assert file.read_ranges(spans) == [DATA[at : at + length] for at, length in spans]
    assert web.given < 1000
    assert len(web.requests) == 6


def test_what_is_fetched_before_it_is_read_is_not_fetched_again(web: Web) -> None:
    file = thalweg.open(web.put("large", DATA))
    file.prefetch([(1_000_000, 100), (2_000_000, 100)])
    assert (
        file.read_at(1_000_000, 100) + file.read_at(2_000_000, 100)
        == DATA[1_000_000:1_000_100] + DATA[2_000_000:2_000_100]
    )
    assert sum(request.startswith("GET") for request in web.requests) == 2


def test_who_reads_in_order_reads_all_of_it_whatever_the_memory(web: Web) -> None:
    file = thalweg.open(web.put("large", DATA), memory=1 << 20)
    assert file.read() == DATA
    file.seek(0)
    pieces = iter(lambda: file.read(10_000), b"")
    assert b"".join(pieces) == DATA
    into = bytearray(len(DATA) + 5)
    assert file.readinto_at(0, into) == len(DATA)
    assert into[: len(DATA)] == DATA
    assert file.statistics()["held"] <= 1 << 20


def test_reads_can_be_awaited(web: Web) -> None:
    file = thalweg.open(web.put("large", DATA))

    async def read() -> list[bytes]:
        one, several, end = await asyncio.gather(
            file.aread(100, 50), file.aread_ranges([(0, 5), (1_000_000, 5)]), file.aread(len(DATA) - 3, 50)
        )
        again = file.aread(100, 50)
        assert again.done()
        return [one, *several, end, await again]

    assert asyncio.run(read()) == [DATA[100:150], DATA[:5], DATA[1_000_000:1_000_005], DATA[-3:], DATA[100:150]]


def test_who_gives_up_waiting_disturbs_nobody(web: Web) -> None:
    file = thalweg.open(web.put("large", DATA))
    web.stalls.set()

    async def read() -> bytes:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(file.aread(100, 50), 0.05)
        web.stalls.clear()
        return await file.aread(100, 50)

    assert asyncio.run(read()) == DATA[100:150]


def test_what_is_not_there_is_the_error_that_files_have(web: Web, tmp_path: Path) -> None:
    url = web.put("there", b"x")
    with pytest.raises(FileNotFoundError) as absent:
        thalweg.open(url + "-not")
    assert absent.value.filename.endswith("there-not")
    with pytest.raises(FileNotFoundError):
        thalweg.open(tmp_path / "none")
    with pytest.raises(thalweg.ConfigurationError, match="`ftp` is not among"):
        thalweg.open("ftp://example.org/x")
    with pytest.raises(ValueError, match="read-only"):
        thalweg.open(url, "wb")
    with pytest.raises(thalweg.ConfigurationError, match="on_change is `panic`"):
        thalweg.open(url, on_change="panic")


def test_a_file_that_changes_is_an_error_or_begins_anew(web: Web) -> None:
    url = web.put("large", DATA)
    strict, lenient = thalweg.open(url), thalweg.open(url, on_change="restart")
    assert strict.read_at(0, 5) == lenient.read_at(0, 5) == DATA[:5]
    web.put("large", b"-" + DATA, tag="2")
    with pytest.raises(OSError, match="has changed"):
        strict.read_at(1_000_000, 5)
    assert lenient.read_at(1_000_000, 5) == DATA[999_999:1_000_004]
    assert lenient.read_at(0, 5) == b"-" + DATA[:4]
    assert lenient.statistics()["restarts"] == 1


def test_a_cache_serves_the_next_one(web: Web, tmp_path: Path) -> None:
    url = web.put("large", DATA)
    for _ in range(2):
        with thalweg.open(url, cache=tmp_path / "cache", max_cache_bytes=1 << 20) as file:
            assert file.read_at(1_000_000, 5) == DATA[1_000_000:1_000_005]
    assert sum(request.startswith("GET") for request in web.requests) == 1


def test_files_of_this_machine_are_read_by_path_and_url(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    for url in (path, str(path), path.as_uri()):
        assert thalweg.open(url).read_at(1000, 10) == DATA[1000:1010]


def test_a_pickle_opens_it_again_where_it_was(web: Web) -> None:
    file = thalweg.open(web.put("large", DATA), shortest=1)
    file.seek(77)
    again = pickle.loads(pickle.dumps(file))
    assert (again.tell(), again.read(3)) == (77, DATA[77:80])


def child(file: thalweg.RemoteFile, url: str) -> None:
    assert file.read_at(100, 10) == DATA[100:110]
    assert file.read_at(3_000_000, 10) == DATA[3_000_000:3_000_010]
    assert thalweg.open(url).read_at(500, 10) == DATA[500:510]


def test_a_process_that_was_forked_reads_on(web: Web) -> None:
    url = web.put("large", DATA)
    file = thalweg.open(url)
    assert file.read_at(100, 10) == DATA[100:110]
    process = multiprocessing.get_context("fork").Process(target=child, args=(file, url))
    process.start()
    process.join(30)
    assert process.exitcode == 0
    assert file.read_at(4_000_000, 10) == DATA[4_000_000:4_000_010]


def test_a_signal_ends_the_wait(web: Web) -> None:
    file = thalweg.open(web.put("large", DATA))
    web.stalls.set()
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        file.read_at(0, 10)
    timer.join()
    web.stalls.clear()
    assert file.read_at(0, 10) == DATA[:10]


def test_threads_read_one_file(web: Web) -> None:
    file = thalweg.open(web.put("large", DATA), memory=1 << 20)
    wrong: list[int] = []

    def read(lane: int) -> None:
        for step in range(200):
            at = (lane * 7919 + step * 104_729) % (len(DATA) - 100)
            if file.read_at(at, 100) != DATA[at : at + 100]:
                wrong.append(at)

    threads = [threading.Thread(target=read, args=(lane,)) for lane in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_process_that_ends_while_others_wait_ends_as_it_should(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    program = """
import asyncio, sys, thalweg
file = thalweg.open(sys.argv[1], shortest=1, read_ahead=0)
async def leave():
    await [file.aread(at * 4000, 10) for at in range(1000)][0]
asyncio.run(leave())
"""
    for _ in range(8):
        subprocess.run([sys.executable, "-c", program, path], check=True, timeout=30)
