"""Streams and tables of runs that fail, or are interrupted."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dead_letters import letters

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


@pytest.mark.parametrize("begins", [False, True])
def test_ctrl_c_ends_a_table(begins: bool) -> None:
    goes_on = threading.Event()

    def items() -> Iterator[dict[str, int]]:
        if begins:
            yield {"n": 1}
            # A later batch: messages wait for others for a short time only.
            threading.Event().wait(0.2)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        goes_on.wait(60)
        yield {"n": 2}

    with pytest.raises(KeyboardInterrupt):
        Pipeline(sources.from_iterable(items())).table()
    goes_on.set()


def test_messages_that_a_stream_cannot_deliver_do_not_hang_it(tmp_path: Path) -> None:
    pipeline = Pipeline(sources.from_iterable(["no JSON", '{"a": 1}']), [transforms.parse_json()])
    assert pipeline.table().to_pylist() == [{"a": 1}]


def test_values_that_are_nested_too_deep_are_refused(tmp_path: Path) -> None:
    deep = json.loads('{"a":' * 100 + "1" + "}" * 100)
    cycle: dict[str, Any] = {}
    cycle["a"] = [cycle]
    for source in (
        sources.from_iterable([deep]),
        sources.from_iterable([cycle]),
        sources.from_arrow(pa.table({"a": [deep]})),
    ):
        with pytest.raises(thalweg.Error, match="nested more than 64 deep") as raised:
            Pipeline(source, [], sinks.discard()).run()
        assert isinstance(raised.value.__cause__, ValueError)

    @thalweg.transform
    def nested(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"a": [deep]})

    summary = Pipeline(sources.from_iterable(["a"]), [nested], sinks.discard()).run(state=tmp_path / "state")
    assert (summary.errors, summary.dead_letters) == (1, 1)


def test_a_long_reason_is_cut_off(tmp_path: Path) -> None:
    @thalweg.transform
    def failing(batch: pa.RecordBatch) -> None:
        raise ValueError("x" * 100_000)

    Pipeline(sources.from_iterable("abc"), [failing], sinks.discard()).run(state=tmp_path / "state")
    expected = "ValueError: " + "x" * (1024 - len("ValueError: ")) + "…"
    assert [letter["reason"] for letter in letters(tmp_path / "state")] == [expected] * 3


ENDLESS = """
import itertools
import thalweg
from thalweg import Pipeline, sinks, sources

for end in (thalweg.Run.stop, thalweg.Run.abort):
    run = Pipeline(sources.from_iterable(itertools.repeat([])), [], sinks.discard()).start()
    end(run)
    try:
        print("messages", run.wait(20).messages)
    except thalweg.Error:
        print("aborted")
"""


def test_a_run_whose_iterable_gives_empty_lists_without_end_can_be_ended(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ENDLESS], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.stdout, ended.stderr) == ("messages 0\naborted\n", "")


def test_a_list_that_contains_itself_ends_the_run() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(thalweg.Error, match="nested more than 64 deep: one may contain itself"):
        Pipeline(sources.from_iterable([cycle]), [], sinks.discard()).run()
