"""Copies of objects between object stores, web servers and directories."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from thalweg import _thalweg
from thalweg._errors import Error

Location = str | os.PathLike[str]
Patterns = str | Sequence[str]
Size = int | str


class Planned(NamedTuple):
    """An object that would be copied."""

    from_: str
    to: str
    bytes: int


@dataclass(frozen=True)
class CopyProgress:
    """The progress of a copy."""

    read_bytes: int
    """Bytes read."""
    expected_bytes: int | None
    """Bytes to read in all, once known."""
    copied: int
    """Files or rows written."""
    errors: int
    """Files or rows that could not be copied."""
    seconds: float
    """The time since the start, in seconds."""


@dataclass(frozen=True)
class CopySummary:
    """The result of a copy."""

    objects: int
    """Objects read."""
    files: int | None
    """Files written, if bytes were copied."""
    rows: int | None
    """Rows written, if rows were read from the objects."""
    skipped: int
    """Files skipped because they already exist."""
    errors: int
    """Files or rows that could not be copied."""
    read_bytes: int
    """Bytes read, including those read again."""
    written_bytes: int
    """Bytes written."""
    verified_bytes: int
    """Bytes whose checksum the store confirmed."""
    kept_bytes: int
    """Bytes kept from an earlier, interrupted copy."""
    requests: int
    """Requests to stores."""
    retries: int
    """Requests that were retried."""
    crc32c: int | None
    """The CRC-32C of the written object, if it is a single one."""
    seconds: float
    """The duration, in seconds."""
    resumed: bool
    """True if it resumed an interrupted copy."""
    planned: tuple[Planned, ...] = ()
    """The objects that a dry run would copy."""


class NotCopied(Error):
    """Some files or rows were not copied, or the copy failed midway. `summary` has the counters up to then."""

    def __init__(self, text: str, summary: CopySummary) -> None:
        super().__init__(text)
        self.summary = summary

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are otherwise pickled with the one argument that the base class has.
        return type(self), (str(self), self.summary), {**self.__dict__}


def copy(
    from_: Location,
    to: Location,
    *,
    include: Patterns = (),
    exclude: Patterns = (),
    symlinks: Literal["inside", "files"] | None = None,
    existing: Literal["replace", "update", "skip", "error"] | None = None,
    content_type: str | None = None,
    dry_run: bool = False,
    memory: Size | None = None,
    threads: int | None = None,
    strict: bool = False,
    parse: Literal["avro", "csv", "json", "jsonl", "lines"] | None = None,
    encode: Literal["json", "jsonl", "csv", "logfmt", "text", "parquet", "raw"] | None = None,
    where: str | None = None,
    set: Mapping[str, str] | None = None,  # noqa: A002 (as the option is called)
    keep: Patterns = (),
    type: Mapping[str, str] | None = None,  # noqa: A002 (as the option is called)
    delimiter: str | None = None,
    charset: str | None = None,
    columns: Patterns = (),
    template: str | None = None,
    unordered: bool = False,
    state: Location | None = None,
    restart: bool = False,
    no_resume: bool = False,
    mode: str | None = None,
    readers: int | None = None,
    writers: int | None = None,
    queue: int | None = None,
    slice_size: Size | None = None,
    part_size: Size | None = None,
    progress: Callable[[CopyProgress], object] | None = None,
) -> CopySummary:
    """Copies objects: one or all below a prefix, between S3, GCS, Azure, web servers (only as the origin) and
    directories.

    Bytes are copied unchanged, in parts and in parallel. Checksums are compared if the store supports them. An
    object becomes visible only when it is complete. With `parse`, rows are read from the objects, transformed, and
    written as one object. An interrupted copy resumes when the same call is made again: see `restart`.

    Nothing is printed. Ctrl-C stops the copy after the transfers in flight have finished, and raises
    `KeyboardInterrupt`; a second Ctrl-C stops it immediately. The interpreter lock is released meanwhile.

    Args:
        from_: The origin: `s3://BUCKET/KEY`, `gs://BUCKET/KEY`, `az://CONTAINER/KEY`, `https://…`, or a path. A
            trailing slash means all objects below it, and so does a `Path` of a folder; `*` or `**` makes it a
            pattern.
        to: The target: the name of the object or, with a trailing slash or as the `Path` of a folder, the prefix for
            the names.
        include: Copy only objects that match one of these patterns. A pattern applies to the last part of the name
            or, if it contains a `/`, to everything below `from_`.
        exclude: Do not copy objects that match one of these patterns.
        symlinks: The action for symbolic links in a folder: copy files through links that stay `inside` it (the
            default), or `files` through all links.
        existing: What to do if the target object exists: `replace` it (the default), `update` it if its size
            differs or it is older, `skip` it, or count it as an `error`.
        content_type: The content type of the written objects.
        dry_run: Copy nothing; list the objects to copy in `planned` of the result.
        memory: The memory for data in flight, in bytes or for example `"1GiB"`. By default `256MiB`.
        threads: The number of cores to use. By default all.
        strict: Raise `NotCopied` also if rows could not be read or written.
        parse: Read rows in this form from the objects, which may be compressed.
        encode: Write rows in this form. By default CSV stays CSV, JSON stays JSON, Avro becomes JSON, and
            lines are written unchanged.
        where: Copy only rows for which this SQL condition is true, for example `"age >= 18"`.
        set: Fields to set, each to the value of an SQL expression, in this order, after `where`.
        keep: Keep only these fields, in this order, after `set`; `*` matches any characters.
        type: The types of columns: `int`, `float`, `bool`, `timestamp`, `json` or `text`. By default columns of
            CSV are text.
        delimiter: The character between the values of CSV. By default a comma.
        charset: The character set of the rows, such as `latin1`, `utf-16` or `shift_jis`. Rows are written in UTF-8.
        columns: The names of the columns, for CSV without a header.
        template: The text of a row with `encode="text"`, for example `"{name}: {age}"`.
        unordered: Allow rows to be written in any order.
        state: Keep the state from which a later copy resumes in this directory, also after this copy has
            completed.
        restart: Start from the beginning and ignore the state of an earlier copy.
        no_resume: Keep no state: an interrupted copy cannot resume.
        mode: How much to do in parallel: `auto`, `sequential`, `parallel=N` or `channel`.
        readers: The number of ranges to read at the same time.
        writers: The number of parts to write at the same time.
        queue: The number of slices that may be read but not yet processed.
        slice_size: The size of a read request, in bytes, when rows are read.
        part_size: The size of a written part, in bytes.
        progress: Called with a `CopyProgress` a few times a second and at the end. An exception from it stops the
            copy like Ctrl-C.

    Raises:
        ConfigurationError: The arguments are invalid.
        NotCopied: The copy failed midway; or files, or with `strict` rows, could not be copied.
        Error: The copy could not start, for example because there is nothing to copy.
    """
    options = written(
        {
            "from": _location("from_", from_),
            "to": _location("to", to),
            "include": _list("include", include),
            "exclude": _list("exclude", exclude),
            "symlinks": symlinks,
            "existing": existing,
            "content_type": content_type,
            "dry_run": dry_run,
            "memory": _text(memory),
            "threads": threads,
            "strict": strict,
            "parse": parse,
            "encode": encode,
            "where": where,
            "set": _pairs("set", set),
            "keep": _names("keep", keep),
            "type": _pairs("type", type),
            "delimiter": delimiter,
            "charset": charset,
            "columns": _names("columns", columns),
            "template": template,
            "unordered": unordered,
            "restart": restart,
            "no_resume": no_resume,
            "mode": mode,
            "readers": readers,
            "writers": writers,
            "queue": queue,
            "slice_size": _text(slice_size),
            "part_size": _text(part_size),
        }
    )

    def report(*counters: float) -> None:
        if progress is not None:
            progress(CopyProgress(*counters))  # type: ignore[arg-type]

    result = _thalweg.copy(options, None if state is None else Path(state), None if progress is None else report)
    _thalweg.flush_logs()
    failure = result.pop("failure")
    result["planned"] = tuple(Planned(*planned) for planned in result["planned"])
    summary = CopySummary(**result)
    copied = summary.rows if summary.files is None else summary.files
    report(summary.read_bytes, summary.read_bytes, copied or 0, summary.errors, summary.seconds)
    if failure is not None:
        raise NotCopied(failure, summary)
    return summary


def written(options: Mapping[str, object]) -> str:
    """Returns the options of a copy in JSON, as the compiled part reads them."""
    return json.dumps({name: value for name, value in options.items() if value is not None})


def _location(name: str, location: Location) -> str:
    """Returns a location as text. A `Path` cannot end with a slash, so one of a folder means all that is in it."""
    if isinstance(location, str):
        return location
    if not isinstance(location, os.PathLike):
        raise TypeError(f"`{name}` is a text or a path, not {type(location).__name__}")
    path = os.fspath(location)
    return f"{path}/" if os.path.isdir(path) else path


def _text(value: Size | None) -> str | None:
    return None if value is None else str(value)


def _list(name: str, values: Patterns) -> list[str]:
    if isinstance(values, str):
        return [values]
    if not isinstance(values, Iterable):
        raise TypeError(f"`{name}` is a text or a sequence of texts, not {type(values).__name__}")
    return list(values)


def _names(name: str, values: Patterns) -> list[str]:
    """Splits names at commas."""
    return [one for value in _list(name, values) for one in value.split(",")]


def _pairs(name: str, values: Mapping[str, str] | None) -> list[tuple[str, str]]:
    if values is not None and not isinstance(values, Mapping):
        raise TypeError(f"`{name}` is a mapping, not {type(values).__name__}")
    return list((values or {}).items())
