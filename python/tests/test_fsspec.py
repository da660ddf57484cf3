"""The file system of fsspec, with files that change."""

import time
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import pytest
from web import Web

from thalweg.fsspec import ThalwegFileSystem


def system(**options: Any) -> ThalwegFileSystem:
    """Returns a new file system; fsspec itself keeps one for each set of options."""
    return ThalwegFileSystem(skip_instance_cache=True, **options)


def test_a_file_that_has_changed_is_read_anew(web: Web) -> None:
    url = web.put("a.bin", b"old bytes")
    files = system(check_after=0)
    assert files.cat_file(url) == b"old bytes"
    web.put("a.bin", b"new and longer bytes", tag="2")
    assert files.cat_file(url) == b"new and longer bytes"
    assert files.info(url)["size"] == 20
    assert files.cat_ranges([url, url], [0, 4], [3, 7]) == [b"new", b"and"]
    del web.files["a.bin"]
    assert not files.exists(url)


def test_a_change_is_seen_after_the_time_that_the_program_allows(web: Web) -> None:
    url = web.put("a.bin", b"old bytes")
    files = system(check_after=0.2)
    assert files.cat_file(url) == b"old bytes"
    web.put("a.bin", b"new bytes", tag="2")
    time.sleep(0.3)
    assert files.cat_file(url) == b"new bytes"


def test_a_file_that_has_not_changed_is_not_fetched_again(web: Web) -> None:
    url = web.put("a.bin", b"x" * 100_000)
    files = system(check_after=0)
    for _ in range(5):
        assert files.cat_file(url, 0, 1000) == b"x" * 1000
    fetched = web.given
    assert files.cat_file(url, 0, 1000) == b"x" * 1000
    # A check asks for the head of the file only.
    assert web.given - fetched < 100_000
    files = system(check_after=3600)
    assert files.cat_file(url) == b"x" * 100_000
    requests = len(web.requests)
    assert files.cat_file(url) == b"x" * 100_000
    assert len(web.requests) == requests


def test_invalidate_cache_forgets_one_file_or_all(web: Web) -> None:
    one, two = web.put("1.bin", b"old 1"), web.put("2.bin", b"old 2")
    files = system(check_after=3600)
    assert files.cat([one, two]) == {one: b"old 1", two: b"old 2"}
    web.put("1.bin", b"new 1", tag="2")
    web.put("2.bin", b"new 2", tag="2")
    assert files.cat_file(one) == b"old 1"
    files.invalidate_cache(one)
    assert (files.cat_file(one), files.cat_file(two)) == (b"new 1", b"old 2")
    files.invalidate_cache()
    assert files.cat_file(two) == b"new 2"


def test_invalidate_cache_reaches_the_file_system_behind(tmp_path: Path) -> None:
    forgotten: list[str | None] = []

    class Behind(fsspec.get_filesystem_class("file")):  # type: ignore[misc]
        protocol = "behind"

        def invalidate_cache(self, path: str | None = None) -> None:
            forgotten.append(path)

    fsspec.register_implementation("behind", Behind, clobber=True)
    files = system(target_protocol="behind")
    assert files.ls(str(tmp_path)) == []
    files.invalidate_cache("/a")
    files.invalidate_cache()
    assert forgotten == ["/a", None]


def test_a_change_between_two_reads_of_a_kept_file_is_no_error(web: Web) -> None:
    size = 40 << 20
    url = web.put("a.bin", b"a" * size)
    files = system(check_after=3600, remote={"whole": 0, "read_ahead": 0})
    assert files.cat_file(url, 0, 10) == b"a" * 10
    web.put("a.bin", b"b" * size, tag="2")
    assert files.cat_file(url, size - 10, size) == b"b" * 10


def test_a_local_file_that_was_written_again_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    files = system(check_after=0)
    assert files.cat_file(str(path)) == b"old"
    path.write_bytes(b"newer")
    assert files.cat_file(str(path)) == b"newer"
    path.unlink()
    with pytest.raises(FileNotFoundError):
        files.cat_file(str(path))
