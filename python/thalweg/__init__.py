"""Moves messages and files from any source, through transforms, to any sink."""

from thalweg import sinks, sources, transforms
from thalweg._errors import ConfigurationError, Error, Mistake, TemporaryError
from thalweg._objects import Component
from thalweg._own import Reader, Writer
from thalweg._pipeline import Pipeline, Stream
from thalweg._run import Run, check, run, start
from thalweg._statistics import Counts, Statistics, Summary
from thalweg._thalweg import __version__
from thalweg._transform import transform

__all__ = [
    "Component",
    "ConfigurationError",
    "Counts",
    "Error",
    "Mistake",
    "Pipeline",
    "Reader",
    "Run",
    "Statistics",
    "Stream",
    "Summary",
    "TemporaryError",
    "Writer",
    "__version__",
    "check",
    "run",
    "sinks",
    "sources",
    "start",
    "transform",
    "transforms",
]
