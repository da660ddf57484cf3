"""The compiled part of the package."""

import asyncio
import datetime
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Concatenate, Generic, Literal, TypedDict, TypeVar, final, overload

from typing_extensions import Buffer, ParamSpec, Self, disjoint_base

from thalweg._objects import Given
from thalweg.evaluations import Evaluation

__all__ = [
    "Batch",
    "ConcurrentProc",
    "DiffersError",
    "Error",
    "EventLoopCore",
    "MissingError",
    "Pin",
    "Pool",
    "RemoteFile",
    "Run",
    "SparseFile",
    "SparseFileSystem",
    "Stream",
    "Wait",
    "Waiter",
    "__version__",
    "as_yaml",
    "cSVF",
    "cSVFS",
    "check",
    "check_command",
    "check_nesting",
    "convert_command",
    "copy",
    "copy_command",
    "copy_options",
    "end_with_parent",
    "errors_command",
    "evaluate",
    "flush_logs",
    "forget_loop",
    "kinds",
    "main_only",
    "run_command",
    "start",
    "wait",
]

__version__: str

def run_command(arguments: Mapping[str, object]) -> int: ...
def check_command(config: Path, plan: bool, json: bool, threads: int | None) -> int: ...
def convert_command(config: Path, processor: str | None, output: Path | None) -> int: ...
def copy_command(options: str, state: Path | None, print_config: bool, json: bool, quiet: bool) -> int: ...
def errors_command(arguments: Mapping[str, object]) -> int: ...

class Error(Exception):
    """An operation failed; the text says which, and what may help."""

# Sparse files

_Span = tuple[int, int]
_Overlap = Literal["agree", "replace", "keep", "keep_first"]
_Clock = Literal["off", "coarse", "exact"]

class MissingError(Error):
    """Not all bytes of a read are held."""

class DiffersError(Error):
    """A write disagrees with bytes that are held, with ``overlap="agree"``."""

class _PoolStatistics(TypedDict):
    limit: int
    used: int
    peak: int
    ranges: int
    evicted_ranges: int
    evicted_bytes: int
    exceeded: int

class _Counters(TypedDict):
    reads: int
    writes: int
    bytes_read: int
    bytes_written: int
    blocks_erased: int
    bytes_erased: int
    blocks_evicted: int
    bytes_evicted: int
    last_read: float | None
    last_write: float | None

@final
class Pool:
    """
    A limit, in bytes, on the memory of several files together. At the limit, the least recently used ranges are
    evicted.

    A write needs some working memory: with a limit far below 256 KiB, the limit is exceeded at times.
    """

    def __new__(cls, limit: int) -> Self: ...
    def statistics(self) -> _PoolStatistics:
        """
        Returns the statistics: the limit, the bytes in use and their peak, the number of held ranges, evictions, and
        how often the limit was exceeded.
        """

    def __getnewargs__(self) -> tuple[int]: ...

