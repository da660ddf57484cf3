"""The exceptions of the package."""

import json
from dataclasses import dataclass

from thalweg._thalweg import DiffersError, Error, MissingError


@dataclass(frozen=True)
class Mistake:
    """Something that is wrong in a configuration, and where."""

    #: The file, or `configuration` for one that was made in Python.
    file: str
    #: Counted from 1.
    line: int
    #: Counted from 1, in characters.
    column: int
    message: str
    #: What would be right, where that is known.
    help: str | None


class ConfigurationError(Error, ValueError):
    """Something is wrong in a configuration or in options; the text says where, and what would be right.

    `mistakes` has them one by one, with their places, where they have one.
    """

    mistakes: list[Mistake]

    def __init__(self, text: str, mistakes: str = "[]") -> None:
        super().__init__(text)
        self.mistakes = [Mistake(**mistake) for mistake in json.loads(mistakes)]


class TemporaryError(Error):
    """What a writer raises where it may go better later: the same batch is given again, after a pause."""


__all__ = ["ConfigurationError", "DiffersError", "Error", "MissingError", "Mistake", "TemporaryError"]
