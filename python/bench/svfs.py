"""
Prints all tables of the seed SVFS: svfsc 0.4.1 in C++ and in Python beside thalweg in Rust and in Python, in one run.

The Python packages take turns here. The C++ and Rust rows come from two programs, which run in between: `SVFSC_CPP` is
the path of `bench/svfsc/rows.cpp`, compiled with svfsc's sources, and `THALWEG_BENCH` that of `thalweg-bench`. Without
them, or without an importable svfsc, their rows are left out. Times are nanoseconds of CPU of a call, medians;
with several threads, milliseconds of wall time for all threads together. `ratio` is the time (or memory) of svfsc in
the same language over that of the row.

Usage: svfs.py [--quick]
"""

import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from itertools import repeat
from typing import Any

from table import Table

import sparse
from sparse import MEBIBYTE, QUICK, Work, compare, files, index, need_all, read_all, slices, theirs, write_new, written

SIZES = [1 << power for power in range(11)]
LENGTHS = [1 << power for power in range(5, 15)]
THREADS = [1, 2, 4, 8, 16]
NAMES = {"svfsc": "svfsc, Python", "thalweg.svfsc": "thalweg.svfsc, Python", "SparseFile": "thalweg, Python"}
NOTE = (
    "Ratios are to svfsc in the same language. The limit is a plain copy of the same bytes, and one that locks and "
    "unlocks for each copy, as files that threads share must; for ranges, a list of as many ranges."
)
#: The limits in Rust, and what they are called: for each table the rows of `thalweg-bench`.
LIMITS = {
    **{
        key: {"copy": "the limit, Rust", "copy_locked": "the limit with a lock, Rust"}
        for key in ("read", "read_one", "write", "write_one")
    },
    "need": {"need_each": "thalweg, Rust: each_missing", "need_list": "the limit, Rust"},
    "need_whole": {"need_whole_list": "the limit, Rust"},
}


def rows(variable: str, *arguments: str) -> dict[str, Any]:
    """Returns the rows of another program, if it is there."""
    program = os.environ.get(variable)
    if not program or not os.path.exists(program):
        print(f"{variable} names no program: its rows are left out")
        return {}
    done = subprocess.run([program, *arguments], check=True, capture_output=True, text=True)
    made: dict[str, Any] = json.loads(done.stdout)
    return made


class Figures:
    """One table, with the contenders of both languages."""

    def __init__(self, name: str, title: str, case: str, unit: str, cpp: dict[str, Any], rust: dict[str, Any]) -> None:
        self.table = Table("svfs", name, title, case, [unit, "ratio"])
        self.table.plot(unit, "lines")
        self.table.notes.append(NOTE)
        self.cpp, self.rust = cpp, rust

    def add(self, case: object, key: str, at: int, python: dict[str, float], scale: float = 1.0) -> None:
        """Adds the rows of a case: `key` and `at` are its place in the rows of the other programs."""
        cpp, rust = (rows.get(key, [None] * (at + 1))[at] for rows in (self.cpp, self.rust))
        if cpp is not None:
            self.table.row(case, "svfsc, C++", cpp * scale, 1.0)
        if rust is not None:
            self.table.row(case, "thalweg, Rust", rust * scale, cpp / rust if cpp is not None else None)
        peer = python.get("svfsc")
        for name, figure in python.items():
            ratio = peer / figure if peer is not None and name != "limit" else None
            self.table.row(case, NAMES.get(name, "the limit, Python"), figure * scale, ratio)
        for limit, contender in LIMITS.get(key, {}).items():
            if limit in self.rust:
                figure = self.rust[limit][at]
                ratio = cpp / figure if contender.startswith("thalweg") and cpp is not None else None
                self.table.row(case, contender, figure * scale, ratio)


def copies(positions: range, data: bytes) -> None:
    for _ in positions:
        bytearray(data)


def pairs(count: int) -> list[tuple[int, int]]:
    return list(zip(range(0, count * 800, 800), repeat(796), strict=False))


