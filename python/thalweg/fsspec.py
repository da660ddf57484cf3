"""
A file system for fsspec that reads through thalweg.

``fsspec.open("thalweg::https://example.org/large.tif")`` opens the URL after the ``::`` through fsspec's file system
for it, but reads with ``thalweg.RemoteFile``. That fetches only the wanted parts, in few requests, and can cache them
on disk. Options of this file system are passed as ``thalweg={"cache": "/var/cache/parts"}``. Options of the file
system behind it are passed under its own name (``s3={"endpoint_url": …}``), as always with fsspec.
"""

import io
from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import urlencode

import fsspec  # type: ignore[import-untyped]
from fsspec.implementations.chained import ChainedFileSystem  # type: ignore[import-untyped]

from thalweg._open import RemoteOptions
from thalweg._thalweg import Pool, RemoteFile

_T = TypeVar("_T")

# The number of files that are kept open for reads by name.
_KEPT = 16
# The names of services in fsspec's file systems, where thalweg uses another name.
_SCHEMES = {"s3a": "s3", "gcs": "gs", "abfs": "az", "abfss": "az", "adl": "az", "local": "file"}
# The options of fsspec's file systems that have another name in thalweg, by service.
_OPTIONS = {
    "s3": {
        "key": "access_key_id",
        "secret": "secret_access_key",
        "token": "session_token",
        "endpoint_url": "endpoint",
        "region_name": "region",
    },
    "az": {"account_name": "account_name", "account_key": "account_key", "sas_token": "sas_token"},
}


