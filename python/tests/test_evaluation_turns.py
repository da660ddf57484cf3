"""The order in which evaluations run, which is that of Ruby's Concurrently."""

import asyncio
import subprocess
import sys
import time
from typing import Any

import pytest
from evaluated import never, twice, waiting

from thalweg.evaluations import (
    TimedOut,
    await_fastest,
    block_on,
    concurrent_proc,
    concurrently,
    wait,
    within,
)

pytestmark = pytest.mark.usefixtures("any_loop")


def test_code_that_starts_comes_before_code_that_waited_and_that_in_the_order_of_time() -> None:
    async def main() -> list[str]:
        order = []

        async def code(name: str, seconds: float | None) -> None:
            if seconds is not None:
                await wait(seconds)
            order.append(name)

        proc = concurrent_proc(code)
        evaluations = [
            waiting(proc.call_nonblock("waited 10 ms", 0.01)),
            waiting(proc.call_nonblock("waited a turn", 0)),
            proc.call_detached("started", None),
        ]
        time.sleep(0.02)
        await wait(0)
        order.append("caller")
        await asyncio.gather(*evaluations)
        return order

    assert asyncio.run(main()) == ["started", "waited a turn", "waited 10 ms", "caller"]


def test_what_is_scheduled_among_callbacks_of_the_loop_keeps_its_place() -> None:
    async def main() -> list[int]:
        order: list[int] = []
        loop = asyncio.get_running_loop()

        async def code(number: int) -> None:
            order.append(number)

        proc = concurrent_proc(code)
        proc.call_and_forget(1)
        proc.call_detached(2)
        loop.call_soon(order.append, 3)
        proc.call_detached(4)
        loop.call_soon(order.append, 5)
        proc.call_and_forget(6)
        proc.call_and_forget(7)
        await wait(0)
        return order

    assert asyncio.run(main()) == [1, 2, 3, 4, 5, 6, 7]


def test_waits_of_equal_time_end_in_the_order_of_their_beginning() -> None:
    async def main() -> list[int]:
        order: list[int] = []

        async def code(number: int) -> None:
            for _ in range(3):
                await wait(0)
                order.append(number)

        for number in range(3):
            concurrent_proc(code).call_nonblock(number)
        for _ in range(4):
            await wait(0)
        return order

    assert asyncio.run(main()) == [0, 1, 2] * 3


def test_a_timer_that_is_cancelled_between_two_waits_does_not_change_their_order() -> None:
    async def main() -> list[int]:
        order: list[int] = []

        async def code(number: int) -> None:
            await wait(0)
            order.append(number)

        proc = concurrent_proc(code)
        timer = waiting(concurrent_proc(wait).call_nonblock(60))
        handle = asyncio.get_running_loop().call_later(60, order.append, 0)
        proc.call_nonblock(1)
        handle.cancel()
        timer.cancel()
        proc.call_nonblock(2)
        await wait(0)
        return order

    assert asyncio.run(main()) == [1, 2]


def test_code_that_always_waits_for_a_turn_lets_timers_and_callbacks_run() -> None:
    async def main() -> None:
        ended: list[str] = []

        async def spins() -> None:
            while not ended:
                await wait(0)

        spinning = concurrently(spins)
        asyncio.get_running_loop().call_later(0.002, ended.append, "timer")
        await asyncio.sleep(0.004)
        await within(60, spinning)
        assert ended == ["timer"]

    asyncio.run(main())


def test_a_wait_is_cancelled_with_the_task_that_awaits_it() -> None:
    async def main() -> None:
        for seconds in (0, 60):
            task = asyncio.create_task(wait(seconds))
            await asyncio.sleep(0)
            task.cancel("enough")
            with pytest.raises(asyncio.CancelledError):
                await task
            evaluation = waiting(concurrent_proc(wait).call_nonblock(seconds))
            evaluation.cancel()
            with pytest.raises(asyncio.CancelledError):
                await evaluation

    asyncio.run(main())


def test_a_wait_is_a_coroutine_for_asyncio() -> None:
    async def main() -> None:
        waits = wait(0)
        assert asyncio.iscoroutine(waits)
        assert not asyncio.isfuture(waits)
        await waits
        await asyncio.gather(wait(0), wait(0.001))
        await asyncio.wait_for(asyncio.shield(wait(0)), 60)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(wait(60), 0.001)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(never()), 0.001)
        done, _ = await asyncio.wait([asyncio.ensure_future(wait(0))])
        assert len(done) == 1
        with pytest.raises(RuntimeError, match="already awaited"):
            await waits

    asyncio.run(main())
    asyncio.run(wait(0))


