"""Running configurations: from files, dicts and code; handles, summaries, errors, Ctrl-C."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import thalweg
from thalweg import Pipeline, sinks, sources, transforms

PROGRAMS = Path(__file__).parent / "programs"


def lines(folder: Path, count: int) -> Path:
    path = folder / "in.txt"
    path.write_text("".join(f"line {number}\n" for number in range(count)))
    return path


def copying(folder: Path, count: int = 3) -> dict[str, Any]:
    return {
        "sources": {"lines": {"file": {"path": str(lines(folder, count))}}},
        "pipelines": {"main": {"from": "lines", "to": "out"}},
        "sinks": {"out": {"file": {"path": str(folder / "out.txt")}}},
    }


def waiting() -> Pipeline:
    """Returns a pipeline that runs until it is stopped."""
    return Pipeline(sources.generate(rate=100), [], sinks.discard())


def test_a_file_a_dict_and_a_pipeline_run_the_same(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps(copying(tmp_path)))
    built = Pipeline(
        sources.file(path=tmp_path / "in.txt").named("lines"), [], sinks.file(path=tmp_path / "out.txt").named("out")
    )
    for form in (config, str(config), copying(tmp_path), built, built.to_dict()):
        summary = thalweg.run(form)
        assert (summary.messages, summary.bytes, summary.errors, summary.dead_letters) == (3, 18, 0, 0)
        assert [counts.name for counts in summary.components] == ["lines", "out"]
        assert summary.component("out").rows_out == 3
        assert 0 < summary.budget_peak < summary.budget_limit == 256 << 20
        assert (tmp_path / "out.txt").read_text() == (tmp_path / "in.txt").read_text()


def test_a_pipeline_as_text_is_a_configuration(tmp_path: Path) -> None:
    lines(tmp_path, 2)
    built = Pipeline(
        sources.file(path=tmp_path / "in.txt"), [transforms.filter("payload LIKE '%1'")], sinks.file(path="o")
    )
    built.add("failed", "main.errors", to={"failover": [sinks.stdout(), "file-2"]})
    config = tmp_path / "config.yaml"
    config.write_text(built.to_yaml())
    assert thalweg.check(config).startswith(f"{config} is valid: 1 source, 2 pipelines, 2 sinks.")
    assert "main.filter" in built.check(plan=True)


def test_buffers_are_those_of_a_configuration(tmp_path: Path) -> None:
    count = 2_000
    out = sinks.file(path=tmp_path / "out.txt").named("out").buffered(disk="16MiB", when_full="drop_oldest")
    built = Pipeline(
        sources.file(path=lines(tmp_path, count)), [], out, buffer={"disk": "32MiB"}, buffers={"max_bytes": "64MiB"}
    )
    copied = sinks.file(path=tmp_path / "copy.txt").named("copied").buffered(memory="1MiB")
    built.add("copy", "main", to=copied, buffer={"disk": "16MiB"})
    made, _ = thalweg._objects.written(built.to_dict())
    assert made["buffers"] == {"max_bytes": "64MiB"}
    assert [made["pipelines"][name]["buffer"] for name in ("main", "copy")] == [{"disk": "32MiB"}, {"disk": "16MiB"}]
    assert made["sinks"]["out"]["buffer"] == {"disk": "16MiB", "when_full": "drop_oldest"}
    assert made["sinks"]["copied"]["buffer"] == {"memory": "1MiB"}
    assert "buffer: { disk: 16MiB, when_full: drop_oldest }" in built.to_yaml()
    with pytest.raises(thalweg.Error, match="needs a state directory"):
        built.run()
    built.run(state=tmp_path / "state")
    expected = (tmp_path / "in.txt").read_text()
    assert (tmp_path / "out.txt").read_text() == (tmp_path / "copy.txt").read_text() == expected


def test_what_is_wrong_is_told_with_its_place(tmp_path: Path) -> None:
    config = copying(tmp_path)
    config["sources"]["lines"] = {"fil": {"path": 1}}
    config["sinks"]["out"]["file"]["atomc"] = True
    with pytest.raises(thalweg.ConfigurationError) as raised:
        thalweg.run(config)
    assert "Did you mean `file`?" in str(raised.value)
    first, second = raised.value.mistakes
    assert (first.file, first.line, first.message) == ("configuration", 2, "There is no source called `fil`.")
    assert second.help is not None
    assert "atomic" in second.help
    with pytest.raises(ValueError, match="memory"):
        thalweg.run(copying(tmp_path), memory="much")
    with pytest.raises(thalweg.ConfigurationError, match="no pipeline called"):
        thalweg.run(copying(tmp_path), pipelines=["mian"])
    with pytest.raises(thalweg.ConfigurationError, match="has no place"):
        thalweg.run({"sources": {"a": object()}})
    with pytest.raises(thalweg.ConfigurationError):
        thalweg.check(tmp_path / "none.yaml")


def test_a_run_that_fails_raises(tmp_path: Path) -> None:
    config = copying(tmp_path)
    config["sinks"]["out"]["file"]["path"] = str(tmp_path / "in.txt" / "out")
    with pytest.raises(thalweg.Error, match="out"):
        thalweg.run(config)


def test_a_handle_tells_stops_and_waits() -> None:
    run = waiting().start()
    assert run.is_running
    with pytest.raises(TimeoutError):
        run.wait(0)
    assert run.statistics().component("generate").role == "source"
    with pytest.raises(KeyError, match="discard"):
        run.statistics().component("none")
    run.stop()
    summary = run.wait()
    assert summary.stopped
    assert summary.component("discard").rows_out == summary.messages
    assert not run.is_running
    assert run.wait() == summary


def test_a_run_can_be_awaited_beside_other_things() -> None:
    async def both() -> thalweg.Summary:
        run = waiting().start()
        asyncio.get_running_loop().call_later(0.05, run.stop)
        first, second = await asyncio.gather(run, run)
        assert first == await run == second
        return first

    assert asyncio.run(both()).stopped


def test_a_block_that_is_left_by_an_exception_ends_its_run() -> None:
    with pytest.raises(RuntimeError, match="enough"), waiting().start() as run:
        raise RuntimeError("enough")
    assert not run.is_running
    # Without data in flight, the only thing to report is that the run was stopped.
    with contextlib.suppress(thalweg.Error):
        assert run.wait().stopped


def test_a_source_that_never_gives_anything_keeps_no_run_that_is_to_end_at_once() -> None:
    is_asked, never = threading.Event(), threading.Event()

    def items() -> Iterator[bytes]:
        yield b"one"
        is_asked.set()
        never.wait(30)

    run = Pipeline(sources.from_iterable(items()), [], sinks.discard()).start()
    assert is_asked.wait(30)
    run.abort()
    with pytest.raises(thalweg.Error, match="stopped at once; what was in flight is not acknowledged"):
        run.wait()
    never.set()


def test_progress_is_shown_by_a_function_and_what_that_raises_ends_the_run() -> None:
    seen: list[thalweg.Statistics] = []

    def show(now: thalweg.Statistics) -> None:
        seen.append(now)
        run.stop()

    run = waiting().start(progress=show)
    run.wait()
    assert seen

    def broken(now: thalweg.Statistics) -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        waiting().run(progress=broken)


def test_strictness_counts_what_could_not_be_processed(tmp_path: Path) -> None:
    built = Pipeline(sources.from_iterable(["{}", "no json"]), [transforms.parse_json()], sinks.discard())
    assert built.run(state=tmp_path / "state").errors == 1
    with pytest.raises(thalweg.Error, match="1 of 2 could not be processed"):
        built.run(state=tmp_path / "state", strict=True)


def test_a_later_run_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    config = copying(tmp_path)
    assert thalweg.run(config, state=tmp_path / "state").messages == 3
    assert thalweg.run(config, state=tmp_path / "state").messages == 0


def program(name: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(PROGRAMS / name), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


@pytest.mark.parametrize(("signals", "ends"), [(1, "drained"), (2, "aborted")])
def test_an_interrupt_drains_and_a_second_one_ends_at_once(signals: int, ends: str) -> None:
    with program("interrupted.py", ends) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        if signals == 2:
            assert process.stdout.readline() == "draining\n"
            process.send_signal(signal.SIGINT)
        rest, reported = process.communicate(timeout=30)
    assert rest.splitlines()[-1:] == [f"interrupted, {ends}"], reported
    assert process.returncode == 0, reported


SERVICE = """
version: "1.1"
name: letters
processors:
  - name: archive
    operations:
      - name: filesystem_input_read
        params: {{ target: {{ sourceType: value, source: "{folder}/in/*" }} }}
      - name: filesystem_input_write
        params:
          destination: {{ sourceType: value, source: "{folder}/between" }}
          useOriginalFilename: {{ sourceType: value, source: true }}
      - name: filesystem_input_read
        params: {{ target: {{ sourceType: value, source: "{folder}/between/*" }} }}
      - name: filesystem_input_write
        params:
          destination: {{ sourceType: value, source: "{folder}/out" }}
          useOriginalFilename: {{ sourceType: value, source: true }}
