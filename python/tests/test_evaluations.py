"""Evaluations: calling, awaiting and concluding them."""

import asyncio
import contextvars
import gc
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from evaluated import fail, never, twice, waiting

from thalweg import Error
from thalweg.evaluations import (
    ConcurrentProc,
    Evaluation,
    TimedOut,
    await_fastest,
    concurrent_proc,
    concurrently,
    wait,
)

pytestmark = pytest.mark.usefixtures("any_loop")


def test_a_call_is_awaited_like_the_function_itself() -> None:
    async def main() -> None:
        assert await twice.call(3) == 6
        assert await twice(3, after=0) == 6
        with pytest.raises(LookupError, match="over the weir"):
            await fail.call(after=0)

    asyncio.run(main())


def test_code_that_does_not_wait_gives_its_result_at_once() -> None:
    async def main() -> None:
        assert twice.call_nonblock(3) == 6
        assert twice.call_nonblock(number=4) == 8
        with pytest.raises(LookupError, match="over the weir"):
            fail.call_nonblock()

    asyncio.run(main())


def test_code_that_does_not_wait_needs_no_event_loop() -> None:
    assert twice.call_nonblock(3) == 6
    with pytest.raises(LookupError, match="over the weir"):
        fail.call_nonblock()


def test_code_that_waits_needs_an_event_loop() -> None:
    for call in (twice.call_nonblock, twice.call_detached, twice.call_and_forget):
        with pytest.raises(RuntimeError, match="no event loop runs here"):
            call(1, after=0)
    with pytest.raises(RuntimeError, match="no event loop runs here"):
        concurrently(never.call())


def test_code_that_waits_gives_an_evaluation_that_goes_on_alone() -> None:
    async def main() -> None:
        steps = []

        @concurrent_proc
        async def code(name: str) -> str:
            steps.append(f"{name} starts")
            await wait(0)
            steps.append(f"{name} goes on")
            return name

        scheduled = code.call_detached("scheduled")
        foreground = waiting(code.call_nonblock("foreground"))
        steps.append("caller")
        assert (scheduled.is_waiting(), foreground.is_waiting()) == (False, True)
        assert await foreground == "foreground"
        assert await scheduled == "scheduled"
        assert foreground.is_concluded()
        assert not foreground.is_waiting()
        assert steps == [
            "foreground starts",
            "caller",
            "scheduled starts",
            "foreground goes on",
            "scheduled goes on",
        ]

    asyncio.run(main())


def test_many_can_await_one_and_one_that_is_concluded_gives_its_result_at_once() -> None:
    async def main() -> None:
        evaluation = twice.call_detached(1, after=0.001)
        tasks = [asyncio.create_task(evaluation.await_result()) for _ in range(3)]
        others = [concurrently(evaluation.await_result) for _ in range(3)]
        assert await asyncio.gather(*tasks, *others, evaluation) == [2] * 7
        at_once = concurrent_proc(evaluation.await_result).call_nonblock()
        assert at_once == 2

    asyncio.run(main())


def test_a_failure_is_raised_to_each_who_awaits() -> None:
    async def main() -> None:
        for evaluation in (waiting(fail.call_nonblock(after=0)), fail.call_detached()):
            for _ in range(2):
                with pytest.raises(LookupError, match="over the weir"):
                    await evaluation

    asyncio.run(main())


def test_what_takes_too_long_goes_on() -> None:
    async def main() -> None:
        evaluation = twice.call_detached(1, after=0.02)
        with pytest.raises(TimedOut, match=r"nothing came within 0\.001 s"):
            await evaluation.await_result(within=0.001)
        assert await evaluation.await_result(within=0, timeout_result=None) is None
        assert await evaluation.await_result(within=60) == 2
        assert await evaluation.await_result(within=0) == 2

    assert issubclass(TimedOut, Error)
    assert issubclass(TimedOut, TimeoutError)
    asyncio.run(main())


def test_who_awaits_can_be_cancelled_without_the_evaluation() -> None:
    async def main() -> None:
        evaluation = twice.call_detached(1, after=0.005)
        task = asyncio.create_task(evaluation.await_result())
        other = concurrently(evaluation.await_result())
        await wait(0)
        task.cancel("enough")
        other.cancel()
        for awaiting in (task, other):
            with pytest.raises(asyncio.CancelledError):
                await awaiting
        assert not evaluation.is_concluded()
        assert await evaluation == 2

    asyncio.run(main())


