"""Running configurations."""

from __future__ import annotations

import asyncio
import atexit
import json
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from thalweg import _objects, _statistics, _thalweg, _worker
from thalweg._errors import ConfigurationError, Error
from thalweg._statistics import Statistics, Summary

if TYPE_CHECKING:
    from thalweg._pipeline import Pipeline

#: How often a function that shows progress is called, in seconds.
_SHOW_EVERY = 0.2


class Run:
    """A run that goes on, or has ended. It is made by `thalweg.start`.

    It is a context manager, which ends the run at once if it is left by an exception and waits for its end otherwise;
    and it can be awaited.
    """

    def __init__(self, inner: _thalweg.Run, strict: bool) -> None:
        self._inner = inner
        self._strict = strict
        self._watcher: threading.Thread | None = None
        # Also one that nobody holds any more goes on.
        _running.add(self)
        inner.at_end(lambda: _running.discard(self))

    def __repr__(self) -> str:
        return f"<thalweg.Run {'running' if self.is_running else 'ended'}>"

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._inner.is_running

    def statistics(self) -> Statistics:
        """How it goes now."""
        told = json.loads(self._inner.statistics())
        components = _statistics.counts(told)
        messages, size = _statistics.read(components)
        return Statistics(
            components=components,
            messages=messages,
            bytes=size,
            errors=max(sum(counts.errors for counts in components), told["dead_letters"]),
            dead_letters=told["dead_letters"],
            budget_used=told["budget_used_bytes"],
            budget_limit=told["budget_limit_bytes"],
            stopping=told["stopping"],
        )

    def stop(self) -> None:
        """Asks the sources to stop; what is on its way is delivered, then the run ends."""
        self._inner.stop()

    def abort(self) -> None:
        """Ends it at once. What is on its way is not acknowledged."""
        self._inner.abort()

    def wait(self, timeout: float | None = None) -> Summary:
        """Waits for its end.

        Raises `thalweg.Error` if it failed, with the exception of Python's that made it fail as its cause, if one did;
        TimeoutError if it has not ended after so many seconds.
        """
        told = self._inner.wait(timeout)
        if told is None:
            raise TimeoutError(f"the run has not ended after {timeout} s")
        return self._summary(told)

    def _summary(self, told: str) -> Summary:
        of = json.loads(told)
        if of["failure"] is not None:
            raise Error(of["failure"]) from self._inner.cause()
        components = _statistics.counts(of)
        messages, size = _statistics.read(components)
        if self._strict and of["errors"]:
            raise Error(f"{of['errors']} of {messages} could not be processed; they are kept in {of['state_folder']}")
        return Summary(
            components=components,
            messages=messages,
            bytes=size,
            errors=of["errors"],
            dead_letters=of["dead_letters"],
            seconds=of["elapsed_seconds"],
            budget_peak=of["budget_peak_bytes"],
            budget_limit=of["budget_limit_bytes"],
            stopped=of["stopped"],
            retries=of["retries"],
            state_folder=Path(of["state_folder"]),
        )

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.wait()
        else:
            self.abort()
            self._inner.wait()

    def __await__(self) -> Generator[Any, None, Summary]:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def tell() -> None:
            if not ended.done():
                ended.set_result(None)

        def tell_loop() -> None:
            # The loop may have been closed meanwhile, when nobody waits any more.
            if not loop.is_closed():
                loop.call_soon_threadsafe(tell)

        self._inner.at_end(tell_loop)
        yield from ended
        return self.wait()

    def _show(self, show: Callable[[Statistics], object]) -> None:
        """Shows it until it ends, on this thread."""
        while self._inner.wait(_SHOW_EVERY) is None:
            show(self.statistics())
        show(self.statistics())


_running: set[Run] = set()


@atexit.register
def _end_all() -> None:
    # Threads of a run must not call an interpreter that is gone.
    for run_ in list(_running):
        if run_.is_running:
            run_.abort()
            run_._inner.wait(5)


def prepared(config: Any) -> tuple[str | Path, list[_objects.Given]]:
    """A configuration as the engine gets it, and the objects in it."""
    if hasattr(config, "to_dict"):
        config = config.to_dict()
    if isinstance(config, Mapping):
        text, given = _objects.written(config)
        return json.dumps(text), given
    return Path(config), []