def transfers(cpp: dict[str, Any], rust: dict[str, Any]) -> None:
    for key, apart, title in [
        ("read", 1, "Reads of 1 MiB that is held in blocks of n bytes, one byte apart"),
        ("read_one", 0, "Reads of n bytes from one block of 1 MiB"),
        ("write", 1, "Writes of 1 MiB, n bytes at a time, that stay apart"),
        ("write_one", 0, "Writes of 1 MiB, n bytes at a time, that become one block"),
    ]:
        made = Figures(key.replace("_", "-"), title, "bytes", "ns a call", cpp, rust)
        for at, size in enumerate(SIZES):
            calls = MEBIBYTE // size
            positions = range(0, calls * (size + apart), size + apart)
            data = b"x" * size
            work: dict[str, tuple[Work, int]] = {}
            for name, make in files().items():
                if key.startswith("write"):
                    work[name] = (partial(write_new, make, positions, data), calls)
                else:
                    whole = range(1) if key == "read_one" else positions
                    held = written(make(), whole, b"x" * MEBIBYTE if key == "read_one" else data)
                    work[name] = (partial(read_all, held, positions, size), calls)
            plain = bytes(positions[-1] + size)
            copy = (
                partial(copies, positions, data) if key.startswith("write") else partial(slices, plain, positions, size)
            )
            work["limit"] = (copy, calls)
            made.add(size, key, at, compare(work))
        made.table.finish()


def whole(cpp: dict[str, Any], rust: dict[str, Any]) -> None:
    made = Figures("whole", "1 MiB at once", "operation", "ns a call", cpp, rust)
    made.table.plots.clear()
    data = bytes(MEBIBYTE)
    held = {name: written(make(), range(1), data) for name, make in files().items()}
    work: dict[str, tuple[Work, int]] = {name: (partial(file.read, 0, MEBIBYTE), 1) for name, file in held.items()}
    work["limit"] = (partial(slices, bytearray(data), range(1), MEBIBYTE), 1)
    made.add("read", "read_whole", 0, compare(work))
    work = {name: (partial(write_new, make, range(1), data), 1) for name, make in files().items()}
    work["limit"] = (partial(copies, range(1), data), 1)
    made.add("write", "write_whole", 0, compare(work))
    if "copy_whole" in rust:
        made.table.row("either", "the limit, Rust", rust["copy_whole"][0], None)
    made.table.finish()


