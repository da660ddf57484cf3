"""A custom reader: reads measurements of eight bytes each from files, slice by slice, into a table."""

import struct
import tempfile
from pathlib import Path

import pyarrow as pa

import thalweg
from thalweg import Pipeline, sources, transforms


class Measurements(thalweg.Reader):
    """Numbers of 64 bits. The leftover part of a number is passed again, followed by more bytes."""

    unpacks = True

    def __init__(self, big_endian: bool = False) -> None:
        self.order = ">" if big_endian else "<"

    def read(self, data: memoryview, at_end: bool) -> tuple[pa.RecordBatch, int]:
        count = len(data) // 8
        values = struct.unpack(f"{self.order}{count}d", data[: count * 8])
        return pa.record_batch({"value": pa.array(values, pa.float64())}), count * 8


with tempfile.TemporaryDirectory() as folder:
    for name in ("a", "b"):
        numbers = [float(number % 1000) for number in range(100_000)]
        (Path(folder) / f"{name}.bin").write_bytes(struct.pack(f"<{len(numbers)}d", *numbers))
    files = sources.files(path=Path(folder) / "*.bin")
    table = Pipeline(files, [transforms.reader(Measurements), transforms.filter("value < 500")]).table()
    print(f"{table.num_rows} of 200000 measurements, {sum(table['value'].to_pylist()):.0f} in all")
