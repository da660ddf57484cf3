"""Libraries that read files can read remote ones as well, and fetch only what they need."""

import io
import zipfile
from pathlib import Path

import fsspec  # type: ignore[import-untyped]
import h5py
import numpy
import pyarrow
import pyarrow.parquet
import pytest
import tifffile
from PIL import Image
from web import Web

import thalweg

NOISE = numpy.random.default_rng(1)


def test_tifffile_reads_one_page(web: Web) -> None:
    pages = NOISE.integers(0, 255, (40, 200, 200), dtype=numpy.uint8)
    made = io.BytesIO()
    tifffile.imwrite(made, pages, photometric="minisblack")
    with thalweg.open(web.put("pages.tif", made.getvalue())) as file, tifffile.TiffFile(file) as tiff:
        assert (tiff.pages[17].asarray() == pages[17]).all()
    assert web.given < len(made.getvalue()) / 4


def test_h5py_reads_one_row(web: Web) -> None:
    rows = NOISE.random((400, 1000))
    made = io.BytesIO()
    with h5py.File(made, "w") as written:
        written.create_dataset("rows", data=rows, chunks=(1, 1000))
    with thalweg.open(web.put("rows.h5", made.getvalue())) as file, h5py.File(file, "r") as read:
        assert (read["rows"][123] == rows[123]).all()
    assert web.given < len(made.getvalue()) / 4


def test_pyarrow_reads_one_column_of_one_group(web: Web) -> None:
    columns = {name: NOISE.integers(0, 1 << 40, 100_000) for name in "abcdefgh"}
    made = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), made, row_group_size=20_000)
    with thalweg.open(web.put("table.parquet", made.getvalue())) as file:
        table = pyarrow.parquet.ParquetFile(file, pre_buffer=False).read_row_group(2, columns=["d"])
        assert (table["d"].to_numpy() == columns["d"][40_000:60_000]).all()
    assert web.given < len(made.getvalue()) / 4


def test_zipfile_reads_one_member(web: Web) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as written:
        for at in range(50):
            written.writestr(f"member-{at}", bytes([at]) * 100_000)
    with thalweg.open(web.put("members.zip", made.getvalue())) as file, zipfile.ZipFile(file) as read:
        assert read.read("member-33") == bytes([33]) * 100_000
    assert web.given < len(made.getvalue()) / 4


def test_pillow_reads_the_head_of_a_picture(web: Web) -> None:
    made = io.BytesIO()
    Image.fromarray(NOISE.integers(0, 255, (600, 700, 3), dtype=numpy.uint8)).save(made, "png")
    with thalweg.open(web.put("noise.png", made.getvalue())) as file:
        with Image.open(file) as picture:
            assert (picture.size, picture.format) == ((700, 600), "PNG")
        assert web.given < len(made.getvalue()) / 4
        with Image.open(file) as picture:
            assert picture.getpixel((699, 599)) is not None


def chained(url: str) -> str:
    # An installed package is registered by its entry point. Without one, register it here.
    if "thalweg" not in fsspec.available_protocols():
        fsspec.register_implementation("thalweg", "thalweg.fsspec.ThalwegFileSystem")
    return f"thalweg::{url}"


def test_fsspec_opens_what_stands_behind_the_colons(web: Web, tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000
    path = tmp_path / "file"
    path.write_bytes(data)
    with fsspec.open(chained(path.as_uri()), thalweg={"cache": str(tmp_path / "cache")}) as file:
        assert isinstance(file, thalweg.RemoteFile)
        file.seek(1000)
        assert file.read(10) == data[1000:1010]
    with fsspec.open(chained(path.as_uri()), "rt", encoding="latin-1") as text:
        assert text.read(3) == "\0\1\2"
    system, found = fsspec.url_to_fs(chained(path.as_uri()))
    assert system.info(found)["size"] == system.size(found) == len(data)
    assert str(path) in system.ls(str(tmp_path), detail=False)
    assert system.exists(found)
    assert not system.exists(found + "-not")
    assert system.cat_file(found, 5, 9) == data[5:9]
    assert system.cat_file(found, -3) == data[-3:]
    assert system.cat_ranges([found] * 3, [0, 10, -2], [2, 12, None]) == [data[:2], data[10:12], data[-2:]]
    errors = system.cat_ranges([found + "-not"], 0, 1)
    assert isinstance(errors[0], FileNotFoundError)
    with system.open(str(tmp_path / "new"), "wb") as written:
        written.write(b"new")
    assert (tmp_path / "new").read_bytes() == b"new"


def test_fsspec_reads_the_web_in_ranges(web: Web) -> None:
    data = bytes(range(256)) * 10_000
    url = web.put("large", data)
    with fsspec.open(chained(url)) as file:
        file.seek(1_000_000)
        assert file.read(4) == data[1_000_000:1_000_004]
    assert web.given < 100_000


def test_fsspec_without_another_file_system_takes_urls_as_they_are(web: Web) -> None:
    chained("")
    system = fsspec.filesystem("thalweg")
    url = web.put("file", b"0123456789")
    assert system.cat_file(url, 2, 4) == b"23"
    assert system.info(url)["size"] == 10
    with pytest.raises(NotImplementedError, match="name a file system behind it"):
        system.ls(url)
    with pytest.raises(io.UnsupportedOperation, match="only reads"):
        system.open(url, "wb")


def test_options_of_the_service_become_those_of_the_url() -> None:
    from thalweg.fsspec import ThalwegFileSystem

    system = ThalwegFileSystem("s3", {"key": "k", "secret": "s+", "client_kwargs": {"endpoint_url": "http://h:1"}})

    class Target:
        @staticmethod
        def unstrip_protocol(path: str) -> str:
            return f"s3://{path}"

    system._target = Target
    assert (
        system.url("bucket/a key")
        == "s3://bucket/a key?access_key_id=k&secret_access_key=s%2B&endpoint=http%3A%2F%2Fh%3A1"
    )


def test_pyarrow_reads_through_fsspec_in_other_threads(web: Web) -> None:
    made = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"a": list(range(1000))}), made)
    chained("")
    system = fsspec.filesystem("thalweg")
    table = pyarrow.parquet.read_table(web.put("table.parquet", made.getvalue()), filesystem=system)
    assert table["a"].to_pylist() == list(range(1000))
