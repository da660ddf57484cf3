"""The exceptions of the package."""

import json
from dataclasses import dataclass

from thalweg._thalweg import DiffersError, Error, MissingError


@dataclass(frozen=True)
class Mistake:
    """An error in a configuration, and its position."""

    #: The file, or `configuration` if it was built in Python.
    file: str
    #: The line, from 1.
    line: int
    #: The column, from 1, in characters.
    column: int
    message: str
    #: How to correct it, if known.
    help: str | None


class ConfigurationError(Error, ValueError):
    """A configuration or an option is invalid; the text says where, and how to correct it.

    `mistakes` lists the errors one by one, each with its position, if it has one.
    """

    mistakes: list[Mistake]

    def __init__(self, text: str, mistakes: str = "[]") -> None:
        super().__init__(text)
        self.mistakes = [Mistake(**mistake) for mistake in json.loads(mistakes)]


class TemporaryError(Error):
    """Raised by a writer if a later attempt may succeed: the engine retries the same batch after a pause."""


def text_of(error: BaseException) -> str:
    """Returns the text of an exception, in a form that UTF-8 has: surrogates are escaped."""
    try:
        text = str(error)
    except Exception:
        text = "the exception has no text, because its `__str__` failed"
    return text.encode(errors="backslashreplace").decode()


__all__ = ["ConfigurationError", "DiffersError", "Error", "MissingError", "Mistake", "TemporaryError"]