@final
class Pin:
    """Protects a range of a file from eviction until it is released, its ``with`` block ends, or it is
    garbage-collected.
    """

    def release(self) -> None:
        """Allows eviction again."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@final
class SparseFile:
    """
    The parts of a file that were written to it, in memory.

    Adjacent bytes form one *block*, no matter how many writes they came from. Threads may share the file. A write is
    visible completely or not at all; a failed write changes nothing. Positions and lengths are in bytes and must not
    be negative.

    ``id`` names the origin, and ``modified`` is the time of its last change. ``overlap`` says what a write does where
    bytes are already held: ``agree`` requires the same bytes, ``replace`` overwrites the held ones, and ``keep``
    keeps them. With ``wipe``, memory is zeroed before it is freed. ``clock`` sets the precision of the recorded times
    of the last read and write. ``pool`` is a memory limit that several files share. ``touches`` records the order in
    which blocks are used.
    """

    def __new__(
        cls,
        id: str,
        modified: float = 0.0,
        *,
        overlap: _Overlap = "agree",
        wipe: bool = False,
        clock: _Clock = "off",
        pool: Pool | None = None,
        touches: bool = False,
    ) -> Self: ...
    @property
    def id(self) -> str:
        """The name of the origin."""

    @property
    def modified(self) -> float:
        """When the origin was last changed, as a number that only the caller interprets."""

    def write(self, position: int, data: Buffer, overlap: _Overlap | None = None) -> None:
        """
        Writes bytes at a position. ``overlap`` says what happens where bytes are already held. ``DiffersError`` if
        they must be the same and are not.
        """

    def write_many(self, writes: Iterable[tuple[int, Buffer]], overlap: _Overlap | None = None) -> None:
        """
        Does many writes in one call, one after the other. Each is a position and data. If one fails, the writes
        before it are done.
        """

    def read(self, position: int, length: int) -> bytes:
        """Returns ``length`` bytes from ``position`` on. ``MissingError`` if not all of them are held."""

    def readinto(self, position: int, buffer: Buffer) -> int:
        """
        Fills a buffer with the bytes from ``position`` on, and returns their number, which is the length of the
        buffer. ``MissingError`` if not all of them are held; the content of the buffer is undefined then.
        """

    def read_many(self, spans: Iterable[_Span]) -> list[bytes]:
        """Returns the bytes of each position and length: many reads in one call."""

    def has(self, position: int, length: int) -> bool:
        """
        True if all ``length`` bytes from ``position`` on are held. With ``length`` 0, true if the position is in or
        next to a block.
        """

    def need(self, position: int, length: int, greedy: int = 0) -> list[_Span]:
        """
        Returns the ranges to fetch so that ``length`` bytes from ``position`` on are held: the missing parts, in
        order. If ``greedy`` is more than ``length``, each part is extended to at least ``greedy`` bytes. Parts that
        then touch or overlap are merged.
        """

    def need_many(self, spans: Iterable[_Span], greedy: int = 0) -> list[_Span]:
        """Returns the ranges to fetch so that all of these ranges are held, each at least ``greedy`` bytes long."""

    def plan(self, spans: Iterable[_Span], *, gap: int = 0, longest: int = ...) -> list[_Span]:
        """
        Returns the requests to make so that all of these ranges are held: the missing parts, merged over gaps of at
        most ``gap`` bytes, each at most ``longest`` bytes long.
        """

    def blocks(self) -> list[_Span]:
        """Returns the position and length of each held block, in order."""

    def count_blocks(self) -> int:
        """Returns the number of held blocks."""

    def block_at(self, position: int) -> _Span | None:
        """Returns the block that contains the byte at ``position``, if it is held."""

    def bytes(self) -> int:
        """Returns the number of held bytes."""

    def end(self) -> int:
        """Returns the position after the last held byte; 0 if the file is empty."""

    def heap_bytes(self) -> int:
        """Returns the memory that the file uses, in bytes."""

    def erase(self, position: int, length: int) -> int:
        """Drops the held bytes of a range, and returns their number."""

    def erase_block(self, position: int) -> int:
        """
        Drops the block that starts at ``position``, and returns its length in bytes. ``ValueError`` if none starts
        there.
        """

    def clear(self) -> None:
        """Drops everything and resets the counters."""

    def compact(self) -> None:
        """Releases the memory that is reserved for blocks to grow."""

    def pin(self, position: int, length: int) -> Pin:
        """
        Protects a range from eviction by a pool while the pin exists. This includes bytes that are written there
        later. (The other bytes of the same units of 64 KiB are protected as well.)
        """

    def counters(self) -> _Counters:
        """Returns the counters; times in seconds since 1970."""

    def next_touch(self) -> int:
        """Returns the number that the next use of a block gets. Needs ``touches=True``."""

    def touches(self) -> list[tuple[int, int]]:
        """Returns the last use's number and the start of each block, least recent first. Needs ``touches=True``."""

    def evict_blocks(self, bound: int) -> int:
        """
        Drops the least recently used block while ``bound`` bytes or more are held. The last block always stays.
        Returns the number of bytes dropped. Needs ``touches=True``.
        """

    def __getnewargs_ex__(self) -> tuple[tuple[str, float], dict[str, Any]]: ...
    def __getstate__(self) -> tuple[tuple[int, Any], ...]: ...
    def __setstate__(self, state: tuple[tuple[int, Any], ...]) -> None: ...

