"""Evaluations: `async def` code that may have to wait, and costs little where it does not.

A call runs on its caller's stack until it first has to wait. Only then is there something to schedule and to
await, an `Evaluation`; code that never waits does not touch the event loop. Evaluations are futures of asyncio:
they can be awaited several times and by several tasks, and passed to `asyncio.gather`, `asyncio.wait` and the
like.

    @concurrent_proc
    async def fetch(key: str) -> bytes:
        if key in cache:
            return cache[key]
        return await download(key)

    found = fetch.call_nonblock("a")       # the bytes, or an Evaluation if they have to be downloaded
    later = fetch.call_detached("b")       # an Evaluation, which starts at the next turn of the event loop
    fetch.call_and_forget("c")             # nothing; its failure goes to the hook of `on_forgotten`
    print(await fetch.call("d"))           # the bytes, as `await fetch("d")`

An evaluation belongs to the event loop that it was called on. Only `conclude_to` may be called from other threads.

On the event loop of `run`, waiting costs a fraction of what it costs on asyncio's own loop. Code without an event loop
waits by `block_on`.
"""

import asyncio
import contextlib
import contextvars
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, KeysView
from typing import Any, Generic, Protocol, TypeVar, cast, overload

from thalweg._descriptors import (
    RAISE,
    Bytes,
    File,
    await_read,
    await_read_into,
    await_readable,
    await_writable,
    await_written,
)
from thalweg._errors import Error
from thalweg._event_loop import EventLoop, EventLoopPolicy, of_thread, run
from thalweg._resumption import Abandoned, Resumer
from thalweg._thalweg import ConcurrentProc, Waiter, evaluate, wait

__all__ = [
    "Abandoned",
    "ConcurrentProc",
    "Evaluation",
    "EventLoop",
    "EventLoopPolicy",
    "Resumer",
    "TimedOut",
    "await_fastest",
    "await_read",
    "await_read_into",
    "await_readable",
    "await_writable",
    "await_written",
    "block_on",
    "concurrent_proc",
    "concurrently",
    "concurrently_read",
    "concurrently_write",
    "log_errors",
    "on_error",
    "on_forgotten",
    "remove_error_hook",
    "resumption",
    "run",
    "wait",
    "within",
]

T = TypeVar("T")
R = TypeVar("R")


class TimedOut(Error, TimeoutError):
    """A wait reached its time limit. The awaited evaluation continues."""


class _Driver(Protocol):
    """The interface of the compiled driver, which steps the code from wait to wait."""

    coroutine: Coroutine[Any, Any, Any]
    context: contextvars.Context
    waits_for: asyncio.Future[Any] | None
    must_cancel: bool

    def cancel(self, message: Any) -> None: ...
    def stop(self) -> None: ...
    def is_started(self) -> bool: ...
    def cancelling(self) -> int: ...
    def uncancel(self) -> int: ...


# The iterator of asyncio, which for a future that is done returns the result at once.
_await_done = asyncio.Future.__await__


