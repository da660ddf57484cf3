"""
A file system for fsspec that reads through thalweg.

``fsspec.open("thalweg::https://example.org/large.tif")`` opens what stands behind the ``::`` with the file system that
fsspec has for it, but reads by ``thalweg.RemoteFile``: no more than what is wanted, in as few requests as are worth
it, and with a cache on disk if one is given. Options of this file system are given as ``thalweg={"cache":
"/var/cache/parts"}``, those of the one behind it under its own name (``s3={"endpoint_url": …}``), as always with
fsspec.
"""

import io
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any
from urllib.parse import urlencode

import fsspec  # type: ignore[import-untyped]
from fsspec.implementations.chained import ChainedFileSystem  # type: ignore[import-untyped]

from thalweg._open import RemoteOptions
from thalweg._thalweg import Pool, RemoteFile

# So many files are kept open for reads by name.
_KEPT = 16
# What fsspec's file systems call a service, where that is not what thalweg calls it.
_SCHEMES = {"s3a": "s3", "gcs": "gs", "abfs": "az", "abfss": "az", "adl": "az", "local": "file"}
# The options of fsspec's file systems that thalweg knows under another name, by service.
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
    Reads what another file system of fsspec has, or what a URL says.

    It takes the options of ``RemoteFile``. All its files share one limit on memory, ``memory`` bytes.
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
        cache_limit: int | None = None,
        remote: RemoteOptions | None = None,
        **storage_options: Any,
    ) -> None:
        """``remote`` are further options of ``RemoteFile``. The rest is given by fsspec."""
        super().__init__(**storage_options)
        self.target_protocol = target_protocol
        self.target_options = target_options or {}
        self.remote_options: RemoteOptions = {"pool": Pool(memory), "cache": cache, "cache_limit": cache_limit}
        self.remote_options.update(remote or {})
        self._target: Any = None
        self._kept: OrderedDict[str, RemoteFile] = OrderedDict()
        self._lock = Lock()

    @property
    def target(self) -> Any:
        """The file system that lists and says what there is, if there is one."""
        if self._target is None and self.target_protocol is not None:
            self._target = fsspec.filesystem(self.target_protocol, **self.target_options)
        return self._target

    def url(self, path: str) -> str:
        """The URL that is read for a path."""
        if self.target_protocol is None:
            return path
        scheme, _, rest = str(self.target.unstrip_protocol(path)).partition("://")
        scheme = _SCHEMES.get(scheme, scheme)
        if "headers" in self.target_options:
            raise ValueError("thalweg sends no headers of one's own: give the credentials in the URL")
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
        """A file that is kept open for who reads it by name, again and again."""
        with self._lock:
            file = self._kept.pop(path, None)
        file = file or RemoteFile(self.url(path), **self.remote_options)
        with self._lock:
            self._kept[path] = file
            while len(self._kept) > _KEPT:
                # Who reads it still has it: it is closed when nobody has it any more.
                self._kept.popitem(last=False)
        return file

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """The bytes of a file from ``start`` to ``end``, which may be negative as in slices."""
        file = self._file(self._strip_protocol(path))
        first, last, _ = slice(start, end).indices(file.size)
        return file.read_at(first, max(last - first, 0))

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
        The bytes of ranges of files. Those of one file are fetched together; ``max_gap`` is found out by
        measuring.
        """
        count = len(paths)
        first = starts if isinstance(starts, Sequence) else [starts] * count
        last = ends if isinstance(ends, Sequence) else [ends] * count
        if not len(first) == len(last) == count:
            raise ValueError("there must be as many starts and ends as paths")
        by_path: dict[str, list[int]] = {}
        for at, path in enumerate(paths):
            by_path.setdefault(self._strip_protocol(path), []).append(at)
        read: list[Any] = [None] * count
        for path, places in by_path.items():
            try:
                file = self._file(path)
                slices = [slice(first[at], last[at]).indices(file.size) for at in places]
                found: Sequence[Any] = file.read_ranges([(begin, max(end - begin, 0)) for begin, end, _ in slices])
            except Exception as error:
                if on_error != "return":
                    raise
                found = [error] * len(places)
            for at, one in zip(places, found, strict=True):
                read[at] = one
        return read

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """What is known of a file, by the file system behind this one, or else by asking for it."""
        path = self._strip_protocol(path)
        if self.target is not None:
            return dict(self.target.info(path, **kwargs))
        file = self._file(path)
        return {"name": path, "size": file.size, "type": "file", "etag": file.etag, "modified": file.modified}

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """What is in a folder, by the file system behind this one."""
        if self.target is None:
            raise NotImplementedError(
                "thalweg lists nothing by itself: name a file system behind it, `thalweg::s3://…`"
            )
        return list(self.target.ls(path, detail=detail, **kwargs))

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Whether there is such a file."""
        if self.target is not None:
            return bool(self.target.exists(path, **kwargs))
        try:
            self._file(self._strip_protocol(path))
        except FileNotFoundError:
            return False
        return True

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return str(path).removeprefix("thalweg::").removeprefix("thalweg://")
