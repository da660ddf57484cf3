"""An event loop of asyncio whose turns are compiled: callbacks, timers and descriptors.

All that is rare is asyncio's own code: transports, TLS, subprocesses, signals, name resolution, executors. It uses the
loop by the methods that the compiled base replaces.
"""

import asyncio
import atexit
import os
import selectors
import sys
import threading
from asyncio import base_events
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from typing import Any, TypeVar

from thalweg._thalweg import EventLoopCore, forget_loop

T = TypeVar("T")


class _Selector(selectors.BaseSelector):
    """The descriptors of a loop, for code of asyncio that looks at the loop's selector."""

    def __init__(self, core: EventLoopCore) -> None:
        self._core = core

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        raise NotImplementedError("use `add_reader` and `add_writer` of the event loop")

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        raise NotImplementedError("use `remove_reader` and `remove_writer` of the event loop")

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        raise NotImplementedError("the event loop itself waits for descriptors")

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        descriptor = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        reader, writer = self._core._registered(descriptor)
        if reader is None and writer is None:
            raise KeyError(f"{fileobj!r} is not registered")
        events = (selectors.EVENT_READ if reader is not None else 0) | (
            selectors.EVENT_WRITE if writer is not None else 0
        )
        return selectors.SelectorKey(fileobj, descriptor, events, (reader, writer))

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {descriptor: self.get_key(descriptor) for descriptor in self._core._descriptors()}


class EventLoop(EventLoopCore, asyncio.SelectorEventLoop):
    """The event loop that `run` uses. `asyncio.Runner(loop_factory=EventLoop)` uses it as well."""

    def __init__(self) -> None:
        super(EventLoopCore, self).__init__(_Selector(self))
        self._start = self.time()

    def lifetime(self) -> float:
        """Returns the seconds since the loop was made."""
        return self.time() - self._start

    def run_forever(self) -> None:
        """Runs until `stop` is called."""
        # asyncio's methods for this have no types.
        base: Any = self
        base._check_closed()
        base._check_running()
        base._set_coroutine_origin_tracking(self.get_debug())
        hooks = sys.get_asyncgen_hooks()
        try:
            base._thread_id = threading.get_ident()
            sys.set_asyncgen_hooks(firstiter=base._asyncgen_firstiter_hook, finalizer=base._asyncgen_finalizer_hook)
            asyncio._set_running_loop(self)
            self._run_turns()
        finally:
            self._stopping = False
            base._thread_id = None
            asyncio._set_running_loop(None)
            base._set_coroutine_origin_tracking(False)
            sys.set_asyncgen_hooks(*hooks)
            forget_loop()

    def close(self) -> None:
        """Closes the loop, and drops all that is scheduled."""
        super().close()
        if self.is_closed():
            self._drop_all()

    def abandon(self) -> None:
        """Closes the loop in a forked process. Descriptors stay registered: the parent's loop uses the same epoll."""
        self._drop_all()
        self.close()

    def set_debug(self, enabled: bool) -> None:
        """Turns the debug mode of asyncio on or off."""
        self._debug = enabled
        if self.is_running():
            base: Any = self
            self.call_soon_threadsafe(base._set_coroutine_origin_tracking, enabled)

    def _debug_handle(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> Any:
        """Returns a handle that knows where it was made."""
        return _traced(asyncio.Handle(callback, args, self, context))

    def _debug_timer(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> Any:
        return _traced(asyncio.TimerHandle(when, callback, args, self, context))

    def _tell_slow(self, handle: object, seconds: float) -> None:
        base: Any = base_events
        base.logger.warning("Executing %s took %.3f seconds", base._format_handle(handle), seconds)


def _traced(handle: Any) -> Any:
    """Leaves the frame of this module out of a handle's traceback."""
    if handle._source_traceback:
        del handle._source_traceback[-1:]
    return handle


class EventLoopPolicy(asyncio.DefaultEventLoopPolicy):
    """Makes `EventLoop` the loop of `asyncio.run` and `asyncio.new_event_loop`: `asyncio.set_event_loop_policy`."""

    _loop_factory = EventLoop

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Returns a new loop."""
        return EventLoop()


def run(main: Coroutine[Any, Any, T], *, debug: bool | None = None) -> T:
    """Runs a coroutine on an `EventLoop` and returns its result, as `asyncio.run` does on asyncio's loop.

    Ctrl-C, the end of tasks and the end of asynchronous generators are those of `asyncio.run`.
    """
    if asyncio._get_running_loop() is not None:
        main.close()
        raise RuntimeError("`run` cannot be called from a running event loop: use `await`")
    if sys.version_info >= (3, 11):
        with asyncio.Runner(debug=debug, loop_factory=EventLoop) as runner:
            return runner.run(main)
    return _run_without_runner(main, debug)


def _run_without_runner(main: Coroutine[Any, Any, T], debug: bool | None) -> T:
    """Does what `asyncio.run` of Python 3.10 does, which takes no loop."""
    if not asyncio.iscoroutine(main):
        raise ValueError(f"a coroutine was expected, got {main!r}")
    loop = EventLoop()
    try:
        asyncio.set_event_loop(loop)
        if debug is not None:
            loop.set_debug(debug)
        return loop.run_until_complete(main)
    finally:
        try:
            _end_tasks(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    for task in tasks:
        if not task.cancelled() and (failure := task.exception()) is not None:
            loop.call_exception_handler(
                {"message": "unhandled exception while the program ended", "exception": failure, "task": task}
            )


class _Owned:
    """Closes an event loop with the thread that it belongs to."""

    def __init__(self) -> None:
        self.loop = EventLoop()

    def __del__(self) -> None:
        if not self.loop.is_running():
            self.loop.close()


class _OfThread(threading.local):
    """The event loop of a thread, made for its first `block_on`."""

    owned: _Owned | None = None

    def get(self) -> EventLoop:
        if self.owned is None or self.owned.loop.is_closed():
            self.owned = _Owned()
        return self.owned.loop

    def forget(self) -> None:
        """Closes the loop of the calling thread."""
        self.owned = None

    def abandon(self) -> None:
        """Closes the loop that a forked process has from its parent, unless the fork was in a callback of it."""
        if self.owned is not None and not self.owned.loop.is_running():
            self.owned.loop.abandon()
        self.owned = None


of_thread: _OfThread = _OfThread()
# Before the interpreter takes its modules apart, and in a child process, which has its parent's descriptors.
atexit.register(of_thread.forget)
os.register_at_fork(after_in_child=of_thread.abandon)