def needs(cpp: dict[str, Any], rust: dict[str, Any]) -> None:
    made = Figures(
        "need", "What is missing of an index of a well log, n bytes at a time", "bytes", "ns a call", cpp, rust
    )
    indices = {name: index(make()) for name, make in files().items()}
    span = 80 + sparse.RECORDS * 8004
    for at, length in enumerate(LENGTHS):
        calls = -(-span // length)
        work = {name: (partial(need_all, file, span, length), calls) for name, file in indices.items()}
        made.add(length, "need", at, compare(work))
    made.table.finish()

    made = Figures(
        "need-whole", f"The same index at once: {sparse.RECORDS * 10} blocks", "operation", "ns a call", cpp, rust
    )
    made.table.plots.clear()
    blocks = [position for position, _ in next(iter(indices.values())).blocks()]
    wanted = [(position, 8) for position in blocks]
    one: dict[str, tuple[Work, int]] = {name: (partial(file.need, 0, span), 1) for name, file in indices.items()}
    one["limit"] = (partial(pairs, len(blocks)), 1)
    made.add("need", "need_whole", 0, compare(one))
    made.add(
        "need_many",
        "need_many",
        0,
        compare({name: (partial(file.need_many, wanted), 1) for name, file in indices.items()}),
    )
    made.add("blocks", "blocks", 0, compare({name: (file.blocks, 1) for name, file in indices.items()}))

    def has(file: Any) -> None:
        held = getattr(file, "has_data", None) or file.has
        for position in blocks:
            held(position, 4)

    made.add("has", "has", 0, compare({name: (partial(has, file), len(blocks)) for name, file in indices.items()}))
    made.table.finish()


def weak_spots(cpp: dict[str, Any], rust: dict[str, Any]) -> None:
    made = Figures("weak", "Where svfsc is slow", "operation", "ns a call", cpp, rust)
    made.table.plots = [{"column": "ns a call", "shape": "bars"}]
    gaps, blocks = (1024, 8192) if QUICK else (4096, 131_072)
    eight = b"x" * 8

    def measured(prepare: Any, work: Any, calls: int) -> dict[str, float]:
        """Returns the time of `work` alone: each round has new files."""
        times: dict[str, list[float]] = {}
        for _ in range(sparse.ROUNDS):
            for name, make in files().items():
                if name == "SparseFile" and work is punt:
                    continue
                file = prepare(make)
                start = time.thread_time_ns()
                work(file)
                times.setdefault(name, []).append((time.thread_time_ns() - start) / calls)
        return {name: statistics.median(taken) for name, taken in times.items()}

    def fill(count: int, size: int, apart: int) -> Any:
        return lambda make: written(make(), range(0, count * apart, apart), b"x" * size)

    def write(positions: range, data: bytes) -> Any:
        return lambda file: written(file, positions, data)

    between = range(8, gaps * 16, 16)
    bound = 0

    def punt(file: Any) -> None:
        file.lru_punt(bound)

    cases = [
        (f"fill {gaps:,} gaps, forwards", fill(gaps, 8, 16), write(between, eight), gaps),
        (f"fill {gaps:,} gaps, backwards", fill(gaps, 8, 16), write(between[::-1], eight), gaps),
        ("write 64 KiB backwards, 8 bytes a call", lambda make: make(), write(range(0, 65536, 8)[::-1], eight), 8192),
        ("write 1 MiB over 2,048 blocks", fill(2048, 256, 512), write(range(1), b"x" * (1 << 20)), 1),
    ]
    for at, (case, prepare, work, calls) in enumerate(cases):
        made.add(case, "weak", at, measured(prepare, work, calls))
    for at, (case, bound) in enumerate([("half", blocks * 4), ("one", blocks * 8)]):  # noqa: B007 (read by `punt`)
        made.add(f"lru_punt of {case} of {blocks:,} blocks", "weak", 4 + at, measured(fill(blocks, 8, 16), punt, 1))
    made.table.finish()


def threads(cpp: dict[str, Any], rust: dict[str, Any]) -> None:
    for key, step, title in [("threads_one", 8, "become one block"), ("threads_apart", 9, "stay apart")]:
        title = f"8-byte writes that {title}, each of n threads all of 1 MiB"
        made = Figures(key.replace("_", "-"), title, "threads", "ms", cpp, rust)
        positions = range(0, MEBIBYTE // 8 * step, step)
        for at, count in enumerate(THREADS):
            work: dict[str, tuple[Work, int]] = {
                name: (partial(sparse.in_threads, make, count, positions, b"x" * 8), 1)
                for name, make in files().items()
            }
            made.add(count, key, at, compare(work, time.monotonic_ns), 1e-6)
        made.table.finish()
    made = Figures("threads-read", "8-byte reads by n threads, each of all of 1 MiB", "threads", "ms", cpp, rust)
    for at, count in enumerate(THREADS):
        made.add(count, "threads_read", at, {}, 1e-6)
    made.table.finish()


def memory(cpp: dict[str, Any], rust: dict[str, Any]) -> None:
    title = "Memory of 1 MiB in blocks of n bytes, one byte apart, as the file reports it"
    made = Figures("memory", title, "bytes", "bytes of memory", cpp, rust)
    for at, size in enumerate(SIZES):
        said: dict[str, float] = {}
        for name, make in files().items():
            file = written(make(), range(0, MEBIBYTE // size * (size + 1), size + 1), b"x" * size)
            if name == "SparseFile":
                file.compact()
            said[name] = file.heap_bytes() if name == "SparseFile" else file.size_of()
        made.add(size, "size_of", at, said)
        if "heap" in cpp:
            made.table.row(size, "svfsc, C++: the heap it takes", cpp["heap"][at], None)
    made.table.finish()


def main() -> int:
    sparse.MEBIBYTE = MEBIBYTE
    if theirs is None:
        print("svfsc is not installed: its rows in Python are left out")
    rounds = "1" if QUICK else "5"
    cpp = rows("SVFSC_CPP", rounds, *(["quick"] if QUICK else []))
    rust = rows("THALWEG_BENCH", "sparse", "rows", *(["--quick"] if QUICK else []))
    for table in (transfers, whole, needs, weak_spots, threads, memory):
        table(cpp, rust)
    return 0


if __name__ == "__main__":
    sys.exit(main())
