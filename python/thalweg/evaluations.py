"""Evaluations: `async def` code that may have to wait, and costs little where it does not.

Code that is called runs in its caller's stack until it first has to wait. Only then is there something to schedule
and to await, an `Evaluation`; code that never waits does not touch the event loop. Evaluations are futures of
asyncio: they can be awaited, several times and by several, and given to `asyncio.gather`, `asyncio.wait` and the like.

    @concurrent_proc
    async def fetch(key: str) -> bytes:
        if key in cache:
            return cache[key]
        return await download(key)

    found = fetch.call_nonblock("a")       # the bytes, or an Evaluation if they have to be downloaded
    later = fetch.call_detached("b")       # an Evaluation, which starts at the next turn of the event loop
    fetch.call_and_forget("c")             # nothing; its failure is told to the hook of `on_forgotten`
    print(await fetch.call("d"))           # the bytes, as `await fetch("d")`

An evaluation belongs to the event loop that it was called on. Only `conclude_to` may be called from other threads.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import IO, Any, Generic, Protocol, TypeVar, cast

from thalweg._errors import Error
from thalweg._readiness import await_descriptor
from thalweg._thalweg import ConcurrentProc, Waiter, evaluate

__all__ = [
    "ConcurrentProc",
    "Evaluation",
    "TimedOut",
    "await_fastest",
    "await_readable",
    "await_writable",
    "concurrent_proc",
    "concurrently",
    "on_forgotten",
    "wait",
]

T = TypeVar("T")
# What is not given.
_RAISE: Any = object()


class TimedOut(Error, TimeoutError):
    """Something did not come in the time that was given to it. What was waited for goes on."""


class _Driver(Protocol):
    """What is used here of the compiled part's object that takes the code from wait to wait."""

    coroutine: Coroutine[Any, Any, Any]
    context: contextvars.Context
    waits_for: asyncio.Future[Any] | None
    must_cancel: bool

    def cancel(self, message: Any) -> None: ...
    def give_up(self) -> None: ...
    def is_started(self) -> bool: ...
    def cancelling(self) -> int: ...
    def uncancel(self) -> int: ...


