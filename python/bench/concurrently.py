"""Measures the calls and waits of the seed's tables, on asyncio's event loop and on ours.

Prints a line for each figure, as `loop<TAB>name<TAB>nanoseconds` of CPU time of one execution. `thalweg-bench
concurrently` runs it, and prints the figures beside those of Ruby's Concurrently and of Rust. The names are those of
`bench/concurrently/calls.rb`. As there, calls come in batches of a hundred, and garbage is not collected meanwhile.

Usage: concurrently.py [seconds of a round] [rounds]
"""

import asyncio
import gc
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

from thalweg.evaluations import await_readable, await_writable, concurrent_proc, run, wait

BATCH = 100
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 0.2
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 5


async def nothing() -> None:
    pass


async def waits() -> None:
    await wait(0)


async def sleeps() -> None:
    await asyncio.sleep(0)


def plain() -> None:
    pass


ready, waiting = concurrent_proc(nothing), concurrent_proc(waits)
reader, writer = os.pipe()
os.write(writer, b"x")


async def reads() -> None:
    await await_readable(reader)


reading = concurrent_proc(reads)
Work = Callable[[], Awaitable[None]]


async def plain_calls() -> None:
    for _ in range(BATCH):
        plain()


def call(called: Callable[[], Awaitable[None]]) -> Work:
    async def work() -> None:
        for _ in range(BATCH):
            await called()

    return work


async def nonblock_ready() -> None:
    for _ in range(BATCH):
        ready.call_nonblock()


async def nonblock_waiting() -> None:
    for evaluation in [waiting.call_nonblock() for _ in range(BATCH)]:
        await evaluation  # type: ignore[misc]


def detached(code: Callable[[], Awaitable[None]]) -> Work:
    async def work() -> None:
        for evaluation in [code() for _ in range(BATCH)]:
            await evaluation

    return work


def forgotten(code: Callable[[], None], turns: int) -> Work:
    async def work() -> None:
        for _ in range(BATCH):
            code()
        for _ in range(turns):
            await wait(0)

    return work


def scheduled(code: Callable[[], object]) -> Work:
    async def work() -> None:
        for _ in range(BATCH):
            code()

    return work


async def tasks() -> None:
    for task in [asyncio.create_task(sleeps()) for _ in range(BATCH)]:
        await task


CONTENDERS: dict[str, Work] = {
    "plain": plain_calls,
    "call": call(ready.call),
    "call_nonblock": nonblock_ready,
    "call_detached, scheduled": scheduled(ready.call_detached),
    "call_and_forget, scheduled": scheduled(ready.call_and_forget),
    "call_detached": detached(ready.call_detached),
    "call_and_forget": forgotten(ready.call_and_forget, 1),
    "call, waits": call(waiting.call),
    "call_nonblock, waits": nonblock_waiting,
    "call_detached, waits": detached(waiting.call_detached),
    "call_and_forget, waits": forgotten(waiting.call_and_forget, 2),
    "wait": call(lambda: wait(0)),
    "await_readable": call(lambda: await_readable(reader)),
    "await_writable": call(lambda: await_writable(writer)),
    "call, pipe": call(reading.call),
    "create_task, waits": tasks,
    "sleep": call(lambda: asyncio.sleep(0)),
}


async def nanoseconds(work: Work) -> float:
    """Returns the CPU time of one execution. Scheduled calls run afterwards, outside of the measured time."""
    gc.collect()
    gc.disable()
    count, taken = 0, 0
    while taken < SECONDS * 1e9:
        start = time.thread_time_ns()
        await work()
        taken += time.thread_time_ns() - start
        count += BATCH
        if count % (BATCH * 64) == 0:
            await asyncio.sleep(0)
    gc.enable()
    await asyncio.sleep(0)
    return taken / count


async def measure() -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for number in range(ROUNDS + 1):
        for name, work in CONTENDERS.items():
            figure = await nanoseconds(work)
            if number > 0:
                figures[name].append(figure)
    return figures


def main() -> None:
    for loop, running in (("asyncio", asyncio.run), ("thalweg", run)):
        for name, figures in running(measure()).items():
            print(f"{loop}\t{name}\t{statistics.median(figures):.1f}", flush=True)


if __name__ == "__main__":
    main()
