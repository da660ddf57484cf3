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
    "MissingError",
    "Pin",
    "Pool",
    "RemoteFile",
    "Run",
    "SparseFile",
    "SparseFileSystem",
    "Stream",
    "Waiter",
    "__version__",
    "as_yaml",
    "cSVF",
    "cSVFS",
    "check",
    "check_command",
    "components",
    "convert_command",
    "copy",
    "copy_command",
    "copy_options",
    "errors_command",
    "evaluate",
    "kinds",
    "run_command",
    "start",
]

__version__: str

def run_command(arguments: Mapping[str, object]) -> int: ...
def check_command(config: Path, plan: bool, json: bool, threads: int | None) -> int: ...
def convert_command(config: Path, processor: str | None, output: Path | None) -> int: ...
def copy_command(options: str, state: Path | None, print_config: bool, json: bool, quiet: bool) -> int: ...
def errors_command(arguments: Mapping[str, object]) -> int: ...
def components() -> str:
    """All components with their documentation and schemas, in JSON."""

class Error(Exception):
    """What was asked for was tried and failed; the text says what, and what may help."""

# Sparse files

_Span = tuple[int, int]
_Overlap = Literal["agree", "replace", "keep", "keep_first"]
_Clock = Literal["off", "coarse", "exact"]

class MissingError(Error):
    """Bytes were to be read that are not all held."""

class DiffersError(Error):
    """Bytes were to be written that are not those that are held, where they had to be."""

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
    A limit, in bytes, on the memory that files take together: ranges that were not used for long make room for new
    ones.

    A write needs some room to work in: with much less than 256 KiB the limit is exceeded at times.
    """

    def __new__(cls, limit: int) -> Self: ...
    def statistics(self) -> _PoolStatistics:
        """
        The limit, the bytes in use and the most that ever were, the ranges that are held, what was let go to make room,
        and how often the limit was exceeded.
        """

@final
class Pin:
    """Keeps a range of a file from being evicted, until it is released, left as a context, or gone."""

    def release(self) -> None:
        """From now on it may be evicted again."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@final
