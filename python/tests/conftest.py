"""The fixtures of several test modules."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from web import Web, serving

from thalweg.evaluations import on_forgotten, run

# A shell that starts the tests in the background makes them ignore Ctrl-C, and all programs that they start as well.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keeps the state of copies and of pipelines built in code out of the user's directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as web:
        yield web


@pytest.fixture
def forgotten() -> Iterator[list[BaseException]]:
    reported: list[BaseException] = []
    on_forgotten(reported.append)
    yield reported
    on_forgotten(None)


@pytest.fixture(params=["asyncio", "thalweg"])
def any_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test on asyncio's event loop and on ours."""
    if request.param == "thalweg":
        monkeypatch.setattr(asyncio, "run", run)
    return str(request.param)
