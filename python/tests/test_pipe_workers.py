"""Transforms, readers and writers in worker processes."""

import gzip
import os
import signal
import subprocess
import sys
import time
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


def die_at(number: int) -> None:
    """Ends the process at some numbers: at the first only once."""
    marker = Path(os.environ[FOLDER]) / "died"
    if number == 3 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 5:
        os._exit(7)


@thalweg.transform(workers=1)
def dying(batch: pa.RecordBatch) -> pa.RecordBatch:
    number = batch["number"][0].as_py()
    die_at(number)
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


class Measured(thalweg.Reader):
    """Reads numbers of four bytes, each with the process that read it. It needs what it learnt from the first bytes."""

    unpacks = True

    def __init__(self, order: str = "little") -> None:
        self.order: Any = order
        self.name = ""

    def begin(self) -> None:
        self.name = ""

    def read(self, data: memoryview, at_end: bool) -> tuple[Any, int]:
        used = 0
        if not self.name:
            self.name, used = bytes(data[:4]).decode(), 4
        print("what a reader prints is not for the engine")
        values = [int.from_bytes(data[at : at + 4], self.order) for at in range(used, len(data) - 3, 4)]
        if self.name == "dies" and values[-1:] == [999]:
            die_at(3)
        if self.name == "ends" and at_end:
            os._exit(7)
        if self.name == "fail" and at_end:
            raise ValueError("these are no numbers")
        rows = [{"name": self.name, "value": value, "process": os.getpid()} for value in values]
        return rows, used + 4 * len(values)


def measured(name: str, count: int, order: Any = "little") -> bytes:
    return name.encode() + b"".join(number.to_bytes(4, order) for number in range(count))