@final
class SparseFileSystem:
    """
    Sparse files by id, all with the same options: see ``SparseFile``. With a pool, one memory limit covers all of
    them.
    """

    def __new__(
        cls,
        *,
        overlap: _Overlap = "agree",
        wipe: bool = False,
        clock: _Clock = "off",
        pool: Pool | None = None,
        touches: bool = False,
    ) -> Self: ...
    def insert(self, id: str, modified: float = 0.0) -> SparseFile:
        """Adds an empty file. ``ValueError`` if the id already exists."""

    def get(self, id: str) -> SparseFile:
        """Returns the file with this id. ``KeyError`` if there is none."""

    def remove(self, id: str) -> SparseFile:
        """Removes a file and returns it; it stays valid while referenced. ``KeyError`` if there is none."""

    def has(self, id: str) -> bool:
        """True if a file with this id exists."""

    def ids(self) -> list[str]:
        """Returns the ids of all files, in no particular order."""

    def bytes(self) -> int:
        """Returns the number of bytes that all files hold."""

    def count_blocks(self) -> int:
        """Returns the number of blocks that all files hold."""

    def heap_bytes(self) -> int:
        """Returns the memory that all files use, in bytes."""

    def evict_blocks(self, bound: int) -> int:
        """Calls ``SparseFile.evict_blocks`` on each file. Returns the number of bytes dropped."""

    def __getitem__(self, key: str, /) -> SparseFile: ...
    def __contains__(self, key: str, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...
    def __getstate__(self) -> dict[str, SparseFile]: ...
    def __setstate__(self, state: dict[str, SparseFile]) -> None: ...

# Remote files

class _RemoteStatistics(TypedDict):
    requests: int
    retries: int
    fetched: int
    fetched_ahead: int
    cached: int
    restarts: int
    held: int
    latency: float | None
    bandwidth: float | None
    cache_error: str | None

# At run time it has no base class; typed libraries require this one.
@disjoint_base
class RemoteFile(BinaryIO):
    """
    A remote file, as a file object for binary reading. Only the parts that are read are fetched.

    ``url`` is ``https://…``, ``s3://BUCKET/KEY``, ``gs://BUCKET/KEY``, ``az://CONTAINER/KEY``, ``file:///PATH`` or a
    path. Opening the file requests its length and state. If that or a later fetch fails, ``FileNotFoundError``,
    ``PermissionError`` or another ``OSError`` is raised. Held bytes are returned immediately. A read that has to
    fetch releases the interpreter lock, and Ctrl-C ends its wait. Threads may share the file but not its position:
    they use ``read_at``.

    ``cache`` is a directory that keeps fetched ranges for the next time, up to ``max_cache_bytes`` bytes. ``memory``
    limits the bytes held in memory; a ``pool`` does so for several files together. Temporary errors are retried until
    ``attempts`` attempts in a row have returned no data. An attempt fails after ``silence`` seconds without a byte.
    ``concurrency`` is the number of requests in flight at once; by default it adapts. ``on_change`` says what happens
    if the file changes while it is read: an error (``fail``), or a restart from the new state (``restart``). Two
    requests are merged into one if that fetches at most ``widest_gap`` unneeded bytes. A request is at most
    ``longest`` bytes long, and at least ``shortest`` unless the file ends. ``read_ahead`` is the number of bytes to
    read ahead for sequential reads. A file of at most ``whole`` bytes is fetched as a whole if its server does not
    support ranges.
    """

    def __new__(
        cls,
        url: str | os.PathLike[str],
        *,
        cache: str | os.PathLike[str] | None = None,
        max_cache_bytes: int | None = None,
        memory: int | None = 67_108_864,
        pool: Pool | None = None,
        attempts: int = 6,
        silence: float = 20.0,
        concurrency: int | None = None,
        on_change: str = "fail",
        widest_gap: int = 262_144,
        longest: int = 8_388_608,
        shortest: int = 16_384,
        read_ahead: int = 16_777_216,
        whole: int = 67_108_864,
    ) -> Self: ...
    @property
    def name(self) -> str:
        """The name in messages: the URL without possible secrets."""

    @property
    def size(self) -> int:
        """The length of the file, in bytes."""

    @property
    def etag(self) -> str | None:
        """The entity tag, if the server sends one."""

    @property
    def modified(self) -> float | None:
        """When the file was last changed, in seconds since 1970, if known."""

    @property
    def mode(self) -> str: ...
    @property
    def closed(self) -> bool:
        """True once the file is closed."""

    def held(self) -> list[_Span]:
        """Returns the ranges that are held in memory."""

    def statistics(self) -> _RemoteStatistics:
        """
        Returns the statistics: requests, retried requests, fetched bytes, bytes fetched ahead, bytes from the cache,
        restarts, and held bytes; also recent values of the seconds to the first byte of a reply (``latency``) and of
        the bytes per second of one request (``bandwidth``).
        """

    def read_at(self, position: int, length: int) -> bytes:
        """Returns the bytes of a range, cut off at the end of the file. Does not move the file's position."""

    def readinto_at(self, position: int, buffer: Buffer) -> int:
        """Fills a buffer with the bytes from ``position`` on, up to the file's end. Returns the number of bytes."""

    def read_ranges(self, spans: Iterable[_Span]) -> list[bytes]:
        """
        Returns the bytes of each position and length, cut off at the end of the file. The ranges are planned together
        and fetched in parallel.
        """

    def prefetch(self, spans: Iterable[_Span]) -> None:
        """Starts to fetch ranges, without waiting for them."""

    def aread(self, position: int, length: int) -> asyncio.Future[bytes]:
        """``read_at`` for ``await`` in an event loop of asyncio. Held bytes are available immediately."""

    def aread_ranges(self, spans: Iterable[_Span]) -> asyncio.Future[list[bytes]]:
        """``read_ranges`` for ``await`` in an event loop of asyncio."""

    def read(self, size: int | None = None, /) -> bytes: ...
    def read1(self, size: int | None = None, /) -> bytes: ...
    def readall(self) -> bytes: ...
    def readinto(self, buffer: Buffer, /) -> int: ...
    def readinto1(self, buffer: Buffer, /) -> int: ...
    def readline(self, size: int | None = None, /) -> bytes: ...
    def readlines(self, hint: int | None = None, /) -> list[bytes]: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...
    def tell(self) -> int: ...
    def readable(self) -> bool: ...
    def seekable(self) -> bool: ...
    def writable(self) -> bool: ...
    def isatty(self) -> bool: ...
    def flush(self) -> None: ...
    def fileno(self) -> int: ...
    def write(self, data: Buffer, /) -> int: ...
    def writelines(self, lines: Iterable[Buffer], /) -> None: ...
    def truncate(self, size: int | None = None, /) -> int: ...
    def close(self) -> None:
        """Cancels fetches in flight, and releases the memory."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> bytes: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]: ...
    def __getstate__(self) -> int: ...
    def __setstate__(self, state: int) -> None: ...

# The classes of svfsc

@disjoint_base
class cSVF:
    """A sparse virtual file: fragments of a file in memory."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    def __init__(
        self, id: str, mod_time: float = 0.0, overwrite_on_exit: bool = False, compare_for_diff: bool = True
    ) -> None: ...
    def id(self) -> str:
        """Returns the name of the file."""

    def file_mod_time(self) -> float:
        """Returns the modification time that the caller passed."""

    def file_mod_time_matches(self, file_mod_time: float) -> bool:
        """True if the modification time equals this one exactly."""

    def config(self) -> dict[str, bool]:
        """Returns the options ``compare_for_diff`` and ``overwrite_on_exit``."""

    def has_data(self, file_position: int, length: int) -> bool:
        """True if all bytes of a range are held."""

    def write(self, file_position: int, data: bytes) -> None:
        """Writes bytes at a position. ``OSError`` if different bytes are held there."""

    def read(self, file_position: int, length: int) -> bytes:
        """Returns the bytes of a range. ``OSError`` if not all of them are held."""

    def write_many(self, writes: list[tuple[int, bytes]]) -> None:
        """Does many writes in one call, each a tuple of position and data. (``svfsc`` has no such method.)"""

    def read_many(self, seek_reads: list[_Span]) -> list[bytes]:
        """Returns the bytes of each tuple of position and length: many reads in one call. (``svfsc`` has no such
        method.)
        """

    def need(self, file_position: int, length: int, greedy_length: int = 0) -> list[_Span]:
        """Returns the ranges to fetch so that a range is held: a list of positions and lengths."""

    def need_many(self, seek_reads: list[_Span], greedy_length: int = 0) -> list[_Span]:
        """Returns the ranges to fetch so that all of these ranges are held."""

    def blocks(self) -> tuple[_Span, ...]:
        """Returns the blocks, as a tuple of positions and lengths."""

    def erase(self, file_position: int) -> None:
        """Drops the block that starts at a position. ``OSError`` if none starts there."""

    def clear(self) -> None:
        """Drops everything and resets the counters."""

    def block_touch(self) -> int:
        """Returns the number that the next use of a block gets."""

    def block_touches(self) -> dict[int, int]:
        """Returns a dictionary from the number of the last use of each block to the position of the block."""

    def lru_punt(self, cache_size_upper_bound: int) -> int:
        """Drops the least recently used block while this many bytes or more are held. The last block always stays."""

    def size_of(self) -> int:
        """Returns the memory that the file uses, in bytes."""

    def num_bytes(self) -> int:
        """Returns the number of held bytes."""

    def num_blocks(self) -> int:
        """Returns the number of held blocks."""

    def last_file_position(self) -> int:
        """Returns the position after the last byte."""

    def count_read(self) -> int:
        """Returns the number of reads."""

    def count_write(self) -> int:
        """Returns the number of writes."""

    def bytes_read(self) -> int:
        """Returns the number of bytes read."""

    def bytes_write(self) -> int:
        """Returns the number of bytes passed to writes."""

    def blocks_erased(self) -> int:
        """Returns the number of blocks dropped in any way."""

    def bytes_erased(self) -> int:
        """Returns the number of bytes dropped in any way."""

    def blocks_punted(self) -> int:
        """Returns the number of blocks dropped by ``lru_punt``."""

    def bytes_punted(self) -> int:
        """Returns the number of bytes dropped by ``lru_punt``."""

    def time_read(self) -> datetime.datetime | None:
        """Returns the time of the last read, in UTC; None if there was none."""

    def time_write(self) -> datetime.datetime | None:
        """Returns the time of the last write, in UTC; None if there was none."""

    def __getstate__(self) -> dict[str, Any]: ...
    def __setstate__(self, state: object) -> None: ...
    def __reduce_ex__(self, protocol: Any) -> Any: ...

