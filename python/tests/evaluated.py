"""Functions that the tests of evaluations call."""

import asyncio
import contextvars
from typing import Any

from thalweg.evaluations import (
    Evaluation,
    concurrent_proc,
    wait,
)

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="outside")


@concurrent_proc
async def twice(number: int, after: float | None = None) -> int:
    if after is not None:
        await wait(after)
    return 2 * number


@concurrent_proc
async def fail(after: float | None = None) -> int:
    if after is not None:
        await wait(after)
    raise LookupError("over the weir")


@concurrent_proc
async def never() -> str:
    await asyncio.get_running_loop().create_future()
    return "never"


def waiting(called: Any) -> Evaluation[Any]:
    assert isinstance(called, Evaluation)
    return called
