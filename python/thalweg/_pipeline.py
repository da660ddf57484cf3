"""Pipelines that are built in code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal

from thalweg import _objects, _run, _thalweg
from thalweg._errors import Error
from thalweg._objects import Component
from thalweg._own import Own
from thalweg._run import Run
from thalweg._statistics import Statistics, Summary


class Pipeline:
    """Sources, transforms and sinks, put together in code.

    `from_`, `transforms` and `to` form the first line. `add` adds further lines, each with a name. By these names,
    lines feed others (`from_="main"`, from its errors `"main.errors"`, from an output of `route` `"main.label"`)
    or receive from them.

    Sources and sinks are components (`sources.file(path="a.log")`), Python objects, or names. `to` may be a list,
    where each entry gets a copy. It may also be a strategy such as `{"failover": [sinks.http(…), sinks.file(…)]}`,
    as in a configuration. A component that is used in two places is a single component.

    `buffer={"disk": "10GiB"}` lets the messages of a line wait on disk before it, and
    `sinks.http(…).buffered(disk="10GiB")` those of a sink. `buffers={"max_bytes": "50GiB"}` limits all together.
    """

    def __init__(
        self,
        from_: Any = None,
        transforms: Sequence[Any] = (),
        to: Any = None,
        *,
        name: str = "main",
        ordered: bool | None = None,
        on_error: Literal["divert", "carry"] | None = None,
        concurrency: int | None = None,
        buffer: Mapping[str, Any] | None = None,
        memory: int | str | None = None,
        state: str | PathLike[str] | None = None,
        temporary: str | PathLike[str] | None = None,
        dead_letters: Mapping[str, Any] | None = None,
        buffers: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings = _objects.options(
            {
                "memory": memory,
                "state": state,
                "temporary": temporary,
                "dead_letters": dead_letters,
                "buffers": buffers,
            }
        )
        self._lines: dict[str, dict[str, Any]] = {}
        self._sources: dict[str, Any] = {}
        self._sinks: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        # Components are identified by `id`, so they must stay alive.
        self._kept: list[object] = []
        if from_ is not None:
            self.add(
                name,
                from_,
                transforms,
                to,
                ordered=ordered,
                on_error=on_error,
                concurrency=concurrency,
                buffer=buffer,
            )

    def add(
        self,
        name: str,
        from_: Any = None,
        transforms: Sequence[Any] = (),
        to: Any = None,
        *,
        ordered: bool | None = None,
        on_error: Literal["divert", "carry"] | None = None,
        concurrency: int | None = None,
        buffer: Mapping[str, Any] | None = None,
    ) -> Pipeline:
        """Adds a line, and returns this pipeline."""
        line: dict[str, Any] = {}
        if isinstance(transforms, str | Mapping) or not isinstance(transforms, Iterable):
            raise TypeError(
                f"`transforms` is a list; write `[…]` around a single transform, here a {_kind(transforms)}"
            )
        if from_ is not None:
            line["from"] = self._placed("source", from_)
        given = list(transforms)
        if given:
            line["transforms"] = given
        if to is not None:
            line["to"] = self._placed("sink", to)
        line |= _objects.options(
            {"ordered": ordered, "on_error": on_error, "concurrency": concurrency, "buffer": buffer}
        )
        self._lines[name] = line
        return self

    def _placed(self, role: Literal["source", "sink"], given: Any) -> Any:
        """Replaces components by names, and adds the components to the configuration."""
        if isinstance(given, str):
            return given
        if isinstance(given, list | tuple):
            return [self._placed(role, one) for one in given]
        if isinstance(given, Mapping):
            return {way: self._way(role, content) for way, content in given.items()}
        made = _objects.component(role, given)
        if not isinstance(made, Component):
            raise TypeError(f"a {role} is a component or a name, not {type(given).__name__}")
        components = self._sources if role == "source" else self._sinks
        known = self._names.get(id(given))
        if known is not None and known in components:
            return known
        base, number = made.name or made.kind, 1
        name = base
        taken = {*self._sources, *self._sinks, *self._lines, "main"}
        while name in taken:
            number += 1
            name = f"{base}-{number}"
        components[name] = made
        self._names[id(given)] = name
        self._kept.append(given)
        return name

    def _way(self, role: Literal["source", "sink"], content: Any) -> Any:
        """Replaces the components of a strategy: a list, or options with one."""
        if isinstance(content, Mapping):
            lists = {"to", "sinks"}
            return {key: self._placed(role, value) if key in lists else value for key, value in content.items()}
        return self._placed(role, content)

    def to_dict(self) -> dict[str, Any]:
        """Returns the pipeline as a configuration. It contains Python components as objects, which `thalweg.run`
        accepts.
        """
        return {
            **self._settings,
            "sources": dict(self._sources),
            "pipelines": {name: dict(line) for name, line in self._lines.items()},
            "sinks": dict(self._sinks),
        }

    def to_yaml(self) -> str:
        """Returns the pipeline as a configuration for `thalweg run`. It contains Python components by name only."""
        text, _ = _objects.written(self.to_dict())
        return _thalweg.as_yaml(json.dumps(text))

    def check(self, *, plan: bool = False, threads: int | None = None) -> str:
        """Checks the pipeline: see `thalweg.check`."""
        return _run.check(self, plan=plan, threads=threads)

    def run(
        self,
        *,
        pipelines: Sequence[str] | None = None,
        state: str | PathLike[str] | None = None,
        memory: int | str | None = None,
        threads: int | None = None,
        strict: bool = False,
        progress: bool | Callable[[Statistics], object] | None = None,
    ) -> Summary:
        """Runs the pipeline: see `thalweg.run`."""
        return _run.run(
            self, pipelines=pipelines, state=state, memory=memory, threads=threads, strict=strict, progress=progress
        )

    def start(
        self,
        *,
        pipelines: Sequence[str] | None = None,
        state: str | PathLike[str] | None = None,
        memory: int | str | None = None,
        threads: int | None = None,
        strict: bool = False,
        progress: bool | Callable[[Statistics], object] | None = None,
    ) -> Run:
        """Starts a run of the pipeline: see `thalweg.start`."""
        return _run.start(
            self, pipelines=pipelines, state=state, memory=memory, threads=threads, strict=strict, progress=progress
        )

    def stream(
        self,
        *,
        views: bool = False,
        payload: bool = False,
        memory: int | str | None = None,
        threads: int | None = None,
        strict: bool = False,
    ) -> Stream:
        """Runs the pipeline, and returns its output batch by batch, on demand.

        The output is that of the only line without a target. A batch is acknowledged when the next one is
        requested.
        """
        open_ = [name for name, line in self._lines.items() if "to" not in line and not self._feeds(name)]
        if len(open_) != 1:
            raise ValueError(f"exactly one line of a pipeline must lead nowhere, to be read; {len(open_)} do")
        queue = _thalweg.Stream(views=views, payload=payload)
        sink = Component("to_arrow", {}, own=Own("stream", queue))
        config = self.to_dict()
        name = "stream"
        while name in config["sinks"] or name in config["sources"] or name in config["pipelines"]:
            name += "_"
        config["sinks"] = {**config["sinks"], name: sink}
        config["pipelines"][open_[0]]["to"] = name
        return Stream(queue, _run.start(config, memory=memory, threads=threads, strict=strict, progress=False))

    def _feeds(self, name: str) -> bool:
        fed = [line.get("from") for line in self._lines.values()]
        return any(name == feed or (isinstance(feed, list) and name in feed) for feed in fed)

    def table(self, *, memory: int | str | None = None, threads: int | None = None, strict: bool = False) -> Any:
        """Runs the pipeline, and returns its whole output as a `pyarrow.Table`."""
        with self.stream(memory=memory, threads=threads, strict=strict) as stream:
            return stream.table()


def _kind(given: object) -> str:
    """Returns the name of a component or of a type."""
    return f"`{given.kind}`" if isinstance(given, Component) else type(given).__name__


class Stream:
    """The output of a pipeline, on demand.

    It is an iterator of `pyarrow.RecordBatch`. Libraries that accept Arrow's C stream interface (`pyarrow.table`,
    `polars.DataFrame`, …) accept it directly. To stop early, close it or use it as a context manager: that ends
    the run.
    """

    def __init__(self, queue: _thalweg.Stream, run: Run) -> None:
        self._queue = queue
        #: The run that produces the output.
        self.run = run

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        import pyarrow as pa

        batch = self._queue.next()
        if batch is None:
            self.run.wait()
            raise StopIteration
        return pa.record_batch(batch)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns all batches as an Arrow C stream with the schema of the first one. It ends with an error if the run
        failed.
        """
        return self._queue.all(self.run._inner)

    def table(self) -> Any:
        """Returns the remaining output as a `pyarrow.Table`.

        Raises `thalweg.Error` if the run failed, with the exception that made it fail as the cause, or if a later
        batch has fields that the first one lacks.
        """
        import pyarrow as pa

        try:
            table = pa.table(self)
        except pa.ArrowException as error:
            raised = self._queue.raised()
            if raised is not None:
                raise raised from None
            if not self.run.is_running:
                self.run.wait()
            # The run is fine, but its batches do not fit together.
            raise Error(str(error).removeprefix("Schema error: ")) from error
        self.run.wait()
        return table

    def close(self) -> None:
        """Ends the run, if it has not ended."""
        if self.run.is_running:
            self.run.abort()
            self.run._inner.wait()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # No code can request more batches.
        if hasattr(self, "run") and self.run.is_running:
            self.run.abort()
