"""What tests of several parts stand on."""

import signal
from collections.abc import Iterator

import pytest
from web import Web, serving

from thalweg.evaluations import on_forgotten

# Who starts the tests in the background has told them to ignore Ctrl-C, and with them all programs that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as web:
        yield web


@pytest.fixture
def forgotten() -> Iterator[list[BaseException]]:
    told: list[BaseException] = []
    on_forgotten(told.append)
    yield told
    on_forgotten(None)