def test_who_is_cancelled_in_a_call_ends_what_was_called() -> None:
    async def main() -> None:
        ended = []

        async def code() -> None:
            try:
                await asyncio.Future()
            finally:
                ended.append("called")

        async def caller() -> None:
            await concurrent_proc(code).call()

        task = asyncio.create_task(caller())
        await wait(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["called"]

    asyncio.run(main())


def test_an_evaluation_is_concluded_from_outside_once() -> None:
    async def main() -> None:
        ended = []

        async def code() -> str:
            try:
                await asyncio.Future()
            finally:
                await wait(0)
                ended.append("code")
            return "never"

        evaluation = waiting(concurrent_proc(code).call_nonblock())
        awaiting = asyncio.create_task(evaluation.await_result())
        await wait(0)
        assert evaluation.conclude_to("rain")
        assert not evaluation.conclude_to("sun")
        assert evaluation.is_concluded()
        assert await evaluation == "rain"
        assert await awaiting == "rain"
        await wait(0)
        await wait(0)
        assert ended == ["code"]

    asyncio.run(main())


def test_what_is_concluded_before_its_turn_does_not_start() -> None:
    async def main() -> None:
        started = []

        async def code() -> str:
            started.append("code")
            return "sun"

        evaluation = concurrently(code)
        assert evaluation.conclude_to("rain")
        await wait(0)
        assert await evaluation == "rain"
        assert started == []

    asyncio.run(main())


def test_another_thread_concludes_an_evaluation() -> None:
    async def main() -> None:
        evaluation = waiting(never.call_nonblock())
        threading.Thread(target=evaluation.conclude_to, args=("from afar",)).start()
        assert await evaluation == "from afar"

    asyncio.run(main())


def test_a_failure_after_the_conclusion_is_told(forgotten: list[BaseException]) -> None:
    async def main() -> None:
        async def code() -> None:
            try:
                await asyncio.Future()
            except asyncio.CancelledError:
                raise LookupError("too late") from None

        evaluation = waiting(concurrent_proc(code).call_nonblock())
        assert evaluation.conclude_to(None)
        await wait(0)
        await wait(0)

    asyncio.run(main())
    assert [str(failure) for failure in forgotten] == ["too late"]


def test_code_that_is_cancelled_ends_as_a_task_does() -> None:
    async def main() -> None:
        evaluation = waiting(never.call_nonblock())
        assert evaluation.cancel("enough")
        with pytest.raises(asyncio.CancelledError):
            await evaluation
        assert evaluation.cancelled()
        assert not evaluation.cancel()
        not_started = never.call_detached()
        not_started.cancel()
        with pytest.raises(asyncio.CancelledError):
            await not_started

    asyncio.run(main())


def test_code_may_refuse_to_be_cancelled() -> None:
    async def main() -> None:
        async def code() -> str:
            try:
                await asyncio.Future()
            except asyncio.CancelledError:
                await wait(0)
            return "still here"

        evaluation = waiting(concurrent_proc(code).call_nonblock())
        evaluation.cancel()
        assert await evaluation == "still here"

    asyncio.run(main())


def test_an_evaluation_as_a_result_is_not_mistaken_for_waiting() -> None:
    async def main() -> None:
        inner = twice.call_detached(1)

        async def code(waits: bool) -> Evaluation[int]:
            if waits:
                await wait(0)
            return inner

        for waits in (False, True):
            called = concurrent_proc(code).call_nonblock(waits)
            assert isinstance(called, Evaluation)
            assert called is not inner
            assert await called is inner
        assert await inner == 2

    asyncio.run(main())


def test_an_exception_as_a_result_is_not_mistaken_for_a_failure() -> None:
    async def main() -> None:
        async def code(waits: bool) -> Exception:
            if waits:
                await wait(0)
            return LookupError("a result")

        proc = concurrent_proc(code)
        assert isinstance(proc.call_nonblock(False), LookupError)
        assert isinstance(await waiting(proc.call_nonblock(True)), LookupError)

    asyncio.run(main())


def test_results_of_all_kinds_come_through() -> None:
    async def main() -> None:
        async def code(result: Any, waits: bool) -> Any:
            if waits:
                await wait(0)
            return result

        proc: ConcurrentProc[[Any, bool], Any] = concurrent_proc(code)
        for result in (None, (), (1, 2), StopIteration, [3]):
            assert proc.call_nonblock(result, False) is result
            assert await waiting(proc.call_nonblock(result, True)) is result

    asyncio.run(main())


def test_what_is_forgotten_starts_at_its_turn(forgotten: list[BaseException]) -> None:
    async def main() -> None:
        seen = []

        async def code(waits: bool) -> None:
            seen.append("starts")
            if waits:
                await wait(0)
                seen.append("goes on")

        for waits in (False, True):
            concurrent_proc(code).call_and_forget(waits)
        assert seen == []
        await wait(0)
        assert seen == ["starts", "starts"]
        await wait(0)
        assert seen == ["starts", "starts", "goes on"]
        fail.call_and_forget()
        fail.call_and_forget(after=0)
        await wait(0.001)

    asyncio.run(main())
    assert [str(failure) for failure in forgotten] == ["over the weir"] * 2


def test_a_forgotten_failure_goes_to_the_handler_of_the_loop_by_default() -> None:
    reported: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        fail.call_and_forget()
        fail.call_and_forget(after=0)
        await wait(0.001)

    asyncio.run(main())
    assert [context["message"] for context in reported] == ["a forgotten evaluation failed"] * 2
    assert all(isinstance(context["exception"], LookupError) for context in reported)


def test_the_fastest_is_awaited_and_the_others_go_on() -> None:
    async def main() -> None:
        slow, fast = twice.call_detached(1, after=0.02), twice.call_detached(2, after=0.001)
        assert await await_fastest(slow, fast) is fast
        assert not slow.is_concluded()
        assert await await_fastest(slow, within=0, timeout_result=None) is None
        with pytest.raises(TimedOut):
            await await_fastest(slow, within=0.001)
        assert await slow == 2
        assert await await_fastest(fast, slow) is fast
        assert await await_fastest(slow, fast) is slow
        with pytest.raises(ValueError, match="at least one"):
            await await_fastest()
        code = twice.call(1)
        with pytest.raises(TypeError, match=r"not coroutines: start each with `concurrently\(…\)`"):
            await await_fastest(code)  # type: ignore[arg-type]
        code.close()

    asyncio.run(main())


def test_a_proc_is_a_method_in_a_class() -> None:
    class Gauge:
        def __init__(self, level: int) -> None:
            self.level = level

        @concurrent_proc
        async def read(self, factor: int, *, waits: bool = False) -> int:
            if waits:
                await wait(0)
            return self.level * factor

    async def main() -> None:
        gauge = Gauge(7)
        assert gauge.read.call_nonblock(2) == 14
        assert await waiting(gauge.read.call_nonblock(3, waits=True)) == 21
        assert await gauge.read(4) == 28
        assert Gauge.read.call_nonblock(gauge, 5) == 35

    asyncio.run(main())


def test_what_can_be_awaited_can_be_called_and_what_cannot_is_refused() -> None:
    async def main() -> None:
        def future() -> asyncio.Future[str]:
            made: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            made.set_result("future")
            return made

        assert await concurrently(future) == "future"
        assert concurrent_proc(future).call_nonblock() == "future"
        with pytest.raises(TypeError, match="`async def` function is expected"):
            concurrent_proc(lambda: 7).call_nonblock()  # type: ignore[arg-type, return-value]
        with pytest.raises(TypeError, match="`async def` function"):
            ConcurrentProc(7)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="arguments are for functions"):
            concurrently(future(), 7)

    asyncio.run(main())


def test_no_evaluation_is_left_behind() -> None:
    async def main() -> None:
        for _ in range(10):
            waiting(twice.call_nonblock(1, after=0)).add_done_callback(lambda _: None)
            await twice.call_detached(1, after=0)
        await wait(0)
        gc.collect()
        assert not [kept for kept in gc.get_objects() if type(kept) is Evaluation and kept.is_waiting()]

    asyncio.run(main())


def test_evaluations_say_what_they_are() -> None:
    async def main() -> None:
        evaluation = waiting(never.call_nonblock())
        assert "Evaluation pending" in repr(evaluation)
        assert evaluation.get_name().startswith("Evaluation-")
        evaluation.set_name("gauge")
        assert evaluation.get_name() == "gauge"
        assert isinstance(evaluation.get_coro(), Coroutine)
        assert isinstance(evaluation.get_context(), contextvars.Context)
        assert "never" in repr(never)
        evaluation.conclude_to("rain")
        await wait(0)
        assert evaluation.get_coro() is None

    function: Callable[..., Any] = never.__wrapped__
    assert function.__name__ == "never"
    asyncio.run(main())
