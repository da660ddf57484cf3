"""
Measures reads and writes of sparse files against svfsc 0.4.1, and small reads of cached data against fsspec's caches.

Times are CPU times of one thread, so that other load on the machine matters less; benchmarks with threads use wall
time. Each figure is the median of rounds in which all contenders take turns, in nanoseconds per call, including the
loop. The limit is the time of the same loop over slices of a bytes object.

Usage: sparse.py [--quick]

Without an importable svfsc, its rows are left out. To install it:

    pip install --target DIR svfsc==0.4.1
    PYTHONPATH=DIR python sparse.py
"""

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

try:
    # Imported before ours, which registers the same name if svfsc is not installed.
    import svfsc as theirs
except ImportError:
    theirs = None

import fsspec
from fsspec.caching import BlockCache, BytesCache, ReadAheadCache

import thalweg
import thalweg.svfsc as ours

QUICK = "--quick" in sys.argv
ROUNDS = 3 if QUICK else 7
MEBIBYTE = 1 << 16 if QUICK else 1 << 20
RECORDS = 1000 if QUICK else 23_830
SIZES = [1, 64] if QUICK else [1 << power for power in range(10)]
BATCH = 1024

Work = Callable[[], object]
missed = 0


def compare(
    contenders: dict[str, tuple[Work, int]], clock: Callable[[], int] = time.thread_time_ns
) -> dict[str, float]:
    """Returns the median time per call of each contender. Its work makes the given number of calls."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, (work, calls) in contenders.items():
            start = clock()
            work()
            times[name].append((clock() - start) / calls)
    return {name: statistics.median(taken) for name, taken in times.items()}


def goal(is_reached: bool, text: str) -> None:
    global missed
    missed += not is_reached
    print(f"  {'✓' if is_reached else '✗'} {text}")


def head(title: str, names: list[str]) -> None:
    print(f"\n{title}\n  {'':>12}" + "".join(f"{name:>20}" for name in names))


def row(label: object, times: dict[str, float], beside: str) -> None:
    """Prints times, each with the ratio of the peer's time to it."""
    cells = []
    for name, taken in times.items():
        ratio = f" ({times[beside] / taken:.1f}x)" if beside in times and name not in (beside, "limit") else ""
        cells.append(f"{f'{taken:,.0f}{ratio}':>20}")
    print(f"  {label!s:>12}" + "".join(cells), flush=True)


def files() -> dict[str, Callable[[], Any]]:
    made: dict[str, Callable[[], Any]] = {"svfsc": lambda: theirs.cSVF("file")} if theirs else {}
    made["thalweg.svfsc"] = lambda: ours.cSVF("file")
    made["SparseFile"] = lambda: thalweg.SparseFile("file")
    return made


def written(file: Any, positions: range, data: bytes) -> Any:
    write = file.write
    for position in positions:
        write(position, data)
    return file


def read_all(file: Any, positions: range, length: int) -> None:
    read = file.read
    for position in positions:
        read(position, length)


def read_many(file: Any, batches: list[list[tuple[int, int]]]) -> None:
    for batch in batches:
        file.read_many(batch)


def write_new(make: Callable[[], Any], positions: range, data: bytes) -> None:
    written(make(), positions, data)


def write_many(batches: list[list[tuple[int, bytes]]]) -> None:
    file = thalweg.SparseFile("file")
    for batch in batches:
        file.write_many(batch)


def slices(data: bytes, positions: range, length: int) -> None:
    for position in positions:
        data[position : position + length]


def batched(items: list[Any]) -> list[list[Any]]:
    return [items[at : at + BATCH] for at in range(0, len(items), BATCH)]


def reads(apart: bool) -> None:
    names = [*files(), "read_many", "limit"]
    head(f"Reads of a mebibyte in blocks of so many bytes, {'apart' if apart else 'from one block'}", names)
    slower = []
    for size in SIZES:
        calls = MEBIBYTE // size
        positions = range(0, calls * (size + 1), size + 1) if apart else range(0, MEBIBYTE, size)
        contenders: dict[str, tuple[Work, int]] = {}
        for name, make in files().items():
            file = written(make(), positions, b"x" * size) if apart else written(make(), range(1), b"x" * MEBIBYTE)
            contenders[name] = (partial(read_all, file, positions, size), calls)
        batches = batched([(position, size) for position in positions])
        contenders["read_many"] = (partial(read_many, file, batches), calls)
        data = bytes(positions[-1] + size)
        contenders["limit"] = (partial(slices, data, positions, size), calls)
        times = compare(contenders)
        row(size, times, "svfsc")
        if theirs:
            slower += [size] if max(times["thalweg.svfsc"], times["SparseFile"]) > times["svfsc"] else []
            if size == 1 and apart:
                goal(times["svfsc"] >= 3 * times["SparseFile"], "a read of one byte takes a third of svfsc's time")
                goal(times["svfsc"] >= 3 * times["thalweg.svfsc"], "also through svfsc's own interface")
                goal(times["svfsc"] >= 3 * times["read_many"], "and of many in one call")
        if size == 64:
            goal(times["SparseFile"] < 250, "a small read takes less than 250 ns")
    if theirs:
        goal(not slower, "no read takes longer than svfsc's")


