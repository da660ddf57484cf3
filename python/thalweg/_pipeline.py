"""Pipelines that are built in code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal

from thalweg import _objects, _run, _thalweg
from thalweg._objects import Component
from thalweg._own import Own
from thalweg._run import Run
from thalweg._statistics import Statistics, Summary


class Pipeline:
    """Sources, transforms and sinks, put together in code.

    The single line is `Pipeline(from_, [transforms], to)`. Further lines are added by `add`; each has a name, by which
    others are fed by it (`from_="main"`, by its errors `"main.errors"`, by an output of `route` `"main.label"`) or
    lead to it.

    Sources and sinks are components (`sources.file(path="a.log")`), objects of Python's, or names. `to` may be a list,
    each of which gets a copy, or a way to choose, `{"failover": [sinks.http(…), sinks.file(…)]}`, as in a
    configuration. The same component in two places is one.
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
        memory: int | str | None = None,
        state: str | PathLike[str] | None = None,
        temporary: str | PathLike[str] | None = None,
        dead_letters: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings = _objects.options(
            {"memory": memory, "state": state, "temporary": temporary, "dead_letters": dead_letters}
        )
        self._lines: dict[str, dict[str, Any]] = {}
        self._sources: dict[str, Any] = {}
        self._sinks: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        # What is known by its identity must stay.
        self._kept: list[object] = []
        if from_ is not None:
            self.add(name, from_, transforms, to, ordered=ordered, on_error=on_error, concurrency=concurrency)

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
    ) -> Pipeline:
        """Adds a line, and gives this pipeline back."""
        line: dict[str, Any] = {}
        if from_ is not None:
            line["from"] = self._placed("source", from_)
        if transforms:
            line["transforms"] = list(transforms)
        if to is not None:
            line["to"] = self._placed("sink", to)
        line |= _objects.options({"ordered": ordered, "on_error": on_error, "concurrency": concurrency})
        self._lines[name] = line
        return self

    def _placed(self, role: Literal["source", "sink"], given: Any) -> Any:
        """Names in the place of components, which go where components are."""
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
        """What a way to choose has: a list, or options with one."""
        if isinstance(content, Mapping):
            lists = {"to", "sinks"}
            return {key: self._placed(role, value) if key in lists else value for key, value in content.items()}
        return self._placed(role, content)

    def to_dict(self) -> dict[str, Any]:
        """It as a configuration. What is Python's own stands in it as an object; `thalweg.run` takes that."""
        return {
            **self._settings,
            "sources": dict(self._sources),
            "pipelines": {name: dict(line) for name, line in self._lines.items()},
            "sinks": dict(self._sinks),
        }

    def to_yaml(self) -> str:
        """It as a configuration that `thalweg run` reads; what is Python's own stands in it by name only."""
        text, _ = _objects.written(self.to_dict())
        return _thalweg.as_yaml(json.dumps(text))

    def check(self, *, plan: bool = False, threads: int | None = None) -> str:
        """Checks it: see `thalweg.check`."""
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
        """Runs it: see `thalweg.run`."""
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
        """Begins a run of it: see `thalweg.start`."""
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
        """Runs it, and gives what comes out at its end, batch by batch, as it is asked for.

        The one line that leads nowhere is the one that is read. A batch is acknowledged when the next one is asked for.
        """
        open_ = [name for name, line in self._lines.items() if "to" not in line and not self._feeds(name)]
        if len(open_) != 1:
            raise ValueError(f"one line of the pipeline is to lead nowhere, so that it can be read; {len(open_)} do")
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
        """Runs it, and gives all that comes out at its end as a `pyarrow.Table`."""
        with self.stream(memory=memory, threads=threads, strict=strict) as stream:
            return stream.table()


class Stream:
    """What comes out of a pipeline, as it is asked for: an iterator of `pyarrow.RecordBatch`, and anything that takes
    Arrow's C stream interface (`pyarrow.table`, `polars.DataFrame`, …) takes it as it is.

    Who ends early closes it, or uses it as a context manager: the run is then ended.
    """

    def __init__(self, queue: _thalweg.Stream, run: Run) -> None:
        self._queue = queue
        #: The run behind it.
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
        """All batches as an Arrow C stream of the schema of the first one. It ends with an error if the run failed."""
        return self._queue.all(self.run._inner)

    def table(self) -> Any:
        """All that is left, as a `pyarrow.Table`. Raises `thalweg.Error` if the run failed."""
        import pyarrow as pa

        table = pa.table(self)
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
        # Nobody will ask for more.
        if hasattr(self, "run") and self.run.is_running:
            self.run.abort()