class SparseFile:
    """
    Those bytes of a file that were written to it, in memory.

    Bytes that touch form one *block*, however many writes they came by. Threads may share it. A write is seen whole or
    not at all; one that fails has changed nothing. Positions and lengths are in bytes, and not negative.

    ``id`` names the origin, and ``modified`` says when that was last changed. ``overlap`` says what a write does where
    bytes are held already: they must be the same (``agree``), the new ones ``replace`` them, or they stay (``keep``).
    With ``wipe`` memory is made zero before it is given back. ``clock`` says how exactly the times of the last read
    and write are noted. ``pool`` is a limit on memory that files share. ``touches`` notes the order in which blocks
    are used.
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
        """When the origin was last changed, as a number that means something to the caller."""

    def write(self, position: int, data: Buffer, overlap: _Overlap | None = None) -> None:
        """
        Writes bytes at a position; ``overlap`` says what happens where bytes are held already. ``DiffersError`` if they
        must be the same and are not.
        """

    def write_many(self, writes: Iterable[tuple[int, Buffer]], overlap: _Overlap | None = None) -> None:
        """
        Many writes in one call, each a position and data, one after the other. Those before one that fails are
        done.
        """

    def read(self, position: int, length: int) -> bytes:
        """The ``length`` bytes from ``position`` on. ``MissingError`` if not all of them are held."""

    def readinto(self, position: int, buffer: Buffer) -> int:
        """
        Fills a buffer with the bytes from ``position`` on, and says how many that were: all. ``MissingError`` if not
        all of them are held; what is in the buffer then is not defined.
        """

    def read_many(self, spans: Iterable[_Span]) -> list[bytes]:
        """Many reads in one call: the bytes of each position and length."""

    def has(self, position: int, length: int) -> bool:
        """
        Whether all the ``length`` bytes from ``position`` on are held. No bytes are held where they would touch a
        block.
        """

    def need(self, position: int, length: int, greedy: int = 0) -> list[_Span]:
        """
        What is to be fetched so that the ``length`` bytes from ``position`` on are held: the parts that are missing,
        in order. If ``greedy`` is more than ``length``, each is made at least so long; what touches or overlaps then
        is one.
        """

    def need_many(self, spans: Iterable[_Span], greedy: int = 0) -> list[_Span]:
        """What is to be fetched so that all of the ranges are held, each part at least ``greedy`` long."""

    def plan(self, spans: Iterable[_Span], *, gap: int = 0, longest: int = ...) -> list[_Span]:
        """
        The requests to make so that all of the ranges are held: what is missing, merged over gaps of at most ``gap``
        bytes, none longer than ``longest``.
        """

    def blocks(self) -> list[_Span]:
        """The position and length of each block that is held, in order."""

    def count_blocks(self) -> int:
        """How many blocks are held."""

    def block_at(self, position: int) -> _Span | None:
        """The block that the byte at ``position`` is in, if it is held."""

    def bytes(self) -> int:
        """How many bytes are held."""

    def end(self) -> int:
        """The position after the last byte that is held; 0 if none is."""

    def heap_bytes(self) -> int:
        """The memory that it takes, in bytes."""

    def erase(self, position: int, length: int) -> int:
        """Lets go of what is held of a range, and says how many bytes that was."""

    def erase_block(self, position: int) -> int:
        """
        Lets go of the block that starts at ``position``, and says how long it was. ``ValueError`` if none starts
        there.
        """

    def clear(self) -> None:
        """Lets go of everything, and counts from zero."""

    def compact(self) -> None:
        """Gives back the memory that is kept for blocks to grow."""

    def pin(self, position: int, length: int) -> Pin:
        """
        Keeps what is held of a range, and what comes to be held there, from being evicted by a pool, as long as the
        pin is there. (So are the other bytes of the 64 KiB that they are in.)
        """

    def counters(self) -> _Counters:
        """What was done so far; times in seconds since 1970."""

    def next_touch(self) -> int:
        """The number that the next use of a block will have, with ``touches=True``."""

    def touches(self) -> list[tuple[int, int]]:
        """
        For each block the number of its last use and where it starts, the least recent first, with
        ``touches=True``.
        """

    def evict_blocks(self, bound: int) -> int:
        """
        While ``bound`` bytes or more are held, lets go of the block that was used least recently, but never of the
        last one; says how many bytes went. Only with ``touches=True``.
        """

    def __getnewargs_ex__(self) -> tuple[tuple[str, float], dict[str, Any]]: ...
    def __getstate__(self) -> tuple[tuple[int, Any], ...]: ...
    def __setstate__(self, state: tuple[tuple[int, Any], ...]) -> None: ...

@final
class SparseFileSystem:
    """
    Many sparse files, by their ids, all kept as the options say: see ``SparseFile``. With a pool, all of them are
    under its limit together.
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
        """Adds an empty file. ``ValueError`` if there is one of this id."""

    def get(self, id: str) -> SparseFile:
        """The file of this id. ``KeyError`` if there is none."""

    def remove(self, id: str) -> SparseFile:
        """Takes a file out, which lives on while others hold it. ``KeyError`` if there is none."""

    def has(self, id: str) -> bool:
        """Whether there is a file of this id."""

    def ids(self) -> list[str]:
        """The ids of all files, in no order."""

    def bytes(self) -> int:
        """How many bytes all files hold."""

    def count_blocks(self) -> int:
        """How many blocks all files hold."""

    def heap_bytes(self) -> int:
        """The memory that all files take, in bytes."""

    def evict_blocks(self, bound: int) -> int:
        """``SparseFile.evict_blocks`` for each file by itself; says how many bytes went."""

    def __getitem__(self, key: str, /) -> SparseFile: ...
    def __contains__(self, key: str, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...
    def __getstate__(self) -> dict[str, SparseFile]: ...
    def __setstate__(self, state: dict[str, SparseFile]) -> None: ...

# Files elsewhere

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
    cache_trouble: str | None

# In truth it has no base: typed libraries ask for this one.
@disjoint_base
class RemoteFile(BinaryIO):
    """
    A file elsewhere, of which that is fetched what is read: a file object for binary reading.

    ``url`` is ``https://…``, ``s3://BUCKET/KEY``, ``gs://BUCKET/KEY``, ``az://CONTAINER/KEY``, ``file:///PATH`` or a
    path. It is asked for its length and state at once: ``FileNotFoundError``, ``PermissionError`` or another
    ``OSError`` if that fails, as for all that is fetched. What is held is read at once; what is not is waited for
    without the interpreter lock, and Ctrl-C ends the wait. Threads may share it, but not where it is read next: for
    them there is ``read_at``.

    ``cache`` is a folder in which ranges are kept for the next time, of at most ``cache_limit`` bytes. ``memory``
    limits, in bytes, what is held in memory; a ``pool`` does so for several files together. What is temporary is tried
    again until ``attempts`` attempts brought nothing; ``silence`` is how many seconds without a byte make an attempt
    fail. ``concurrency`` is how many requests may be under way at once, which is otherwise found out. ``on_change``
    says what a file that changes while it is read is: an error (``fail``), or a reason to begin anew (``restart``). No
    more than ``widest_gap`` bytes that nobody asked for are fetched to make one request out of two; none is longer
    than ``longest`` or, unless the file ends, shorter than ``shortest`` bytes. ``read_ahead`` is how far is read ahead
    for those who read in order. A file of at most ``whole`` bytes is fetched as a whole where its server does not give
    parts.
    """

    def __new__(
        cls,
        url: str | os.PathLike[str],
        *,
        cache: str | os.PathLike[str] | None = None,
        cache_limit: int | None = None,
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
        """What messages call it: the URL without what may be secret in it."""

    @property
    def size(self) -> int:
        """How many bytes it has."""

    @property
    def etag(self) -> str | None:
        """The entity tag, if the server gives one."""

    @property
    def modified(self) -> float | None:
        """When it was last changed, in seconds since 1970, if that is known."""

    @property
    def mode(self) -> str: ...
    @property
    def closed(self) -> bool:
        """Whether it is closed."""

    def held(self) -> list[_Span]:
        """The ranges that are held in memory."""

    def statistics(self) -> _RemoteStatistics:
        """
        What was done so far: requests, those of them that were made again, bytes that were fetched, those of them that
        were fetched in advance, bytes that the cache had, how often the file began anew, the bytes that are held; and,
        as they were lately, the seconds to the first byte of a reply and the bytes a second of one request.
        """

    def read_at(self, position: int, length: int) -> bytes:
        """The bytes of a range, as far as the file goes. Where the file is read next stays as it is."""

    def readinto_at(self, position: int, buffer: Buffer) -> int:
        """Fills a buffer with the bytes from ``position`` on, as far as the file goes, and says how far."""

    def read_ranges(self, spans: Iterable[_Span]) -> list[bytes]:
        """
        The bytes of each position and length, as far as the file goes. They are planned together, and fetched in
        parallel.
        """

    def prefetch(self, spans: Iterable[_Span]) -> None:
        """Begins to fetch ranges, and does not wait for them."""

    def aread(self, position: int, length: int) -> asyncio.Future[bytes]:
        """The same as ``read_at``, to be awaited in an event loop of asyncio. What is held is there at once."""

    def aread_ranges(self, spans: Iterable[_Span]) -> asyncio.Future[list[bytes]]:
        """The same as ``read_ranges``, to be awaited in an event loop of asyncio."""

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
        """Gives up what is still being fetched, and the memory."""

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
        """The name of the file."""

    def file_mod_time(self) -> float:
        """When the file was last changed, as it was said."""

    def file_mod_time_matches(self, file_mod_time: float) -> bool:
        """Whether that is exactly the time given."""

    def config(self) -> dict[str, bool]:
        """How it is kept: ``compare_for_diff`` and ``overwrite_on_exit``."""

    def has_data(self, file_position: int, length: int) -> bool:
        """Whether all bytes of a range are held."""

    def write(self, file_position: int, data: bytes) -> None:
        """Writes bytes at a position. ``OSError`` if others are held there."""

    def read(self, file_position: int, length: int) -> bytes:
        """The bytes of a range. ``OSError`` if not all of them are held."""

    def write_many(self, writes: list[tuple[int, bytes]]) -> None:
        """Many writes in one call, each a tuple of position and data. (``svfsc`` has none such.)"""

    def read_many(self, seek_reads: list[_Span]) -> list[bytes]:
        """Many reads in one call: the bytes of each tuple of position and length. (``svfsc`` has none such.)"""

    def need(self, file_position: int, length: int, greedy_length: int = 0) -> list[_Span]:
        """What is to be fetched so that a range is held: a list of positions and lengths."""

    def need_many(self, seek_reads: list[_Span], greedy_length: int = 0) -> list[_Span]:
        """What is to be fetched so that all of the ranges are held."""

    def blocks(self) -> tuple[_Span, ...]:
        """The blocks, as a tuple of positions and lengths."""

    def erase(self, file_position: int) -> None:
        """Lets go of the block that starts at a position. ``OSError`` if none does."""

    def clear(self) -> None:
        """Lets go of everything, and counts from zero."""

    def block_touch(self) -> int:
        """The number that the next use of a block will have."""

    def block_touches(self) -> dict[int, int]:
        """The number of the last use of each block, with the position of the block."""

    def lru_punt(self, cache_size_upper_bound: int) -> int:
        """
        While so many bytes or more are held, lets go of the block that was used least recently, but never of the
        last.
        """

    def size_of(self) -> int:
        """The memory that it takes, in bytes."""

    def num_bytes(self) -> int:
        """How many bytes are held."""

    def num_blocks(self) -> int:
        """How many blocks are held."""

    def last_file_position(self) -> int:
        """The position after the last byte."""

    def count_read(self) -> int:
        """How many reads there were."""

    def count_write(self) -> int:
        """How many writes there were."""

    def bytes_read(self) -> int:
        """How many bytes were read."""

    def bytes_write(self) -> int:
        """How many bytes were given to writes."""

    def blocks_erased(self) -> int:
        """How many blocks were let go, by whatever way."""

    def bytes_erased(self) -> int:
        """How many bytes were let go, by whatever way."""

    def blocks_punted(self) -> int:
        """How many blocks were let go by ``lru_punt``."""

    def bytes_punted(self) -> int:
        """How many bytes were let go by ``lru_punt``."""

    def time_read(self) -> datetime.datetime | None:
        """When it was last read, in UTC; None if it was not."""

    def time_write(self) -> datetime.datetime | None:
        """When it was last written, in UTC; None if it was not."""

    def __getstate__(self) -> dict[str, Any]: ...
    def __setstate__(self, state: object) -> None: ...
    def __reduce_ex__(self, protocol: Any) -> Any: ...

@disjoint_base
class cSVFS:
    """A system of sparse virtual files, by their ids."""

    def __new__(cls, overwrite_on_exit: bool = False, compare_for_diff: bool = True) -> Self: ...
    def __len__(self) -> int: ...
    def insert(self, id: str, mod_time: float) -> None:
        """Adds an empty file. ``RuntimeError`` if there is one of this id."""

    def remove(self, id: str) -> None:
        """Removes a file. ``IndexError`` if there is none of this id."""

    def has(self, id: str) -> bool:
        """Whether there is a file of this id."""

    def keys(self) -> list[str]:
        """All ids, in no order."""

    def config(self) -> dict[str, bool]:
        """How its files are kept: ``compare_for_diff`` and ``overwrite_on_exit``."""

    def total_size_of(self) -> int:
        """The memory that all files take, in bytes."""

    def total_bytes(self) -> int:
        """How many bytes all files hold."""

    def total_blocks(self) -> int:
        """How many blocks all files hold."""

    def lru_punt_all(self, cache_size_upper_bound: int) -> int:
        """``lru_punt`` for each file by itself; says how many bytes went."""

    def has_data(self, id: str, file_position: int, length: int) -> bool:
        """Whether all bytes of a range are held."""

    def write(self, id: str, file_position: int, data: bytes) -> None:
        """Writes bytes at a position. ``OSError`` if others are held there."""

    def read(self, id: str, file_position: int, length: int) -> bytes:
        """The bytes of a range. ``OSError`` if not all of them are held."""

    def erase(self, id: str, file_position: int) -> None:
        """Lets go of the block that starts at a position. ``OSError`` if none does."""

    def need(self, id: str, file_position: int, length: int, greedy_length: int = 0) -> list[_Span]:
        """What is to be fetched so that a range is held."""

    def need_many(self, id: str, seek_reads: list[_Span], greedy_length: int = 0) -> list[_Span]:
        """What is to be fetched so that all of the ranges are held."""

    def blocks(self, id: str) -> tuple[_Span, ...]:
        """The blocks of a file, as a tuple of positions and lengths."""

    def size_of(self, id: str) -> int:
        """The memory that a file takes, in bytes."""

    def num_bytes(self, id: str) -> int:
        """How many bytes of a file are held."""

    def num_blocks(self, id: str) -> int:
        """How many blocks of a file are held."""

    def count_read(self, id: str) -> int:
        """How many reads of a file there were."""

    def count_write(self, id: str) -> int:
        """How many writes to a file there were."""

    def bytes_read(self, id: str) -> int:
        """How many bytes of a file were read."""

    def bytes_write(self, id: str) -> int:
        """How many bytes were given to writes to a file."""

    def file_mod_time(self, id: str) -> float:
        """When a file was last changed, as it was said."""

    def file_mod_time_matches(self, id: str, file_mod_time: float) -> bool:
        """Whether that is exactly the time given."""

    def time_read(self, id: str) -> datetime.datetime | None:
        """When a file was last read, in UTC; None if it was not."""

    def time_write(self, id: str) -> datetime.datetime | None:
        """When a file was last written, in UTC; None if it was not."""

    def block_touches(self, id: str) -> dict[int, int]:
        """The number of the last use of each block of a file, with the position of the block."""

    def lru_punt(self, id: str, cache_size_upper_bound: int) -> int:
        """While so many bytes or more of a file are held, lets go of the block that was used least recently."""

# Copies.

def copy(options: str, state: Path | None, progress: Callable[..., object] | None, /) -> dict[str, Any]: ...
def copy_options() -> list[str]: ...

# Evaluations.

_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_T = TypeVar("_T")
_A = TypeVar("_A")

def evaluate(code: Awaitable[_T], /) -> Evaluation[_T]: ...

@final
class ConcurrentProc(Generic[_P, _T]):
    """An `async def` function that can be called in four ways, of which one makes the caller wait."""

    def __new__(cls, function: Callable[_P, Awaitable[_T]], /) -> Self: ...
    def call(self, *args: _P.args, **kwargs: _P.kwargs) -> Coroutine[Any, Any, _T]: ...
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> Coroutine[Any, Any, _T]: ...
    def call_nonblock(self, *args: _P.args, **kwargs: _P.kwargs) -> _T | Evaluation[_T]: ...
    def call_detached(self, *args: _P.args, **kwargs: _P.kwargs) -> Evaluation[_T]: ...
    def call_and_forget(self, *args: _P.args, **kwargs: _P.kwargs) -> None: ...
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
    """What awaits an evaluation; no part of the interface."""

    _asyncio_future_blocking: bool
    def __new__(cls, evaluation: Any) -> Self: ...
    def get_loop(self) -> Any: ...
    def add_done_callback(self, callback: Any, *, context: Any = None) -> None: ...
    def cancel(self, msg: Any = None) -> bool: ...

# Pipelines.

def as_yaml(json: str) -> str: ...
def check(
    config: str | PathLike[str], given: Sequence[Given], *, plan: bool = False, threads: int | None = None
) -> str: ...
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
