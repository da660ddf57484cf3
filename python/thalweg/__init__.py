"""Moves messages and files from any source, through transforms, to any sink."""

from thalweg._errors import ConfigurationError, DiffersError, Error, MissingError
from thalweg._open import RemoteOptions, open
from thalweg._thalweg import Pin, Pool, RemoteFile, SparseFile, SparseFileSystem, __version__

__all__ = [
    "ConfigurationError",
    "DiffersError",
    "Error",
    "MissingError",
    "Pin",
    "Pool",
    "RemoteFile",
    "RemoteOptions",
    "SparseFile",
    "SparseFileSystem",
    "__version__",
    "open",
]
