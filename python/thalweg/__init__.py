"""Moves messages and files from any source, through transforms, to any sink."""

from thalweg._copy import CopyProgress, CopySummary, NotCopied, copy
from thalweg._errors import ConfigurationError, Error
from thalweg._thalweg import __version__

__all__ = ["ConfigurationError", "CopyProgress", "CopySummary", "Error", "NotCopied", "__version__", "copy"]
