"""The compiled part of the package."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Concatenate, Generic, TypeVar, overload

from typing_extensions import ParamSpec, Self, final

from thalweg.evaluations import Evaluation

__all__ = ["ConcurrentProc", "Error", "Waiter", "__version__", "copy", "copy_options", "evaluate", "main"]

__version__: str

def main(line: Sequence[str]) -> int: ...

class Error(Exception):
    """What was asked for was tried and failed; the text says what, and what may help."""

# Copies.

def copy(arguments: Sequence[str], progress: Callable[..., object] | None, /) -> dict[str, Any]: ...
def copy_options() -> list[str]: ...

# Evaluations.

_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_T = TypeVar("_T")
_A = TypeVar("_A")

def evaluate(code: Awaitable[_T], /) -> Evaluation[_T]: ...

@final
class ConcurrentProc(Generic[_P, _T]):
    """An `async def` function that can be called in four ways, of which one makes the caller wait."""

    def __new__(cls, function: Callable[_P, Awaitable[_T]], /) -> Self: ...
    def call(self, *args: _P.args, **kwargs: _P.kwargs) -> Coroutine[Any, Any, _T]: ...
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> Coroutine[Any, Any, _T]: ...
    def call_nonblock(self, *args: _P.args, **kwargs: _P.kwargs) -> _T | Evaluation[_T]: ...
    def call_detached(self, *args: _P.args, **kwargs: _P.kwargs) -> Evaluation[_T]: ...
    def call_and_forget(self, *args: _P.args, **kwargs: _P.kwargs) -> None: ...
    @property
    def __wrapped__(self) -> Callable[_P, Awaitable[_T]]: ...
    @overload
    def __get__(self, instance: None, owner: type | None = None, /) -> Self: ...
    @overload
    def __get__(
        self: ConcurrentProc[Concatenate[_A, _Q], _T], instance: _A, owner: type | None = None, /
    ) -> ConcurrentProc[_Q, _T]: ...
    @classmethod
    def __class_getitem__(cls, item: Any) -> Any: ...

@final
class Waiter:
    """What awaits an evaluation; no part of the interface."""

    _asyncio_future_blocking: bool
    def __new__(cls, evaluation: Any) -> Self: ...
    def get_loop(self) -> Any: ...
    def add_done_callback(self, callback: Any, *, context: Any = None) -> None: ...
    def cancel(self, msg: Any = None) -> bool: ...