def test_a_reader_runs_in_processes(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.bin").write_bytes(measured(f"no {number}", 2000, "big"))
    (tmp_path / "packed.bin").write_bytes(gzip.compress(measured("gzip", 10, "big")))
    files = sources.files(path=tmp_path / "*.bin")
    built = Pipeline(files, [transforms.reader(Measured, workers=2, order="big")])
    rows = built.table(memory="32KiB").to_pylist()
    assert os.getpid() not in {row["process"] for row in rows}
    assert 1 <= len({row["process"] for row in rows}) <= 2
    for name, count in [("no 0", 2000), ("no 5", 2000), ("gzip", 10)]:
        assert [row["value"] for row in rows if row["name"] == name] == list(range(count))
    checked = Pipeline(files, [transforms.reader(Measured, workers=2)], sinks.discard()).check(plan=True)
    assert "2 workers, as configured" in checked
    ordered = Pipeline(files, [transforms.reader(Measured, workers=2)], sinks.discard(), ordered=True)
    assert "1 worker" in ordered.check(plan=True)


def test_a_file_is_read_again_if_the_process_of_its_reader_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    for name in ("dies", "ends", "fail", "good"):
        (tmp_path / f"{name}.bin").write_bytes(measured(name, 1000 if name == "dies" else 9000))
    rows: list[dict[str, Any]] = []
    built = Pipeline(
        sources.files(path=tmp_path / "*.bin"),
        [transforms.reader(Measured, workers=1)],
        sinks.to_callable(lambda batch: rows.extend(batch.to_pylist())),
        memory="64KiB",
    )
    state = tmp_path / "state"
    summary = built.run(state=state)
    assert (tmp_path / "died").exists()
    for name, count in [("dies", 1000), ("good", 9000)]:
        assert [row["value"] for row in rows if row["name"] == name] == list(range(count))
    # The rows before the last bytes were sent once, although the file was read twice.
    ended = [row["value"] for row in rows if row["name"] == "ends"]
    assert 0 < len(ended) < 9000
    assert ended == list(range(len(ended)))
    reasons = {Path(letter["path"]).stem: letter["reason"] for letter in letters(state)}
    assert reasons == {
        "ends": "the worker process died: exit status: 7, also when the file was read again",
        "fail": "ValueError: these are no numbers",
    }
    assert summary.dead_letters == 2


class Leaving(thalweg.Reader):
    """Dies once at a file, and leaves a child behind that has its descriptors."""

    def read(self, data: memoryview, at_end: bool) -> tuple[Any, int]:
        left = Path(os.environ[FOLDER]) / "left"
        if not left.exists():
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            left.write_text(str(child))
            os.kill(os.getpid(), signal.SIGKILL)
        return ([{"length": len(data)}] if data else None), len(data)


def test_a_process_that_leaves_a_child_behind_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    (tmp_path / "a.txt").write_text("abc")
    built = Pipeline(sources.files(path=tmp_path / "*.txt"), [transforms.reader(Leaving, workers=1)])
    assert built.table().to_pylist() == [{"length": 3}]
    child = int((tmp_path / "left").read_text())
    assert has_command(child, Leaving.__name__)
    os.kill(child, signal.SIGKILL)


class Log(thalweg.Writer):
    """Appends a line for each batch to a file of its process."""

    def __init__(self, folder: str, column: str = "number") -> None:
        self.path = Path(folder) / f"{os.getpid()}.log"
        self.column = column
        self.is_first = True

    def write(self, batch: Any) -> None:
        numbers = batch[self.column].to_pylist()
        if FOLDER in os.environ:
            die_at(numbers[0])
        if self.is_first:
            self.is_first = False
            raise thalweg.TemporaryError("not yet")
        with self.path.open("a") as log:
            log.writelines(f"{number}\n" for number in numbers)

    def finish(self) -> None:
        with self.path.open("a") as log:
            log.write("end\n")


def lines(folder: Path) -> list[list[str]]:
    return [path.read_text().split() for path in folder.glob("*.log")]


def test_a_writer_runs_in_processes(tmp_path: Path) -> None:
    summary = Pipeline(sources.from_arrow(numbers(20)), [], sinks.writer(Log, workers=2, folder=str(tmp_path))).run()
    written = lines(tmp_path)
    assert not (tmp_path / f"{os.getpid()}.log").exists()
    # Each process has an instance, which fails at first and finishes.
    assert len(written) == 2
    assert [log[-1] for log in written] == ["end", "end"]
    assert sorted(int(line) for log in written for line in log[:-1]) == list(range(20))
    assert summary.retries == sum(len(log) > 1 for log in written)
    checked = Pipeline(sources.from_arrow(numbers(1)), [], sinks.writer(Log, workers=3, folder="a")).check(plan=True)
    assert "3 requests, as configured" in checked


def test_a_batch_on_which_a_writer_dies_is_written_by_the_next_process_or_leaves_by_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    failed: list[dict[str, Any]] = []
    built = Pipeline(sources.from_arrow(numbers(8)), [], sinks.writer(Log, workers=1, folder=str(tmp_path)))
    built.add("failed", "Log.errors", to=sinks.to_callable(lambda batch: failed.extend(batch.to_pylist())))
    built.run()
    assert (tmp_path / "died").exists()
    written = [int(line) for log in lines(tmp_path) for line in log if line != "end"]
    assert sorted(written) == [0, 1, 2, 3, 4, 6, 7]
    assert [(row["number"], row["error_reason"], row["error_component"]) for row in failed] == [
        (5, "the worker process died 2 times on this batch: exit status: 7", "Log")
    ]


class NotYet(NoText, thalweg.TemporaryError):
    pass


class Hesitant(thalweg.Writer):
    """Writes a batch at the third attempt. The reasons for the first two cannot be written in UTF-8."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / "written"
        self.reasons = [thalweg.TemporaryError("\udc80"), NotYet()]

    def write(self, batch: Any) -> None:
        if self.reasons:
            raise self.reasons.pop(0)
        self.path.write_text(str(batch["number"].to_pylist()))


@pytest.mark.parametrize("workers", [None, 1])
def test_a_batch_is_retried_whatever_the_text_of_the_exception(workers: int | None, tmp_path: Path) -> None:
    writer = sinks.writer(Hesitant, workers=workers, folder=str(tmp_path))
    summary = Pipeline(sources.from_arrow(numbers(1)), [], writer).run()
    assert (tmp_path / "written").read_text() == "[0]"
    assert (summary.retries, summary.errors) == (2, 0)


def test_what_a_writer_raises_in_a_process_ends_the_run(tmp_path: Path) -> None:
    built = Pipeline(
        sources.from_arrow(numbers(3)), [], sinks.writer(Log, workers=2, folder=str(tmp_path), column="no")
    )
    with pytest.raises(thalweg.Error, match="KeyError"):
        built.run()
    wrong = Pipeline(sources.from_arrow(numbers(3)), [], sinks.writer(Log, workers=1, wrong=1))
    with pytest.raises(thalweg.Error, match=r"cannot start: TypeError: .*unexpected keyword argument 'wrong'"):
        wrong.run()


def test_classes_that_processes_cannot_find_are_told_before(tmp_path: Path) -> None:
    class Inner(thalweg.Writer):
        def write(self, batch: Any) -> None:
            pass

    files = sources.files(path=tmp_path / "*")
    with pytest.raises(thalweg.ConfigurationError, match="a writer is a class of a module, not one within a function"):
        Pipeline(sources.from_arrow(numbers(1)), [], sinks.writer(Inner, workers=1)).run()
    (tmp_path / "a").write_text("a")
    with pytest.raises(thalweg.Error, match="TypeError: Plain is no reader: it has no method `read`"):
        Pipeline(files, [transforms.reader(Plain, workers=1)], sinks.discard()).run()
    with pytest.raises(ValueError, match="a reader has one worker or more, not 0"):
        transforms.reader(Measured, workers=0)
    with pytest.raises(ValueError, match="a writer has one worker or more, not -1"):
        sinks.writer(Log, workers=-1)


class Plain:
    """Not a reader."""


def test_an_interrupt_leaves_no_process_of_a_writer(tmp_path: Path) -> None:
    script = tmp_path / "written.py"
    script.write_text((PROGRAMS / "written.py").read_text())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    line = [sys.executable, str(script), str(tmp_path)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "running\n"
        running.send_signal(signal.SIGINT)
        rest = running.stdout.read()
    assert rest == "interrupted, drained\n"
    logs = list(tmp_path.glob("*.log"))
    assert [log.read_text().splitlines()[-1] for log in logs] == ["end"] * len(logs)
    for log in logs:
        assert not Path(f"/proc/{log.stem}").exists() or not has_command(int(log.stem), str(script))


@pytest.mark.parametrize("component", ["transform", "reader", "writer"])
@pytest.mark.parametrize("how", ["killed", "interrupted twice"])
def test_a_process_whose_component_hangs_ends_with_the_program(component: str, how: str, tmp_path: Path) -> None:
    script = PROGRAMS / "hanging.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), FOLDER: str(tmp_path)}
    line = [sys.executable, str(script), component]
    with subprocess.Popen(line, stderr=subprocess.DEVNULL, env=environment) as running:
        while not (tmp_path / "worker").exists():
            assert running.poll() is None
            time.sleep(0.01)
        worker = int((tmp_path / "worker").read_text())
        assert has_command(worker, str(script))
        if how == "killed":
            running.kill()
        while running.poll() is None:
            running.send_signal(signal.SIGINT)
            time.sleep(0.2)
    for _ in range(500):
        if not has_command(worker, str(script)):
            return
        time.sleep(0.01)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker process outlives the program")


def has_command(process: int, part: str) -> bool:
    """True if the process runs, and its command line contains this text."""
    try:
        return part.encode() in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