class ThalwegFileSystem(ChainedFileSystem):  # type: ignore[misc]
    """
    Reads files of another file system of fsspec, or of a URL.

    It accepts the options of ``RemoteFile``. All its files share one memory limit of ``memory`` bytes.
    """

    protocol = "thalweg"
    async_impl = False

    def __init__(
        self,
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        fo: str | None = None,
        *,
        memory: int = 64 << 20,
        cache: str | None = None,
        max_cache_bytes: int | None = None,
        check_after: float = 1.0,
        remote: RemoteOptions | None = None,
        **storage_options: Any,
    ) -> None:
        """
        ``remote`` contains further options of ``RemoteFile``. The rest is passed by fsspec.

        Reads by name keep their files open. ``check_after`` is the time in seconds after which such a read first
        asks the server whether the file has changed; 0 asks before each read.
        """
        super().__init__(**storage_options)
        self.target_protocol = target_protocol
        self.target_options = target_options or {}
        self.remote_options: RemoteOptions = {"pool": Pool(memory), "cache": cache, "max_cache_bytes": max_cache_bytes}
        self.remote_options.update(remote or {})
        self._target: Any = None
        self.check_after = check_after
        # Each file, and when it was last known to be current.
        self._kept: OrderedDict[str, tuple[RemoteFile, float]] = OrderedDict()
        self._lock = Lock()

    @property
    def target(self) -> Any:
        """The file system behind this one, which lists files and answers questions about them. None without one."""
        if self._target is None and self.target_protocol is not None:
            self._target = fsspec.filesystem(self.target_protocol, **self.target_options)
        return self._target

    def url(self, path: str) -> str:
        """Returns the URL to read for a path."""
        if self.target_protocol is None:
            return path
        scheme, _, rest = str(self.target.unstrip_protocol(path)).partition("://")
        scheme = _SCHEMES.get(scheme, scheme)
        if "headers" in self.target_options:
            raise ValueError("thalweg does not send custom headers: put the credentials into the URL")
        given = {**self.target_options, **(self.target_options.get("client_kwargs") or {})}
        known = {theirs: name for theirs, name in _OPTIONS.get(scheme, {}).items() if given.get(theirs) is not None}
        query = {name: given[theirs] for theirs, name in known.items()}
        if scheme == "s3" and self.target_options.get("anon"):
            query["skip_signature"] = "true"
        return f"{scheme}://{rest}" + (f"?{urlencode(query)}" if query else "")

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        if mode == "rb":
            return RemoteFile(self.url(path), **self.remote_options)
        if self.target is None:
            raise io.UnsupportedOperation(f"{path}: thalweg only reads; mode is {mode!r}")
        return self.target.open(path, mode, autocommit=autocommit, **kwargs)

    def _file(self, path: str) -> RemoteFile:
        """Returns a file that is kept open for repeated reads by name, and is current."""
        with self._lock:
            kept = self._kept.pop(path, None)
        now = monotonic()
        if kept is not None and now - kept[1] < self.check_after:
            file, current = kept
        else:
            file, current = RemoteFile(self.url(path), **self.remote_options), now
            if kept is not None and _is_same(kept[0], file):
                # The file has not changed, so what is held of it serves on.
                file = kept[0]
        with self._lock:
            self._kept[path] = file, current
            while len(self._kept) > _KEPT:
                # A reader may still use it: the file closes when its last reference is gone.
                self._kept.popitem(last=False)
        return file

    def _read(self, path: str, read: Callable[[RemoteFile], _T]) -> _T:
        """Reads from a kept file. If that fails, the file may have changed since it was opened: opens it again."""
        with self._lock:
            was_kept = path in self._kept
        try:
            return read(self._file(path))
        except OSError:
            if not was_kept:
                raise
            self._forget(path)
            return read(self._file(path))

    def _forget(self, path: str) -> None:
        with self._lock:
            self._kept.pop(path, None)

    def invalidate_cache(self, path: str | None = None) -> None:
        """Forgets what is known of a file, or of all files, so that the next read fetches it again."""
        with self._lock:
            if path is None:
                self._kept.clear()
            else:
                self._kept.pop(self._strip_protocol(path), None)
        if self._target is not None:
            self._target.invalidate_cache(path if path is None else self._strip_protocol(path))
        super().invalidate_cache(path)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """Returns the bytes of a file from ``start`` to ``end``. Both may be negative, as in slices."""

        def read(file: RemoteFile) -> bytes:
            first, last, _ = slice(start, end).indices(file.size)
            return file.read_at(first, max(last - first, 0))

        return self._read(self._strip_protocol(path), read)

    def cat_ranges(
        self,
        paths: Sequence[str],
        starts: Sequence[int | None] | int | None,
        ends: Sequence[int | None] | int | None,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """
        Returns the bytes of ranges of files. Ranges of one file are fetched together. ``max_gap`` is ignored: the gap
        adapts to measurements.
        """
        count = len(paths)
        first = starts if isinstance(starts, Sequence) else [starts] * count
        last = ends if isinstance(ends, Sequence) else [ends] * count
        if not len(first) == len(last) == count:
            raise ValueError("`starts`, `ends` and `paths` must have the same length")
        by_path: dict[str, list[int]] = {}
        for at, path in enumerate(paths):
            by_path.setdefault(self._strip_protocol(path), []).append(at)
        read: list[Any] = [None] * count
        for path, indices in by_path.items():

            def ranges(file: RemoteFile, indices: list[int] = indices) -> Sequence[Any]:
                slices = [slice(first[at], last[at]).indices(file.size) for at in indices]
                return file.read_ranges([(begin, max(end - begin, 0)) for begin, end, _ in slices])

            try:
                found = self._read(path, ranges)
            except Exception as error:
                if on_error != "return":
                    raise
                found = [error] * len(indices)
            for at, one in zip(indices, found, strict=True):
                read[at] = one
        return read

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Returns the properties of a file, from the file system behind this one or from the server."""
        path = self._strip_protocol(path)
        if self.target is not None:
            return dict(self.target.info(path, **kwargs))
        file = self._read(path, lambda file: file)
        return {"name": path, "size": file.size, "type": "file", "etag": file.etag, "modified": file.modified}

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """Lists a directory, through the file system behind this one."""
        if self.target is None:
            raise NotImplementedError("thalweg cannot list by itself: name a file system behind it, `thalweg::s3://…`")
        return list(self.target.ls(path, detail=detail, **kwargs))

    def exists(self, path: str, **kwargs: Any) -> bool:
        """True if the file exists."""
        if self.target is not None:
            return bool(self.target.exists(path, **kwargs))
        try:
            self._read(self._strip_protocol(path), lambda file: file)
        except FileNotFoundError:
            return False
        return True

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return str(path).removeprefix("thalweg::").removeprefix("thalweg://")


def _is_same(one: RemoteFile, other: RemoteFile) -> bool:
    """True if two files are known to have the same content: the server tells a tag or a time, and it is the same."""
    is_known = other.etag is not None or other.modified is not None
    return is_known and (one.size, one.etag, one.modified) == (other.size, other.etag, other.modified)