"""


@pytest.fixture
def service(tmp_path: Path) -> Path:
    """A service definition of capyfile's, whose one processor has two phases."""
    (tmp_path / "in").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "in" / name).write_text(name)
    path = tmp_path / "service.yml"
    path.write_text(SERVICE.format(folder=tmp_path))
    return path


def test_a_processor_of_capyfile_runs_phase_by_phase(service: Path, tmp_path: Path) -> None:
    summary = thalweg.run(service, pipelines=["letters:archive"])
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["a.txt", "b.txt"]
    # Each phase has a source `input` and a sink `done`.
    names = [counts.name for counts in summary.components]
    assert (names.count("input"), names.count("done")) == (2, 2)
    assert (summary.messages, summary.errors) == (4, 0)
    run = thalweg.start(service, pipelines=["letters:archive"])
    assert run.wait().messages == 4


def test_a_service_is_checked_and_wants_a_processor_that_it_has(service: Path) -> None:
    assert thalweg.check(service) == f"{service} is valid: the service `letters` with 1 processor.\n"
    assert "letters:archive" in thalweg.check(service, plan=True)
    with pytest.raises(thalweg.ConfigurationError, match="name one of its processors"):
        thalweg.run(service)
    with pytest.raises(thalweg.ConfigurationError, match="did you mean `letters:archive`"):
        thalweg.run(service, pipelines=["letters:archiv"])


def test_a_notebook_has_a_line_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class ZMQInteractiveShell:
        pass

    class Shown:
        def update(self, text: str) -> None:
            shown.append(text)

    notebook: Any = types.ModuleType("IPython")
    notebook.get_ipython = ZMQInteractiveShell
    display: Any = types.ModuleType("IPython.display")
    display.Pretty = str
    display.display = lambda text, display_id: Shown()
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    Pipeline(sources.from_iterable(["a"]), [], sinks.discard()).run()
    assert shown[-1].startswith("1 messages · 0.0 MiB · ")


def test_without_a_terminal_nothing_is_shown_unless_that_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    for progress in (None, False):
        Pipeline(sources.from_iterable(["a"]), [], sinks.discard()).run(progress=progress)
    assert capfd.readouterr().err == ""
