"""What the compiled part tells an event loop."""

import asyncio
from typing import Any


def conclude(future: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
    """Gives a future its result or its error, unless who waited for it has given up."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
