"""Moves messages and files from any source, through transforms, to any sink."""

from thalweg import sinks, sources, transforms
from thalweg._copy import CopyProgress, CopySummary, NotCopied, copy
from thalweg._errors import ConfigurationError, DiffersError, Error, MissingError, Mistake, TemporaryError
from thalweg._objects import Component
from thalweg._open import RemoteOptions
from thalweg._open import open as open
from thalweg._own import Reader, Writer
from thalweg._pipeline import Pipeline, Stream
from thalweg._run import Run, check, run, start
from thalweg._statistics import Counts, Statistics, Summary
from thalweg._thalweg import Pin, Pool, RemoteFile, SparseFile, SparseFileSystem, __version__
from thalweg._transform import transform

# `open` is left out: `from thalweg import *` must not replace Python's own function.
__all__ = [
    "Component",
    "ConfigurationError",
    "CopyProgress",
    "CopySummary",
    "Counts",
    "DiffersError",
    "Error",
    "MissingError",
    "Mistake",
    "NotCopied",
    "Pin",
    "Pipeline",
    "Pool",
    "Reader",
    "RemoteFile",
    "RemoteOptions",
    "Run",
    "SparseFile",
    "SparseFileSystem",
    "Statistics",
    "Stream",
    "Summary",
    "TemporaryError",
    "Writer",
    "__version__",
    "check",
    "copy",
    "run",
    "sinks",
    "sources",
    "start",
    "transform",
    "transforms",
]