def start(
    config: str | PathLike[str] | Mapping[str, Any] | Pipeline,
    *,
    pipelines: Sequence[str] | None = None,
    state: str | PathLike[str] | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    strict: bool = False,
    progress: bool | Callable[[Statistics], object] | None = None,
) -> Run:
    """Begins a run, and gives a handle of it at once. See `thalweg.run` for the arguments."""
    show = _how(progress)
    started = _start(config, pipelines, state, memory, threads, strict, show is True)
    if callable(show):
        started._watcher = threading.Thread(target=started._show, args=(show,), daemon=True)
        started._watcher.start()
    return started


def run(
    config: str | PathLike[str] | Mapping[str, Any] | Pipeline,
    *,
    pipelines: Sequence[str] | None = None,
    state: str | PathLike[str] | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    strict: bool = False,
    progress: bool | Callable[[Statistics], object] | None = None,
) -> Summary:
    """Runs a configuration until its sources end.

    `config` is the path of a configuration of any dialect, a dict as it would stand in one, or a `Pipeline`. In a dict,
    Python's own objects may stand in the place of sources, transforms and sinks.

    `pipelines` has only these run, with what feeds them. Of a service definition of capyfile's, it names the one
    processor, as `service:processor`; its phases run one after the other. `state` is a folder in which positions and
    dead letters are kept, so that the next run continues where this one ends. `memory` is that for data in flight, in
    bytes or as `"1GiB"`; `threads` is how many cores to use. With `strict`, messages that could not be processed are
    a failure.

    `progress` says whether it is shown how the run goes: on a terminal as `thalweg run` does it, in a notebook by a
    line that changes. By default it is where there is one of the two. A function is called with `Statistics` several
    times a second.

    Ctrl-C stops the sources, delivers what is on its way, and raises KeyboardInterrupt then; a second one ends the run
    at once.

    Raises `ConfigurationError` if something is wrong in the configuration, and `thalweg.Error` if the run failed.
    """
    show = _how(progress)
    started = _start(config, pipelines, state, memory, threads, strict, show is True)
    try:
        if callable(show):
            started._show(show)
        return started.wait()
    except KeyboardInterrupt:
        started.stop()
        try:
            started._inner.wait()
        except KeyboardInterrupt:
            started.abort()
            started._inner.wait()
        raise
    except BaseException:
        # What shows it raised.
        if started.is_running:
            started.abort()
            started._inner.wait()
        raise


def check(
    config: str | PathLike[str] | Mapping[str, Any] | Pipeline, *, plan: bool = False, threads: int | None = None
) -> str:
    """Checks a configuration, and says what is in it; with `plan`, also what leads where and how it will run.

    Raises `ConfigurationError` with all that is wrong in it.
    """
    text, given = prepared(config)
    return _thalweg.check(text, given, plan=plan, threads=threads)


def _start(
    config: Any,
    pipelines: Sequence[str] | None,
    state: str | PathLike[str] | None,
    memory: int | str | None,
    threads: int | None,
    strict: bool,
    show: bool,
) -> Run:
    if _worker.begins:
        raise ConfigurationError(
            "a worker process runs the script again, to find the function that it is to call: put what begins a run "
            'under `if __name__ == "__main__":`'
        )
    text, given = prepared(config)
    inner = _thalweg.start(
        text,
        given,
        pipelines=list(pipelines or ()),
        state=None if state is None else Path(state),
        memory=None if memory is None else str(memory),
        threads=threads,
        show=show,
    )
    return Run(inner, strict)


def _how(progress: bool | Callable[[Statistics], object] | None) -> bool | Callable[[Statistics], object]:
    """How to show a run: by the compiled part (True), by a function, or not at all."""
    if callable(progress):
        return progress
    if progress is False:
        return False
    shown = _in_notebook()
    if shown is not None:
        return shown
    return True if progress else sys.stderr is not None and sys.stderr.isatty()


def _in_notebook() -> Callable[[Statistics], object] | None:
    """What shows statistics in a notebook, if this is one."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or type(shell).__name__ != "ZMQInteractiveShell":
        return None
    from importlib import import_module

    display = import_module("IPython.display")
    shown = display.display(display.Pretty("…"), display_id=True)

    def show(now: Statistics) -> None:
        shown.update(display.Pretty(_statistics.line(now)))

    return show
