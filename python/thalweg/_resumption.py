"""Waiting for an event that only other code observes."""

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from thalweg._errors import Error

if TYPE_CHECKING:
    from thalweg.evaluations import Evaluation

T = TypeVar("T")


class Abandoned(Error):
    """A `Resumer` was dropped before it resumed its evaluation, so that nothing can resume it."""


class Resumer(Generic[T]):
    """Ends the wait of the evaluation that `resumption` returned with it. May be called from any thread."""

    __slots__ = ("_evaluation",)

    def __init__(self, evaluation: "Evaluation[T]") -> None:
        self._evaluation: Evaluation[T] | None = evaluation

    def resume(self, value: Any = None) -> bool:
        """Ends the wait with this value. Returns whether the evaluation was not concluded before."""
        evaluation, self._evaluation = self._evaluation, None
        return evaluation is not None and evaluation.conclude_to(value)

    def fail(self, error: BaseException) -> bool:
        """Ends the wait with an exception. Returns whether the evaluation was not concluded before."""
        evaluation, self._evaluation = self._evaluation, None
        return evaluation is not None and evaluation._fail(error)

    def __del__(self) -> None:
        evaluation = getattr(self, "_evaluation", None)
        if evaluation is not None and not evaluation.done() and not evaluation.get_loop().is_closed():
            evaluation._fail(Abandoned("the resumer of this evaluation was dropped, so nothing can resume it"))