@disjoint_base
class cSVFS:
    """A system of sparse virtual files, by id."""

    def __new__(cls, overwrite_on_exit: bool = False, compare_for_diff: bool = True) -> Self: ...
    def __len__(self) -> int: ...
    def insert(self, id: str, mod_time: float) -> None:
        """Adds an empty file. ``RuntimeError`` if the id already exists."""

    def remove(self, id: str) -> None:
        """Removes a file. ``IndexError`` if there is none with this id."""

    def has(self, id: str) -> bool:
        """True if a file with this id exists."""

    def keys(self) -> list[str]:
        """Returns all ids, in no particular order."""

    def config(self) -> dict[str, bool]:
        """Returns the options of its files: ``compare_for_diff`` and ``overwrite_on_exit``."""

    def total_size_of(self) -> int:
        """Returns the memory that all files use, in bytes."""

    def total_bytes(self) -> int:
        """Returns the number of bytes that all files hold."""

    def total_blocks(self) -> int:
        """Returns the number of blocks that all files hold."""

    def lru_punt_all(self, cache_size_upper_bound: int) -> int:
        """Calls ``lru_punt`` on each file. Returns the number of bytes dropped."""

    def has_data(self, id: str, file_position: int, length: int) -> bool:
        """True if all bytes of a range are held."""

    def write(self, id: str, file_position: int, data: bytes) -> None:
        """Writes bytes at a position. ``OSError`` if different bytes are held there."""

    def read(self, id: str, file_position: int, length: int) -> bytes:
        """Returns the bytes of a range. ``OSError`` if not all of them are held."""

    def erase(self, id: str, file_position: int) -> None:
        """Drops the block that starts at a position. ``OSError`` if none starts there."""

    def need(self, id: str, file_position: int, length: int, greedy_length: int = 0) -> list[_Span]:
        """Returns the ranges to fetch so that a range is held."""

    def need_many(self, id: str, seek_reads: list[_Span], greedy_length: int = 0) -> list[_Span]:
        """Returns the ranges to fetch so that all of these ranges are held."""

    def blocks(self, id: str) -> tuple[_Span, ...]:
        """Returns the blocks of a file, as a tuple of positions and lengths."""

    def size_of(self, id: str) -> int:
        """Returns the memory that a file uses, in bytes."""

    def num_bytes(self, id: str) -> int:
        """Returns the number of held bytes of a file."""

    def num_blocks(self, id: str) -> int:
        """Returns the number of held blocks of a file."""

    def count_read(self, id: str) -> int:
        """Returns the number of reads of a file."""

    def count_write(self, id: str) -> int:
        """Returns the number of writes to a file."""

    def bytes_read(self, id: str) -> int:
        """Returns the number of bytes read from a file."""

    def bytes_write(self, id: str) -> int:
        """Returns the number of bytes passed to writes to a file."""

    def file_mod_time(self, id: str) -> float:
        """Returns the modification time that the caller passed for a file."""

    def file_mod_time_matches(self, id: str, file_mod_time: float) -> bool:
        """True if the modification time equals this one exactly."""

    def time_read(self, id: str) -> datetime.datetime | None:
        """Returns the time of the last read of a file, in UTC; None if there was none."""

    def time_write(self, id: str) -> datetime.datetime | None:
        """Returns the time of the last write to a file, in UTC; None if there was none."""

    def block_touches(self, id: str) -> dict[int, int]:
        """Returns a dictionary from the number of the last use of each block of a file to the position of the block."""

    def lru_punt(self, id: str, cache_size_upper_bound: int) -> int:
        """Drops the least recently used block while this many bytes or more of a file are held."""

