"""The package within a program: imports, forks, interpreters, logging, pickles, and files that it leaves."""

import builtins
import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import thalweg
from thalweg import CopySummary, NotCopied, Pipeline, sinks, sources, transforms


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


def test_exceptions_can_be_pickled() -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        error = pickle.loads(pickle.dumps(NotCopied("1 file could not be copied", SUMMARY), protocol))
        assert (type(error), str(error), error.summary) == (NotCopied, "1 file could not be copied", SUMMARY)
    wrong = thalweg.ConfigurationError("no", '[{"file": "a", "line": 1, "column": 2, "message": "no", "help": null}]')
    again = pickle.loads(pickle.dumps(wrong))
    assert (str(again), again.mistakes) == (str(wrong), wrong.mistakes)


def _fails(_: int) -> None:
    raise NotCopied("1 file could not be copied", SUMMARY)


def test_a_failed_copy_of_a_worker_process_is_raised_in_its_parent() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as workers, pytest.raises(NotCopied) as raised:
        workers.map(_fails, [1])
    assert raised.value.summary == SUMMARY


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
