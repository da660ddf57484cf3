"""Data of evaluations, their results, their failures, and evaluations without code."""

import asyncio
import gc
import logging
import re
import threading
from typing import Any

import pytest
from evaluated import fail, never, twice, waiting

from thalweg import Error
from thalweg.evaluations import (
    Abandoned,
    ConcurrentProc,
    Evaluation,
    TimedOut,
    concurrent_proc,
    concurrently,
    log_errors,
    log_steps,
    on_error,
    remove_error_hook,
    resumption,
    wait,
)

pytestmark = pytest.mark.usefixtures("any_loop")


def test_an_evaluation_holds_data_for_its_code_and_for_others() -> None:
    async def main() -> None:
        async def code() -> str:
            current = Evaluation.current()
            assert current is not None
            assert "station" not in current
            await wait(0)
            return f"{current['station']} at {current.get('level', 0)}"

        evaluation = waiting(concurrent_proc(code).call_nonblock())
        evaluation["station"] = "Bingen"
        evaluation["level"] = 2
        del evaluation["level"]
        assert list(evaluation.keys()) == ["station"]
        assert await evaluation == "Bingen at 0"
        assert evaluation["station"] == "Bingen"
        with pytest.raises(KeyError):
            evaluation["level"]
        assert Evaluation.current() is None

    asyncio.run(main())
    assert Evaluation.current() is None


def test_data_of_the_first_step_is_that_of_its_evaluation_alone() -> None:
    async def main() -> None:
        async def code(waits: bool) -> Any:
            current = Evaluation.current()
            assert current is not None
            assert list(current.keys()) == []
            current["waits"] = waits
            if waits:
                await wait(0)
            return current["waits"]

        proc = concurrent_proc(code)
        assert [proc.call_nonblock(False) for _ in range(3)] == [False] * 3
        evaluation = waiting(proc.call_nonblock(True))
        assert await evaluation is True
        assert evaluation["waits"] is True

    asyncio.run(main())


def test_a_function_is_applied_to_a_result_and_another_to_a_failure() -> None:
    async def main() -> None:
        evaluation = twice.call_detached(3, after=0)
        assert await evaluation.await_result(then=str) == "6"
        assert await evaluation.await_result(within=1, then=lambda level: level + 1) == 7
        with pytest.raises(ZeroDivisionError):
            await evaluation.await_result(then=lambda level: level / 0)
        failing = fail.call_detached()
        assert await failing.await_result(then=str, otherwise=repr) == "LookupError('over the weir')"
        with pytest.raises(LookupError):
            await failing.await_result(then=str)
        endless = never.call_detached()
        assert await endless.await_result(0, then=str, otherwise=type) is TimedOut
        assert await endless.await_result(0, 7, then=str) == "7"
        endless.cancel()

    asyncio.run(main())


def test_other_code_resumes_an_evaluation_without_code() -> None:
    async def main() -> None:
        resumer, resumed = resumption()
        asyncio.get_running_loop().call_soon(resumer.resume, "rain")
        assert await resumed == "rain"
        assert not resumer.resume("again")

        resumer, resumed = resumption()
        threading.Thread(target=resumer.resume, args=("from afar",)).start()
        assert await resumed.await_result(within=60) == "from afar"

        resumer, resumed = resumption()
        with pytest.raises(TimedOut):
            await resumed.await_result(within=0.001)
        assert resumer.fail(LookupError("over the weir"))
        with pytest.raises(LookupError, match="over the weir"):
            await resumed

        resumer, resumed = resumption()
        assert resumed.conclude_to("otherwise")
        assert not resumer.resume("late")
        assert await resumed == "otherwise"

    asyncio.run(main())


def test_an_evaluation_whose_resumer_is_dropped_is_abandoned() -> None:
    async def main() -> None:
        resumer, resumed = resumption()
        awaiting = concurrently(resumed.await_result)
        await wait(0)
        del resumer
        gc.collect()
        with pytest.raises(Abandoned, match="dropped"):
            await awaiting

    assert issubclass(Abandoned, Error)
    asyncio.run(main())


