"""Running configurations."""

from __future__ import annotations

import asyncio
import atexit
import importlib
import json
import os
import sys
import threading
import zlib
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
    """A run in progress or ended, as returned by `thalweg.start`.

    It can be awaited. As a context manager, it aborts the run if the `with` block raises an exception, and
    otherwise waits for the run's end.
    """

    def __init__(self, inner: _thalweg.Run, strict: bool) -> None:
        self._inner = inner
        self._strict = strict
        self._watcher: threading.Thread | None = None
        # Held here and not by the compiled part, whose objects the garbage collector does not traverse: the traceback
        # of the exception may refer to this run.
        self._cause: BaseException | None = None
        self._cause_lock = threading.Lock()
        # A run continues even without any other reference to it.
        _running.add(self)
        inner.at_end(lambda: _running.discard(self))

    def __repr__(self) -> str:
        return f"<thalweg.Run {'running' if self.is_running else 'ended'}>"

    @property
    def is_running(self) -> bool:
        """True until the run has ended."""
        return self._inner.is_running

    def statistics(self) -> Statistics:
        """Returns the current statistics."""
        current = json.loads(self._inner.statistics())
        components = _statistics.counts(current)
        messages, size = _statistics.read(components)
        return Statistics(
            components=components,
            messages=messages,
            bytes=size,
            errors=max(sum(counts.errors for counts in components), current["dead_letters"]),
            dead_letters=current["dead_letters"],
            budget_used=current["budget_used_bytes"],
            budget_limit=current["budget_limit_bytes"],
            stopping=current["stopping"],
        )

    def stop(self) -> None:
        """Asks the sources to stop. Data in flight is delivered, then the run ends."""
        self._inner.stop()

    def abort(self) -> None:
        """Ends the run immediately. Data in flight is not acknowledged."""
        self._inner.abort()

    def wait(self, timeout: float | None = None) -> Summary:
        """Waits for the end of the run.

        Raises `thalweg.Error` if the run failed. Its cause is the Python exception that made the run fail, if
        there is one. Raises TimeoutError if the run has not ended after `timeout` seconds.
        """
        summary = self._inner.wait(timeout)
        if summary is None:
            raise TimeoutError(f"the run has not ended after {timeout} s")
        _thalweg.flush_logs()
        return self._summary(summary)

    def _summary(self, text: str) -> Summary:
        of = json.loads(text)
        if of["failure"] is not None:
            raise Error(of["failure"]) from self._failure_cause()
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

    def _failure_cause(self) -> BaseException | None:
        """Returns the exception that made the run fail, at each call."""
        with self._cause_lock:
            if self._cause is None:
                self._cause = self._inner.cause()
            return self._cause

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

        def conclude() -> None:
            if not ended.done():
                ended.set_result(None)

        def wake_loop() -> None:
            # The loop may have been closed meanwhile; then no task waits.
            if not loop.is_closed():
                loop.call_soon_threadsafe(conclude)

        self._inner.at_end(wake_loop)
        yield from ended
        return self.wait()

    def _show(self, show: Callable[[Statistics], object]) -> None:
        """Shows the statistics on this thread until the run ends."""
        while self._inner.wait(_SHOW_EVERY) is None:
            show(self.statistics())
        show(self.statistics())


_running: set[Run] = set()

# A forked child has none of the threads of these runs: it must neither abort them nor wait for them at its end.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_running.clear)


@atexit.register
def _end_all() -> None:
    # Threads of a run must not call an interpreter that is gone.
    for run_ in list(_running):
        if run_.is_running:
            run_.abort()
            run_._inner.wait(5)


def prepared(config: Any) -> tuple[str | Path, list[_objects.Given]]:
    """Returns a configuration in the form for the engine, and the objects in it."""
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
    """Starts a run, and returns its handle immediately. See `thalweg.run` for the arguments."""
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

    `config` is the path of a configuration of any dialect, a dict of the same structure, or a `Pipeline`. In a
    dict, Python objects may take the place of sources, transforms and sinks.

    `pipelines` selects the pipelines to run; the pipelines that feed them run as well. Of a service definition of
    capyfile, it selects the one processor, as `service:processor`; its phases run one after the other. `state` is
    a directory for checkpoints and dead letters, so that the next run resumes where this one ends. `memory` limits
    the data in flight, in bytes or as `"1GiB"`. `threads` is the number of cores to use. With `strict`, the run
    fails if messages could not be processed.

    `progress` enables the display of progress: on a terminal as with `thalweg run`, in a notebook as a line that
    updates. By default progress is shown in these two places. A function is called with `Statistics` several times
    a second.

    Ctrl-C stops the sources, delivers the data in flight, and then raises KeyboardInterrupt. A second Ctrl-C
    aborts the run.

    Raises `ConfigurationError` if the configuration is invalid, and `thalweg.Error` if the run failed.
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
        # The progress function raised an exception.
        if started.is_running:
            started.abort()
            started._inner.wait()
        raise


def check(
    config: str | PathLike[str] | Mapping[str, Any] | Pipeline, *, plan: bool = False, threads: int | None = None
) -> str:
    """Checks a configuration, and describes it; with `plan`, also its edges and how it will run.

    Raises `ConfigurationError` with all errors in it.
    """
    _check_threads(threads)
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
            "a worker process imports the script again to find its function: put the code that starts a run "
            'under `if __name__ == "__main__":`'
        )
    _check_threads(threads)
    text, given = prepared(config)
    if given:
        # Otherwise a thread of the run imports it, and pyarrow: a process that is forked meanwhile can never import.
        importlib.import_module("thalweg._bridge")
    inner = _thalweg.start(
        text,
        given,
        pipelines=list(pipelines or ()),
        state=None if state is None else Path(state),
        memory=None if memory is None else str(memory),
        threads=threads,
        show=show,
        letters=_letters(),
    )
    return Run(inner, strict)


def _check_threads(threads: int | None) -> None:
    if threads is not None and not 0 <= threads < 1 << 16:
        raise ConfigurationError(f"`threads` is {threads}: it must be a number from 1 to {(1 << 16) - 1}")


def _letters() -> Path | None:
    """Returns the directory for the dead letters of pipelines that are built in code without `state`.

    It is in the user's directory for state, and its name is made of the script's and the current directory's names:
    a program that only imports thalweg leaves nothing in the current directory.
    """
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        home = state if state.is_absolute() else Path.home() / ".local" / "state"
        folder = os.getcwd()
    except (OSError, RuntimeError):
        return None
    script = Path(getattr(sys.modules.get("__main__"), "__file__", None) or "python").stem
    return home / "thalweg" / "python" / f"{script}-{zlib.crc32(folder.encode(errors='surrogateescape')):08x}"


def _how(progress: bool | Callable[[Statistics], object] | None) -> bool | Callable[[Statistics], object]:
    """Decides how to show a run: by the compiled part (True), by a function, or not at all (False)."""
    if callable(progress):
        return progress
    if progress is False:
        return False
    shown = _in_notebook()
    if shown is not None:
        return shown
    return True if progress else sys.stderr is not None and sys.stderr.isatty()


def _in_notebook() -> Callable[[Statistics], object] | None:
    """Returns a function that shows statistics in a notebook, or None outside a notebook."""
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
