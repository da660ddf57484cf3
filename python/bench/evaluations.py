"""Measures evaluations against a plain `await`, a coroutine driven by hand with `send`, and asyncio's tasks.

Times are CPU times of one thread, so that other load on the machine matters less. Each figure is the median of
rounds in which all contenders take turns. The limit of each table is the time of the same code in Python with
nothing around it.

Usage: evaluations.py [--quick]
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from thalweg.evaluations import concurrent_proc

BATCH = 100
ROUNDS, CALLS, WAITS = (3, 20_000, 2_000) if "--quick" in sys.argv else (11, 200_000, 10_000)


async def plain(number: int) -> int:
    return number


async def waiting(number: int) -> int:
    await asyncio.sleep(0)
    return number


proc = concurrent_proc(plain)
waiting_proc = concurrent_proc(waiting)


async def awaits(calls: int) -> None:
    for number in range(calls):
        await plain(number)


async def call(calls: int) -> None:
    called = proc.call
    for number in range(calls):
        await called(number)


async def send(calls: int) -> None:
    for number in range(calls):
        try:
            plain(number).send(None)
        except StopIteration as end:
            end.value  # noqa: B018 (what the caller is after)


async def call_nonblock(calls: int) -> None:
    called = proc.call_nonblock
    for number in range(calls):
        called(number)


async def task_each(calls: int) -> None:
    for number in range(calls):
        await asyncio.create_task(waiting(number))


async def nonblock_each(calls: int) -> None:
    for number in range(calls):
        await waiting_proc.call_nonblock(number)  # type: ignore[misc]


async def detached_each(calls: int) -> None:
    for number in range(calls):
        await waiting_proc.call_detached(number)


async def awaits_each(calls: int) -> None:
    for number in range(calls):
        await waiting(number)


async def tasks(calls: int) -> None:
    for _ in range(calls // BATCH):
        for task in [asyncio.create_task(waiting(number)) for number in range(BATCH)]:
            await task


async def nonblock(calls: int) -> None:
    for _ in range(calls // BATCH):
        for evaluation in [waiting_proc.call_nonblock(number) for number in range(BATCH)]:
            await evaluation  # type: ignore[misc]


async def detached(calls: int) -> None:
    for _ in range(calls // BATCH):
        for evaluation in [waiting_proc.call_detached(number) for number in range(BATCH)]:
            await evaluation


async def forgotten_tasks(calls: int) -> None:
    kept = set()
    for _ in range(calls // BATCH):
        for number in range(BATCH):
            # As asyncio's documentation recommends: a task without references may be garbage-collected.
            task = asyncio.create_task(plain(number))
            kept.add(task)
            task.add_done_callback(kept.discard)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def forget(calls: int) -> None:
    called = proc.call_and_forget
    for _ in range(calls // BATCH):
        for number in range(BATCH):
            called(number)
        await asyncio.sleep(0)


async def call_soon(calls: int) -> None:
    soon = asyncio.get_running_loop().call_soon
    for _ in range(calls // BATCH):
        for number in range(BATCH):
            soon(int, number)
        await asyncio.sleep(0)


@dataclass
class Row:
    name: str
    run: Callable[[int], Awaitable[None]]
    # The row that this one must not be slower than.
    peer: str | None = None
    is_goal: bool = True
    times: list[float] = field(default_factory=list)


@dataclass
class Table:
    title: str
    limit: str
    calls: int
    rows: list[Row]


TABLES = [
    Table(
        "code that does not wait",
        "await",
        CALLS,
        [
            Row("await", awaits),
            Row("await proc.call()", call, "await", is_goal=False),
            Row("coroutine.send(None)", send),
            Row("proc.call_nonblock()", call_nonblock, "coroutine.send(None)"),
        ],
    ),
    Table(
        "code that waits for a turn, each awaited before the next",
        "await",
        WAITS,
        [
            Row("await", awaits_each),
            Row("create_task", task_each),
            Row("call_nonblock", nonblock_each, "create_task"),
            Row("call_detached", detached_each, "create_task"),
        ],
    ),
    Table(
        f"code that waits for a turn, {BATCH} at once, then awaited",
        "create_task",
        WAITS,
        [
            Row("create_task", tasks),
            Row("call_nonblock", nonblock, "create_task"),
            Row("call_detached", detached, "create_task"),
        ],
    ),
    Table(
        f"code that nobody awaits, {BATCH} at once, then run",
        "call_soon",
        WAITS,
        [
            Row("call_soon", call_soon),
            Row("create_task, kept", forgotten_tasks),
            Row("call_and_forget", forget, "create_task, kept"),
        ],
    ),
]


async def measure(table: Table) -> None:
    for row in table.rows:
        await row.run(table.calls // 10)
    for _ in range(ROUNDS):
        for row in table.rows:
            start = time.thread_time_ns()
            await row.run(table.calls)
            row.times.append((time.thread_time_ns() - start) / table.calls)


def report(table: Table) -> None:
    times = {row.name: statistics.median(row.times) for row in table.rows}
    print(f"\n{table.title} (the limit: {table.limit})")
    for row in table.rows:
        took = times[row.name]
        line = f"  {row.name:<24}{took:>8,.0f} ns   {took / times[table.limit]:>5.2f} of the limit"
        if row.peer is not None:
            ratio = took / times[row.peer]
            line += f"   {ratio:>5.2f} of {row.peer}"
            if row.is_goal:
                line += f"   {'✓' if ratio <= 1 else '✗'} not slower"
        print(line)


def main() -> None:
    print(f"Evaluations in Python {sys.version.split()[0]}: CPU time on one thread, medians of {ROUNDS} rounds in turn")
    for table in TABLES:
        asyncio.run(measure(table))
        report(table)


if __name__ == "__main__":
    main()
