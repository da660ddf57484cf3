"""The rows of svfsc, in Python: nanoseconds of CPU a call, the median of some rounds, as JSON.

Usage: rows.py ROUNDS
"""

import json
import statistics
import sys
import threading
import time

import svfsc

MEBIBYTE = 1 << 20
SIZES = [1 << power for power in range(10)]
ROUNDS = int(sys.argv[1])


def measure(prepare, work, calls, clock=time.thread_time_ns):
    """The median time of a call; `work` makes `calls` of them with what `prepare` made."""
    times = []
    for _ in range(ROUNDS):
        given = prepare()
        start = clock()
        work(given)
        times.append((clock() - start) / calls)
    return statistics.median(times)


def empty():
    return svfsc.cSVF("file", 0.0)


def written(positions, data):
    file = empty()
    for position in positions:
        file.write(position, data)
    return file


def write_all(file, positions, data):
    write = file.write
    for position in positions:
        write(position, data)


def read_all(file, positions, length):
    read = file.read
    for position in positions:
        read(position, length)


def need_all(file, span, length):
    need = file.need
    for position in range(0, span, length):
        need(position, length)


def index():
    """Like the index of a well log: eleven pieces of four bytes in each record of 8004."""
    file = empty()
    for record in range(23831):
        position = 80 + record * 8004
        file.write(position, b"abcd")
        position += 4
        for _ in range(10):
            file.write(position, b"abcd")
            position += 800
    return file


def in_threads(count, work):
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


rows = {"version": svfsc.SVFS_CPP_VERSION}
for name in ["read", "read_one", "write", "write_one"]:
    rows[name] = []
for size in SIZES:
    data = b"x" * size
    apart = range(0, MEBIBYTE // size * (size + 1), size + 1)
    joined = range(0, MEBIBYTE, size)
    calls = MEBIBYTE // size
    rows["write"].append(measure(empty, lambda file: write_all(file, apart, data), calls))
    rows["write_one"].append(measure(empty, lambda file: write_all(file, joined, data), calls))
    file = written(apart, data)
    rows["read"].append(measure(lambda: file, lambda file: read_all(file, apart, size), calls))
    file = written([0], b"x" * MEBIBYTE)
    rows["read_one"].append(measure(lambda: file, lambda file: read_all(file, joined, size), calls))
file = written([0], b"x" * MEBIBYTE)
rows["read_whole"] = measure(lambda: file, lambda file: read_all(file, [0] * 20, MEBIBYTE), 20)

file = index()
span = file.last_file_position()
rows["need"] = []
for power in range(5, 15):
    length = 1 << power
    calls = -(-span // length)
    rows["need"].append(measure(lambda: file, lambda file: need_all(file, span, length), calls))
rows["need_whole"] = measure(lambda: file, lambda file: file.need(0, span), 1)

rows["threads"] = []
for count in [1, 2, 4, 8, 16]:
    row = []
    for step in [8, 9]:
        positions = range(0, MEBIBYTE // 8 * step, step)
        work = lambda file: in_threads(count, lambda: write_all(file, positions, b"x" * 8))
        row.append(measure(empty, work, 1, time.monotonic_ns))
    rows["threads"].append(row)
json.dump(rows, sys.stdout)
