"""
The classes of the package ``svfsc``, with its names, arguments, results and exceptions, over sparse files.

``import thalweg.svfsc as svfsc`` is all that a program changes. Pickles of either package can be read by the other,
since both name their class ``svfsc.cSVF``. Where ``svfsc`` itself is not installed, importing this module makes
``svfsc`` another name of it, so that pickles find it. Where it is installed, ``svfsc`` stays what it is, and what is
pickled here names a function of this module: it needs thalweg to be read.
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

# The version whose contract this keeps.
SVFS_CPP_VERSION = "0.4.1"
SVFS_CPP_VERSION_MAJOR = 0
SVFS_CPP_VERSION_MINOR = 4
SVFS_CPP_VERSION_PATCH = 1
SVFS_CPP_VERSION_SUFFIX = ""
SVF_THREAD_SAFE = 0
SVFS_THREAD_SAFE = 0
PY_THREAD_SAFE = 1


def _made() -> cSVF:
    """An empty object, to which a pickle gives its state."""
    return cSVF.__new__(cSVF)


if "svfsc" not in sys.modules and importlib.util.find_spec("svfsc") is None:
    sys.modules["svfsc"] = sys.modules[__name__]
