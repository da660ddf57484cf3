"""Remote files as file objects."""

import io
import os
from typing import TYPE_CHECKING, TypedDict

from thalweg._thalweg import Pool, RemoteFile

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Libraries that check for a file object with `isinstance` accept it.
io.BufferedIOBase.register(RemoteFile)


class RemoteOptions(TypedDict, total=False):
    """The options of a remote file, documented at ``RemoteFile``."""

    cache: str | os.PathLike[str] | None
    max_cache_bytes: int | None
    memory: int | None
    pool: Pool | None
    attempts: int
    silence: float
    concurrency: int | None
    on_change: str
    widest_gap: int
    longest: int
    shortest: int
    read_ahead: int
    whole: int


def open(  # noqa: A001 (as the function of Python that it stands in for)
    url: str | os.PathLike[str], mode: str = "rb", **options: "Unpack[RemoteOptions]"
) -> RemoteFile:
    """
    Opens a remote file for reading, and returns a file object that fetches only the parts that are read.

    ``url`` is ``https://…``, ``s3://BUCKET/KEY``, ``gs://BUCKET/KEY``, ``az://CONTAINER/KEY``, ``file:///PATH`` or a
    path. The options are those of ``RemoteFile``. ``mode`` exists because libraries pass one; a remote file is
    read-only, as bytes.
    """
    if mode not in ("r", "rb"):
        raise ValueError(f"mode is {mode!r}: a remote file is read-only, as bytes: 'rb'")
    return RemoteFile(url, **options)