class Evaluation(asyncio.Future[T], Generic[T]):
    """Code that goes on concurrently: await its result, ask about it, or end it.

    Who awaits it, by `await` or by `await_result`, may be cancelled without it. It ends early by `conclude_to`, by
    `cancel`, and when `asyncio.run` ends. It is made by the calls of a `ConcurrentProc` and by `concurrently`.
    Within its code it is the current task of asyncio, and can do what tasks can.
    """

    # It is there when the first step is over, and until the end.
    __slots__ = ("_driver",)
    _driver: _Driver | None
    # The rest is for the first step, in which it is the current task and not yet a future. Nearly no code looks at
    # it then, so it is made one when somebody does. What refers to itself is not used for another call.
    _itself: Any = None
    _is_future: bool = False
    _cancels: int = 0
    _name: str = ""

    async def await_result(self, within: float | None = None, timeout_result: Any = _RAISE) -> T:
        """Waits for the result, for not longer than `within` seconds.

        If it did not come by then, gives `timeout_result`, or raises `TimedOut` where there is none. The evaluation
        goes on in both cases. What the code raises is raised here.
        """
        if within is not None and not self.done():
            await asyncio.wait((self,), timeout=max(within, 0))
            if not self.done():
                return cast("T", _in_place(timeout_result, within))
        return await self

    def conclude_to(self, value: T) -> bool:
        """Ends the evaluation with this value, which all who await it get.

        Its code is told to end by `asyncio.CancelledError` where it waits, at the next turn of the event loop, or
        does not start. Says whether it was not concluded before. May be called from any thread; from others it takes
        place at the next turn of the loop, where the first who concludes it wins.
        """
        if self.done():
            return False
        if asyncio._get_running_loop() is self.get_loop():
            self._conclude(value)
        else:
            self.get_loop().call_soon_threadsafe(self._conclude, value)
        return True

    def is_concluded(self) -> bool:
        """Whether there is a result, or a failure."""
        return self.done()

    def is_waiting(self) -> bool:
        """Whether the code has begun, and waits for something."""
        return not self.done() and (driver := _driver_of(self)) is not None and driver.is_started()

    def cancel(self, msg: Any = None) -> bool:
        """Asks the code to end, as `asyncio.Task.cancel` does. Says whether it was not concluded before."""
        if self.done():
            return False
        if (driver := _driver_of(self)) is not None:
            driver.cancel(msg)
        else:
            self._cancels += 1
            self._itself = self
        return True

    def cancelling(self) -> int:
        """How often `cancel` was called, less how often `uncancel` was."""
        return self._cancels if (driver := _driver_of(self)) is None else driver.cancelling()

    def uncancel(self) -> int:
        """Takes one call of `cancel` back, as who has dealt with it does. Gives how many are left."""
        if (driver := _driver_of(self)) is not None:
            return driver.uncancel()
        self._cancels = max(self._cancels - 1, 0)
        return self._cancels

    def get_coro(self) -> Coroutine[Any, Any, T] | None:
        """The coroutine of the code, while it waits."""
        return None if (driver := _driver_of(self)) is None else driver.coroutine

    def get_context(self) -> contextvars.Context | None:
        """The variables that the code sees, while it waits."""
        return None if (driver := _driver_of(self)) is None else driver.context

    def get_name(self) -> str:
        """The name that `set_name` gave it, or one that only it has."""
        return self._name or f"Evaluation-{id(self):x}"

    def set_name(self, value: object) -> None:
        """Gives it a name, which helps to find it in logs."""
        self._name = str(value)
        if not hasattr(self, "_driver"):
            self._itself = self

    def __await__(self) -> Generator[Any, None, T]:
        """Waits for the result. Who awaits may be cancelled without the evaluation."""
        if not self.done():
            yield Waiter(self)
        return self.result()

    __iter__ = __await__

    def add_done_callback(self, fn: Callable[[Any], object], /, *, context: contextvars.Context | None = None) -> None:
        """Has a function called with it when it is concluded."""
        if not hasattr(self, "_driver"):
            self._become_future(asyncio.get_running_loop())
        super().add_done_callback(fn, context=context)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that it belongs to."""
        if not hasattr(self, "_driver"):
            self._become_future(asyncio.get_running_loop())
        return super().get_loop()

    # For the compiled part, which knows when it is a future.
    _add_done_callback = asyncio.Future.add_done_callback
    _get_loop = asyncio.Future.get_loop

    # Some libraries look at these of a task.
    @property
    def _fut_waiter(self) -> asyncio.Future[Any] | None:
        return None if (driver := _driver_of(self)) is None else driver.waits_for

    @property
    def _must_cancel(self) -> bool:
        return False if (driver := _driver_of(self)) is None else driver.must_cancel

    def _become_future(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_future:
            self._is_future = True
            self._itself = self
            super().__init__(loop=loop)

    def _settle(self, loop: asyncio.AbstractEventLoop, result: T, failure: BaseException | None) -> None:
        """The code did not wait, but somebody kept its evaluation."""
        self._become_future(loop)
        self._itself = self._driver = None
        if self.done():
            # Its code concluded it.
            return
        if failure is None:
            self.set_result(result)
        elif isinstance(failure, asyncio.CancelledError):
            super().cancel()
        else:
            self.set_exception(failure)
            # The caller has it.
            self.exception()

    def _conclude(self, value: T) -> None:
        if self.done():
            return
        driver = _driver_of(self)
        self.set_result(value)
        if driver is not None:
            driver.give_up()

    def _end_cancelled(self, message: Any) -> None:
        super().cancel(message)

    @classmethod
    def _concluded(cls, result: "Evaluation[Any]") -> "Evaluation[Evaluation[Any]]":
        """One whose result is an evaluation."""
        around: Evaluation[Evaluation[Any]] = Evaluation(loop=result.get_loop())
        around._driver = None
        around._is_future = True
        around.set_result(result)
        return around


def _driver_of(evaluation: Evaluation[Any]) -> _Driver | None:
    return getattr(evaluation, "_driver", None)


concurrent_proc = ConcurrentProc


def concurrently(code: Awaitable[T] | Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> Evaluation[T]:
    """Schedules code: a coroutine, or an `async def` function and its arguments.

    It starts at the next turn of the event loop.
    """
    if isinstance(code, Awaitable):
        if args or kwargs:
            raise TypeError("arguments are for functions, and this is called already")
        return evaluate(code)
    return evaluate(code(*args, **kwargs))


async def wait(seconds: float) -> None:
    """Waits for so many seconds; for 0 or less until the next turn of the event loop, so that others have theirs."""
    await asyncio.sleep(max(seconds, 0))


async def await_fastest(
    *evaluations: Evaluation[T], within: float | None = None, timeout_result: Any = _RAISE
) -> Evaluation[T]:
    """Waits until one of these evaluations is concluded, and gives it; of several that are, the first that was named.

    The others go on: `conclude_to` ends them. If none is after `within` seconds, gives `timeout_result`, or raises
    `TimedOut` where there is none.
    """
    if not evaluations:
        raise ValueError("there is nothing to wait for: give at least one evaluation")
    if not any(evaluation.done() for evaluation in evaluations):
        timeout = None if within is None else max(within, 0)
        await asyncio.wait(evaluations, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    for evaluation in evaluations:
        if evaluation.done():
            return evaluation
    return cast("Evaluation[T]", _in_place(timeout_result, within))


async def await_readable(file: int | IO[Any], within: float | None = None, timeout_result: Any = _RAISE) -> Any:
    """Waits until a descriptor, or a file that has one, can be read from or is at its end, and gives `True`.

    Several may wait for the same. After `within` seconds gives `timeout_result`, or raises `TimedOut` where there is
    none.
    """
    return await await_descriptor(file, False, within) or _in_place(timeout_result, within)


async def await_writable(file: int | IO[Any], within: float | None = None, timeout_result: Any = _RAISE) -> Any:
    """Waits until a descriptor, or a file that has one, can be written to, and gives `True`.

    Several may wait for the same. After `within` seconds gives `timeout_result`, or raises `TimedOut` where there is
    none.
    """
    return await await_descriptor(file, True, within) or _in_place(timeout_result, within)


def on_forgotten(hook: Callable[[BaseException], None] | None) -> None:
    """Sets what is told of failures that nobody awaits; `None`: the exception handler of the event loop, as before."""
    global _hook
    _hook = hook


_hook: Callable[[BaseException], None] | None = None


def _tell_of_forgotten(failure: BaseException, loop: asyncio.AbstractEventLoop) -> None:
    if _hook is not None:
        _hook(failure)
    else:
        loop.call_exception_handler({"message": "a forgotten evaluation failed", "exception": failure})


def _in_place(timeout_result: Any, within: float | None) -> Any:
    """What is given where nothing came."""
    if timeout_result is _RAISE:
        raise TimedOut(f"nothing came within {within:g} s")
    return timeout_result


def _as_coroutine(made: Any) -> Coroutine[Any, Any, Any]:
    """A coroutine of what is none, but can be awaited."""
    if isinstance(made, Coroutine):
        return made
    if not isinstance(made, Awaitable):
        raise TypeError(
            f"an `async def` function is expected, whose result can be awaited, not one that returns {made!r}"
        )
    return _awaited(made)


async def _awaited(made: Awaitable[T]) -> T:
    return await made