def test_a_hook_of_a_proc_sees_its_failures_however_it_is_called(forgotten: list[BaseException]) -> None:
    async def main() -> None:
        seen: list[str] = []

        @concurrent_proc
        async def code(waits: bool) -> None:
            if waits:
                await wait(0)
            raise LookupError(f"waits: {waits}")

        hook = code.on_error(lambda error: seen.append(f"own {error}"))
        everywhere = on_error(lambda error: seen.append(f"all {error}"))
        for waits in (False, True):
            with pytest.raises(LookupError):
                await code.call(waits)
            with pytest.raises(LookupError):
                await code.call_detached(waits)
            code.call_and_forget(waits)
            await asyncio.sleep(0.001)
        with pytest.raises(LookupError):
            code.call_nonblock(False)
        with pytest.raises(LookupError):
            await waiting(code.call_nonblock(True))
        calls = ["False"] * 3 + ["True"] * 3 + ["False", "True"]
        assert seen == [f"{who} waits: {waits}" for waits in calls for who in ("all", "own")]
        code.remove_error_hook(hook)
        remove_error_hook(everywhere)
        with pytest.raises(LookupError):
            code.call_nonblock(False)
        assert len(seen) == 16
        with pytest.raises(ValueError, match="is not a hook of this proc"):
            code.remove_error_hook(hook)
        with pytest.raises(ValueError, match="is not a hook of all procs"):
            remove_error_hook(everywhere)

    asyncio.run(main())
    assert len(forgotten) == 2


def test_hooks_of_all_procs_see_what_runs_without_a_proc() -> None:
    async def broken() -> None:
        raise LookupError("over the weir")

    async def main() -> None:
        seen: list[BaseException] = []
        hook = on_error(seen.append)
        try:
            for evaluation in (concurrently(broken), concurrently(broken())):
                with pytest.raises(LookupError):
                    await evaluation
        finally:
            remove_error_hook(hook)
        assert [str(error) for error in seen] == ["over the weir"] * 2

    asyncio.run(main())


def test_a_method_has_the_hooks_of_its_proc() -> None:
    class Gauge:
        @concurrent_proc
        async def read(self) -> int:
            raise LookupError("over the weir")

    seen: list[BaseException] = []
    proc: ConcurrentProc[Any, int] = Gauge.__dict__["read"]
    proc.on_error(seen.append)
    with pytest.raises(LookupError):
        Gauge().read.call_nonblock()
    assert [str(error) for error in seen] == ["over the weir"]


def test_failures_are_logged_with_the_place_of_their_code(caplog: pytest.LogCaptureFixture) -> None:
    hook = log_errors()
    try:
        with pytest.raises(LookupError):
            fail.call_nonblock()
    finally:
        remove_error_hook(hook)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("thalweg.evaluations", logging.ERROR)
    assert "`fail` at " in record.getMessage()
    assert record.getMessage().endswith(": over the weir")
    assert record.exc_info is not None


def test_each_step_of_a_call_is_logged_while_that_is_wanted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="thalweg.evaluations")

    def steps() -> list[str]:
        """Returns the steps that were logged, without the numbers of the calls."""
        said = [re.sub(r" at \S+, call \d+", "", record.getMessage()) for record in caplog.records]
        caplog.clear()
        return [re.sub(r"waits for .*", "waits", text) for text in said]

    async def main() -> None:
        hook = log_steps()
        try:
            assert await twice.call_detached(2, 0) == 4
            assert [record.levelno for record in caplog.records] == [logging.DEBUG] * 4
            assert {record.proc for record in caplog.records} == {twice.__wrapped__}  # type: ignore[attr-defined]
            calls = [re.search(r"call (\d+)", record.getMessage()) for record in caplog.records]
            assert len({call and call[1] for call in calls}) == 1
            assert steps() == ["`twice` begins", "`twice` waits", "`twice` continues", "`twice` ends"]
            assert await twice.call(1) == 2
            assert steps() == ["`twice` begins", "`twice` ends"]
            with pytest.raises(LookupError):
                fail.call_nonblock()
            assert steps() == ["`fail` begins", "`fail` ends with LookupError('over the weir')"]
            detached = twice.call_detached(3, 60)
            await wait(0)
            detached.cancel()
            with pytest.raises(asyncio.CancelledError):
                await detached
            assert steps()[1:] == ["`twice` waits", "`twice` continues", "`twice` ends with CancelledError()"]
            logging.getLogger("thalweg.evaluations").setLevel(logging.INFO)
            assert await twice.call_detached(2, 0) == 4
            assert steps() == []
        finally:
            remove_error_hook(hook)
        logging.getLogger("thalweg.evaluations").setLevel(logging.DEBUG)
        assert await twice.call_detached(2, 0) == 4
        assert steps() == []

    asyncio.run(main())


def test_a_hook_that_fails_hides_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: BaseException) -> None:
        raise ZeroDivisionError

    on_error(broken)
    try:
        with pytest.raises(LookupError):
            fail.call_nonblock()
    finally:
        remove_error_hook(broken)
    assert "broken" in caplog.text