# Copies

def copy(options: str, state: Path | None, report: Callable[..., object] | None, /) -> dict[str, Any]: ...
def copy_options() -> list[str]: ...

# The package itself

def flush_logs() -> None: ...
def main_only() -> None: ...

# Evaluations

_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_T = TypeVar("_T")
_A = TypeVar("_A")
_Hook = TypeVar("_Hook", bound=Callable[[BaseException], object])

def wait(seconds: float) -> Coroutine[Any, Any, None]:
    """Waits for `seconds`. With 0 or less, waits until the next turn of the event loop, so that other code can run.

    In a turn, code that starts comes before code that waited, which continues in the order of time.
    """

def forget_loop() -> None: ...
def evaluate(code: Awaitable[_T], /) -> Evaluation[_T]: ...

@final
class ConcurrentProc(Generic[_P, _T]):
    """An `async def` function that can be called in four ways; only one of them makes the caller wait."""

    def __new__(cls, function: Callable[_P, Awaitable[_T]], /) -> Self: ...
    def call(self, *args: _P.args, **kwargs: _P.kwargs) -> Coroutine[Any, Any, _T]: ...
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> Coroutine[Any, Any, _T]: ...
    def call_nonblock(self, *args: _P.args, **kwargs: _P.kwargs) -> _T | Evaluation[_T]: ...
    def call_detached(self, *args: _P.args, **kwargs: _P.kwargs) -> Evaluation[_T]: ...
    def call_and_forget(self, *args: _P.args, **kwargs: _P.kwargs) -> None: ...
    def on_error(self, hook: _Hook) -> _Hook:
        """Calls `hook` with each exception of the code, however the code is called. Hooks of all procs come first.

        Returns the hook, to be passed to `remove_error_hook`.
        """

    def remove_error_hook(self, hook: Callable[[BaseException], object]) -> None:
        """Removes a hook. `ValueError` if it was not added."""

    @property
    def __wrapped__(self) -> Callable[_P, Awaitable[_T]]: ...
    @overload
    def __get__(self, instance: None, owner: type | None = None, /) -> Self: ...
    @overload
    def __get__(
        self: ConcurrentProc[Concatenate[_A, _Q], _T], instance: _A, owner: type | None = None, /
    ) -> ConcurrentProc[_Q, _T]: ...
    @classmethod
    def __class_getitem__(cls, item: Any) -> Any: ...

