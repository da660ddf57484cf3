"""
The classes of the package ``svfsc``, with its names, arguments, results and exceptions, over sparse files.

A program only changes its import: ``import thalweg.svfsc as svfsc``. Either package can read the other's pickles,
because both name their class ``svfsc.cSVF``. If ``svfsc`` itself is not installed, importing this module also
registers it as ``svfsc``, so that pickles find it. If it is installed, ``svfsc`` stays unchanged, and pickles made
here name a function of this module: reading them needs thalweg.
"""

import importlib.util
import sys

from thalweg._thalweg import cSVF, cSVFS

__all__ = [
    "PY_THREAD_SAFE",
    "SVFS_CPP_VERSION",
    "SVFS_CPP_VERSION_MAJOR",
    "SVFS_CPP_VERSION_MINOR",
    "SVFS_CPP_VERSION_PATCH",
    "SVFS_CPP_VERSION_SUFFIX",
    "SVFS_THREAD_SAFE",
    "SVF_THREAD_SAFE",
    "cSVF",
    "cSVFS",
]

# The version of `svfsc` whose behaviour this module has.
SVFS_CPP_VERSION = "0.4.1"
SVFS_CPP_VERSION_MAJOR = 0
SVFS_CPP_VERSION_MINOR = 4
SVFS_CPP_VERSION_PATCH = 1
SVFS_CPP_VERSION_SUFFIX = ""
SVF_THREAD_SAFE = 0
SVFS_THREAD_SAFE = 0
PY_THREAD_SAFE = 1


def _made() -> cSVF:
    """Returns an empty object, to which a pickle then sets its state."""
    return cSVF.__new__(cSVF)


if "svfsc" not in sys.modules and importlib.util.find_spec("svfsc") is None:
    sys.modules["svfsc"] = sys.modules[__name__]
