"""What tests of several parts stand on."""

from collections.abc import Iterator

import pytest
from web import Web, serving


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as web:
        yield web
