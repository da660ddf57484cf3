"""Copies of objects between stores, web servers and folders."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from thalweg import _thalweg
from thalweg._errors import Error

Place = str | os.PathLike[str]
Patterns = str | Sequence[str]
Size = int | str


class Planned(NamedTuple):
    """An object that would be copied."""

    from_: str
    to: str
    bytes: int


@dataclass(frozen=True)
class CopyProgress:
    """How far a copy is."""

    read_bytes: int
    """Bytes that were read."""
    expected_bytes: int | None
    """How many there are to read, if that is known already."""
    copied: int
    """Files, or rows, that were written."""
    errors: int
    """Files, or rows, that could not be copied."""
    seconds: float
    """The time since it began."""


@dataclass(frozen=True)
class CopySummary:
    """What a copy came to."""

    objects: int
    """Objects that were read."""
    files: int | None
    """Files that were written, where bytes were copied."""
    rows: int | None
    """Rows that were written, where rows were read out of the objects."""
    skipped: int
    """Files that were left alone, being there already."""
    errors: int
    """Files, or rows, that could not be copied."""
    read_bytes: int
    """Bytes that were read, also those that had to be read again."""
    written_bytes: int
    """Bytes that were written."""
    verified_bytes: int
    """Bytes whose checksum the store confirmed."""
    kept_bytes: int
    """Bytes that were there from a former copy that was cut off."""
    requests: int
    """Requests to stores."""
    retries: int
    """Requests that were tried again."""
    crc32c: int | None
    """The CRC-32C of what was written, if that is one object."""
    seconds: float
    """How long it took."""
    went_on: bool
    """Whether it went on with a copy that was cut off."""
    planned: tuple[Planned, ...] = ()
    """What would be copied, of a dry run."""


class NotCopied(Error):
    """Something could not be copied, or the copy failed on its way; `summary` says how far it came."""

    def __init__(self, text: str, summary: CopySummary) -> None:
        super().__init__(text)
        self.summary = summary


def copy(
    from_: Place,
    to: Place,
    *,
    include: Patterns = (),
    exclude: Patterns = (),
    existing: Literal["replace", "update", "skip", "error"] | None = None,
    content_type: str | None = None,
    dry_run: bool = False,
    memory: Size | None = None,
    threads: int | None = None,
    strict: bool = False,
    parse: Literal["csv", "lines", "jsonl"] | None = None,
    encode: Literal["json", "jsonl", "csv", "logfmt", "text", "parquet", "raw"] | None = None,
    where: str | None = None,
    set: Mapping[str, str] | None = None,  # noqa: A002 (as the option is called)
    keep: Patterns = (),
    type: Mapping[str, str] | None = None,  # noqa: A002 (as the option is called)
    delimiter: str | None = None,
    columns: Patterns = (),
    template: str | None = None,
    unordered: bool = False,
    state: Place | None = None,
    restart: bool = False,
    no_resume: bool = False,
    mode: str | None = None,
    readers: int | None = None,
    writers: int | None = None,
    queue: int | None = None,
    slice: Size | None = None,  # noqa: A002 (as the option is called)
    part_size: Size | None = None,
    progress: Callable[[CopyProgress], object] | None = None,
) -> CopySummary:
    """Copies objects: one or all below a prefix, between S3, GCS, Azure, web servers (only read) and folders.

    Bytes are copied as they are, in parts, many at the same time, and compared by checksums where the store knows
    them. Nobody sees an object before it is complete. With `parse`, rows are read out of the objects, changed on the
    way and written as one object. A copy that was cut off goes on where it was when it is begun again: see `restart`.

    Nothing is printed. Ctrl-C stops the copy when what is on its way has arrived, and raises `KeyboardInterrupt`; a
    second one stops it at once. The interpreter lock is released meanwhile.

    Args:
        from_: What to copy: `s3://BUCKET/KEY`, `gs://BUCKET/KEY`, `az://CONTAINER/KEY`, `https://…`, or a path. With
            a slash at its end, all that is below it; with `*` or `**`, what matches.
        to: Where to: the name of the object, or, with a slash at its end, what names go below.
        include: Copy only objects that match one of these patterns: of the last part of the name, or, with a `/` in
            it, of all that is below `from_`.
        exclude: Do not copy objects that match one of these.
        existing: What to do where there is such an object already: `replace` it (the default), `update` one that has
            another size or is older, `skip` it, or count it as an `error`.
        content_type: The content type of what is written.
        dry_run: Only say what would be copied, in `planned` of what is returned.
        memory: The memory for data in flight, in bytes or for example `"1GiB"`. Without it, `256MiB`.
        threads: How many cores to use. Without it, all.
        strict: Raise `NotCopied` also if there were rows that could not be read or written.
        parse: Read rows in this form out of the objects, which may be compressed.
        encode: Write rows in this form. Without it, CSV stays CSV, JSON stays JSON, and lines are written as they are.
        where: Copy only rows for which this SQL condition is true, for example `"age >= 18"`.
        set: Fields and the SQL expressions whose values they are set to, in their order, after `where`.
        keep: Keep only these fields, in this order; `*` stands for any characters. After `set`.
        type: The types of columns: `int`, `float`, `bool`, `timestamp`, `json` or `text`. Without it, columns of CSV
            are text.
        delimiter: What stands between the values of CSV. Without it, a comma.
        columns: The names of the columns of CSV that has no header.
        template: What a row looks like with `encode="text"`, for example `"{name}: {age}"`.
        unordered: Rows need not come in the order in which they were.
        state: Keep what a later copy goes on from in this folder, also when this one has ended.
        restart: Begin anew, whatever a former copy left.
        no_resume: Keep nothing: a copy that is cut off begins anew.
        mode: How much is done at once: `auto`, `sequential`, `parallel=N` or `channel`.
        readers: How many ranges to read at the same time.
        writers: How many parts to write at the same time.
        queue: How many slices may be read and not yet worked on.
        slice: How many bytes to ask for at once where rows are read.
        part_size: How many bytes a part that is written has.
        progress: Called some times a second, and at the end, with a `CopyProgress`. What it raises stops the copy as
            Ctrl-C does.

    Raises:
        ConfigurationError: What was asked for makes no sense.
        NotCopied: The copy failed on its way; or files, or with `strict` rows, could not be copied.
        Error: It could not begin, for example since there is nothing to copy.
    """
    options = written(
        {
            "from": os.fspath(from_),
            "to": os.fspath(to),
            "include": _list(include),
            "exclude": _list(exclude),
            "existing": existing,
            "content_type": content_type,
            "dry_run": dry_run,
            "memory": _text(memory),
            "threads": threads,
            "strict": strict,
            "parse": parse,
            "encode": encode,
            "where": where,
            "set": _pairs(set),
            "keep": _names(keep),
            "type": _pairs(type),
            "delimiter": delimiter,
            "columns": _names(columns),
            "template": template,
            "unordered": unordered,
            "restart": restart,
            "no_resume": no_resume,
            "mode": mode,
            "readers": readers,
            "writers": writers,
            "queue": queue,
            "slice": _text(slice),
            "part_size": _text(part_size),
        }
    )

    def tell(*how_far: float) -> None:
        if progress is not None:
            progress(CopyProgress(*how_far))  # type: ignore[arg-type]

    came_to = _thalweg.copy(options, None if state is None else Path(state), None if progress is None else tell)
    failure = came_to.pop("failure")
    came_to["planned"] = tuple(Planned(*planned) for planned in came_to["planned"])
    summary = CopySummary(**came_to)
    copied = summary.rows if summary.files is None else summary.files
    tell(summary.read_bytes, summary.read_bytes, copied or 0, summary.errors, summary.seconds)
    if failure is not None:
        raise NotCopied(failure, summary)
    return summary


def written(options: Mapping[str, object]) -> str:
    """Options of a copy as the compiled part reads them."""
    return json.dumps({name: value for name, value in options.items() if value is not None})


def _text(value: Size | None) -> str | None:
    return None if value is None else str(value)


def _list(values: Patterns) -> list[str]:
    return [values] if isinstance(values, str) else list(values)


def _names(values: Patterns) -> list[str]:
    """Names, which may be separated by commas."""
    return [name for value in _list(values) for name in value.split(",")]


def _pairs(values: Mapping[str, str] | None) -> list[tuple[str, str]]:
    return list((values or {}).items())
