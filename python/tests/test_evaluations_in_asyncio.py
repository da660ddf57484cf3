"""Evaluations among the tasks, event loops and descriptors of asyncio."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from typing import Any

import pytest
from evaluated import VARIABLE, fail, twice, waiting

from thalweg.evaluations import (
    Evaluation,
    TimedOut,
    await_readable,
    await_writable,
    concurrent_proc,
    concurrently,
    wait,
)

pytestmark = pytest.mark.usefixtures("any_loop")


def test_all_that_asyncio_can_wait_for_can_be_waited_for() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        lock, event = asyncio.Lock(), asyncio.Event()
        await lock.acquire()

        async def code() -> list[Any]:
            async with lock:
                await event.wait()
            task = asyncio.create_task(twice.call(1, after=0))
            in_thread = loop.run_in_executor(None, lambda: "thread")
            return [
                await task,
                await in_thread,
                await twice.call_detached(2),
                *await asyncio.gather(twice(3), twice(4)),
            ]

        evaluation = waiting(concurrent_proc(code).call_nonblock())
        lock.release()
        await wait(0)
        event.set()
        assert await evaluation == [2, "thread", 4, 6, 8]

    asyncio.run(main())


def test_the_current_task_in_an_evaluation_is_the_evaluation() -> None:
    async def main() -> None:
        ours = asyncio.current_task()
        seen: list[Any] = []

        async def code(waits: bool) -> None:
            seen.append(asyncio.current_task())
            if waits:
                await wait(0)
                seen.append(asyncio.current_task())

        proc = concurrent_proc(code)
        evaluation = waiting(proc.call_nonblock(True))
        assert asyncio.current_task() is ours
        assert evaluation in set[Any](asyncio.all_tasks())
        await evaluation
        assert seen == [evaluation, evaluation]
        assert evaluation not in set[Any](asyncio.all_tasks())
        # A reference was kept to each, so none is reused.
        for _ in range(2):
            proc.call_nonblock(False)
        assert len(set(map(id, seen))) == 3
        assert asyncio.current_task() is ours

    asyncio.run(main())


def test_code_can_use_its_evaluation_as_a_future_in_the_first_step() -> None:
    async def main() -> None:
        done: list[Any] = []

        async def code(waits: bool, fails: bool = False) -> str:
            current = asyncio.current_task()
            assert current is not None
            assert current.get_loop() is asyncio.get_running_loop()
            current.add_done_callback(done.append)
            if waits:
                await wait(0)
            if fails:
                raise LookupError("over the weir")
            return "result"

        proc = concurrent_proc(code)
        assert proc.call_nonblock(False) == "result"
        with pytest.raises(LookupError):
            proc.call_nonblock(False, fails=True)
        evaluation = waiting(proc.call_nonblock(True))
        assert await evaluation == "result"
        await wait(0)
        assert len(done) == 3
        assert done[0].result() == "result"
        assert isinstance(done[1].exception(), LookupError)
        assert done[2] is evaluation

    asyncio.run(main())


def test_code_can_conclude_its_evaluation_in_the_first_step() -> None:
    async def main() -> None:
        kept: list[Any] = []
        ended = []

        async def code(waits: bool) -> str:
            kept.append(asyncio.current_task())
            assert kept[-1].conclude_to("early")
            try:
                if waits:
                    await asyncio.Future()
            finally:
                ended.append(waits)
            return "late"

        proc = concurrent_proc(code)
        assert proc.call_nonblock(False) == "late"
        assert await waiting(proc.call_nonblock(True)) == "early"
        await wait(0)
        await wait(0)
        assert [evaluation.result() for evaluation in kept] == ["early", "early"]
        assert ended == [False, True]

    asyncio.run(main())


def test_a_call_within_a_call_that_does_not_wait() -> None:
    async def main() -> None:
        async def inner() -> Any:
            return asyncio.current_task()

        async def outer() -> tuple[Any, Any, Any]:
            before = asyncio.current_task()
            return before, concurrent_proc(inner).call_nonblock(), asyncio.current_task()

        before, within, after = concurrent_proc(outer).call_nonblock()
        assert before is after
        assert within is not before

    asyncio.run(main())


def test_a_call_from_a_callback_has_no_current_task_to_give_back() -> None:
    async def main() -> None:
        done = asyncio.get_running_loop().create_future()

        def callback() -> None:
            result = twice.call_nonblock(2)
            done.set_result((result, asyncio.current_task(), twice.call_nonblock(3, after=0)))

        asyncio.get_running_loop().call_soon(callback)
        result, current, evaluation = await done
        assert (result, current, await evaluation) == (4, None, 6)

    asyncio.run(main())


def test_a_time_limit_begun_in_the_first_step_ends_the_evaluation_and_not_its_caller() -> None:
    async def main() -> None:
        async def code() -> str:
            try:
                await asyncio.wait_for(asyncio.Future(), 0.001)
            except asyncio.TimeoutError:
                return "timed out"
            return "never"

        evaluation = waiting(concurrent_proc(code).call_nonblock())
        await asyncio.sleep(0.01)
        assert await evaluation == "timed out"

    asyncio.run(main())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio has these from Python 3.11 on")
def test_time_limits_and_task_groups_of_asyncio_work_in_evaluations() -> None:
    async def main() -> None:
        async def limited() -> str:
            try:
                async with asyncio.timeout(0.001):
                    await asyncio.Future()
            except TimeoutError:
                return "timed out"
            return "never"

        async def grouped() -> int:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(twice.call(number, after=0)) for number in range(4)]
            return sum(task.result() for task in tasks)

        async def failing_group() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail.call(after=0))
                await asyncio.Future()

        assert await waiting(concurrent_proc(limited).call_nonblock()) == "timed out"
        assert await concurrently(limited) == "timed out"
        assert await waiting(concurrent_proc(grouped).call_nonblock()) == 12
        evaluation = waiting(concurrent_proc(failing_group).call_nonblock())
        with pytest.raises(BaseExceptionGroup):  # noqa: F821
            await evaluation

    asyncio.run(main())


def test_cancelling_oneself_in_the_first_step_counts_where_one_waits() -> None:
    async def main() -> None:
        async def code(waits: bool) -> str:
            current = asyncio.current_task()
            assert current is not None
            current.cancel()
            if waits:
                await asyncio.sleep(60)
            return "done"

        proc = concurrent_proc(code)
        assert proc.call_nonblock(False) == "done"
        assert twice.call_nonblock(1, after=None) == 2
        evaluation = waiting(proc.call_nonblock(True))
        with pytest.raises(asyncio.CancelledError):
            await evaluation

    asyncio.run(main())


def test_variables_set_in_an_evaluation_stay_in_it() -> None:
    async def main() -> None:
        async def code(waits: bool) -> list[str]:
            token = VARIABLE.set("inside")
            seen = [VARIABLE.get()]
            if waits:
                await wait(0)
                seen.append(VARIABLE.get())
            VARIABLE.reset(token)
            return [*seen, VARIABLE.get()]

        proc = concurrent_proc(code)
        VARIABLE.set("caller")
        assert proc.call_nonblock(False) == ["inside", "caller"]
        evaluation = waiting(proc.call_nonblock(True))
        detached = proc.call_detached(True)
        VARIABLE.set("changed")
        assert VARIABLE.get() == "changed"
        assert await evaluation == ["inside", "inside", "caller"]
        assert await detached == ["inside", "inside", "caller"]

    asyncio.run(main())


def test_a_failure_that_nobody_awaited_is_told_to_the_loop() -> None:
    reported: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        evaluation = fail.call_detached()
        await wait(0.001)
        del evaluation
        gc.collect()

    asyncio.run(main())
    assert [context["message"] for context in reported] == ["Evaluation exception was never retrieved"]


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_program_passes_through(end: type[BaseException], forgotten: list[BaseException]) -> None:
    async def code(waits: bool) -> None:
        if waits:
            await wait(0)
        raise end

    proc = concurrent_proc(code)

    async def at_once() -> None:
        proc.call_nonblock(False)

    async def later() -> None:
        evaluation = waiting(proc.call_nonblock(True))
        try:
            await asyncio.sleep(60)
        finally:
            assert isinstance(evaluation.exception(), end)

    async def forgets() -> None:
        for waits in (False, True):
            proc.call_and_forget(waits)
        await asyncio.sleep(60)

    for main in (at_once, later, forgets):
        with pytest.raises(end):
            asyncio.run(main())
    assert forgotten == []


def test_what_waits_at_the_end_of_the_program_is_ended() -> None:
    ended = []

    async def main() -> None:
        async def code() -> None:
            try:
                await asyncio.Future()
            finally:
                ended.append("code")

        concurrent_proc(code).call_nonblock()
        concurrent_proc(code).call_and_forget()
        await wait(0)

    asyncio.run(main())
    assert ended == ["code", "code"]


def test_several_wait_for_one_descriptor() -> None:
    async def main() -> None:
        reader, writer = os.pipe()
        with os.fdopen(reader, "rb") as source, os.fdopen(writer, "wb", buffering=0) as target:
            assert await await_writable(target, within=60) is True
            with pytest.raises(TimedOut):
                await await_readable(source, within=0.001)
            assert await await_readable(reader, within=0, timeout_result="nothing") == "nothing"
            both = [concurrently(await_readable, source) for _ in range(2)]
            cancelled = concurrently(await_readable, source)
            await wait(0)
            cancelled.cancel()
            await wait(0)
            target.write(b"x")
            assert await asyncio.gather(*both) == [True, True]
            assert await await_readable(source) is True
            assert not asyncio.get_running_loop().remove_reader(reader)

    asyncio.run(main())


def test_a_file_is_always_ready(tmp_path: Any) -> None:
    async def main() -> None:
        with open(tmp_path / "file", "w+b") as file:
            assert await await_readable(file) is True
            assert await await_writable(file.fileno()) is True

    asyncio.run(main())


def test_wrong_waiting_is_raised_where_it_is_done() -> None:
    class Gives:
        def __init__(self, what: Any) -> None:
            self.what = what

        def __await__(self) -> Any:
            yield self.what

    async def code(what: Any) -> str:
        try:
            await Gives(what)
        except RuntimeError as wrong:
            return str(wrong)
        return "nothing was wrong"

    async def main() -> None:
        proc = concurrent_proc(code)
        assert "can only await futures of asyncio" in await waiting(proc.call_nonblock(7))
        future = asyncio.get_running_loop().create_future()
        assert "use `await` or `yield from`" in await waiting(proc.call_nonblock(future))
        own: list[Evaluation[Any]] = []

        async def awaits_itself() -> None:
            await wait(0)
            await own[0]

        own.append(waiting(concurrent_proc(awaits_itself).call_nonblock()))
        with pytest.raises(RuntimeError, match="awaits itself"):
            await own[0]

    asyncio.run(main())


def test_what_belongs_to_another_event_loop_is_refused() -> None:
    other = asyncio.new_event_loop()
    future = other.create_future()

    async def code() -> None:
        await future

    async def main() -> None:
        with pytest.raises(RuntimeError, match="another event loop"):
            await waiting(concurrent_proc(code).call_nonblock())

    asyncio.run(main())
    other.close()


def test_event_loops_one_after_the_other_and_in_threads_are_told_apart() -> None:
    async def main() -> Any:
        return [await waiting(twice.call_nonblock(1, after=0)), twice.call_nonblock(2)]

    results: list[Any] = []
    for _ in range(3):
        results.append(asyncio.run(main()))
        thread = threading.Thread(target=lambda: results.append(asyncio.run(main())))
        thread.start()
        thread.join()
        with pytest.raises(RuntimeError, match="no event loop"):
            twice.call_nonblock(1, after=0)
    assert results == [[2, 4]] * 6


def test_no_event_loop_runs_in_a_process_that_was_forked_from_one() -> None:
    script = """
import asyncio, os
from thalweg.evaluations import concurrent_proc, wait

proc = concurrent_proc(wait)

async def main():
    await proc.call_nonblock(0)
    if child := os.fork():
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    try:
        proc.call_nonblock(0)
    except RuntimeError as refused:
        os._exit(7 if "no event loop runs here" in str(refused) else 1)
    os._exit(1)

asyncio.run(main())
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 7
