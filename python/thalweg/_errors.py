"""The exceptions of the package."""

from thalweg._thalweg import DiffersError, Error, MissingError


class ConfigurationError(Error, ValueError):
    """Something is wrong in a configuration or in options; the text says where, and what would be right."""


__all__ = ["ConfigurationError", "DiffersError", "Error", "MissingError"]
