"""The compiled part of the package."""

from collections.abc import Sequence

__all__ = ["Error", "__version__", "main"]

__version__: str

def main(line: Sequence[str]) -> int: ...

class Error(Exception):
    """What was asked for was tried and failed; the text says what, and what may help."""
