"""Streams and tables of runs that fail, or are interrupted."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import thalweg
from thalweg import Pipeline, sinks, sources, transforms


class BrokenWriter(thalweg.Writer):
    def __init__(self) -> None:
        raise LookupError("no writer")

    def write(self, batch: Any) -> None:
        raise AssertionError


class BrokenReader(thalweg.Reader):
    def __init__(self) -> None:
        raise LookupError("no reader")

    def read(self, data: memoryview, at_end: bool) -> tuple[Any, int]:
        raise AssertionError


def another(pipeline: Pipeline, name: str, which: str, folder: Path) -> None:
    """Adds a line with a component that cannot be built."""
    source = sources.from_iterable(["x"]).named(f"{name}-in")
    if which == "writer":
        pipeline.add(name, source, to=sinks.writer(BrokenWriter).named(f"{name}-out"))
    elif which == "reader":
        (folder / "a.txt").write_text("a\n")
        files = sources.files(path=str(folder / "a.txt")).named(f"{name}-in")
        pipeline.add(name, files, [BrokenReader], to=sinks.discard().named(f"{name}-out"))
    elif which == "arrow":
        pipeline.add(name, sources.from_arrow(1).named(f"{name}-in"), to=sinks.discard().named(f"{name}-out"))
    else:
        (folder / "plain").write_text("")
        pipeline.add(name, source, to=sinks.file(path=folder / "plain" / "x").named(f"{name}-out"))


# Components are built by their order, so the broken one comes before and after those of the stream.
@pytest.mark.parametrize("name", ["aa", "zz"])
@pytest.mark.parametrize("which", ["writer", "reader", "arrow", "file"])
@pytest.mark.parametrize("end", [Pipeline.table, lambda pipeline: list(pipeline.stream())])
def test_a_stream_ends_if_another_component_cannot_be_built(
    name: str, which: str, end: Callable[[Pipeline], Any], tmp_path: Path
) -> None:
    pipeline = Pipeline(sources.from_iterable(["a"]))
    another(pipeline, name, which, tmp_path)
    with pytest.raises(thalweg.Error) as raised:
        end(pipeline)
    causes = {"writer": LookupError, "reader": LookupError, "arrow": TypeError, "file": type(None)}
    assert type(raised.value.__cause__) is causes[which]


def test_a_table_raises_the_failure_of_the_run_with_its_cause() -> None:
    def broken() -> Iterator[dict[str, int]]:
        yield {"n": 1}
        raise KeyError("gone")

    with pytest.raises(thalweg.Error, match="gone") as raised:
        Pipeline(sources.from_iterable(broken())).table()
    assert isinstance(raised.value.__cause__, KeyError)


def test_a_table_whose_batches_do_not_fit_names_the_field() -> None:
    pipeline = Pipeline(sources.from_iterable(["text", {"n": 1}]))
    with pytest.raises(thalweg.Error, match=r"^a later batch has a field `n`, which the first batch lacks") as raised:
        pipeline.table()
    assert isinstance(raised.value.__cause__, pa.ArrowException)


def test_messages_that_a_stream_cannot_deliver_do_not_hang_it(tmp_path: Path) -> None:
    pipeline = Pipeline(sources.from_iterable(["no JSON", '{"a": 1}']), [transforms.parse_json()])
    assert pipeline.table().to_pylist() == [{"a": 1}]
