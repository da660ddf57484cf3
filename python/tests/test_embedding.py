"""The package within a program: imports, forks, interpreters, logging, pickles, and files that it leaves."""

import ast
import builtins
import functools
import inspect
import logging
import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import thalweg
from thalweg import CopySummary, NotCopied, Pipeline, Pool, _thalweg, sinks, sources, transforms


def script(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program in a folder. A hang fails the test."""
    line = [sys.executable, "-c", text]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_a_star_import_keeps_the_functions_of_python() -> None:
    names: dict[str, Any] = {}
    exec("from thalweg import *", names)
    del names["__builtins__"]
    assert not set(names) & set(dir(builtins))
    assert names["Pipeline"] is Pipeline


RUNNING = """
import os, sys, time
import thalweg
from thalweg import Pipeline, sinks, sources

def items():
    while True:
        time.sleep(0.01)
        yield "a"

seen = []
run = Pipeline(sources.from_iterable(items()), [], sinks.to_callable(seen.append)).start()
while not seen:
    time.sleep(0.01)
begun = time.monotonic()
child = os.fork()
if child == 0:
    {child}
    sys.exit(0)
_, status = os.waitpid(child, 0)
print("child", os.waitstatus_to_exitcode(status), "quick" if time.monotonic() - begun < 4 else "slow")
run.stop()
run.wait()
"""


def test_a_forked_child_does_not_wait_for_threads_that_it_does_not_have(tmp_path: Path) -> None:
    ended = script(RUNNING.replace("{child}", "pass"), tmp_path)
    assert (ended.stdout, ended.stderr) == ("child 0 quick\n", "")


def test_a_forked_child_cannot_use_the_run_of_its_parent_but_can_start_one(tmp_path: Path) -> None:
    child = """
    assert not run.is_running
    run.stop(), run.abort()
    for call in (run.wait, run.statistics):
        try:
            call()
        except thalweg.Error as error:
            print(error, flush=True)
    print(Pipeline(sources.from_iterable(["a"]), [], sinks.to_callable(seen.append)).run().messages, flush=True)
"""
    ended = script(RUNNING.replace("    {child}", child), tmp_path)
    refused = "the run belongs to the process that started it, not to this forked one; start another\n"
    assert (ended.stdout, ended.stderr) == (refused * 2 + "1\nchild 0 quick\n", "")


def test_threads_of_a_run_import_nothing_during_which_a_fork_would_lock_imports_in_the_child(tmp_path: Path) -> None:
    text = """
import sys, threading
from thalweg import Pipeline, sinks, sources

may_end = threading.Event()
run = Pipeline(sources.from_iterable(iter(may_end.wait, True)), [], sinks.discard()).start()
print([name for name in ("pyarrow", "thalweg._bridge") if name in sys.modules])
may_end.set()
run.wait()
"""
    ended = script(text, tmp_path)
    assert (ended.stdout, ended.stderr) == ("['pyarrow', 'thalweg._bridge']\n", "")


def test_a_subinterpreter_is_refused(tmp_path: Path) -> None:
    text = """
import thalweg
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
one = interpreters.create()
interpreters.run_string(one, '''
try:
    import thalweg
except ImportError as error:
    print(error, flush=True)
else:
    print(thalweg.Pool(1))
''')
interpreters.destroy(one)
print(thalweg.Pool(1))
"""
    ended = script(text, tmp_path)
    assert ended.returncode == 0, ended.stderr
    refused, pool = ended.stdout.splitlines()
    assert "interpreter" in refused
    assert pool == "Pool(1, 0 bytes in use)"


def test_warnings_of_the_engine_reach_logging(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "taken").mkdir()
    config = {
        "sources": {"in": sources.from_iterable(["a"])},
        "pipelines": {"main": {"from": "in", "to": {"failover": ["broken", "out"]}}},
        "sinks": {"broken": sinks.file(path=tmp_path / "taken"), "out": sinks.discard()},
    }
    with caplog.at_level(logging.WARNING, "thalweg"):
        assert thalweg.run(config, progress=False).messages == 1
    texts = [record.getMessage() for record in caplog.records if record.name == "thalweg"]
    assert any("`broken`" in text for text in texts), texts
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_warnings_are_shown_if_logging_is_not_set_up(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    text = """
from thalweg import Pipeline, sinks, sources
to = {"failover": [sinks.file(path="taken"), sinks.discard()]}
Pipeline(sources.from_iterable(["a"]), [], to).run(progress=False)
"""
    ended = script(text, tmp_path)
    assert ended.returncode == 0
    assert "`file`" in ended.stderr


def test_nothing_appears_in_the_current_directory_unasked(
    tmp_path: Path, state_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    summary = Pipeline(sources.from_iterable(["no JSON"]), [transforms.parse_json()], sinks.discard()).run()
    assert summary.dead_letters == 1
    assert list(work.iterdir()) == []
    assert state_home in summary.state_folder.parents
    line = [sys.executable, "-m", "thalweg", "errors", "list", "--state", str(summary.state_folder), "--json"]
    listed = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    assert "no JSON" in listed or '"parse_json"' in listed
    asked = Pipeline(
        sources.from_iterable(["no JSON"]), [transforms.parse_json()], sinks.discard(), state=work / "state"
    )
    assert asked.run().state_folder == work / "state"


SUMMARY = CopySummary(
    objects=3,
    files=2,
    rows=None,
    skipped=0,
    errors=1,
    read_bytes=10,
    written_bytes=9,
    verified_bytes=8,
    kept_bytes=0,
    requests=4,
    retries=1,
    crc32c=None,
    seconds=0.5,
    resumed=False,
)


def test_exceptions_and_pools_can_be_pickled() -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        error = pickle.loads(pickle.dumps(NotCopied("1 file could not be copied", SUMMARY), protocol))
        assert (type(error), str(error), error.summary) == (NotCopied, "1 file could not be copied", SUMMARY)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        pool = pickle.loads(pickle.dumps(Pool(1 << 20), protocol))
        assert pool.statistics()["limit"] == 1 << 20
        assert pool.statistics()["used"] == 0
    wrong = thalweg.ConfigurationError("no", '[{"file": "a", "line": 1, "column": 2, "message": "no", "help": null}]')
    again = pickle.loads(pickle.dumps(wrong))
    assert (str(again), again.mistakes) == (str(wrong), wrong.mistakes)


def _fails(_: int) -> None:
    raise NotCopied("1 file could not be copied", SUMMARY)


def test_a_failed_copy_of_a_worker_process_is_raised_in_its_parent() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as workers, pytest.raises(NotCopied) as raised:
        workers.map(_fails, [1])
    assert raised.value.summary == SUMMARY


def described(text: str | None) -> str:
    """Returns a text without its line breaks and marks of code, in which Rust and stubs differ."""
    return " ".join(inspect.cleandoc(text or "").replace("`", "").split())


#: Helpers of the package; users do not see them.
HIDDEN = {"Batch", "Run", "Stream", "Waiter"}


def test_help_has_the_texts_of_the_stubs() -> None:
    stub = ast.parse((Path(thalweg.__file__).parent / "_thalweg.pyi").read_text())
    classes = [one for one in stub.body if isinstance(one, ast.ClassDef) and not one.name.startswith("_")]
    differ = []
    for one in classes:
        if one.name in HIDDEN or "Not a part of the public interface" in (ast.get_docstring(one) or ""):
            continue
        made = getattr(_thalweg, one.name)
        functions = [member for member in one.body if isinstance(member, ast.FunctionDef)]
        texts = [(one.name, ast.get_docstring(one), made.__doc__)]
        texts += [
            (f"{one.name}.{member.name}", ast.get_docstring(member), getattr(made, member.name).__doc__)
            for member in functions
        ]
        differ += [name for name, text, shown in texts if text and described(text) != described(shown)]
    assert differ == []


def test_numbers_that_must_not_be_negative_are_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"0123")
    wrong: Any = functools.partial(thalweg.open, file)
    for option in (
        "max_cache_bytes",
        "memory",
        "attempts",
        "concurrency",
        "widest_gap",
        "longest",
        "read_ahead",
        "whole",
    ):
        with pytest.raises(thalweg.ConfigurationError, match=rf"^`{option}` is -1: it must be 0 or more$"):
            wrong(**{option: -1})
    with pytest.raises(thalweg.ConfigurationError, match=r"^`limit` is -1: it must be 0 or more$"):
        Pool(-1)
    with thalweg.open(file) as opened:
        with pytest.raises(ValueError, match=r"^`position` is -1: it must be 0 or more$"):
            opened.read_at(-1, 1)
        with pytest.raises(ValueError, match=r"^`length` is -5: it must be 0 or more$"):
            opened.read_at(0, -5)
        with pytest.raises(ValueError, match=rf"^`position` is {1 << 70}: it is too large$"):
            opened.read_at(1 << 70, 1)
    pipeline = Pipeline(sources.from_iterable(["a"]), [], sinks.discard())
    for call in (pipeline.run, pipeline.check):
        with pytest.raises(thalweg.ConfigurationError, match=r"^`threads` is -1: it must be a number from 1 to 65535$"):
            call(threads=-1)


def test_a_single_transform_is_answered_with_the_list_to_write() -> None:
    single: Any = transforms.parse_json()
    with pytest.raises(TypeError, match=r"^`transforms` is a list; write `\[…\]` around .* here a `parse_json`$"):
        Pipeline(sources.from_iterable(["a"]), single, sinks.discard())
    with pytest.raises(TypeError, match="here a function"):
        Pipeline(sources.from_iterable(["a"]), test_a_star_import_keeps_the_functions_of_python, sinks.discard())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="here a str"):
        Pipeline(sources.from_iterable(["a"]), "parse_json", sinks.discard())
    with pytest.raises(thalweg.ConfigurationError, match=r"write `\[…\]` around a single transform"):
        thalweg.run({"pipelines": {"main": {"from": "in", "transforms": single}}})


@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="there is no fork")
def test_the_import_costs_no_logging_and_no_pyarrow(tmp_path: Path) -> None:
    ended = script("import sys, thalweg; print('pyarrow' in sys.modules)", tmp_path)
    assert ended.stdout == "False\n"