@final
class Waiter:
    """A single await of an evaluation. Not a part of the public interface."""

    _asyncio_future_blocking: bool
    def __new__(cls, evaluation: Any) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Self: ...
    def get_loop(self) -> Any: ...
    def add_done_callback(self, callback: Any, *, context: Any = None) -> None: ...
    def cancel(self, msg: Any = None) -> bool: ...

@final
class Wait:
    """A wait for a turn, a time or a descriptor. Not a part of the public interface."""

    _asyncio_future_blocking: bool | None
    def __new__(
        cls, seconds: float | None = None, descriptor: int | None = None, mask: int = 0, *timeout_result: Any
    ) -> Self: ...
    def __await__(self) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Self | None: ...
    def send(self, _value: Any) -> Self | None: ...
    def throw(self, kind: Any, value: Any = None, _traceback: Any = None) -> None: ...
    def close(self) -> None: ...
    def get_loop(self) -> Any: ...
    def add_done_callback(self, callback: Any, *, context: Any = None) -> None: ...
    def remove_done_callback(self, callback: Any) -> int: ...
    def cancel(self, msg: Any = None) -> bool: ...
    def cancelled(self) -> bool: ...
    def done(self) -> bool: ...
    def result(self) -> None: ...

@disjoint_base
class EventLoopCore:
    """The base of `thalweg.evaluations.EventLoop`. Not a part of the public interface."""

    _stopping: bool
    _closed: bool
    _debug: bool
    def __new__(cls, *_arguments: Any, **_named: Any) -> Self: ...
    def time(self) -> float: ...
    def stop(self) -> None: ...
    def is_closed(self) -> bool: ...
    def get_debug(self) -> bool: ...
    def create_future(self) -> Any: ...
    def _run_turns(self) -> None: ...
    def _registered(self, fd: int) -> tuple[Any, Any]: ...
    def _descriptors(self) -> list[int]: ...
    def _drop_all(self) -> None: ...

