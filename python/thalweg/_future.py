"""The function by which the compiled part concludes futures of an event loop."""

import asyncio
from typing import Any


def conclude(future: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
    """Sets the result or the exception of a future, unless the waiting code has cancelled it."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