class Evaluation(asyncio.Future[T], Generic[T]):
    """Code that runs concurrently: await its result, query it, or end it.

    A task that awaits it, by `await` or by `await_result`, may be cancelled without affecting it. It ends early by
    `conclude_to`, by `cancel`, and when `asyncio.run` ends. It is created by the calls of a `ConcurrentProc` and
    by `concurrently`. Within its code it is the current task of asyncio, and supports what tasks support.
    """

    # The driver is set from the end of the first step until the end of the code.
    __slots__ = ("_data", "_driver")
    _data: dict[Any, Any]
    _driver: _Driver | None
    # The other attributes are for the first step, in which the evaluation is the current task but not yet a future.
    # Code rarely looks at it then, so it becomes a future only when some code does. An evaluation that refers to
    # itself is not reused for another call.
    _itself: Any = None
    _is_future: bool = False
    _cancels: int = 0
    _name: str = ""

    @overload
    async def await_result(self, within: float | None = None, timeout_result: Any = ...) -> T: ...
    @overload
    async def await_result(
        self,
        within: float | None = None,
        timeout_result: Any = ...,
        *,
        then: Callable[[T], R],
        otherwise: Callable[[BaseException], R] | None = None,
    ) -> R: ...
    @overload
    async def await_result(
        self, within: float | None = None, timeout_result: Any = ..., *, otherwise: Callable[[BaseException], T]
    ) -> T: ...
    async def await_result(
        self,
        within: float | None = None,
        timeout_result: Any = RAISE,
        *,
        then: Callable[[T], Any] | None = None,
        otherwise: Callable[[BaseException], Any] | None = None,
    ) -> Any:
        """Waits for the result, at most `within` seconds.

        After that time, returns `timeout_result`, or raises `TimedOut` if none is given. The evaluation continues
        in both cases, on every version of Python. An exception of the code is raised here.

        `then` is called with the result, and its own result is returned instead. `otherwise` does the same with an
        exception: that of the code, or `TimedOut`. What either raises is raised here.
        """
        try:
            if within is not None and not self.done():
                await _limited(self, within)
            result = await self if self.done() or within is None else _in_place(timeout_result, within)
        except Exception as error:
            if otherwise is None:
                raise
            return otherwise(error)
        return result if then is None else then(result)

    def conclude_to(self, value: T) -> bool:
        """Ends the evaluation with this value, which all awaiting code receives.

        If the code waits, `asyncio.CancelledError` is raised in it at the next turn of the event loop. If it has
        not started, it never starts. Returns True if the evaluation was not concluded before. May be called from
        any thread. From another thread it takes effect at the next turn of the loop, and the first conclusion
        wins.
        """
        if self.done():
            return False
        if asyncio._get_running_loop() is self.get_loop():
            self._conclude(value)
        else:
            self.get_loop().call_soon_threadsafe(self._conclude, value)
        return True

    @staticmethod
    def current() -> "Evaluation[Any] | None":
        """Returns the evaluation whose code runs, or `None` in other code."""
        task = asyncio.current_task() if asyncio._get_running_loop() is not None else None
        return cast("Evaluation[Any]", task) if isinstance(task, Evaluation) else None

    def __getitem__(self, key: Any) -> Any:
        """Returns what was stored for a key."""
        return _data_of(self)[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        """Stores a value for a key in this evaluation."""
        if not hasattr(self, "_data"):
            self._data = {}
            if not hasattr(self, "_driver"):
                self._itself = self
        self._data[key] = value

    def __delitem__(self, key: Any) -> None:
        """Forgets the value of a key."""
        del _data_of(self)[key]

    def __contains__(self, key: Any) -> bool:
        """True if a value was stored for the key."""
        return key in _data_of(self)

    def get(self, key: Any, default: Any = None) -> Any:
        """Returns what was stored for a key, or `default`."""
        return _data_of(self).get(key, default)

    def keys(self) -> KeysView[Any]:
        """Returns the keys for which values were stored."""
        return _data_of(self).keys()

    def is_concluded(self) -> bool:
        """True if there is a result or a failure."""
        return self.done()

    def is_waiting(self) -> bool:
        """True if the code has started and waits for something."""
        return not self.done() and (driver := _driver_of(self)) is not None and driver.is_started()

    def cancel(self, msg: Any = None) -> bool:
        """Asks the code to end, as `asyncio.Task.cancel` does. Returns True if the evaluation was not concluded
        before.
        """
        if self.done():
            return False
        if (driver := _driver_of(self)) is not None:
            driver.cancel(msg)
        else:
            self._cancels += 1
            self._itself = self
        return True

    def cancelling(self) -> int:
        """Returns the number of calls of `cancel` minus those of `uncancel`."""
        return self._cancels if (driver := _driver_of(self)) is None else driver.cancelling()

    def uncancel(self) -> int:
        """Withdraws one call of `cancel`, after its cancellation has been handled. Returns how many are left."""
        if (driver := _driver_of(self)) is not None:
            return driver.uncancel()
        self._cancels = max(self._cancels - 1, 0)
        return self._cancels

    def get_coro(self) -> Coroutine[Any, Any, T] | None:
        """Returns the coroutine of the code while it waits."""
        return None if (driver := _driver_of(self)) is None else driver.coroutine

    def get_context(self) -> contextvars.Context | None:
        """Returns the context of the code while it waits."""
        return None if (driver := _driver_of(self)) is None else driver.context

    def get_name(self) -> str:
        """Returns the name set by `set_name`, or a unique default."""
        return self._name or f"Evaluation-{id(self):x}"

    def set_name(self, value: object) -> None:
        """Sets a name, which helps to find the evaluation in logs."""
        self._name = str(value)
        if not hasattr(self, "_driver"):
            self._itself = self

    def __await__(self) -> Generator[Any, None, T]:
        """Waits for the result. The awaiting task may be cancelled without affecting the evaluation."""
        return _await_done(self) if self.done() else cast("Generator[Any, None, T]", Waiter(self))

    __iter__ = __await__

    def add_done_callback(self, fn: Callable[[Any], object], /, *, context: contextvars.Context | None = None) -> None:
        """Registers a function to call with the evaluation once it is concluded."""
        if not hasattr(self, "_driver"):
            self._become_future(asyncio.get_running_loop())
        super().add_done_callback(fn, context=context)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Returns the event loop that the evaluation belongs to."""
        if not hasattr(self, "_driver"):
            self._become_future(asyncio.get_running_loop())
        return super().get_loop()

    # For the compiled part, which itself makes sure that this is a future.
    _add_done_callback = asyncio.Future.add_done_callback
    _get_loop = asyncio.Future.get_loop

    # Some libraries read these attributes of tasks.
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
        """Concludes the evaluation of code that did not wait, to which a reference was kept."""
        self._become_future(loop)
        self._itself = self._driver = None
        if self.done():
            # The code itself concluded it.
            return
        if failure is None:
            self.set_result(result)
        elif isinstance(failure, asyncio.CancelledError):
            super().cancel()
        else:
            self.set_exception(failure)
            # The caller receives the exception; mark it as retrieved.
            self.exception()

    def _conclude(self, value: T) -> None:
        if self.done():
            return
        driver = _driver_of(self)
        self.set_result(value)
        if driver is not None:
            driver.stop()

    def _fail(self, error: BaseException) -> bool:
        """Ends an evaluation without code with an exception, from any thread."""
        if self.done():
            return False
        if asyncio._get_running_loop() is self.get_loop():
            self._set_failure(error)
        else:
            self.get_loop().call_soon_threadsafe(self._set_failure, error)
        return True

    def _set_failure(self, error: BaseException) -> None:
        if not self.done():
            self.set_exception(error)

    def _end_cancelled(self, message: Any) -> None:
        super().cancel(message)

    @classmethod
    def _concluded(cls, result: "Evaluation[Any]") -> "Evaluation[Evaluation[Any]]":
        """Returns an evaluation whose result is an evaluation."""
        around: Evaluation[Evaluation[Any]] = Evaluation(loop=result.get_loop())
        around._driver = None
        around._is_future = True
        around.set_result(result)
        return around


def _data_of(evaluation: Evaluation[Any]) -> dict[Any, Any]:
    return getattr(evaluation, "_data", {})


def _driver_of(evaluation: Evaluation[Any]) -> _Driver | None:
    return getattr(evaluation, "_driver", None)


concurrent_proc = ConcurrentProc


def concurrently(code: Awaitable[T] | Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> Evaluation[T]:
    """Schedules code: a coroutine, or an `async def` function and its arguments.

    It starts at the next turn of the event loop.
    """
    if isinstance(code, Awaitable):
        if args or kwargs:
            raise TypeError("arguments are for functions, but this is already called")
        made = code
    else:
        made = code(*args, **kwargs)
    return evaluate(_watched(_as_coroutine(made), [], code) if _error_hooks else made)


def resumption() -> tuple[Resumer[Any], Evaluation[Any]]:
    """Creates an evaluation without code of its own, and the `Resumer` that ends its wait with a value.

    Use it to await external events, such as a callback or an event on another thread. If the resumer is dropped
    unused, waiting code gets `Abandoned`.
    """
    evaluation: Evaluation[Any] = Evaluation(loop=asyncio.get_running_loop())
    evaluation._driver = None
    evaluation._is_future = True
    return Resumer(evaluation), evaluation


def concurrently_read(file: File, size: int) -> Evaluation[bytes]:
    """Reads as `await_read` in an evaluation of its own, which starts at the next turn of the event loop."""
    return concurrently(await_read, file, size)


def concurrently_write(file: File, data: Bytes) -> Evaluation[int]:
    """Writes as `await_written` in an evaluation of its own, which starts at the next turn of the event loop."""
    return concurrently(await_written, file, data)


async def within(seconds: float, awaitable: Awaitable[T], timeout_result: Any = RAISE) -> T:
    """Waits for anything awaitable, at most `seconds`, with the same result on every version of Python.

    After that time, returns `timeout_result`, or raises `TimedOut` if none is given. An evaluation, a task or
    another future continues. A coroutine, which only this call knows, is cancelled, and its end is awaited.

    `asyncio.wait_for` ends an evaluation until Python 3.11 and lets it continue from 3.12 on.
    """
    if asyncio.isfuture(awaitable):
        future = cast("asyncio.Future[T]", awaitable)
        if not future.done():
            await _limited(future, seconds)
        return await future if future.done() else cast("T", _in_place(timeout_result, seconds))
    evaluation = evaluate(awaitable)
    try:
        await _limited(evaluation, seconds)
    except asyncio.CancelledError:
        evaluation.cancel()
        await _limited(evaluation, None)
        raise
    if not evaluation.done():
        evaluation.cancel()
        await _limited(evaluation, None)
        # It may have ended with a result instead.
        if evaluation.cancelled():
            return cast("T", _in_place(timeout_result, seconds))
    return await evaluation


async def _limited(future: "asyncio.Future[Any]", seconds: float | None) -> None:
    await asyncio.wait((future,), timeout=None if seconds is None else max(seconds, 0))


def block_on(awaitable: Awaitable[T], within: float | None = None, timeout_result: Any = RAISE) -> T:
    """Waits in code without an event loop, and returns the result.

    Each thread has an event loop for this, which runs only meanwhile. Evaluations that were started continue at the
    next call. After `within` seconds returns `timeout_result`, or raises `TimedOut` if none is given.
    """
    if asyncio._get_running_loop() is not None:
        if isinstance(awaitable, Coroutine):
            awaitable.close()
        raise RuntimeError("an event loop runs here already: use `await` instead of `block_on`")
    code = _awaited(awaitable) if within is None else _within(within, awaitable, timeout_result)
    return of_thread.get().run_until_complete(code)


_within = within


async def await_fastest(
    *evaluations: Evaluation[T], within: float | None = None, timeout_result: Any = RAISE
) -> Evaluation[T]:
    """Waits until one of these evaluations is concluded, and returns the first. If several are concluded already,
    returns the first in argument order.

    The others continue: `conclude_to` ends them. If none is concluded after `within` seconds, returns
    `timeout_result`, or raises `TimedOut` if none is given.
    """
    if not evaluations:
        raise ValueError("there is nothing to wait for: give at least one evaluation")
    for evaluation in evaluations:
        if isinstance(evaluation, Coroutine):
            raise TypeError("`await_fastest` takes evaluations, not coroutines: start each with `concurrently(…)`")
        if evaluation.done():
            return evaluation
    fastest: asyncio.Future[Evaluation[T]] = asyncio.get_running_loop().create_future()

    def conclude(evaluation: Any) -> None:
        if not fastest.done():
            fastest.set_result(evaluation)

    for evaluation in evaluations:
        evaluation.add_done_callback(conclude)
    try:
        await _limited(fastest, within)
        return fastest.result() if fastest.done() else cast("Evaluation[T]", _in_place(timeout_result, within))
    finally:
        for evaluation in evaluations:
            evaluation.remove_done_callback(conclude)


def on_error(hook: Callable[[BaseException], object]) -> Callable[[BaseException], object]:
    """Calls `hook` with each exception of the code of any proc, even if a caller receives it. Returns the hook.

    `ConcurrentProc.on_error` does so for one proc.
    """
    _error_hooks.append(hook)
    return hook


def remove_error_hook(hook: Callable[[BaseException], object]) -> None:
    """Removes a hook that `on_error` or `log_errors` has added."""
    try:
        _error_hooks.remove(hook)
    except ValueError:
        raise ValueError(f"{hook!r} is not a hook of all procs") from None


def log_errors(logger: logging.Logger | None = None, level: int = logging.ERROR) -> Callable[[BaseException], object]:
    """Logs each exception of the code of any proc, with the place of the code. Returns the hook, to be removed.

    The logger is `thalweg.evaluations` by default.
    """
    target = logger if logger is not None else logging.getLogger("thalweg.evaluations")

    def log(error: BaseException) -> None:
        place = getattr(error, "_thalweg_place", "an unknown place")
        target.log(level, "a concurrent proc failed: %s: %s", place, error, exc_info=error)

    return on_error(log)


_error_hooks: list[Callable[[BaseException], object]] = []


async def _watched(code: Coroutine[Any, Any, T], hooks: list[Callable[[BaseException], object]], function: Any) -> T:
    """Awaits the code of a proc that has hooks for its errors."""
    try:
        return await code
    except Exception as error:
        # Some exceptions take no attributes.
        with contextlib.suppress(AttributeError, TypeError):
            error._thalweg_place = _place(function)  # type: ignore[attr-defined]
        for hook in (*_error_hooks, *hooks):
            try:
                hook(error)
            except Exception as failure:
                _report(hook, failure)
        raise


def _place(function: Any) -> str:
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    name = getattr(function, "__qualname__", repr(function))
    if code is None and isinstance(function, Coroutine):
        code = getattr(function, "cr_code", None)
    return name if code is None else f"`{name}` at {code.co_filename}:{code.co_firstlineno}"


def _report(hook: object, failure: BaseException) -> None:
    """A hook that fails does not replace the error that it was told of."""
    logging.getLogger("thalweg.evaluations").error("the error hook %r failed", hook, exc_info=failure)


def on_forgotten(hook: Callable[[BaseException], None] | None) -> None:
    """Sets the hook for failures that no code awaits. `None`, the default, uses the exception handler of the event
    loop.
    """
    global _hook
    _hook = hook


_hook: Callable[[BaseException], None] | None = None


def _tell_of_forgotten(failure: BaseException, loop: asyncio.AbstractEventLoop) -> None:
    if _hook is not None:
        _hook(failure)
    else:
        loop.call_exception_handler({"message": "a forgotten evaluation failed", "exception": failure})


def _in_place(timeout_result: Any, within: float | None) -> Any:
    """Returns the result of a wait that timed out, or raises `TimedOut`."""
    if timeout_result is RAISE:
        raise _timed_out(within)
    return timeout_result


def _timed_out(within: float | None) -> TimedOut:
    return TimedOut(f"nothing came within {within:g} s")


def _as_coroutine(made: Any) -> Coroutine[Any, Any, Any]:
    """Returns a coroutine for any awaitable."""
    if isinstance(made, Coroutine):
        return made
    if not isinstance(made, Awaitable):
        raise TypeError(
            f"an `async def` function is expected, whose result can be awaited, not one that returns {made!r}"
        )
    return _awaited(made)


async def _awaited(made: Awaitable[T]) -> T:
    return await made
