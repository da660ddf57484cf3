"""Moves messages and files from any source, through transforms, to any sink."""

from thalweg._errors import ConfigurationError, Error
from thalweg._thalweg import __version__

__all__ = ["ConfigurationError", "Error", "__version__"]
