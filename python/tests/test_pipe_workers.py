"""Transforms in worker processes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from dead_letters import letters

import thalweg
from thalweg import Pipeline, sinks, sources, transforms

PROGRAMS = Path(__file__).parent / "programs"
#: The file that tells the functions below, which run in other processes, what to do.
FOLDER = "THALWEG_TEST_FOLDER"


def numbers(count: int) -> pa.Table:
    """Returns a table with one batch for each number."""
    batches = [pa.record_batch({"number": [number]}) for number in range(count)]
    return pa.Table.from_batches(batches)


@thalweg.transform(workers=2)
def doubled(batch: pa.RecordBatch) -> Any:
    print("what a transform prints is not for the engine")
    process = pa.array([os.getpid()] * batch.num_rows)
    return [pa.record_batch({"number": pc.multiply(batch["number"], 2), "process": process}), None]


@thalweg.transform(workers=1)
def dying(batch: pa.RecordBatch) -> pa.RecordBatch:
    number = batch["number"][0].as_py()
    marker = Path(os.environ[FOLDER]) / "died"
    if number == 3 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), 9)
    if number == 5:
        os._exit(7)
    if number == 7:
        raise ValueError("seven")
    return batch


def test_processes_do_the_work_and_the_order_is_kept() -> None:
    rows = Pipeline(sources.from_arrow(numbers(50)), [doubled]).table().to_pylist()
    assert [row["number"] for row in rows] == [2 * number for number in range(50)]
    processes = {row["process"] for row in rows}
    assert os.getpid() not in processes
    assert 1 <= len(processes) <= 2


def test_a_process_that_dies_takes_neither_the_run_nor_others_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    seen: list[int] = []
    failed: list[dict[str, Any]] = []
    built = Pipeline(
        sources.from_arrow(numbers(10)),
        [dying],
        sinks.to_callable(lambda batch: seen.extend(batch["number"].to_pylist())),
    )
    built.add("failed", "main.errors", to=sinks.to_callable(lambda batch: failed.extend(batch.to_pylist())))
    summary = built.run()
    assert seen == [0, 1, 2, 3, 4, 6, 8, 9]
    assert (tmp_path / "died").exists()
    assert [(row["number"], row["error_reason"], row["error_component"]) for row in failed] == [
        (5, "the worker process died 2 times on this batch: exit status: 7", "main.dying"),
        (7, "ValueError: seven", "main.dying"),
    ]
    assert summary.errors == 2


class NoText(Exception):
    def __str__(self) -> str:
        raise LookupError


@thalweg.transform(workers=1)
def failing(batch: pa.RecordBatch) -> pa.RecordBatch:
    raise NoText if batch["number"][0].as_py() == 0 else ValueError("\udc80")


def test_an_exception_without_a_text_does_not_end_its_process(tmp_path: Path) -> None:
    Pipeline(sources.from_arrow(numbers(2)), [failing], sinks.discard()).run(state=tmp_path / "state")
    assert sorted(letter["reason"] for letter in letters(tmp_path / "state")) == [
        "NoText: the exception has no text, because its `__str__` failed",
        "ValueError: \\udc80",
    ]


def test_payloads_go_to_processes_and_back() -> None:
    built = Pipeline(sources.from_iterable(["a", "b"]), [thalweg.transform(workers=1)(again)], sinks.discard())
    assert built.run(strict=True).component("discard").bytes_in == 4


def again(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"payload": [value * 2 for value in batch["payload"].to_pylist()]})


def test_what_follows_and_comes_before_is_as_ever() -> None:
    built = Pipeline(
        sources.from_arrow(numbers(10)),
        [transforms.filter("number > 4"), doubled, transforms.drop(["process"]), transforms.filter("number < 16")],
    )
    assert built.table().to_pydict() == {"number": [10, 12, 14]}
    assert "2 workers, as configured" in Pipeline(sources.from_arrow(numbers(1)), [doubled], sinks.discard()).check(
        plan=True
    )


def test_a_function_that_processes_cannot_find_is_told_before() -> None:
    @thalweg.transform(workers=1)
    def inner(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    with pytest.raises(thalweg.ConfigurationError, match="not one within another function"):
        Pipeline(sources.from_arrow(numbers(1)), [inner], sinks.discard()).run()
    with pytest.raises(ValueError, match="one worker or more"):
        thalweg.transform(workers=0)


@pytest.mark.parametrize("is_guarded", [True, False])
def test_functions_of_a_script_are_found(is_guarded: bool, tmp_path: Path) -> None:
    text = (PROGRAMS / "worked.py").read_text()
    script = tmp_path / "worked.py"
    script.write_text(text if is_guarded else text.replace('if __name__ == "__main__":', "if True:"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    line = [sys.executable, str(script)]
    ran = subprocess.run(line, capture_output=True, text=True, env=environment, check=False, timeout=60)
    if is_guarded:
        assert (ran.stdout, ran.stderr) == ("[0, 2, 4]\n", "")
    else:
        assert 'under `if __name__ == "__main__":`' in ran.stderr


def test_functions_of_a_module_that_is_run_by_its_name_are_found(tmp_path: Path) -> None:
    (tmp_path / "worked.py").write_text((PROGRAMS / "worked.py").read_text())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    line = [sys.executable, "-m", "worked"]
    ran = subprocess.run(line, capture_output=True, text=True, env=environment, check=False, timeout=60, cwd=tmp_path)
    assert (ran.stdout, ran.stderr) == ("[0, 2, 4]\n", "")