# Pipelines

def as_yaml(json: str) -> str: ...
def check(
    config: str | PathLike[str], given: Sequence[Given], *, plan: bool = False, threads: int | None = None
) -> str: ...
def check_nesting(messages: list[Any]) -> None: ...
def end_with_parent(parent: int) -> None: ...
def kinds() -> list[tuple[str, str]]: ...
def start(
    config: str | PathLike[str],
    given: Sequence[Given],
    *,
    pipelines: Sequence[str] = ...,
    state: str | PathLike[str] | None = None,
    memory: str | None = None,
    threads: int | None = None,
    show: bool = False,
    letters: str | PathLike[str] | None = None,
) -> Run: ...

@final
class Batch:
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]: ...
    def __arrow_c_schema__(self) -> Any: ...

@final
class Run:
    @property
    def is_running(self) -> bool: ...
    def abort(self) -> None: ...
    def at_end(self, call: Callable[[], object]) -> None: ...
    def cause(self) -> BaseException | None: ...
    def statistics(self) -> str: ...
    def stop(self) -> None: ...
    def wait(self, timeout: float | None = None) -> str | None: ...

@final
class Stream:
    def __new__(cls, *, views: bool = False, payload: bool = False) -> Stream: ...
    def all(self, run: Run) -> Any: ...
    def next(self) -> Batch | None: ...
    def raised(self) -> BaseException | None: ...