def test_a_wait_that_is_not_awaited_is_told() -> None:
    with pytest.warns(RuntimeWarning, match="never awaited"):
        wait(1)  # type: ignore[unused-coroutine]


def test_a_time_limit_lets_an_evaluation_continue_and_ends_a_coroutine() -> None:
    async def main() -> None:
        ended = []

        async def code() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append("coroutine")

        evaluation = twice.call_detached(1, after=0.3)
        with pytest.raises(TimedOut, match=r"nothing came within 0\.001 s"):
            await within(0.001, evaluation)
        assert await within(60, evaluation) == 2
        with pytest.raises(TimedOut):
            await within(0.001, code())
        assert ended == ["coroutine"]
        assert await within(0, never(), timeout_result="nothing") == "nothing"
        assert await within(60, twice(4, after=0)) == 8
        assert await within(0, evaluation) == 2

    asyncio.run(main())


def test_who_is_cancelled_in_a_time_limit_ends_its_coroutine() -> None:
    async def main() -> None:
        ended = []

        async def code() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append("coroutine")

        task = asyncio.create_task(within(60, code()))
        await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["coroutine"]

    asyncio.run(main())


def test_wait_for_of_asyncio_ends_an_evaluation_only_up_to_python_3_11() -> None:
    async def main() -> bool:
        evaluation = never.call_detached()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(evaluation, 0.001)
        return evaluation.is_concluded()

    assert asyncio.run(main()) is (sys.version_info < (3, 12))


def test_code_without_an_event_loop_waits() -> None:
    started: list[Any] = []

    async def start() -> None:
        started.append(twice.call_detached(4, after=0.001))

    block_on(start())
    assert block_on(twice(3, after=0.001)) == 6
    # It continues where it was started.
    assert block_on(started[0]) == 8
    block_on(wait(0))
    with pytest.raises(TimedOut):
        block_on(never(), within=0.001)
    assert block_on(never(), within=0, timeout_result="nothing") == "nothing"

    async def main() -> None:
        with pytest.raises(RuntimeError, match="use `await` instead"):
            block_on(twice(1))

    asyncio.run(main())


def test_the_loop_of_a_thread_is_closed_with_it() -> None:
    script = """
import threading
from thalweg.evaluations import block_on, concurrent_proc, wait

async def start():
    concurrent_proc(wait).call_nonblock(0)

block_on(start())
for _ in range(3):
    thread = threading.Thread(target=lambda: block_on(wait(0)))
    thread.start()
    thread.join()
block_on(wait(0.001))
"""
    command = [sys.executable, "-W", "error", "-X", "dev", "-c", script]
    done = subprocess.run(command, timeout=60, check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_fastest_of_many_waits_is_the_one_that_is_due_first() -> None:
    async def main() -> None:
        # Even if the loop was held up until all are due.
        late = [twice.call_nonblock(number, after=number * 0.001) for number in (2, 1, 3)]
        asyncio.get_running_loop().call_soon(time.sleep, 0.01)
        assert await await_fastest(*map(waiting, late)) is late[1]
        evaluations = [twice.call_detached(number, after=number * 0.01) for number in (2, 1, 3)]
        assert await await_fastest(*evaluations) is evaluations[1]
        for evaluation in evaluations:
            evaluation.conclude_to(0)

    asyncio.run(main())


def test_a_task_that_waits_for_a_turn_alone_yields_to_asyncio_without_a_future(any_loop: str) -> None:
    async def main() -> None:
        alone = wait(0)
        assert alone.send(None) is (None if any_loop == "asyncio" else alone)
        alone.close()
        order: list[str] = []

        @concurrent_proc
        async def code() -> None:
            order.append("code")

        code.call_and_forget()
        behind = wait(0)
        assert behind.send(None) is behind
        behind.close()
        await wait(0)
        order.append("main")
        assert order == ["code", "main"]

        async def cancelled() -> None:
            await wait(0)

        task = asyncio.create_task(cancelled())
        await wait(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