def writes(apart: bool) -> None:
    head(
        f"Writes of a mebibyte, so many bytes at a time, {'apart' if apart else 'to one block'}",
        [*files(), "write_many"],
    )
    slower = []
    for size in SIZES:
        calls = MEBIBYTE // size
        positions = range(0, calls * (size + 1), size + 1) if apart else range(0, MEBIBYTE, size)
        data = b"x" * size
        contenders: dict[str, tuple[Work, int]] = {
            name: (partial(write_new, make, positions, data), calls) for name, make in files().items()
        }
        batches = batched([(position, data) for position in positions])
        contenders["write_many"] = (partial(write_many, batches), calls)
        times = compare(contenders)
        row(size, times, "svfsc")
        if theirs:
            slower += [size] if max(times["thalweg.svfsc"], times["SparseFile"]) > times["svfsc"] else []
            if size == 1:
                goal(times["svfsc"] >= 3 * times["SparseFile"], "a write of one byte takes a third of svfsc's time")
                goal(times["svfsc"] >= 3 * times["thalweg.svfsc"], "also through svfsc's own interface")
                goal(times["svfsc"] >= 3 * times["write_many"], "and of many in one call")
    if theirs:
        goal(not slower, "no write takes longer than svfsc's")


def index(file: Any) -> Any:
    """Simulates the index of a well log: eleven reads of four bytes in each record of 8004."""
    for record in range(RECORDS):
        position = 80 + record * 8004
        file.write(position, b"abcd")
        for step in range(10):
            file.write(position + 4 + step * 800, b"abcd")
    return file


def need_all(file: Any, span: int, length: int) -> None:
    need = file.need
    for position in range(0, span, length):
        need(position, length)


def needs() -> None:
    head("What is to be fetched of an index of a well log, so many bytes at a time", list(files()))
    indices = {name: index(make()) for name, make in files().items()}
    span = 80 + RECORDS * 8004
    slower = []
    for power in [8, 12] if QUICK else range(5, 15):
        length = 1 << power
        calls = -(-span // length)
        work = {name: (partial(need_all, file, span, length), calls) for name, file in indices.items()}
        times = compare(work)
        row(length, times, "svfsc")
        slower += [length] if theirs and max(times["thalweg.svfsc"], times["SparseFile"]) > times["svfsc"] else []
    times = compare({name: (partial(file.need, 0, span), 1) for name, file in indices.items()})
    row("at once", times, "svfsc")
    slower += [span] if theirs and max(times["thalweg.svfsc"], times["SparseFile"]) > times["svfsc"] else []
    if theirs:
        goal(not slower, "no answer takes longer than svfsc's")


def in_threads(make: Callable[[], Any], count: int, positions: range, data: bytes) -> None:
    file = make()
    threads = [threading.Thread(target=written, args=(file, positions, data)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def threads() -> None:
    head("Eight bytes at a time, written apart by so many threads, each all of it: by the clock", list(files()))
    positions = range(0, MEBIBYTE // 8 * 9, 9)
    for count in [1, 2] if QUICK else [1, 2, 4, 8, 16]:
        work: dict[str, tuple[Work, int]] = {}
        for name, make in files().items():
            calls = count * len(positions)
            work[name] = (partial(in_threads, make, count, positions, b"x" * 8), calls)
        row(count, compare(work, time.monotonic_ns), "svfsc")


def seek_read(file: Any, positions: range, length: int) -> None:
    seek, read = file.seek, file.read
    for position in positions:
        seek(position)
        read(length)


def fetch_all(cache: Any, positions: range, length: int) -> None:
    fetch = cache._fetch
    for position in positions:
        fetch(position, position + length)


def read_at(file: thalweg.RemoteFile, positions: range, length: int) -> None:
    read = file.read_at
    for position in positions:
        read(position, length)


def cached() -> None:
    """Reads bytes that are already held, also through the interfaces that users would otherwise choose."""
    size = MEBIBYTE
    data = os.urandom(size)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "file")
        with open(path, "wb") as made:
            made.write(data)

        def fetcher(start: int, end: int) -> bytes:
            return data[start:end]

        caches = {
            "fsspec readahead": ReadAheadCache(size, fetcher, size),
            "fsspec bytes": BytesCache(size, fetcher, size),
            "fsspec blocks": BlockCache(1 << 16, fetcher, size),
        }
        for cache in caches.values():
            cache._fetch(0, size)
        memory = fsspec.filesystem("memory")
        memory.pipe_file("/file", data)
        theirs_file = fsspec.spec.AbstractBufferedFile(memory, "/file", cache_type="bytes", size=size)
        theirs_file.cache = caches["fsspec bytes"]
        file = thalweg.open(path)
        file.read()
        names = ["read_at", "seek+read", *caches, "fsspec seek+read", "limit"]
        head("Reads of so many bytes that are cached", names)
        for length in [8, 64] if QUICK else [1, 8, 64, 256, 512, 4096]:
            positions = range(0, size - length, max(length, 16))
            calls = len(positions)
            work: dict[str, tuple[Work, int]] = {
                "read_at": (partial(read_at, file, positions, length), calls),
                "seek+read": (partial(seek_read, file, positions, length), calls),
            }
            for name, cache in caches.items():
                work[name] = (partial(fetch_all, cache, positions, length), calls)
            work["fsspec seek+read"] = (partial(seek_read, theirs_file, positions, length), calls)
            work["limit"] = (partial(slices, data, positions, length), calls)
            times = compare(work)
            row(length, times, "fsspec seek+read")
            if length == 64:
                goal(times["read_at"] < 250, "a small read of what is cached takes less than 250 ns")
                goal(times["seek+read"] < 250, "also as a file object, by seek and read")


def main() -> int:
    print("Sparse files: nanoseconds a call (how many times as long the one compared with takes)")
    if theirs is None:
        print("svfsc is not installed: its rows are left out")
    reads(apart=True)
    reads(apart=False)
    needs()
    writes(apart=True)
    writes(apart=False)
    threads()
    cached()
    print(f"\n{missed} goals were missed" if missed else "\nall goals were reached")
    return 0


if __name__ == "__main__":
    sys.exit(main())
